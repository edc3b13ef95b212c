"""The README promises figures and code; both are checked here."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from algnn.bench.paper import paper_figures
from algnn.bench.runs import read_runs, summarise

ROOT = Path(__file__).parent.parent
refresh = runpy.run_path(str(ROOT / "benchmarks/baselines.py"))["refresh"]
README = (ROOT / "README.md").read_text("utf-8")
TABLE = README.split("<!-- figures:")[1].split("\n\n")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if re.match(r"\| [a-z]", line) and not line.startswith("| graph")
]


NAMED = {"digits", "cora", "citeseer", "pubmed", "computers", "corafull-graph", "arxiv-graph"}


def test_tables_of_the_documents_are_those_of_the_records():
    for document in sorted((ROOT / "docs").glob("*.md")):
        assert refresh(document, ROOT / "docs" / "records") == document.read_text("utf-8")


def shown(values, digits=2, interval=True):
    summary = summarise(values)
    text = f"{summary.mean:.{digits}f}"
    return f"{text} ± {summary.ci95:.{digits}f}" if interval else text


@cache
def runs(folder):
    return read_runs(ROOT / "docs" / folder)


def runs_of(dataset, method=None, folder="records/gpu", **stream):
    """Runs of the folder that the README names for a figure."""
    wanted = {"dataset": dataset, "order": "label", "edges": "full", "step": 1, **stream}
    wanted |= {} if method is None else {"method": method}
    table = runs(folder)
    return table[(table[list(wanted)] == list(wanted.values())).all(axis=1)]


def test_the_table_is_there():
    assert {row[0] for row in ROWS} >= {"digits", "cora", "citeseer", "pubmed"}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_figure_comes_from_the_records(row):
    name = row[0] if row[0] in NAMED else f"{row[0]}.npz"
    for place, method in ((1, "algnn"), (3, "algnn-nodes")):
        found = runs_of(name, method, "records/cpu")
        assert set(found["seed"]) == {42, 43, 44}
        assert row[place] == shown(found["ap"])
        assert row[place + 1] == shown(found["micro"], digits=1, interval=False)
    reproduced = runs_of(name, "algnn-paper")
    assert row[5] == ("–" if reproduced.empty else shown(reproduced["ap"]))
    paper = paper_figures(name, "algnn-paper")
    assert row[6] == ("–" if paper is None else f"{paper.ap[0]:.2f}")
    joint = [runs_of(name, method) for method in ("joint", "joint-appnp", "joint-sage")]
    assert row[7] == max((shown(found["ap"]) for found in joint if len(found)), default="–")


def test_the_figures_in_the_text_are_those_of_the_records():
    def mean(dataset, what, digits=2):
        found = runs_of(dataset, "algnn", "records/cpu")
        return f"{summarise(found[what]).mean:.{digits}f}"

    said = [
        f"expected calibration error {mean('cora', 'ece')} on cora and"
        f" {mean('citeseer', 'ece')} on citeseer",
        f"AUROC {mean('cora', 'novelty_auroc')} on cora and"
        f" {mean('citeseer', 'novelty_auroc')} on citeseer",
    ]
    text = " ".join(README.split())
    for words in said:
        assert words in text


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("cora", 75.0, 12.0), ("citeseer", 66.0, 20.5), ("computers", 84.0, 10.0)],
)
def test_the_paper_is_reproduced(name, least, most):
    found = runs_of(name, "algnn-paper")
    assert summarise(found["ap"]).mean >= least
    assert summarise(found["af"]).mean <= most


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert (tmp_path / "model.safetensors").is_file()
    assert names["model"].classes_.tolist() == list(range(10))
