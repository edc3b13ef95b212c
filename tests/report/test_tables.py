from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pandas as pd
import pytest

from algnn import methods
from algnn.report import tables
from algnn.report.table import Column

HERE = "A CPU, 4 cores"
SHARED = {"architecture": "x86_64", "processor": "A CPU", "cores": 4, "gpu": None, "jobs": 2}


def cells(table):
    """Texts of each row by heading; best ones with a star."""
    names = [column.name for column in table.columns]
    return [
        {
            name: text + "*" * (i in row.best)
            for i, (name, text) in enumerate(zip(names, table.texts(row), strict=True))
        }
        for row in table.rows
    ]


def seeds(last, seconds=(1.0, 1.0, 1.0), **changes):
    return [
        {"last": a, "seconds": s, "seed": 42 + i, **changes}
        for i, (a, s) in enumerate(zip(last, seconds, strict=True))
    ]


# -- accuracy -------------------------------------------------------------------------------------


def test_a_main_table_worked_out_by_hand(study_of):
    study = study_of(*seeds((7, 8, 9), (1.0, 2.0, 3.0), method="gem", dataset="cora"))
    (row,) = cells(tables.main(study, HERE, "cora"))
    # AP 60, 65 and 70: 4.302653 standard errors of 5 / sqrt 3
    assert row == {
        "method": "gem",
        "seeds": "3",
        "AP": "65.00 ± 12.42",
        "AP, paper": "45.34 ± 0.30",
        "AF": "10.00 ± 24.84",
        "AF, paper": "65.61 ± 2.43",
        "learn (s)": "2.00 ± 2.48",
        "mean AP": "77.5",
        "base": "90.0",
        "macro": "70.0",
        "micro": "70.0",
    }


def test_a_growing_graph_stands_beside_the_usual_one(study_of):
    study = study_of(
        *seeds((7, 8, 9), (1.0,) * 3, method="gem"),
        *seeds((9, 9, 9), (1.0,) * 3, method="gem", edges="seen"),
        *seeds((9, 9, 9), (1.0,) * 3, method="ewc", edges="seen"),
    )
    (row,) = cells(tables.seen_edges(study))
    assert (row["AP, all edges"], row["AP, seen edges"]) == ("65.0", "70.0")
    assert row["digits"] == "70.0 / 76.7"
    # a method that did not run on the whole graph stands in no such table
    assert [row["method"] for row in cells(tables.others(study))] == ["ewc"]
    # means are over the same graphs
    more = (
        seeds((1, 1, 1), method="gem", edges="seen", dataset="cora"),
        seeds((9, 9, 9), dataset="cora"),
    )
    (row,) = cells(
        tables.seen_edges(
            study_of(
                *seeds((7, 8, 9), method="gem"),
                *seeds((9, 9, 9), method="gem", edges="seen"),
                *more[0],
                *more[1],
            )
        )
    )
    assert (row["graphs"], row["AP, all edges"], row["AP, seen edges"]) == ("1", "65.0", "70.0")


@pytest.mark.parametrize("given", [{"step": 5}, {"order": "random-3"}])
def test_runs_that_no_main_table_has_room_for_are_shown(study_of, given):
    study = study_of(*seeds((7, 8, 9), **given))
    (row,) = cells(tables.others(study))
    assert row["AP"].startswith("65.00")


def test_the_best_is_among_those_that_do_not_see_old_labels(study_of):
    study = study_of(
        *seeds((7, 7, 7), (4.0,) * 3, method="gem"),
        *seeds((8, 8, 8), (5.0,) * 3, method="ewc"),
        *seeds((8, 8, 8), (6.0,) * 3, method="mine:Own"),
        *seeds((9, 9, 9), (0.1,) * 3, method="joint"),
    )
    table = tables.main(study, HERE, "digits")
    found = {row["method"]: row for row in cells(table)}
    assert [row.apart for row in table.rows] == [False, False, False, True]
    # two that look the same are both best
    assert found["ewc"]["AP"] == found["mine:Own"]["AP"] == "65.00 ± 0.00*"
    assert found["gem"]["learn (s)"] == "4.00 ± 0.00*"
    assert found["ewc"]["AF"] == "10.00 ± 0.00*"
    assert "*" not in "".join(found["joint"].values())
    assert "AP, paper" not in found["gem"]


def test_who_never_learns_is_not_the_best_at_not_forgetting(study_of, make):
    never = replace(make().outcome, correct=np.array([[3, 3, 0], [3, 3, 5]]))
    runs = [{"last": 7, "method": "bare"}, {"last": 8, "method": "ewc"}]
    table = tables.main(study_of(*runs, {"outcome": never, "method": "twp"}), HERE, "digits")
    found = {row["method"]: row["AF"] for row in cells(table)}
    # AP 60, 65 and 40
    assert found == {"bare": "20.00", "ewc": "10.00*", "twp": "0.00"}
    assert "AF is never marked as best where AP is below" in table.caption


def test_a_single_seed_has_no_interval_and_a_single_method_is_not_the_best(study_of):
    table = tables.main(study_of({"method": "gem"}), HERE, "digits")
    (row,) = cells(table)
    assert table.caption.startswith("2 sessions: 2 classes first, then one at a time.")
    assert (row["AP"], row["learn (s)"]) == ("65.00", "1.00")


def test_time_on_a_shared_machine_is_left_out(study_of):
    study = study_of(
        {"method": "gem", "machine": SHARED},
        {"method": "ewc", "machine": SHARED, "seconds": 9.0},
        {"method": "ewc", "seed": 43, "seconds": 3.0},
    )
    table = tables.main(study, HERE, "digits")
    found = {row["method"]: (row["learn (s)"], row["seeds"]) for row in cells(table)}
    assert found == {"gem": ("–", "1"), "ewc": ("3.00", "2")}
    assert "shared the machine" in table.caption


@pytest.mark.parametrize("graph", ["corafull-graph", "arxiv-graph", "digits", "pubmed"])
def test_the_papers_figures_stand_beside_the_papers_data_only(study_of, graph):
    study = study_of({"method": "gem", "dataset": graph}, {"method": "algnn-paper"})
    assert "AP, paper" not in cells(tables.main(study, HERE, graph))[0]


def test_other_settings_streams_and_machines_do_not_enter(study_of):
    usual = methods.settings("gem", "digits")
    study = study_of(
        {"method": "gem", "last": 9},
        {"method": "gem", "seed": 43, "last": 1, "settings": {**usual, "budget": 12}},
        {"method": "gem", "seed": 44, "last": 1, "edges": "seen"},
        {"method": "gem", "seed": 45, "last": 1, "step": 5},
        {"method": "gem", "seed": 46, "last": 1, "machine": {**SHARED, "cores": 8}},
    )
    (row,) = cells(tables.main(study, HERE, "digits"))
    assert (row["seeds"], row["AP"]) == ("1", "70.00")


def test_the_leaderboard_has_means_and_every_graph(study_of):
    given = [("gem", "cora", 8), ("gem", "digits", 8), ("ewc", "cora", 7), ("ewc", "digits", 9),
             ("lwf", "cora", 9), ("joint", "cora", 9), ("joint", "digits", 9)]  # fmt: skip
    study = study_of(*({"method": m, "dataset": graph, "last": x} for m, graph, x in given))
    rows = cells(tables.leaderboard(study))
    assert [tuple(row.values()) for row in rows] == [
        ("ewc", "1.5", "65.0", "70.0", "2 of 2", "–", "60.0 / 63.3", "70.0 / 76.7"),
        ("gem", "1.5", "65.0", "70.0", "2 of 2", "–", "65.0 / 70.0", "65.0 / 70.0"),
        ("lwf", "–", "–", "–", "1 of 2", "–", "70.0 / 76.7", "–"),
        ("joint", "–", "70.0", "76.7", "2 of 2", "–", "70.0 / 76.7", "70.0 / 76.7"),
    ]


def test_by_step_with_the_papers(study_of):
    study = study_of(
        {"method": "gem", "dataset": "reddit", "last": 9},
        {"method": "gem", "dataset": "reddit", "last": 5, "step": 5},
        {"method": "ewc", "dataset": "reddit", "last": 8},
    )
    assert cells(tables.by_step(study, HERE, "reddit")) == [
        {"method": "ewc", "step 1": "65.00", "step 1, paper": "7.42 ± 0.64", "step 5": "–",
         "step 5, paper": "29.70"},
        {"method": "gem", "step 1": "70.00*", "step 1, paper": "66.96 ± 0.25", "step 5": "50.00",
         "step 5, paper": "33.82"},
    ]  # fmt: skip


def test_calibration_and_novelty_worked_out_by_hand(study_of, make):
    def sure(method, seed, error, told):
        bins = np.zeros((15, 3))
        bins[14] = 20, 19, 18
        measured = {"calibration_errors": (0.3, error), "novelty_aurocs": (told,)}
        outcome = replace(make().outcome, **measured, reliability=bins)
        return {"outcome": outcome, "method": method, "seed": seed}

    study = study_of(
        sure("gem", 1, 0.02, 0.8),
        sure("gem", 2, 0.04, 0.9),
        sure("ewc", 1, 0.05, 0.7),
        sure("joint", 1, 0.01, 0.99),
        # older records, which did not measure it
        {"method": "ewc", "seed": 2},
        {"method": "ewc", "dataset": "cora"},
        {"method": "lwf"},
    )
    # t = 12.706205 for two seeds
    assert cells(tables.trust(study, HERE)) == [
        {"method": "ewc", "digits ECE": "0.050", "digits AUROC": "0.700"},
        {"method": "gem", "digits ECE": "0.030 ± 0.127*", "digits AUROC": "0.850 ± 0.635*"},
        {"method": "joint", "digits ECE": "0.010", "digits AUROC": "0.990"},
    ]
    assert tables.trust(study_of({}), HERE) is None


# -- memory and speed -----------------------------------------------------------------------------


def test_what_is_retained(study_of):
    study = study_of(
        *(
            {"method": "cat", "kept": kept, "seed": i}
            for i, kept in enumerate((10, 3_456_789, 4e9))
        ),
        {"method": "mine:Own", "kept": 12},
    )
    cat, own = cells(tables.retained(study))
    assert cat == {
        "method": "cat",
        "keeps between sessions": "weights, synthetic nodes and labels",
        "keeps, paper": "Condensed replay graph",
        "space, paper": "O(M_c(d+k̄))",
        "digits": "3.46 MB",
    }
    assert list(own.values()) == ["mine:Own", "–", "–", "–", "12 B"]


def test_ratios_are_of_the_same_seed_and_their_median(study_of):
    study = study_of(
        *seeds((8, 8, 8), (1.0, 2.0, 4.0), dataset="cora", method="algnn-paper"),
        *seeds((8, 8, 8), (3.0, 8.0, 8.0), dataset="cora", method="bare"),
        *seeds((8, 8, 8), (9.0, 9.0, 9.0), dataset="cora", method="gem"),
        *seeds((8, 8, 8), (0.1, 0.1, 0.1), dataset="cora", method="slda"),
        {"dataset": "cora", "method": "ewc", "seed": 99, "seconds": 0.1},
        {"dataset": "cora", "method": "mas", "machine": SHARED, "seconds": 0.1},
    )
    assert tables.ratios(study, HERE, "cora", "bare") == [3.0, 4.0, 2.0]
    assert tables.ratios(study, HERE, "cora", "ewc") == []
    assert tables.ratios(study, HERE, "cora", "mas") == []
    assert tables.fastest(study, HERE) == [3.0]
    found = {row["method"]: row for row in cells(tables.speeds(study, HERE))}
    assert found["gem"]["cora"] == f"{median([9.0, 4.5, 2.25]):.2f}×"
    assert found["gem"]["cora, paper"] == "18.2×"
    assert found["algnn-paper"]["cora"] == "1.00×"
    assert found["slda"]["cora"] == "0.0500×"
    # a figure of the paper's alone is shown all the same
    assert found["mas"]["cora"] == "–"


def test_no_table_without_a_run_for_it(study_of):
    assert tables.fastest(study_of({"method": "bare"}), HERE) == []
    assert tables.speeds(study_of({"method": "algnn-paper"}), HERE) is None
    study = study_of({})
    assert tables.sensitivity(study, "width") is None
    assert tables.others(study) is None
    assert tables.failed(study) is None


# -- other runs -----------------------------------------------------------------------------------


def test_sensitivity_holds_the_runs_that_differ_in_one_setting_alone(study_of):
    usual = methods.settings("algnn-paper", "cora")
    same = {"dataset": "cora", "method": "algnn-paper"}
    study = study_of(
        {**same, "last": 8},
        {**same, "last": 9, "settings": {**usual, "width": 128}},
        {**same, "last": 1, "settings": {**usual, "width": 256, "gamma": 5.0}},
        {**same, "last": 7, "settings": {**usual, "gamma": 1e-3}},
        {**same, "last": 2, "settings": {**usual, "width": 64}, "step": 5},
    )
    rows = cells(tables.sensitivity(study, "width"))
    assert [(row["width"], row["AP"]) for row in rows] == [("128", "70.00"), ("2048", "65.00")]
    rows = cells(tables.sensitivity(study, "gamma"))
    assert [(row["γ"], row["AP"]) for row in rows] == [("0.001", "60.00"), ("1", "65.00")]
    rows = cells(tables.others(study))
    assert [(row["what differs"], row["step"], row["AP"]) for row in rows] == [
        ("gamma=5, width=256", "1", "30.00"),
        ("width=64", "5", "35.00"),
    ]


@pytest.mark.parametrize("value", [0.0, -1.0, None])
def test_what_cannot_be_a_point_of_a_sweep_is_not_lost(study_of, value):
    settings = {**methods.settings("algnn-paper", "digits"), "gamma": value}
    if value is None:
        del settings["gamma"]
    study = study_of({"method": "algnn-paper", "settings": settings})
    assert tables.sensitivity(study, "gamma") is None
    (row,) = cells(tables.others(study))
    assert row["what differs"] in ("gamma=0", "gamma=-1", "gamma not recorded")


def test_one_class_is_no_classes(study_of, long_run):
    study = study_of({"base": 1, "outcome": long_run(2, 1, 0.5, 1.0, 1)})
    table = tables.main(study, HERE, "digits")
    assert table.caption.startswith("2 sessions: 1 class first, then")


@pytest.mark.parametrize("own", [None, "auto"])
def test_a_learner_whose_own_setting_is_no_number_can_be_swept(study_of, own):
    mine = {"method": "my.module:Mine"}
    given = [{**mine, "settings": {"width": own}, "seed": seed} for seed in (1, 2, 3)]
    study = study_of(*given, {**mine, "settings": {"width": 64}, "seed": 1})
    (row,) = cells(tables.sensitivity(study, "width"))
    assert row["width"] == "64"


def test_failures(study_of):
    failure = {"method": "gem", "dataset": "digits", "step": 1, "seed": 42, "device": "cuda"}
    failures = pd.DataFrame([{**failure, "split": "test", "reason": "killed by signal 9"}])
    (row,) = cells(tables.failed(replace(study_of({}), failures=failures)))
    assert list(row.values()) == ["gem", "digits", "1", "42", "cuda", "killed by signal 9"]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("points", -0.421, "−0.42"),
        ("points", -0.004, "0.00"),
        ("seconds", 123456.7, "123,457"),
        ("seconds", 0.0, "0.00"),
        ("seconds", 0.01234, "0.0123"),
        ("ratio", 0.9996, "1.00×"),
        ("bytes", 999_999, "1.00 MB"),
        ("bytes", 0, "0 B"),
        ("setting", 1e-4, "0.0001"),
        ("points", None, "–"),
    ],
)
def test_how_values_are_written(kind, value, text):
    assert Column("x", kind).write(value) == text
