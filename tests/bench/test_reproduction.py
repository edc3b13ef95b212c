"""A committed record can be had again from its own settings, on any CPU."""

from pathlib import Path

import numpy as np
import pytest

from algnn import ClassStream, load, methods
from algnn.bench.runs import read_runs

FOLDER = Path(__file__).parents[2] / "docs" / "records" / "cpu"
SESSIONS = 2


@pytest.mark.parametrize("method", ["algnn", "algnn-paper", "bare", "cat"])
def test_a_committed_record_is_reproduced(method):
    """The first rows of the same matrix, to within one test node per cell."""
    runs = read_runs(FOLDER).query("dataset == 'digits' and method == @method and seed == 42")
    (record,) = runs.itertuples()
    graph = load("digits")
    assert record.provenance["sha256"] == graph.provenance["sha256"]
    learner = methods.make(method, "digits", record.seed, "cpu", **record.settings)
    stream = ClassStream(graph, record.base, record.step, record.order, record.edges, record.seed)
    assert tuple(stream.classes) == record.outcome.sessions
    tested, y = graph.test_mask, graph.y.numpy()
    columns = [c for part in stream.classes for c in part]
    ends = np.cumsum([0, *(len(part) for part in stream.classes)])[:-1]
    for index in range(SESSIONS):
        session = stream[index]
        learner.partial_fit(session.graph, session.nodes, session.labels)
        right = y[tested][learner.predict(graph, tested) == y[tested]]
        found = np.array([(right == c).sum() for c in columns])
        cells = [np.add.reduceat(c, ends) for c in (found, record.outcome.correct[index])]
        assert cells[0][index] > 0
        assert np.abs(cells[0] - cells[1]).max() <= 1
