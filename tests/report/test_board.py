from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from algnn.report.board import _short, board, family, standings

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 1}


def runs(table):
    """Runs of a table method → graph → last, whose AP is 5·last + 25."""
    return [
        {"method": method, "dataset": graph, "last": last}
        for method, found in table.items()
        for graph, last in found.items()
    ]


def test_ranks_worked_out_by_hand(study_of):
    study = study_of(
        *runs(
            {
                "gem": {"cora": 9, "citeseer": 7, "pubmed": 8, "odd.npz": 9},
                "ewc": {"cora": 8, "citeseer": 7, "pubmed": 9},
                "lwf": {"cora": 7, "citeseer": 9, "pubmed": 2},
                "mas": {"cora": 9},
                "joint": {"cora": 9, "citeseer": 9, "pubmed": 9},
            }
        )
    )
    found, graphs = standings(study)
    # one method alone has no rivals on odd.npz
    assert graphs == ["cora", "citeseer", "pubmed"]
    # without mas, which ran on one of them: gem 1, ewc 2, lwf 3 on cora; on citeseer lwf 1, the
    # others share 2.5
    assert found["rank"].dropna().to_dict() == pytest.approx(
        {"gem": (1 + 2.5 + 2) / 3, "ewc": (2 + 2.5 + 1) / 3, "lwf": (3 + 1 + 3) / 3}
    )
    assert list(found.index) == ["ewc", "gem", "lwf", "mas", "joint"]
    assert found.ap["gem"] == pytest.approx((70 + 60 + 65) / 3)
    # a third of the graphs is too few for a mean; who sees every label again is not ranked
    assert found.loc["mas", ["rank", "ap", "micro"]].isna().all()
    assert found.on["mas"] == 1
    assert np.isnan(found["rank"]["joint"])
    assert found.ap["joint"] == 70


def test_accuracy_of_another_machine_counts_and_its_time_does_not(study_of):
    study = study_of(
        *({"method": name, "seconds": 2.0} for name in ("gem", "ewc")),
        {"method": "lwf", "last": 9, "device": "cuda", "machine": GPU, "seconds": 0.1},
        # on the machine with more runs, this one alone counts
        {"method": "gem", "seed": 7, "last": 2, "device": "cuda", "machine": GPU},
    )
    cells = board(study)["cells"]["digits"]
    assert cells["lwf"]["ap"] == [70.0, None]
    assert cells["lwf"]["machine"] == "A GPU"
    assert "seconds" not in cells["lwf"]
    assert "times" not in cells["lwf"]
    assert (cells["gem"]["ap"], cells["gem"]["seeds"]) == ([65.0, None], 1)
    assert cells["gem"]["seconds"] == [2.0, None]


def test_what_the_chart_is_drawn_from(make, study_of):
    bins = np.zeros((15, 3))
    bins[9], bins[14] = (1, 0.6, 1), (199, 190, 150)
    outcome = make(last=8, seconds=3.0).outcome
    more = {"calibration_errors": (0.1, 0.2), "novelty_aurocs": (0.7,), "reliability": bins}
    study = study_of(
        {"method": "gem", "outcome": replace(outcome, **more)},
        {"method": "gem", "step": 2, "last": 9},
    )
    (cell,) = board(study)["cells"]["digits"].values()
    assert cell["stages"] == [[90.0, 65.0], [None, None]]
    assert cell["matrix"] == [[90], [80, 50]]
    assert cell["times"] == [[1.5, 3.0]]
    assert cell["kept"] == [[800.0, 4000.0]]
    assert cell["novelty"] == [[0.7], [None]]
    # a bin with one of 200 nodes says nothing
    assert cell["curve"] == [[0.75377], [], [0.95477]]
    assert cell["steps"] == [[65.0, 70.0], [None, None], [1, 2]]


@pytest.mark.parametrize(
    ("value", "digits", "short"),
    [(58.34979, 5, 58.3498), (5.2496, 3, 5.2496), (-0.2499, 2, -0.2499), (58.35, 5, 58.35),
     (58.34321, 5, 58.343), (None, 5, None)],
)  # fmt: skip
def test_no_number_is_rounded_twice(value, digits, short):
    assert _short(value, digits) == short


def test_the_board_is_plain_json(rich_study, nasty):
    found = board(rich_study)
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    assert [graph["name"] for graph in found["graphs"]] == ["cora", "corafull-graph"]
    assert {method["name"] for method in found["methods"]} == set(rich_study.methods())
    assert family(nasty) == "your own"
    families = list(found["families"])
    assert (families[0], families[-1]) == ("analytic", "your own")
