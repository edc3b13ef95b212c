"""The stories of the documents: their scripts run, and so do the commands that they name."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn.cli import main

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
STORIES = {
    "an-erasure-request": "An erasure request arrived",
    "two-hospitals-one-model": "Two hospitals, one model",
    "a-new-class-every-week": "A new class every week",
}


def story(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_runs_and_its_claims_hold(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    out, err = capsys.readouterr()
    assert err == ""
    assert 3 <= len(out.splitlines()) <= 20
    assert list(tmp_path.iterdir()) == []


def test_every_script_is_told_of_and_every_story_has_one() -> None:
    told = {script for name in STORIES for script in re.findall(r"examples/\w+\.py", story(name))}
    assert told == {f"examples/{path.name}" for path in SCRIPTS}
    for name, title in STORIES.items():
        assert story(name).startswith(f"# {title}\n")
        assert f"docs/{name}.md" in (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def desk(tmp_path: Path, small_graph: Data, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the stories name."""
    monkeypatch.chdir(tmp_path)
    np.savez("graph.npz", x=small_graph.x.numpy(), edge_index=small_graph.edge_index.numpy())
    rows = [f"{node},{label}" for node, label in enumerate(small_graph.y.tolist())]
    known = [row for row, label in zip(rows, small_graph.y.tolist(), strict=True) if label < 3]
    tables = {
        "first.csv": known[:24],
        "theirs.csv": known[4:7],
        "labels.csv": known[:4] + known[7:24],
        "arrivals.csv": rows[50:],
    }
    for name, lines in tables.items():
        Path(name).write_text("\n".join(["node,label", *lines]) + "\n")
    return tmp_path


@pytest.mark.parametrize("name", STORIES)
def test_the_commands_can_be_typed(
    name: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "model.safetensors", "graph.npz", "first.csv"]) == 0
    if name == "a-new-class-every-week":
        # of nodes that have arrived since
        shutil.copy("arrivals.csv", "labels.csv")
    lines = re.findall(r"^    ((?:algnn|cp) .*)$", story(name), re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        if line.startswith("algnn learn south"):
            shutil.copy("arrivals.csv", "labels.csv")  # the other hospital has other patients
        command, *arguments = line.split()
        if command == "cp":
            shutil.copy(*arguments)
        else:
            assert main(arguments) == 0, line
            assert capsys.readouterr().err == ""
