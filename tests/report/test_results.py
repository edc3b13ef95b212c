"""docs/results.md shows the figures of its records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from algnn.report.build import build
from algnn.report.data import read
from algnn.report.export import markdown

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture(scope="module")
def text() -> str:
    return (DOCS / "results.md").read_text("utf-8")


def rows(text: str) -> list[str]:
    return re.findall(r"^\|.*", text, flags=re.MULTILINE)


def test_its_tables_are_those_of_the_records(text):
    assert rows(markdown(build(read([DOCS / "records"]), pictures=True))) == rows(text), (
        "`make docs`"
    )


def test_its_pictures_are_there(text):
    linked = re.findall(r"\]\((results/[^)]*\.png)\)", text)
    assert 0 < len(linked) <= 24
    assert {DOCS / path for path in linked} == set((DOCS / "results").iterdir())


def test_it_names_the_papers_rows_that_are_not_there(text):
    missing = text.split("## The paper's rows that are not here")[1]
    assert "\nalgnn bench --datasets corafull,reddit,arxiv --methods algnn-paper," in missing
