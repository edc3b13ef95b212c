from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from algnn import methods
from algnn.bench.records import Failure
from algnn.report import tables
from algnn.report.evidence import example
from algnn.report.sheet import Column

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


# -- calibration and novelty ----------------------------------------------------------------------


def sure(last, errors, told):
    """An outcome that ends with this calibration error."""
    bins = np.zeros((15, 3))
    bins[14] = 20, 19, 18
    return replace(
        example().outcome, calibration_errors=errors, novelty_aurocs=told, reliability=bins
    )


def test_calibration_and_novelty_worked_out_by_hand(make_study):
    study = make_study(
        {"outcome": sure(8, (0.3, 0.02), (0.8,)), "method": "gem", "seed": 1},
        {"outcome": sure(8, (0.1, 0.04), (0.9,)), "method": "gem", "seed": 2},
        {"outcome": sure(8, (0.0, 0.05), (0.7,)), "method": "ewc", "seed": 1},
        {"outcome": sure(8, (0.0, 0.01), (0.99,)), "method": "joint", "seed": 1},
        # an older record, of another graph too: it has nothing to say here
        {"method": "ewc", "seed": 2},
        {"method": "ewc", "dataset": "cora"},
        {"method": "lwf"},
    )
    # two seeds: t = 12.706205, so half the interval is 12.706205 · deviation / √2
    assert cells(tables.trust(study, HERE, "1.3")) == [
        {"method": "ewc", "digits ECE": "0.050", "digits AUROC": "0.700"},
        {"method": "gem", "digits ECE": "0.030 ± 0.127*", "digits AUROC": "0.850 ± 0.635*"},
        {"method": "joint", "digits ECE": "0.010", "digits AUROC": "0.990"},
    ]


def test_records_without_calibration_have_no_such_table(make_study):
    assert tables.trust(make_study({"method": "gem"}), HERE, "1.3") is None


def test_a_stream_of_one_session_has_nothing_new(make_study):
    only = replace(
        sure(8, (0.25,), ()), sessions=((0, 1, 2),), correct=np.array([[9, 9, 9]]),
        learn_seconds=(1.0,), predict_seconds=(1.0,), retained_bytes=(8,),
    )  # fmt: skip
    study = make_study({"outcome": only, "method": "gem", "base": 2})
    (row,) = cells(tables.trust(study, HERE, "1.3"))
    assert row == {"method": "gem", "digits ECE": "0.250", "digits AUROC": "–"}


# -- the main table -------------------------------------------------------------------------------


def test_a_row_of_the_main_table_worked_out_by_hand(make_study):
    # AP 60, 65, 70: mean 65, sample deviation 5, t = 4.302653 for two degrees of freedom
    study = make_study(*seeds((7, 8, 9), (1.0, 2.0, 3.0), dataset="cora", method="gem"))
    (row,) = cells(tables.main(study, HERE, "cora", "1.1"))
    assert row == {
        "method": "gem",
        "seeds": "3",
        "AP": "65.00 ± 12.42",
        "AP, paper": "45.34 ± 0.30",
        "AF": "10.00 ± 24.84",
        "AF, paper": "65.61 ± 2.43",
        "learn (s)": "2.00 ± 2.48",
        "base": "90.0",
        "macro": "70.0",
        "micro": "70.0",
    }


def test_the_best_is_among_those_that_do_not_see_old_labels(make_study):
    study = make_study(
        *seeds((7, 7, 7), (4.0,) * 3, method="gem"),
        *seeds((8, 8, 8), (5.0,) * 3, method="ewc"),
        *seeds((8, 8, 8), (6.0,) * 3, method="mine:Own"),
        *seeds((9, 9, 9), (0.1,) * 3, method="joint"),
    )
    table = tables.main(study, HERE, "digits", "1.1")
    found = {row["method"]: row for row in cells(table)}
    assert [row.apart for row in table.rows] == [False, False, False, True]
    # two that look the same are both best
    assert found["ewc"]["AP"] == found["mine:Own"]["AP"] == "65.00 ± 0.00*"
    assert found["gem"]["learn (s)"] == "4.00 ± 0.00*"
    assert found["ewc"]["AF"] == "10.00 ± 0.00*"
    assert "*" not in "".join(found["joint"].values())
    assert "AP, paper" not in found["gem"]


def test_a_single_seed_has_no_interval_and_a_single_method_is_not_the_best(make_study):
    study = make_study({"method": "gem"})
    (row,) = cells(tables.main(study, HERE, "digits", "1.1"))
    assert row["AP"] == "65.00"
    assert row["learn (s)"] == "1.00"


def test_time_on_a_shared_machine_is_left_out(make_study):
    study = make_study(
        {"method": "gem", "machine": SHARED},
        {"method": "ewc", "machine": SHARED, "seconds": 9.0},
        {"method": "ewc", "seed": 43, "seconds": 3.0},
    )
    table = tables.main(study, HERE, "digits", "1.1")
    found = {row["method"]: row for row in cells(table)}
    assert found["gem"]["learn (s)"] == "–"
    assert found["ewc"]["learn (s)"] == "3.00"
    assert found["ewc"]["seeds"] == "2"
    assert "shared the machine" in table.caption


@pytest.mark.parametrize("graph", ["corafull-graph", "arxiv-graph", "digits", "pubmed"])
def test_the_papers_figures_stand_beside_the_papers_data_only(make_study, graph):
    study = make_study({"method": "gem", "dataset": graph}, {"method": "algnn-paper"})
    assert "AP, paper" not in cells(tables.main(study, HERE, graph, "1.1"))[0]


def test_other_settings_streams_and_machines_do_not_enter(make_study):
    usual = methods.settings("gem", "digits")
    study = make_study(
        {"method": "gem", "last": 9},
        {"method": "gem", "seed": 43, "last": 1, "settings": {**usual, "budget": 12}},
        {"method": "gem", "seed": 44, "last": 1, "edges": "seen"},
        {"method": "gem", "seed": 45, "last": 1, "step": 5},
        {"method": "gem", "seed": 46, "last": 1, "machine": {**SHARED, "cores": 8}},
    )
    (row,) = cells(tables.main(study, HERE, "digits", "1.1"))
    assert (row["seeds"], row["AP"]) == ("1", "70.00")


def test_overview(make_study):
    study = make_study(
        {"method": "gem", "dataset": "cora"},
        {"method": "ewc", "dataset": "cora", "last": 9},
        {"method": "gem", "dataset": "digits"},
    )
    assert cells(tables.overview(study, HERE, "1")) == [
        {"method": "ewc", "digits": "–", "cora": "70.00*"},
        {"method": "gem", "digits": "65.00", "cora": "65.00"},
    ]


# -- steps and memory -----------------------------------------------------------------------------


def test_by_step_with_the_papers(make_study):
    study = make_study(
        {"method": "gem", "dataset": "reddit", "last": 9},
        {"method": "gem", "dataset": "reddit", "last": 5, "step": 5},
        {"method": "ewc", "dataset": "reddit", "last": 8},
    )
    assert cells(tables.by_step(study, HERE, "reddit", "2")) == [
        {"method": "ewc", "step 1": "65.00", "step 1, paper": "7.42 ± 0.64", "step 5": "–",
         "step 5, paper": "29.70"},
        {"method": "gem", "step 1": "70.00*", "step 1, paper": "66.96 ± 0.25", "step 5": "50.00",
         "step 5, paper": "33.82"},
    ]  # fmt: skip


def test_what_is_retained(make_study):
    study = make_study(
        *(
            {"method": "cat", "kept": kept, "seed": i}
            for i, kept in enumerate((10, 3_456_789, 4e9))
        ),
        {"method": "mine:Own", "kept": 12},
    )
    cat, own = cells(tables.retained(study, "3"))
    assert cat == {
        "method": "cat",
        "keeps between sessions": "weights, synthetic nodes and labels",
        "keeps, paper": "Condensed replay graph",
        "space, paper": "O(M_c(d+k̄))",
        "digits": "3.46 MB",
    }
    assert own == {
        "method": "mine:Own", "keeps between sessions": "–", "keeps, paper": "–",
        "space, paper": "–", "digits": "12 B",
    }  # fmt: skip


# -- speed ----------------------------------------------------------------------------------------


def test_ratios_are_of_the_same_seed_and_their_median(make_study):
    study = make_study(
        *seeds((8, 8, 8), (1.0, 2.0, 4.0), dataset="cora", method="algnn-paper"),
        *seeds((8, 8, 8), (3.0, 8.0, 8.0), dataset="cora", method="bare"),
        *seeds((8, 8, 8), (9.0, 9.0, 9.0), dataset="cora", method="gem"),
        *seeds((8, 8, 8), (0.1, 0.1, 0.1), dataset="cora", method="slda"),
        {"dataset": "cora", "method": "ewc", "seed": 99, "seconds": 0.1},
        {"dataset": "cora", "method": "mas", "machine": SHARED, "seconds": 0.1},
    )
    assert tables.speed(study, HERE, "cora", "bare") == [3.0, 4.0, 2.0]
    assert tables.speed(study, HERE, "cora", "ewc") == []
    assert tables.speed(study, HERE, "cora", "mas") == []
    # two sessions; the paper's fastest baseline is cgnn: 5.82 s over 1.08 s
    assert cells(tables.fastest(study, HERE, "4.1")) == [
        {"graph": "cora", "fastest baseline": "bare", "its time": "3.00×", "ceiling": "2.00×",
         "seeds": "3", "fastest, paper": "cgnn", "its time, paper": "5.39×"},
    ]  # fmt: skip
    found = {row["method"]: row for row in cells(tables.speeds(study, HERE, "4.2"))}
    assert found["gem"] == {
        "method": "gem",
        "cora": f"{median([9.0, 4.5, 2.25]):.2f}×",
        "cora, paper": "18.2×",
    }
    assert found["algnn-paper"]["cora"] == "1.00×"
    assert found["slda"]["cora"] == "0.0500×"
    # a figure of the paper's alone is shown all the same
    assert found["mas"]["cora"] == "–"


def test_the_ceiling_counts_epochs(make_study):
    study = make_study(
        {"dataset": "arxiv", "method": "algnn-paper"},
        {"dataset": "arxiv", "method": "bare"},
    )
    epochs = methods.settings("bare", "arxiv")["epochs"]
    assert methods.settings("algnn-paper", "arxiv")["epochs"] == 1
    (row,) = cells(tables.fastest(study, HERE, "4"))
    assert row["ceiling"] == f"{2 * epochs:.0f}×"


def test_no_speed_without_something_to_compare(make_study):
    assert tables.fastest(make_study({"method": "bare"}), HERE, "4") is None
    assert tables.speeds(make_study({"method": "algnn-paper"}), HERE, "4") is None


# -- other runs -----------------------------------------------------------------------------------


def test_sensitivity_holds_the_runs_that_differ_in_one_setting_alone(make_study):
    usual = methods.settings("algnn-paper", "cora")
    same = {"dataset": "cora", "method": "algnn-paper"}
    study = make_study(
        {**same, "last": 8},
        {**same, "last": 9, "settings": {**usual, "width": 128}},
        {**same, "last": 1, "settings": {**usual, "width": 256, "gamma": 5.0}},
        {**same, "last": 7, "settings": {**usual, "gamma": 1e-3}},
        {**same, "last": 2, "settings": {**usual, "width": 64}, "step": 5},
    )
    rows = cells(tables.sensitivity(study, "width", "6"))
    assert [(row["width"], row["AP"]) for row in rows] == [("128", "70.00"), ("2048", "65.00")]
    rows = cells(tables.sensitivity(study, "gamma", "6"))
    assert [(row["γ"], row["AP"]) for row in rows] == [("0.001", "60.00"), ("1", "65.00")]
    rows = cells(tables.others(study, "7"))
    assert [(row["what differs"], row["step"], row["AP"]) for row in rows] == [
        ("gamma=5, width=256", "1", "30.00"),
        ("width=64", "5", "35.00"),
    ]


@pytest.mark.parametrize("value", [0.0, -1.0, "not recorded"])
def test_what_cannot_be_a_point_of_a_sweep_is_not_lost(make_study, value):
    settings = methods.settings("algnn-paper", "digits")
    changed = {**settings, "gamma": value}
    if isinstance(value, str):
        del changed["gamma"]
    study = make_study({"method": "algnn-paper", "settings": changed})
    assert tables.sensitivity(study, "gamma", "6") is None
    (row,) = cells(tables.others(study, "7"))
    assert row["what differs"] in ("gamma=0", "gamma=-1", "gamma not recorded")


def test_no_table_without_a_run_for_it(make_study):
    study = make_study({})
    assert tables.sensitivity(study, "width", "6") is None
    assert tables.others(study, "7") is None
    assert tables.failed(study, "8") is None


def test_failures(make_study):
    facts = ("digits", {}, "gem", {}, 2, 1, "full", "label", 42, "cuda")
    study = make_study({}, failures=[Failure(*facts, reason="killed by signal 9")])
    (row,) = cells(tables.failed(study, "8"))
    assert row["reason"] == "killed by signal 9"
    assert (row["method"], row["graph"], row["seed"], row["device"]) == (
        "gem", "digits", "42", "cuda",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("points", -0.421, "−0.42"),
        ("seconds", 123456.7, "123,457"),
        ("seconds", 0.0, "0.00"),
        ("ratio", 0.9996, "1.00×"),
        ("bytes", 999_999, "1.00 MB"),
        ("bytes", 0, "0 B"),
        ("setting", 1e-4, "0.0001"),
        ("points", None, "–"),
    ],
)
def test_how_values_are_written(kind, value, text):
    assert Column("x", kind).write(value) == text
