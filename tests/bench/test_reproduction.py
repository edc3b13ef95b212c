"""A committed record can be had again from its own settings, on any CPU."""

from pathlib import Path

import numpy as np
import pytest

from algnn import ClassStream, load, methods
from algnn.bench.protocol import run
from algnn.bench.runs import read_runs

FOLDER = Path(__file__).parents[2] / "docs" / "records" / "cpu"


@pytest.mark.parametrize("method", ["algnn", "algnn-paper", "bare", "cat"])
def test_a_committed_record_is_reproduced(method):
    """The same matrix to within one test node per cell."""
    runs = read_runs(FOLDER).query("dataset == 'digits' and method == @method and seed == 42")
    (record,) = runs.itertuples()
    graph = load("digits")
    assert record.provenance["sha256"] == graph.provenance["sha256"]
    learner = methods.make(method, "digits", record.seed, "cpu", **record.settings)
    stream = ClassStream(graph, record.base, record.step, record.order, record.edges, record.seed)
    found = run(learner, stream)
    assert found.sessions == record.outcome.sessions
    assert np.array_equal(found.total, record.outcome.total)
    cells = [
        np.add.reduceat(c, _starts(found.sessions), axis=1)
        for c in (found.correct, record.outcome.correct)
    ]
    assert np.abs(cells[0] - cells[1]).max() <= 1


def _starts(sessions):
    """Where each session's classes start among the columns."""
    return np.cumsum([0, *(len(part) for part in sessions[:-1])])
