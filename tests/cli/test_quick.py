"""Commands that only list or look answer without torch, which takes seconds to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from algnn.cli import main
from algnn.cli.shared import working

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


def test_no_torch(golden: Path, tmp_path: Path) -> None:
    commands = [
        [str(golden / word) if word == MODEL else word for word in command] for command in COMMANDS
    ]
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"{command} 0\n" in done.stdout for command in commands)


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
    with working("loading torch"):
        said = capsys.readouterr().err
    assert ("loading torch" in said) == terminal
    assert capsys.readouterr().out == ""
