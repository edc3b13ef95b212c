from __future__ import annotations

import sys
from pathlib import Path

import pytest

from algnn import methods
from algnn.bench.records import Failure, write, write_failure
from algnn.errors import AlgnnError, InputError
from algnn.report.evidence import ALL_LABELS, baselines, gather, place, read

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 1}
HERE = "A CPU, 4 cores"


def test_the_newest_of_a_run_counts_wherever_it_stands(make, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, last, started in ((old, 2, "2026-01-01"), (new, 9, "2026-03-01")):
        write(make(last=last, started=f"{started}T00:00:00+00:00"), folder)
    for folders in ([old, new], [new, old]):
        study = read(folders)
        assert [run.ap for run in study.runs] == [70.0]
        assert study.passed_over == 1


def test_one_setting_written_as_1_and_as_1_0_is_the_same_run(make):
    usual = methods.settings("algnn-paper", "cora")
    assert usual["gamma"] == 1.0
    given = [
        make(dataset="cora", method="algnn-paper", settings={**usual, "gamma": gamma})
        for gamma in (1, 1.0)
    ]
    study = gather(given)
    assert (len(study.runs), study.passed_over) == (1, 1)
    assert study.runs[0].changes == {}


def test_machines_are_kept_apart(make):
    records = [make(last=8), make(last=9), make(last=2, device="cuda", machine=GPU)]
    records[1] = make(last=9, seed=43)
    study = gather(records)
    assert study.places == [HERE, "A GPU"]
    assert [run.ap for run in study.cell(HERE, "digits", 1, "algnn")] == [65.0, 70.0]
    assert [run.ap for run in study.cell("A GPU", "digits", 1, "algnn")] == [35.0]
    assert study.place_of("digits", 1) == HERE


def test_names_of_machines(make):
    assert place(make(device="cuda", machine=GPU)) == "A GPU"
    assert place(make(device="cuda", machine={})) == "cuda"
    assert place(make(machine=GPU)) == "Xeon, 16 cores"
    assert place(make(machine={"architecture": "riscv", "cores": 1})) == "riscv, 1 core"
    assert place(make(machine={})) == "cpu"


def test_what_keeps_a_run_out_of_the_main_tables(make):
    usual = methods.settings("gem", "cora")
    fewer = {name: value for name, value in usual.items() if name != "budget"}
    given = {
        "same": {},
        "changed": {"settings": {**usual, "budget": 12}},
        "unknown": {"settings": fewer},
        "gone": {"settings": {**usual, "old": 3}},
        "seen": {"edges": "seen"},
        "random": {"order": "random"},
        "base": {"base": 1},
        "graph": {"provenance": {"sha256": "b2"}},
    }
    records = [make(dataset="cora", method="gem", **changes) for changes in given.values()]
    records.append(make(dataset="cora", method="gem", seed=7))  # a1 is the commoner graph
    found = [run.changes for run in gather(records).runs if run.seed == 42]
    expected = [
        {},
        {"budget": 12},
        {"budget": "not recorded"},
        {"old": 3},
        {"edges": "seen"},
        {"order": "random"},
        {"base": 1},
        {"graph": "b2"},
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_of_a_users_learner_the_commonest_settings_are_its_own(make):
    rare, common = {"width": 1}, {"width": 2}
    given = [(rare, 1), (common, 2), (common, 3)]
    study = gather([make(method="mine:Own", settings=s, seed=seed) for s, seed in given])
    assert {run.seed: run.changes for run in study.runs} == {1: {"width": 1}, 2: {}, 3: {}}


def test_a_record_makes_no_code_run(make, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert gather([make(method="trap:Learner")]).methods() == ["trap:Learner"]
    assert "trap" not in sys.modules
    assert not (tmp_path / "sprung").exists()


def test_orders(make):
    names = ["joint", "zeta:Own", "gem", "algnn", "alpha:Own", "joint-ridge"]
    study = gather([make(method=name, dataset=graph) for name in names for graph in ("z", "cora")])
    assert study.datasets() == ["cora", "z"]
    *most, last, very_last = study.methods()
    assert most == ["algnn", "gem", "alpha:Own", "zeta:Own"]
    assert {last, very_last} == {"joint-ridge", "joint"}


def test_those_set_apart_are_those_that_keep_every_label():
    assert {"joint", "joint-ridge"} <= set(ALL_LABELS)
    assert not {"bare", "ncm", "slda", "algnn", "algnn-paper", *baselines()} & set(ALL_LABELS)


def test_shared_machines_have_no_clock(make):
    jobs = [{**GPU, "jobs": 4}, GPU, {**GPU, "jobs": None}]
    runs = gather([make(machine=one, seed=i) for i, one in enumerate(jobs)]).runs
    assert [run.alone for run in runs] == [False, True, True]


def test_nothing_to_report_on(tmp_path: Path):
    with pytest.raises(InputError, match="is not a folder: give one of records"):
        read([tmp_path / "none"])
    with pytest.raises(InputError, match="holds no record of a run: make some"):
        read([tmp_path])
    with pytest.raises(InputError, match="at least one run"):
        gather([])
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(AlgnnError, match="not a whole record"):
        read([tmp_path])
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(AlgnnError, match=r"has no 'format': move it"):
        read([tmp_path])


def test_nothing_but_failures_to_report_on(tmp_path: Path):
    failure = Failure("digits", {}, "bare", {}, 5, 1, "full", "label", 1, "cpu", reason="x broke")
    write_failure(failure, tmp_path)
    with pytest.raises(InputError, match=r"only runs that failed, 1 of them, .* with x broke"):
        read([tmp_path])
