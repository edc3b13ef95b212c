"""Commands that only list or look answer without torch, which takes seconds to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from algnn import ALGNN, load
from algnn.cli import main, shared
from algnn.cli.shared import Work, working
from algnn.progress import heard_by

MODEL = "0.2.0-default.safetensors"
COMMANDS = [
    ["--help"],
    ["methods"],
    ["datasets"],
    ["inspect", MODEL],
    ["inspect", MODEL, "--json"],
    ["records", "pack", "."],
    ["fit", "--help"],
]
# files that are missing or wrong: said before torch is loaded
WRONG = [
    ["fit", "new.safetensors", "no.npz", "no.csv"],
    ["fit", "new.safetensors", "digits", "no.csv"],
    ["fit", "new.safetensors", MODEL, "no.csv"],
    ["fit", MODEL, "digits", "no.csv"],
    ["learn", "no.safetensors", "digits", "no.csv"],
    ["relabel", MODEL, "digits", "."],
    ["forget", MODEL, "digitz", "no.csv"],
    ["predict", MODEL, "digits", "--nodes", "no.csv"],
    ["predict", MODEL, "digits", "--plot", "no.gif"],
    ["predict", MODEL, "digits", "--data", "no"],
    ["explain", "no.safetensors", "digits", "0"],
    ["evaluate", MODEL, "digits", MODEL],
    ["evaluate", MODEL, "digits", "labels.csv", "--kind", "map"],
    ["merge", MODEL, "no.safetensors", "-o", "new.safetensors"],
    ["blank", "no.safetensors", "-o", "new.safetensors"],
    ["partition", "no.npz", "new"],
    ["partition", "no.csv", "new", "--features", "no.npy"],
    ["run", "no.npz"],
    ["bench", "--datasets", "digits,no.npz"],
    ["tune", "no.npz"],
    ["sweep", "gamma", "no.npz"],
]
# what took part, from a process of its own: in this one everything is imported already
ASKED = """
import json, sys
from algnn.cli import main
for command in json.loads(sys.argv[1]):
    print(command, main(command), flush=True)
    heavy = {"torch", "pandas", "scipy", "matplotlib", "sklearn"} & set(sys.modules)
    if heavy:
        sys.exit(f"{command} imported {sorted(heavy)}")
"""


def ask(commands: list[list[str]], golden: Path, folder: Path) -> tuple[list[str], list[str]]:
    """What some commands print, with their exit codes, and what they complain about."""
    commands = [
        [str(golden / word) if word == MODEL else word for word in command] for command in commands
    ]
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(commands)],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    codes = [line[-1] for line in done.stdout.splitlines() if line.startswith("['")]
    assert len(codes) == len(commands)
    return codes, done.stderr.splitlines()


def test_no_torch(golden: Path, tmp_path: Path) -> None:
    codes, complaints = ask(COMMANDS, golden, tmp_path)
    assert (set(codes), complaints) == ({"0"}, [])


def test_the_budget_of_a_private_model_is_told_without_torch() -> None:
    program = (
        "import sys; from algnn.analytic.privacy.accountant import attained_epsilon, noise_scale;"
        "print(attained_epsilon(1e-6, noise_scale(4, 1e-6)), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    epsilon, torch = done.stdout.split()
    assert (float(epsilon), torch) == (pytest.approx(4), "False")


def test_wrong_files_are_told_before_torch_is_loaded(golden: Path, tmp_path: Path) -> None:
    codes, complaints = ask(WRONG, golden, tmp_path)
    assert set(codes) == {"2"}
    assert len(complaints) == len(WRONG)
    assert all(line.startswith("algnn: ") for line in complaints)
    assert not list(tmp_path.glob("new*"))


def test_a_glance_says_what_the_whole_file_says(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for options in ([], ["--full"]):
        assert main(["inspect", str(golden / MODEL), *options]) == 0
        said.append(capsys.readouterr().out.splitlines())
    glance, full = said
    assert [line for line in full if line not in glance] == [
        line
        for line in full
        if line.startswith(("condition number", "degrees of freedom", "encoder "))
    ]
    assert len(full) == len(glance) + 3


def test_a_model_of_another_kind_is_named(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(golden / "0.2.0-replay.safetensors")]) == 2
    assert "holds a ERGNN" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_a_while_is_said_on_a_terminal_only(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    with working("loading"):
        said = capsys.readouterr().err
    assert ("loading" in said) == terminal
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("command", "said"), [("run", "loading"), ("methods", ""), ("-h", "")])
def test_loading_is_said_before_anything_is_imported(command: str, said: str) -> None:
    """On a terminal, by commands that take seconds to load."""
    program = (
        "import runpy, sys; sys.stderr.isatty = lambda: True; sys.modules['algnn.cli'] = None;"
        f"sys.argv[1:] = [{command!r}]; runpy.run_module('algnn', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "import of algnn.cli halted" in done.stderr
    assert done.stderr.partition("Traceback")[0].strip() == said


def test_phases_of_learning_are_told() -> None:
    told: list[tuple[str, int, int]] = []
    graph = load("digits")
    # features wide enough to be reduced
    graph.x = graph.x.repeat(1, 9)
    with heard_by(lambda *words: told.append(words)):
        model = ALGNN(device="cpu").fit(graph, range(300), graph.y[:300])
    phases = list(dict.fromkeys(phase for phase, _, _ in told))
    assert phases == [
        *("reducing features", "neighbourhoods", "nodes"),
        *("finding directions", "choosing γ", "solving for weights"),
    ]
    hops = [(done, total) for phase, done, total in told if phase == "neighbourhoods"]
    assert hops == [(done, len(hops)) for done in range(len(hops))]
    told.clear()
    model.predict(graph)
    assert told == []  # nobody listens any more


def test_the_time_left_is_that_of_steps_like_those_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(shared, "monotonic", lambda: now)
    work = Work("learning")
    work.hear("", 0, 10)
    assert work.left() is None
    now += 6
    work.hear("", 2, 10)
    assert work.left() == 24
    now += 4
    assert work.left() == 20
    work.hear("choosing γ", 0, 3)
    assert work.left() is None
    # where a command counts steps itself, what goes on below is not shown
    work.tell(0, 100)
    now += 5
    work.tell(50, 100)
    work.hear("nodes", 1, 2)
    assert (work.phase, work.left()) == ("", 5)
