from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn import ALGNN, ClassStream, __version__, load
from algnn.bench import runs
from algnn.bench.protocol import run
from algnn.cli import main
from algnn.graph.datasets import available
from algnn.methods import make

SMALL = ["--set", "width=32", "--set", "hidden=8", "--set", "epochs=3", "--device", "cpu"]
KEYS = [
    "dataset", "sha256", "method", "settings", "base", "step", "edges", "order", "split", "seeds",
    "sessions", "ap", "af", "macro", "micro", "learn_seconds", "predict_seconds", "ece",
    "novelty_auroc", "retained_bytes", "runs",
]  # fmt: skip


MAIN = "import sys; from algnn.cli import main; sys.exit(main(sys.argv[1:]))"


def save(graph: Data, path: Path) -> Path:
    np.savez(path, **{key: value.numpy() for key, value in graph.to_dict().items()})
    return path


def check_summary(summary: dict[str, Any], values: list[float]) -> None:
    assert set(summary) == {"mean", "std", "ci95"}
    assert summary["mean"] == pytest.approx(np.mean(values))
    if len(values) == 1:
        assert summary["std"] is None
        assert summary["ci95"] is None
    else:
        assert summary["std"] == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def check_schema(found: dict[str, Any]) -> None:
    assert list(found) == KEYS
    count = found["sessions"]
    assert [one["seed"] for one in found["runs"]] == found["seeds"]
    for one in found["runs"]:
        assert set(one) == {"seed", "matrix", "ap", "af", "macro", "micro", "learn_seconds"}
        assert len(one["matrix"]) == count
        for t, row in enumerate(one["matrix"]):
            assert len(row) == count
            assert all(0 <= value <= 100 for value in row[: t + 1])
            assert row[t + 1 :] == [None] * (count - t - 1)
        assert one["ap"] == pytest.approx(np.mean(one["matrix"][-1]))
    for name in ("ap", "af", "macro", "micro", "learn_seconds"):
        check_summary(found[name], [one[name] for one in found["runs"]])
    assert set(found["predict_seconds"]) == {"mean", "std", "ci95"}
    assert isinstance(found["retained_bytes"], int)


# -- real processes: what a shell sees ------------------------------------------------------------


def test_json_is_all_that_stdout_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_process: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["run", "digits", "--method", "algnn-paper", *SMALL, "--seeds", "42,43", "--json"]
    arguments += ["--step", "5"]
    process = start_process(MAIN, *arguments, "--plot", "a.png", out="out.txt", err="err.txt")
    process.join(120)
    # stderr is no terminal, so there is no progress bar either
    assert Path("err.txt").read_text() == ""
    assert process.exitcode == 0
    found = json.loads(Path("out.txt").read_text())
    check_schema(found)
    assert (found["dataset"], found["method"]) == ("digits", "algnn-paper")
    assert (found["base"], found["step"], found["edges"]) == (5, 5, "full")
    assert (found["seeds"], found["sessions"]) == ([42, 43], 2)
    assert set(found["settings"]) == set(ALGNN().get_params()) - {"seed", "device"}
    assert found["settings"]["width"] == 32
    # the same as by hand, and as in the records
    learner = make("algnn-paper", "digits", 43, "cpu", width=32, hidden=8, epochs=3)
    by_hand = run(learner, ClassStream(load("digits"), step=5))
    shown = [row[: t + 1] for t, row in enumerate(found["runs"][1]["matrix"])]
    assert shown == [list(row[: t + 1]) for t, row in enumerate(by_hand.matrix)]
    assert found["runs"][1]["matrix"][0][1:] == [None] * (len(shown) - 1)
    assert found["retained_bytes"] == learner.retained_bytes()
    kept = runs.read_records(tmp_path / "records")
    assert [record.seed for record in kept] == [42, 43]
    assert kept[1].outcome.ap == found["runs"][1]["ap"]
    assert kept[1].device == "cpu"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("a.png", "err.txt", "out.txt", "records"),
    ]


def test_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_process: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    seeds = ",".join(map(str, range(500)))
    command = ["run", "digits", *SMALL, "--seeds", seeds]
    process = start_process(MAIN, *command, out="out.txt", err="err.txt")
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("step*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130
    assert Path("err.txt").read_text() == "algnn: interrupted\n"
    assert Path("out.txt").read_text() == ""
    # what was done is kept
    assert 1 <= len(runs.read_records(tmp_path / "records")) < 500


IMPATIENT = """
import signal, sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "algnn.cli":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Impatient())
from algnn.__main__ import main
sys.exit(main())
"""


def test_interrupted_while_it_is_imported() -> None:
    command = [sys.executable, "-c", IMPATIENT, "methods"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "algnn: interrupted\n")


BLOCKED = """
import os, signal
from multiprocessing import forkserver
from pathlib import Path
from algnn.bench.processes import start_forkserver
start_forkserver()
server = forkserver._forkserver._forkserver_pid
print(Path(f"/proc/{server}/status").read_text())
os.kill(server, signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_ctrl_c_does_not_reach_the_forkserver() -> None:
    """It gets the terminal's signals too, and would end with a traceback while it imports."""
    command = [sys.executable, "-c", BLOCKED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    facts = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert int(facts["SigBlk"], 16) >> (signal.SIGINT - 1) & 1


def test_an_encoding_without_greek() -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "algnn", "methods"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u03b3" in done.stdout


def test_a_reader_who_has_seen_enough() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "algnn", "methods"]
    unread = subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    _, err = unread.communicate(timeout=120)
    assert err == ""
    assert unread.returncode == 1


# -- the same function, without the wait for imports ----------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "nonsense"),
        (["--nonsense"], "--nonsense"),
        (["records"], "Missing command. Try algnn records --help"),
        (["run"], "Missing argument"),
        (["run", "digits", "cora"], "unexpected extra argument"),
        (["run", "digits", "--sedes", "3"], "--sedes"),
        (["run", "digits", "--step", "one"], "--step"),
        (["run", "digits", "--step"], "--step"),
        (["run", "digits", "--step", "0"], "step=0 must be"),
        (["run", "bare.npz"], "bare.npz: y is missing"),
        (["bench", "--datasets", "digits,bare.npz"], "bare.npz: y is missing"),
        (["run", "digits", "--base", "99"], "base=99 must be"),
        (["run", "digits", "--base", "-1"], "base=-1 must be"),
        (["run", "digits", "--edges", "most"], "edges='most' is unknown"),
        (["run", "digits", "--order", "upwards"], "--order 'upwards'"),
        (["run", "digits", "--order", "0,1"], "order=[0, 1] must name each class"),
        (["run", "digits", "--order", ""], "--order ''"),
        (["run", "digits", "--seeds", "x"], "--seeds 'x'"),
        (["run", "digits", "--seeds", ""], "--seeds ''"),
        (["run", "digits", "--seeds", "1,1"], "--seeds '1,1'"),
        (["run", "digits", "--seeds", "-1"], "--seeds '-1'"),
        (["run", "digits", "--method", "best"], "method='best' is unknown"),
        (["run", "digits", "--set", "gamma"], "name=value"),
        (["run", "digits", "--set", "width=wide"], "width=wide must be a whole number"),
        (["run", "digits", "--set", "gamma=-1"], "gamma=-1.0"),
        (["run", "digits", "--method", "slda", "--set", "gamma=0"], "gamma=0"),
        (["run", "digits", "--set", "expansion=big"], "expansion='big'"),
        (["run", "digits", "--device", "abacus"], "device='abacus'"),
        (["run", "digits", "--plot", "picture.bmp"], "picture.bmp"),
        (["run", "digits", "--records", "file"], "file cannot be a folder"),
        (["run", "digits", "--plot", "file/a.png"], "file cannot be a folder"),
        (["run", "digits", "--data", "nowhere"], "nowhere"),
        (["run", "missing.npz"], "missing.npz"),
        (["run", "file"], "file"),
        (["run", ""], "is no known graph"),
        (["methods", "all"], "unexpected extra argument"),
        (["demo", "--seeds", "many"], "--seeds 'many'"),
        (["demo", "--methods", "magic"], "method='magic' is unknown"),
    ],
)
def test_nonsense(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("not a graph\n")
    np.savez("bare.npz", edge_index=np.array([[0], [1]]), num_nodes=2)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("algnn: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.rglob("*.json")) == []


def test_the_absent_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    # no machine has as many
    assert main(["run", "digits", "--device", "cuda:99"]) == 2
    assert "device='cuda:99' was asked for" in capsys.readouterr().err


def test_what_the_terminal_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "[kept]")
    assert (
        main(["run", "digits", *SMALL, "--seeds", "1,2", "--step", "2", "--records", folder]) == 0
    )
    out, err = capsys.readouterr()
    assert err == ""
    assert "digits · algnn · 4 sessions (5 classes, then 2 at a time) · edges full" in out
    for word in ("AP", "AF", "macro", "micro", "learning (s)", "predicting (s)", "retained"):
        assert word in out
    assert "mean of 2 seeds ± 95%" in out
    assert f"2 records below {folder}" in out
    found = runs.read_records(folder)
    last = np.mean([record.outcome.matrix[-1] for record in found], axis=0)
    assert " ".join(f"{value:.1f}" for value in last) in " ".join(out.split())


def test_the_seed_orders_a_random_stream(
    small_graph: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(small_graph, tmp_path / "cora.npz")
    folder = tmp_path / "records"
    common = ["run", str(path), *SMALL, "--records", str(folder), "--json"]
    assert main([*common, "--order", "random", "--seeds", "1,2,3"]) == 0
    found = json.loads(capsys.readouterr().out)
    check_schema(found)
    kept = runs.read_records(folder)
    graph = load(path)
    for record in kept:
        expected = ClassStream(graph, order="random", seed=record.seed).classes
        assert list(record.outcome.sessions) == expected
    assert len({record.outcome.sessions for record in kept}) > 1

    # as a report names the order of another run
    assert main([*common, "--order", "random-1", "--seeds", "4"]) == 0
    check_schema(json.loads(capsys.readouterr().out))
    one, other = (next(r for r in runs.read_records(folder) if r.seed == s) for s in (1, 4))
    assert one.outcome.sessions == other.outcome.sessions

    assert main([*common, "--order", "3,1,0,2", "--seeds", "5", "--edges", "seen"]) == 0
    check_schema(json.loads(capsys.readouterr().out))
    (record,) = [record for record in runs.read_records(folder) if record.seed == 5]
    assert record.outcome.sessions == ((3, 1), (0,), (2,))
    assert (record.order, record.edges) == ("3,1,0,2", "seen")


def test_a_file_of_ones_own(
    make_graph: Callable[..., Data], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file named after a dataset does not pass for it, and its folder is nobody's business."""
    path = save(make_graph(classes=7), tmp_path / "cora.npz")
    folder = tmp_path / "records"
    arguments = ["run", str(path), "--method", "algnn-paper", *SMALL, "--seeds", "1"]
    assert main([*arguments, "--records", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.lstrip().startswith("cora.npz · algnn-paper")
    assert "the paper" not in out
    (kept,) = folder.rglob("*.json")
    assert kept.parent.parent.name == "cora.npz"
    assert str(tmp_path) not in kept.read_text()


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    assert "algnn-paper" in out
    assert "analytic" in out
    assert main(["datasets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (digits,) = [line for line in lines if line.startswith("digits")]
    assert digits.split() == ["digits", "1,797", "12,339", "64", "10", "at", "hand"]
    (cora,) = [line for line in lines if line.startswith("cora ")]
    assert cora.endswith("at hand" if available("cora") else "download needed")
    assert any(line.startswith("corafull-graph ") for line in lines)


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"algnn {__version__}\n"
    for arguments in (["--help"], [], ["run", "--help"]):
        assert main(arguments) == 0
        out, err = capsys.readouterr()
        assert "Usage: algnn" in out
        assert err == ""
