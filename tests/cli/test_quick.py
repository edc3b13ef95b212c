"""Commands that only list or look answer without torch, which takes seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from algnn.cli import main
from algnn.cli.shared import working

MODEL = Path(__file__).parent.parent / "golden" / "0.2.0-default.safetensors"
# what took part, from a process of its own: in this one everything is imported already
ASKED = """
import sys
from algnn.cli import main
code = main(sys.argv[1:])
heavy = {"torch", "pandas", "scipy", "matplotlib", "sklearn"} & set(sys.modules)
sys.exit(f"imported: {sorted(heavy)}" if heavy else code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["methods"],
        ["datasets"],
        ["inspect", str(MODEL)],
        ["inspect", str(MODEL), "--json"],
        ["records", "pack", "."],
        ["fit", "--help"],
    ],
    ids=" ".join,
)
def test_no_torch(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_glance_says_what_the_whole_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for arguments in (["inspect", str(MODEL)], ["inspect", str(MODEL), "--full"]):
        assert main(arguments) == 0
        said.append(capsys.readouterr().out.splitlines())
    glance, full = said
    assert [line for line in full if line not in glance] == [
        line
        for line in full
        if line.startswith(("condition number", "degrees of freedom", "encoder "))
    ]
    assert len(full) == len(glance) + 3


def test_a_model_of_another_kind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(MODEL.with_name("0.2.0-replay.safetensors"))]) == 2
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
