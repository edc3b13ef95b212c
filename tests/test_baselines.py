import runpy
from pathlib import Path

import numpy as np

from algnn.bench.protocol import Outcome
from algnn.bench.record import Record
from algnn.bench.runs import frame, write
from algnn.methods import settings

MODULE = runpy.run_path(str(Path(__file__).parent.parent / "benchmarks/baselines.py"))
comparison, refresh = MODULE["comparison"], MODULE["refresh"]


def record(method, seed, seconds, correct=8, **changes):
    outcome = Outcome(
        ((0, 1), (2,)),
        np.array([[9, 9, 0], [correct, correct, 5]]),
        np.array([10, 10, 10]),
        (seconds / 2, seconds / 2),
        (0.01, 0.01),
        (800, 4000),
    )
    fields = {
        "dataset": "cora",
        "provenance": {"sha256": "a1"},
        "method": method,
        "settings": {},
        "base": 2,
        "step": 1,
        "edges": "full",
        "order": "label",
        "seed": seed,
        "outcome": outcome,
        "device": "cpu",
    }
    return Record(**{**fields, **changes})


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_a_row_holds_what_the_records_say():
    runs = [record("gem", seed, 3.0 * seconds) for seed, seconds in ((1, 1.0), (2, 2.0), (3, 1.0))]
    bare = [record("bare", seed, seconds) for seed, seconds in ((1, 1.0), (2, 1.0), (3, 1.0))]
    head, _, first, second = cells(comparison(frame([*runs, *bare]), "cora"))
    assert (first[0], second[0]) == ("`bare`", "`gem`")
    row = dict(zip(head, second, strict=True))
    assert row["AP"] == "65.0 ± 0.0"
    assert row["AP, paper"] == "45.3"
    assert row["AF"] == "10.0 ± 0.0"
    assert row["base"] == "90.0"
    assert row["macro"] == "70.0"
    # the median, so that one busy moment does not count
    assert row["learn / bare"] == "3.00"
    assert row["kept (kB)"] == "4"


def test_other_streams_and_datasets_are_passed_over():
    others = [
        record("gem", 1, 1.0, dataset="citeseer"),
        record("gem", 1, 1.0, step=5),
        record("gem", 1, 1.0, edges="seen"),
        record("gem", 1, 1.0, order="random"),
    ]
    assert len(cells(comparison(frame(others), "cora"))) == 2


def test_only_the_marked_places_of_a_document_change(tmp_path: Path):
    write(record("gem", 1, 1.0), tmp_path / "cpu")
    document = tmp_path / "a.md"
    document.write_text("# Title\n\n<!-- table cpu/cora -->\n<!-- end -->\n\nafter\n")
    text = refresh(document, tmp_path)
    assert text.startswith("# Title\n\n<!-- table cpu/cora -->\n| method | AP")
    assert text.endswith("<!-- end -->\n\nafter\n")
    document.write_text(text)
    assert refresh(document, tmp_path) == text


def test_of_several_settings_the_methods_own_count():
    usual = settings("gem", "cora")
    own = [record("gem", 1, 3.0, settings=usual), record("bare", 1, 1.0)]
    swept = record("gem", 2, 1.0, correct=1, settings={**usual, "budget": 1})
    assert comparison(frame([*own, swept]), "cora") == comparison(frame(own), "cora")
    # a folder of other settings alone is a table of them
    assert cells(comparison(frame([swept]), "cora"))[2][1] == "30.0"


def test_times_of_a_shared_machine_are_not_compared():
    shared = {"architecture": "x86_64", "jobs": 4}
    runs = [record("bare", 1, 1.0), record("gem", 1, 3.0, machine=shared)]
    head, _, _, row = cells(comparison(frame(runs), "cora"))
    assert dict(zip(head, row, strict=True))["learn / bare"] == "–"


def test_the_setting_that_trials_chose_has_a_row_of_its_own(tmp_path: Path):
    usual = settings("gem", "cora")
    better = {**usual, "lr": 0.005}
    runs = [
        record("gem", 1, 1.0, settings=usual),
        record("gem", 1, 1.0, correct=9, settings=better),
    ]
    trials = [
        record("gem", 1, 1.0, correct=correct, settings=given, split="val")
        for correct, given in ((7, usual), (8, better))
    ]
    for one in (*runs[:1], *trials):
        write(one, tmp_path / ("cpu" if one.split == "test" else "tried"))
    write(runs[1], tmp_path / "tried")
    document = tmp_path / "a.md"
    document.write_text("<!-- table cpu/cora -->\n<!-- end -->\n")
    rows = cells(refresh(document, tmp_path))[3:-1]
    assert [row[:2] for row in rows] == [["`gem`", "65.0"], ["`gem`, tuned", "70.0"]]
    # a folder of other settings has no row of tuned ones
    write(record("gem", 1, 1.0, settings={**usual, "budget": 1}), tmp_path / "tight")
    document.write_text("<!-- table tight/cora -->\n<!-- end -->\n")
    assert len(cells(refresh(document, tmp_path))[3:-1]) == 1


def test_grids_are_those_of_the_settings():
    rows = {row[0]: row for row in cells(MODULE["grids"]())}
    assert rows["`algnn`"][3] == "none"
    assert rows["`klda`"][2:] == [
        "bandwidth 0.1, shrinkage 0.0001",
        "bandwidth 0.02, 0.1, 0.5; shrinkage 0.01, 0.0001",
    ]
