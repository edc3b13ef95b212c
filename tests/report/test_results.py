"""docs/results.md is what its records say."""

from __future__ import annotations

import re
from pathlib import Path

from algnn.report.evidence import read
from algnn.report.files import REMARK
from algnn.report.outline import outline
from algnn.report.texts import markdown

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_document_is_what_the_records_say():
    text = (DOCS / "results.md").read_text("utf-8")
    found = markdown(outline(read([DOCS / "records"])), "results", REMARK)
    assert found == text, "run `make docs`"


def test_its_pictures_are_there():
    text = (DOCS / "results.md").read_text("utf-8")
    linked = re.findall(r"\]\((results/[^)]*\.png)\)", text)
    assert linked
    assert {DOCS / path for path in linked} == set((DOCS / "results").iterdir())


def test_it_says_which_of_the_papers_rows_are_not_there():
    text = (DOCS / "results.md").read_text("utf-8")
    missing = text.split("## The paper's rows that are not here")[1]
    for name in ("`corafull`", "`reddit`", "`arxiv`"):
        assert name in missing
    assert "\nalgnn bench --datasets corafull,reddit,arxiv --methods algnn-paper," in missing
