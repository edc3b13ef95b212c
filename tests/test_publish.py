"""What would be published: a small wheel with everything in it, and a page for an index."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import algnn

ROOT = Path(__file__).parent.parent
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
