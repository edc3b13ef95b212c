from __future__ import annotations

import hashlib
import re

import pytest

from algnn.errors import AlgnnError
from algnn.report.evidence import gather
from algnn.report.files import write, write_markdown


def fingerprints(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_a_report_leaves(rich_report):
    found = set(fingerprints(rich_report))
    assert {"index.html", "report.md", "tables.tex", "csv/runs.csv", "csv/main-1-cora.csv"} <= found
    assert {"csv/speeds-1.csv", "csv/retained.csv", "csv/failed.csv"} <= found
    figures = {name for name in found if name.startswith("figures/")}
    assert {name[:-4] for name in figures if name.endswith(".svg")} == {
        name[:-4] for name in figures if name.endswith(".png")
    }
    assert "figures/stages-cora.svg" in figures
    assert len(found) == len(figures) + 3 + len({n for n in found if n.startswith("csv/")})


def test_the_same_records_give_the_same_bytes(make, tmp_path):
    records = [make(method=name, seed=seed) for name in ("gem", "ewc") for seed in (1, 2)]
    write(gather(records), tmp_path / "a")
    write(gather(reversed(records)), tmp_path / "b")
    assert fingerprints(tmp_path / "a") == fingerprints(tmp_path / "b")


def test_markdown_alone(make, tmp_path):
    path = write_markdown(gather([make()]), tmp_path / "docs" / "results.md")
    text = path.read_text("utf-8")
    assert text.startswith("<!-- made from records")
    linked = re.findall(r"\]\((results/[^)]*\.png)\)", text)
    assert sorted(f"results/{p.name}" for p in (path.parent / "results").iterdir()) == sorted(
        linked
    )


def test_a_folder_that_cannot_be_written(make, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AlgnnError, match="cannot be written"):
        write(gather([make()]), tmp_path / "file")
