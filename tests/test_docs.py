"""The site builds without a warning or a network, its examples run, and a wheel can be made."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import algnn

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# the tutorial is one of the notebooks
PAGES = ("your-data", "novelty-queue", "look-at-your-model", "choosing-gamma")


def blocks(page: str) -> list[str]:
    text = (DOCS / f"{page}.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def execute(parts: list[str], name: str) -> None:
    # a class of a notebook must be found in a module, as it would be there
    names: dict[str, object] = {"__name__": "__main__"}
    for place, part in enumerate(parts):
        exec(compile(part, f"{name}, part {place}", "exec"), names)


def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    for page in tmp_path.rglob("*.html"):
        html = page.read_text("utf-8")
        fetched = re.findall(r"<(?:script|img|iframe)[^>]*src=\"?(https?://[^\" >]*)", html)
        fetched += re.findall(r"<link[^>]*rel=\"?stylesheet[^>]*href=\"?(https?://[^\" >]*)", html)
        assert not fetched, page
    reference = (tmp_path / "api.html").read_text("utf-8")
    for name in ("ALGNN.partial_fit", "ALGNN.forget", "from_pandas", "load", "ClassStream"):
        assert f'id="algnn.{name}"' in reference


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    execute(blocks(page), page)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute(code_of(notebook), notebook.stem)


def test_the_first_notebook_is_the_tutorial() -> None:
    (notebook,) = (path for path in NOTEBOOKS if path.stem == "from_zero_to_a_new_class")
    assert [part.strip() for part in code_of(notebook)] == [p.strip() for p in blocks("tutorial")]


# -- what would be published ----------------------------------------------------------------------


LARGEST = 400_000


def test_the_wheel(tmp_path: Path) -> None:
    for tool in ("build", "twine", "setuptools"):
        pytest.importorskip(tool, reason="needs the extra dev")
    source = tmp_path / "source"
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=skipped)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for command in (
        ["build", "--no-isolation", "--wheel", "--outdir", "dist", "source"],
        ["twine", "check", "--strict", f"dist/algnn-{algnn.__version__}-py3-none-any.whl"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.stat().st_size <= LARGEST
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        metadata = packed.read(f"algnn-{algnn.__version__}.dist-info/METADATA").decode()
    sources = (path for path in (ROOT / "src" / "algnn").rglob("*") if path.is_file())
    wanted = {str(path.relative_to(ROOT / "src")) for path in sources if path.suffix != ".pyc"}
    assert wanted <= names
    links = re.findall(r"\]\(([^)]*)\)", metadata)
    assert len(links) > 10
    assert all(link.startswith(("https://", "#")) for link in links)


def test_one_version_everywhere() -> None:
    for name, pattern in (
        ("pyproject.toml", r'^version = "(.*)"'),
        ("CITATION.cff", r"^version: (.*)"),
    ):
        (found,) = re.findall(pattern, (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
        assert found == algnn.__version__
