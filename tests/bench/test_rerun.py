"""benchmarks/rerun.py repeats what older code has done, and nothing else."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from algnn.baselines.training import Bare
from algnn.bench import runs
from algnn.bench.environment import code_version
from algnn.bench.plan import Plan, perform
from algnn.graph.datasets import load

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def test_runs_of_older_code_are_done_again(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(SCRIPTS)  # its processes import it by name
    rerun = importlib.import_module("rerun")
    small = {"epochs": 1, "hidden": 4}
    plan = Plan("digits", "bare", [42], small, step=5, order="random-1", device="cpu")
    trial = replace(plan, split="val", confidence=False)
    graph, old = load("digits"), tmp_path / "old"
    made = [perform(one, 42, graph, jobs=2) for one in (plan, trial)]
    for record in made:
        runs.write(replace(record, versions={**record.versions, "code": "older"}), old)
    runs.write(perform(replace(plan, seeds=[43]), 43, graph, jobs=2), old)  # today's code
    alone = perform(replace(plan, seeds=[44]), 44, graph, jobs=1)
    runs.write(replace(alone, versions={**alone.versions, "code": "older"}), old)

    rerun.main(str(old), str(tmp_path / "new"), "1", "60", "cpu")
    assert capsys.readouterr().out == "2 of 2 runs done\n"
    found = runs.read_records(tmp_path / "new")
    assert {record.split for record in found} == {"test", "val"}
    for before in made:
        (after,) = (record for record in found if record.split == before.split)
        assert after.configuration == before.configuration
        assert after.code == code_version(Bare)
        np.testing.assert_array_equal(after.outcome.correct, before.outcome.correct)
        assert bool(after.outcome.calibration_errors) == (after.split == "test")
    assert rerun.wanted(old, tmp_path / "new") == []

    rerun.main(str(old), str(tmp_path / "alone"), "1", "60", "cpu", "clocks")
    assert capsys.readouterr().out.endswith("1 of 1 runs done\n")
    (after,) = runs.read_records(tmp_path / "alone")
    assert (after.seed, after.machine["jobs"], after.code) == (44, 1, code_version(Bare))
    np.testing.assert_array_equal(after.outcome.correct, alone.outcome.correct)
