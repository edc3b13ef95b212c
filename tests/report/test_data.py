from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from algnn import methods
from algnn.bench.record import Failure
from algnn.bench.runs import frame, write
from algnn.errors import AlgnnError, InputError
from algnn.report.data import ALL_LABELS, _usual, gather, read
from algnn.report.tables import BASELINES

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 1}
HERE = "A CPU, 4 cores"
USUAL = methods.settings("gem", "cora")


def test_the_newest_of_a_run_counts_wherever_it_stands(make, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, last, started in ((old, 2, "2026-01-01"), (new, 9, "2026-03-01")):
        write(make(last=last, started=f"{started}T00:00:00+00:00"), folder)
    for folders in ([old, new], [new, old]):
        study = read(folders)
        assert list(study.runs.ap) == [70.0]
        assert study.passed_over == 1


def test_one_setting_written_as_1_and_as_1_0_is_the_same_run(study_of):
    usual = methods.settings("algnn-paper", "cora")
    same = {"dataset": "cora", "method": "algnn-paper"}
    study = study_of(*({**same, "settings": {**usual, "gamma": gamma}} for gamma in (1, 1.0)))
    assert (len(study.runs), study.passed_over) == (1, 1)
    assert study.runs.main.all()


def test_hardware_is_kept_apart(study_of):
    study = study_of(
        {"last": 8}, {"last": 9, "seed": 43}, {"last": 2, "device": "cuda", "machine": GPU}
    )
    assert study.hardware == [HERE, "A GPU"]
    assert list(study.cell(HERE, "digits", 1, "algnn").ap) == [65.0, 70.0]
    assert list(study.cell("A GPU", "digits", 1, "algnn").ap) == [35.0]
    assert study.main_hardware("digits") == HERE


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {}),
        ({"settings": {**USUAL, "budget": 12}}, {"budget": 12}),
        ({"settings": {k: v for k, v in USUAL.items() if k != "budget"}},
         {"budget": "not recorded"}),
        ({"settings": {**USUAL, "old": 3}}, {"old": 3}),
        ({"edges": "seen"}, {"edges": "seen"}),
        ({"order": "random"}, {"order": "random"}),
        ({"base": 1}, {"base": 1}),
        ({"provenance": {"sha256": "b2"}}, {"graph": "b2"}),
    ],
)  # fmt: skip
def test_what_keeps_a_run_out_of_the_main_tables(study_of, given, changes):
    same = {"dataset": "cora", "method": "gem"}
    # a1 is the commoner graph
    runs = study_of({**same, **given}, {**same, "seed": 7}, {**same, "seed": 8}).runs
    (run,) = runs[runs.seed == 42].itertuples()
    assert run.changes | run.stream == changes
    assert (run.own, run.usual) == (not run.changes, not run.stream)


@pytest.mark.parametrize("name", ["order", "base", "edges", "graph"])
def test_a_setting_may_have_the_name_of_a_part_of_the_stream(study_of, name):
    same = {"method": "mine:Own"}
    given = ({**same, "settings": {name: 2}, "seed": seed} for seed in (1, 2))
    runs = study_of(*given, {**same, "settings": {name: 3}, "seed": 3, "edges": "seen"}).runs
    assert list(runs.differs) == ["", "", f"{name}=3, edges=seen"]
    assert list(runs.own) == list(runs.usual) == list(runs.drawn) == [True, True, False]


@pytest.mark.parametrize("name", methods.METHODS)
def test_a_methods_own_settings_are_known_without_its_learner(name):
    for graph in ("cora", "computers", "unknown.npz"):
        assert json.loads(_usual(name, graph)) == methods.settings(name, graph)


def test_of_a_users_learner_the_commonest_settings_are_its_own(study_of):
    given = [({"width": 1}, 1), ({"width": 2}, 2), ({"width": 2}, 3)]
    study = study_of(*({"method": "mine:Own", "settings": s, "seed": seed} for s, seed in given))
    assert dict(zip(study.runs.seed, study.runs.differs, strict=True)) == {
        1: "width=1", 2: "", 3: "",
    }  # fmt: skip
    # those of most graphs, however often another one ran on one of them
    given.append(({"width": 1}, 1))
    graphs = ["cora"] * 3 + ["pubmed"]
    study = study_of(*(
        {"method": "mine:Own", "settings": s, "seed": seed, "dataset": graph}
        for (s, seed), graph in zip(given, graphs, strict=True)
    ))  # fmt: skip
    assert set(study.runs.differs[study.runs.seed == 1]) == {""}
    assert set(study.runs.differs[study.runs.seed > 1]) == {"width=2"}


def test_a_record_makes_no_code_run(study_of, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert study_of({"method": "trap:Learner"}).methods() == ["trap:Learner"]
    assert "trap" not in sys.modules
    assert not (tmp_path / "sprung").exists()


def test_orders(study_of):
    names = ["joint", "zeta:Own", "gem", "algnn", "alpha:Own", "joint-ridge"]
    study = study_of(*({"method": n, "dataset": graph} for n in names for graph in ("z", "cora")))
    assert study.datasets() == ["cora", "z"]
    # what is for trying things out stands behind the real graphs, a user's too
    more = study_of(*({"dataset": graph} for graph in ("digits", "z", "cora")))
    assert more.datasets() == ["cora", "z", "digits"]
    *most, last, very_last = study.methods()
    assert most == ["algnn", "gem", "alpha:Own", "zeta:Own"]
    assert {last, very_last} == {"joint-ridge", "joint"}


def test_those_set_apart_are_those_that_keep_every_label():
    assert {"joint", "joint-ridge"} <= set(ALL_LABELS)
    assert not {"bare", "ncm", "slda", "algnn", "algnn-paper", *BASELINES} & set(ALL_LABELS)


def test_synthetic_graphs_have_no_scores(study_of):
    study = study_of({}, {"dataset": "big", "provenance": {"source": "synthetic, seed 0"}})
    assert study.datasets() == ["digits"]
    assert set(study.datasets(scored=False)) == {"big", "digits"}


def test_nothing_to_report_on(tmp_path: Path):
    with pytest.raises(InputError, match="is not a folder: give one of records"):
        read([tmp_path / "none"])
    with pytest.raises(InputError, match="holds no record of a run: make some"):
        read([tmp_path])
    with pytest.raises(InputError, match="at least one run"):
        gather(frame([]))
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(AlgnnError, match="not a whole record"):
        read([tmp_path])


def test_nothing_but_failures_to_report_on(tmp_path: Path):
    facts = ("digits", {}, "bare", {}, 5, 1, "full", "label", 1, "cpu")
    write(Failure(*facts, reason="x broke"), tmp_path)
    with pytest.raises(InputError, match=r"only runs that failed, 1 of them, .* with x broke"):
        read([tmp_path])
