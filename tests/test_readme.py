"""The README promises figures and code; both are checked here."""

import re
from pathlib import Path

import pytest

from algnn.bench import records
from algnn.bench.metrics import summarise
from algnn.bench.tables import refresh

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TABLE = README.split("<!-- figures:")[1].split("\n\n")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if re.match(r"\| [a-z]", line) and not line.startswith("| graph")
]


def test_tables_of_the_documents_are_those_of_the_records():
    for document in sorted((ROOT / "docs").glob("*.md")):
        assert refresh(document, ROOT / "docs" / "records") == document.read_text("utf-8")


def shown(values, digits=2, interval=True):
    summary = summarise(values)
    text = f"{summary.mean:.{digits}f}"
    return f"{text} ± {summary.ci95:.{digits}f}" if interval else text


def test_the_table_is_there():
    assert [row[0] for row in ROWS] == ["cora", "citeseer", "computers", "digits", "pubmed"]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_figure_comes_from_the_records(row):
    found = [
        record
        for record in records.read_all(ROOT / "docs" / "records" / "cpu" / row[0] / "algnn-paper")
        if (record.step, record.edges, record.order) == (1, "full", "label")
    ]
    assert sorted(record.seed for record in found) == [42, 43, 44]
    outcomes = [record.outcome for record in found]
    assert row[1] == shown([o.ap for o in outcomes])
    assert row[3] == shown([o.af for o in outcomes])
    assert row[5] == shown([o.macro for o in outcomes], interval=False)
    assert row[6] == shown([o.micro for o in outcomes], interval=False)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("cora", 75.0, 12.0), ("citeseer", 66.0, 20.5), ("computers", 84.0, 10.0)],
)
def test_the_paper_is_reproduced(name, least, most):
    row = next(row for row in ROWS if row[0] == name)
    assert float(row[1].split()[0]) >= least
    assert float(row[3].split()[0]) <= most


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert (tmp_path / "model.safetensors").is_file()
    assert names["model"].classes_.tolist() == list(range(10))
