"""The paper's figures as printed, and committed records that can be had again."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from algnn import ClassStream, load, methods
from algnn.bench.runs import read_runs
from algnn.report.paper import (
    PAPER_DATASETS,
    PAPER_METHODS,
    SPACE,
    TABLES,
    paper_figures,
)

DATASETS = {"cora", "citeseer", "corafull", "reddit", "arxiv", "computers"}
METHODS = {
    *("bare", "cat", "cgnn", "ergnn", "ewc", "gem", "lwf", "mas", "pignn", "twp", "algnn-paper")
}


def test_every_method_on_every_dataset() -> None:
    assert set(TABLES) == DATASETS
    for dataset in DATASETS:
        assert set(TABLES[dataset]) == METHODS


@pytest.mark.parametrize(
    ("dataset", "method", "ap", "af", "seconds"),
    [
        ("cora", "algnn-paper", (75.86, 1.76), (9.81, 2.06), (1.08, 0.11)),
        ("citeseer", "algnn-paper", (64.15, 4.31), (20.51, 2.13), (0.53, 0.61)),
        ("computers", "algnn-paper", (80.15, 4.60), (13.78, 6.61), (0.39, 0.03)),
        ("cora", "bare", (27.67, 3.78), (90.74, 4.83), (5.90, 0.4)),
        ("citeseer", "twp", (25.03, 0.13), (87.09, 0.06), (20.90, 5.4)),
        ("corafull", "gem", (2.78, 1.78), (99.24, 4.83), (1969.90, 35.2)),
        ("reddit", "pignn", (54.31, 1.65), (37.91, 0.13), (1231.50, 8.2)),
        ("arxiv", "ewc", (2.23, 1.28), (83.66, 0.12), (95.78, 0.8)),
        ("computers", "ergnn", (79.19, 0.08), (22.73, 0.28), (6.87, 0.3)),
    ],
)
def test_as_printed(
    dataset: str,
    method: str,
    ap: tuple[float, float],
    af: tuple[float, float],
    seconds: tuple[float, float],
) -> None:
    found = paper_figures(dataset, method)
    assert found is not None
    assert (found.ap, found.af, found.seconds) == (ap, af, seconds)


@pytest.mark.parametrize(
    ("dataset", "method", "step", "ap"),
    [
        ("corafull", "algnn-paper", 10, 52.80),
        ("corafull", "mas", 10, 55.86),
        ("arxiv", "pignn", 5, 53.90),
        ("arxiv", "cgnn", 10, 54.47),
        ("reddit", "algnn-paper", 5, 87.27),
        ("reddit", "bare", 10, 34.79),
    ],
)
def test_by_step(dataset: str, method: str, step: int, ap: float) -> None:
    found = paper_figures(dataset, method, step)
    assert found is not None
    assert found.ap == (ap, None)
    assert found.af is None


def test_both_tables_agree_on_the_analytic_method() -> None:
    for dataset in ("corafull", "arxiv", "reddit"):
        entry = TABLES[dataset]["algnn-paper"]
        assert entry["ap_by_step"]["1"] == entry["ap"][0]


def test_what_the_paper_does_not_have() -> None:
    assert paper_figures("digits", "algnn-paper") is None
    assert paper_figures("cora", "algnn") is None
    assert paper_figures("cora", "algnn-paper", step=5) is None
    assert paper_figures("reddit", "algnn-paper", step=2) is None
    assert paper_figures("corafull-graph", "algnn-paper") is None


def test_what_the_paper_says_of_space() -> None:
    assert set(PAPER_METHODS) == METHODS
    assert set(SPACE) == METHODS
    assert SPACE["cgnn"] == ["Replay graph information", "O(M(d+k̄))"]
    assert SPACE["algnn-paper"][1] == "O(R)"


def test_the_datasets() -> None:
    assert set(PAPER_DATASETS) == DATASETS


# -- a committed record, had again from its own settings ------------------------------------------


FOLDER = Path(__file__).parents[2] / "docs" / "records" / "cpu"
SESSIONS = 2
committed = cache(lambda: read_runs(FOLDER))


@pytest.mark.parametrize("method", ["algnn", "algnn-paper", "cat"])
def test_a_committed_record_is_reproduced(method):
    """The first rows of the same matrix, to within one test node per cell."""
    runs = committed().query("dataset == 'digits' and method == @method and seed == 42")
    assert len(runs)
    for record in runs.itertuples():
        reproduce(record, method)


def reproduce(record, method):
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
