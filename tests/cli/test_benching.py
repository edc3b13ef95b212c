from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn import load, save_npz
from algnn.bench import runs
from algnn.bench.plan import Plan
from algnn.bench.runs import summarise
from algnn.bench.tuning import trials
from algnn.cli import benching, main
from algnn.errors import InputError

SMALL = ["--set", "hidden=8", "--set", "epochs=3", "--device", "cpu", "--jobs", "1"]
METHODS = ("algnn", "bare")
PAGE = Path(__file__).parents[2] / "docs" / "benchmark.md"

OWN = """
import time
from pathlib import Path
from algnn import ALGNN

class Fussy(ALGNN):
    '''Refuses odd seeds.'''

    def partial_fit(self, graph, nodes, labels):
        if self.seed % 2:
            raise KeyError("odd")
        return super().partial_fit(graph, nodes, labels)

class Tuned(ALGNN):
    grid = {"gamma": [0.1, 10.0], "flag": [None, 0, False]}

    def __init__(self, gamma=0.1, flag=None, seed=0):
        super().__init__(gamma=gamma, width=16, seed=seed, device="cpu")
        self.flag = flag

class Slow(ALGNN):
    def partial_fit(self, graph, nodes, labels):
        Path("waiting").touch()
        time.sleep(600)
"""


@pytest.fixture
def here(small_graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a graph and a module of learners, which is the current one."""
    arrays = {key: value.numpy() for key, value in small_graph.to_dict().items()}
    np.savez(tmp_path / "mine.npz", **arrays)
    (tmp_path / "own_cli.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("own_cli", "mymethod"):
        sys.modules.pop(name, None)


def table(out: str) -> dict[str, list[str]]:
    """The rows of a printed table by their first word."""
    rows = [re.split(r" {2,}", line.strip()) for line in out.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 1}


def test_a_table_of_methods_and_datasets(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--datasets", "mine.npz", "--methods", "bare,algnn", *SMALL]
    arguments += ["--set", "width=32", "--seeds", "1,2", "--steps", "1,2", "--records", "[kept]"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    kept = runs.read_records("[kept]")
    assert len(kept) == 8
    assert err.splitlines()[0].startswith("8 runs to do, with 1 worker")
    assert len(err.splitlines()) == 9
    for step in (1, 2):
        assert f"AP, average performance (%) · step {step} · mean of 2 seeds ± 95%" in out
        part = table(out.split(f"· step {step} ·")[1].split("AP, average")[0])
        for method in ("bare", "algnn"):
            cell = [r for r in kept if (r.step, r.method) == (step, method)]
            assert part[method] == [str(summarise(r.outcome.ap for r in cell))]
    assert out.index("bare") < out.index("algnn")
    assert out.endswith("8 done, 0 reused, 0 failed; records below [kept]\n")
    # only what has a setting is changed
    assert {r.settings.get("width") for r in kept if r.method == "bare"} == {None}
    # again: nothing to do, nothing said on the way
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert (found["records"], found["done"], found["reused"]) == ("[kept]", 0, 8)
    assert found["failed"] == []
    assert [(r["method"], r["step"], r["seeds"]) for r in found["results"]] == [
        ("algnn", 1, [1, 2]), ("bare", 1, [1, 2]), ("algnn", 2, [1, 2]), ("bare", 2, [1, 2]),
    ]  # fmt: skip
    # the graph has a split of its own, so there is no second one to count
    assert main([*arguments, "--splits", "2", "--seeds", "1", "--steps", "1"]) == 0
    out, _ = capsys.readouterr()
    assert "· step 1 · seed 1\n" in out
    assert "0 done, 2 reused" in out


def test_two_graphs_of_one_name_have_columns_of_their_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, dice = dict(np.load("mine.npz")), np.random.default_rng(0)
    noise = {name: dice.permuted(other[name]) for name in ("x", "edge_index")}
    Path("other").mkdir()
    np.savez("other/mine.npz", **{**other, **noise})
    arguments = ["bench", "--datasets", "mine.npz,other/mine.npz", "--methods", ",".join(METHODS)]
    assert main([*arguments, *SMALL, "--set", "width=32", "--seeds", "1"]) == 0
    rows = table(capsys.readouterr().out)
    assert rows["mine.npz"] == ["other/mine.npz"]
    marks = [load(path).provenance["sha256"] for path in ("mine.npz", "other/mine.npz")]
    for method in METHODS:
        kept = {
            record.provenance["sha256"]: summarise([record.outcome.ap])
            for record in runs.read_records("records")
            if record.method == method
        }
        assert rows[method] == [str(kept[mark]) for mark in marks]
    assert rows["algnn"][0] != rows["algnn"][1]
    assert main([*arguments, *SMALL, "--set", "width=32", "--seeds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert {(one["method"], one["sha256"]) for one in found} == set(product(METHODS, marks))


def test_splits_and_orders_can_be_told_apart(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = dict(np.load("mine.npz"))
    np.savez("mine.npz", **{name: arrays[name] for name in ("x", "edge_index", "y")})
    arguments = ["bench", "--datasets", "mine.npz", "--methods", "bare,own_cli:Fussy", *SMALL]
    arguments += ["--splits", "2", "--orders", "2", "--seeds", "1", "--json"]
    assert main(arguments) == 1
    found = json.loads(capsys.readouterr().out)
    splits = [f"random 40/10/50, seed {seed}" for seed in (42, 43)]
    for part in ("results", "failed"):
        each = [(one["split"], one["order"]) for one in found[part]]
        assert sorted(each) == list(product(splits, ("label", "random-1")))


def test_failures_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--datasets", "mine.npz", "--methods", "own_cli:Fussy", *SMALL]
    arguments += ["--set", "width=32", "--seeds", "1,2,3"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert "failed: mine.npz own_cli:Fussy step 1 seed 1: KeyError: 'odd'\n" in out
    assert re.search(r"own_cli:Fussy +\d+\.\d+ \(1 of 3\)\n", out)
    assert "1 done, 0 reused, 2 failed; records below records\n" in out
    assert "not tried again" not in out
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert "2 of them failed before and were not tried again: --retry-failed\n" in out
    assert "0 done, 1 reused, 2 failed" in out
    assert main([*arguments, "--retry-failed", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(f["seed"], f["reason"], f["tried_now"]) for f in found["failed"]] == [
        (1, "KeyError: 'odd'", True), (3, "KeyError: 'odd'", True),
    ]  # fmt: skip


def test_a_learner_of_ones_own_is_tuned(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tune", "mine.npz", "--methods", "own_cli:Tuned", "--jobs", "1", "--seeds", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    # each of six settings is a trial: None, 0 and False are for the learner to tell apart
    assert re.search(r"own_cli:Tuned +\d+\.\d\d +6 +gamma=\S+, flag=\w+\n", out)
    assert "6 done, 0 reused, 0 failed" in out
    assert out.endswith("1 done, 0 reused, 0 failed; records below records\n")
    assert len(runs.read_runs("records", split="val")) == 6
    (taken,) = runs.read_runs("records")["settings"]
    assert f"gamma={taken['gamma']}, flag={taken['flag']}\n" in out
    assert main(["report", "--records", "records", "--out", "page"]) == 0


def test_of_trials_that_all_fail_nothing_is_chosen_or_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = load("mine.npz")
    graph.x = graph.x.to_dense() * 1e30
    save_npz(graph, "big.npz")
    tune = ["tune", "big.npz", "--methods", "ewc", "--trials", "2", "--jobs", "1", "--seeds", "1"]
    assert main(tune) == 1
    out = capsys.readouterr().out
    assert out.count("reused") == 1
    assert out.endswith("0 done, 0 reused, 2 failed; records below records\n")


def test_graphs_of_one_name_are_not_tuned_together(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other").mkdir()
    Path("other/mine.npz").write_bytes(Path("mine.npz").read_bytes())
    assert main(["tune", "mine.npz,other/mine.npz", "--methods", "bare"]) == 2
    assert "2 datasets are named mine.npz" in capsys.readouterr().err
    assert not Path("records").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped(
    here: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    def stop() -> None:
        deadline = time.monotonic() + 60
        while not Path("waiting").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop).start()
    arguments = ["bench", "--datasets", "mine.npz", "--methods", "algnn,own_cli:Slow", *SMALL]
    assert main([*arguments, "--set", "width=32", "--seeds", "1"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "stopped: what is done is kept; the same command goes on from there\n" in err
    assert [record.method for record in runs.read_records("records")] == ["algnn"]
    assert runs.read_failures("records").empty
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_usual_datasets(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--methods", "best", "--data", str(here)]) == 2
    assert capsys.readouterr().err.startswith("datasets at hand: digits")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "mine.npz"], "unexpected extra argument"),
        (["bench", "--datasets", "nowhere.npz"], "nowhere.npz"),
        (["bench", "--datasets", ""], "'' is no known graph"),
        (["bench", "--datasets", "mine.npz,,"], "'' is no known graph"),
        (["bench", "--datasets", "mine.npz", "--methods", "algnn,best"], "method='best'"),
        (["bench", "--datasets", "mine.npz", "--methods", ""], "method=''"),
        (["bench", "--datasets", "mine.npz", "--methods", "nowhere:X"], "no module nowhere"),
        (["bench", "--datasets", "mine.npz", "--methods", "own_cli:X"], "has no X"),
        (["bench", "--datasets", "mine.npz", "--steps", "x"], "--steps 'x'"),
        (["bench", "--datasets", "mine.npz", "--steps", "0"], "step=0"),
        (["bench", "--datasets", "mine.npz", "--seeds", "1,1"], "--seeds '1,1'"),
        (["bench", "--datasets", "mine.npz", "--order", "up"], "--order 'up'"),
        (["bench", "--datasets", "mine.npz", "--edges", "most"], "edges='most'"),
        (["bench", "--datasets", "mine.npz", "--jobs", "0"], "jobs=0"),
        (["bench", "--datasets", "mine.npz", "--jobs", "many"], "--jobs"),
        (["bench", "--datasets", "mine.npz", "--device", "abacus"], "device='abacus'"),
        (["bench", "--datasets", "mine.npz", "--set", "gama=1"], "'gama' is not a setting of"),
        (["bench", "--datasets", "mine.npz", "--set", "gamma"], "name=value"),
        (["bench", "--datasets", "mine.npz", "--set", "budget=x"], "budget=x must be"),
        (["bench", "--datasets", "mine.npz", "--set", "lr=1", "--set", "lr=2"], "set twice"),
        (["bench", "--datasets", "mine.npz", "--records", "mine.npz"], "cannot be a folder"),
        (["sweep"], "Missing argument"),
        (["sweep", "gamma"], "Missing argument"),
        (["sweep", "depth", "mine.npz"], "'depth' cannot be swept: use one of gamma, expansion"),
        (["sweep", "gamma", "nowhere.npz"], "nowhere.npz"),
        (["sweep", "gamma", "mine.npz", "--values", "1,x"], "gamma=x must be a number"),
        (["sweep", "gamma", "mine.npz", "--values", ""], "--values is empty: give some, such as"),
        (["sweep", "gamma", "mine.npz", "--values", "-1"], "gamma=-1.0"),
        (["sweep", "gamma", "mine.npz", "--set", "gamma=1"], "set twice"),
        (["sweep", "gamma", "mine.npz", "--method", "bare"], "'gamma' is not a setting of bare"),
    ],
)
def test_nonsense(
    arguments: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("algnn: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (here / "records").exists()


def test_sweeps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["mine.npz", *SMALL, "--seeds", "1,2"]
    values = ["--values", "10,1e-3,10.0"]
    assert main(["sweep", "gamma", *common, "--set", "width=32", *values]) == 0
    out = capsys.readouterr().out
    kept = runs.read_records("records")
    assert sorted((r.settings["gamma"], r.seed) for r in kept) == [
        (0.001, 1), (0.001, 2), (10.0, 1), (10.0, 2),
    ]  # fmt: skip
    rows = table(out)
    assert len(re.findall("^ *10 ", out, re.MULTILINE)) == 1
    for value, name in ((10.0, "10"), (0.001, "0.001")):
        cell = [r.outcome for r in kept if r.settings["gamma"] == value]
        assert rows[name][:2] == [
            str(summarise(o.ap for o in cell)), str(summarise(o.af for o in cell)),
        ]  # fmt: skip
    assert "mine.npz · algnn-paper · step 1 · 2 seeds" in out

    assert main(["sweep", "expansion", *common, "--values", "16,32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(r["settings"]["width"] for r in found["results"]) == [16, 32]
    assert found["done"] == 4


def test_tuning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--device", "cpu", "--jobs", "1"]
    arguments = ["tune", "mine.npz", "--methods", "algnn,linear-bank", "--trials", "2", *common]
    assert main([*arguments, "--seeds", "1,2"]) == 0
    out, _ = capsys.readouterr()
    assert "no grid, nothing to tune: algnn\n" in out
    assert "2 done, 0 reused, 0 failed" in out
    trials, tested = runs.read_runs("records", split="val"), runs.read_runs("records")
    assert trials["seed"].tolist() == [1, 1]
    best = trials.loc[trials["ap"].idxmax()]
    assert tested["seed"].tolist() == [1, 2]
    assert all(given == best["settings"] for given in tested["settings"])
    row = table(out)["linear-bank"]
    assert row[0] == str(summarise(tested["ap"]))
    # nothing is done twice, and draws are further runs of the same choice
    assert main([*arguments, "--seeds", "1", "--draws", "2"]) == 0
    out, _ = capsys.readouterr()
    assert "0 done, 2 reused, 0 failed" in out
    assert "1 done, 1 reused, 0 failed" in out
    assert main([*arguments, "--base", "3", "--only-trials"]) == 0
    assert runs.read_runs("records", split="val")["base"].value_counts().to_dict() == {2: 2, 3: 2}
    assert main(["tune", "mine.npz", "--methods", "algnn", *common]) == 0
    assert main([*arguments, "--trials", "0"]) == 2


def test_packed_records_are_gone_on_from(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--datasets", "mine.npz", "--methods", "bare", *SMALL, "--json"]
    assert main([*arguments, "--seeds", "1,2"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main(["records", "pack", "records"]) == 0
    assert capsys.readouterr().out == "2 files packed into records/records.jsonl.gz\n"
    assert main(["records", "pack", "records"]) == 0
    assert capsys.readouterr().out == "nothing to pack below records\n"
    assert main([*arguments, "--seeds", "1,2"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert (after["done"], after["reused"], after["results"]) == (0, 2, before["results"])
    assert main(["records", "pack", "nowhere"]) == 2
    assert "is not a folder of records" in capsys.readouterr().err


def test_the_usual_values(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = ["--seeds", "1"]
    assert main(["sweep", "gamma", "mine.npz", *SMALL, "--set", "width=16", *seeds]) == 0
    values = [10.0**power for power in range(-4, 4)]
    assert sorted(r.settings["gamma"] for r in runs.read_records("records")) == values
    assert list(table(capsys.readouterr().out))[1:] == [f"{value:g}" for value in values]
    # the widths would take long: only which they are
    widths = [128, 256, 512, 1024, 2048, 4096, 8192]
    assert benching.SWEEPS["expansion"] == ("width", [str(width) for width in widths])

    def told(plans: list[Plan], *rest: Any) -> None:
        raise InputError(str([plan.changes["width"] for plan in plans]))

    monkeypatch.setattr(benching, "carry_out", told)
    assert main(["sweep", "expansion", "mine.npz", "--device", "cpu"]) == 2
    assert str(widths[:-1]) in capsys.readouterr().err


# -- the user's page ------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_learner_of_the_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mymethod.py").write_text(blocks("python")[0])
    own = "mymethod:NearestMean"
    run = ["run", "mine.npz", "--method", own, "--set", "norm=1", "--seeds", "1", "--json"]
    run += ["--device", "cpu"]
    assert main(run) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["settings"] == {"norm": 1.0}
    assert alone["ap"]["mean"] > 80
    bench = ["bench", "--datasets", "mine.npz", "--methods", f"algnn,{own}", "--set", "norm=1"]
    assert main([*bench, *SMALL, "--set", "width=32", "--seeds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # `run` has done it already
    assert (found["done"], found["reused"]) == (1, 1)
    assert found["results"][1]["runs"][0]["matrix"] == alone["runs"][0]["matrix"]
    # saved and loaded it gives the same answers
    import mymethod

    graph = load("mine.npz")
    for named in (str, int):  # labels may be names
        labels = [named(label) for label in graph.y[graph.train_mask].tolist()]
        model = mymethod.NearestMean().fit(graph, graph.train_mask, labels)
        model.save("model.safetensors")
        again = mymethod.NearestMean.load("model.safetensors")
        np.testing.assert_array_equal(model.predict(graph), again.predict(graph))
    # with a grid of its own it can be tuned, and without one says so
    tune = ["tune", "mine.npz", "--methods", own, "--device", "cpu", "--only-trials"]
    assert main(tune) == 0
    assert f"no grid, nothing to tune: {own}\n" in capsys.readouterr().out
    mymethod.NearestMean.grid = {"norm": [1.0, 3.0]}
    assert [trial.changes for trial in trials(Plan("mine.npz", own, [1]))] == [
        {"norm": 1.0},
        {"norm": 3.0},
    ]


def test_the_call_of_the_page(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner, call = blocks("python")
    (here / "mymethod.py").write_text(learner)
    monkeypatch.syspath_prepend(here)
    quick = call.replace('"digits"', '"mine.npz"').replace('epochs": 10', 'epochs": 1')
    exec(compile(quick, "benchmark.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [method, seed] for method in ("algnn", "mymethod:NearestMean") for seed in ("42", "43")
    ]


def test_what_the_page_says_of_records(here: Path) -> None:
    assert main(["run", "mine.npz", *SMALL[:-2], "--set", "width=16", "--seeds", "1"]) == 0
    (path,) = Path("records").rglob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    rows = re.findall(r"^\| (`.*?) \| .* \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(found) - {"format"}
