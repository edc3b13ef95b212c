from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess

import pytest

from algnn.report.evidence import gather
from algnn.report.outline import outline
from algnn.report.tables import overview
from algnn.report.texts import RUN_COLUMNS, latex, markdown, runs_csv, table_csv

HERE = "A CPU, 4 cores"


def nasty_report(make, nasty):
    graph = "a|b_c*d`e<i>.npz"
    given = [(nasty, graph), ("gem", graph), (nasty, "cora"), ("bare", "cora")]
    return outline(gather([make(method=name, dataset=graph) for name, graph in given]))


# -- Markdown -------------------------------------------------------------------------------------


def test_a_table_in_markdown(make):
    records = [make(method="gem"), make(method="ewc", last=9), make(method="joint")]
    text = markdown(outline(gather(records)))
    start = text.index("| method | seeds")
    assert text[start:].split("\n\n")[0] == (
        "| method | seeds | AP | AF | learn (s) | base | macro | micro |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| `ewc` | 1 | **70.00** | **0.00** | **1.00** | 90.0 | **76.7** | **76.7** |\n"
        "| `gem` | 1 | 65.00 | 10.00 | **1.00** | 90.0 | 70.0 | 70.0 |\n"
        "| *`joint`* | 1 | 65.00 | 10.00 | 1.00 | 90.0 | 70.0 | 70.0 |"
    )


def test_names_stay_text_in_markdown(make, nasty):
    text = markdown(nasty_report(make, nasty))
    prose = re.sub(r"```sh\n.*?```", "", text, flags=re.DOTALL)
    assert set(re.findall(r"<[^>]*>", prose)) == {
        "<details>",
        "<summary>",
        "</summary>",
        "</details>",
    }
    # no name makes a column more
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    assert "](y)" not in prose.replace(r"\](y)", "")
    # what follows a name is not taken into its fence
    assert text.count("```sh\n") * 2 == text.count("```")


def test_every_figure_is_linked(rich_report):
    text = (rich_report / "report.md").read_text("utf-8")
    linked = re.findall(r"\]\((figures/[^)]*\.png)\)", text)
    assert len(linked) == len(set(linked)) > 10
    assert all((rich_report / path).is_file() for path in linked)


# -- LaTeX ----------------------------------------------------------------------------------------


def test_a_table_in_latex(make):
    text = latex(outline(gather([make(method="gem"), make(method="ewc", last=9, seed=43)])))
    assert r"gem & 1 & 65.00 & 10.00 & \textbf{1.00} & 90.0 & 70.0 & 70.0 \\" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\begin{tabular}")


def test_names_stay_text_in_latex(make, nasty):
    text = latex(nasty_report(make, nasty))
    assert text.isascii()
    for line in text.splitlines():
        if line.endswith(r"\\"):
            bare = re.sub(r"\\[\\&%$#_{}]", "", line)
            assert not re.search(r"[%#^~]", bare)
            assert bare.count("{") == bare.count("}")
    assert r"\texttt{U+4E2D}" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_latex_compiles(make, nasty, rich_report, tmp_path):
    (tmp_path / "nasty.tex").write_text(latex(nasty_report(make, nasty)))
    (tmp_path / "a.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n"
        f"\\input{{nasty}}\\input{{{rich_report / 'tables.tex'}}}\\end{{document}}\n"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    # no table is wider than a line
    assert not re.search(r"Overfull .hbox .*in paragraph", done.stdout)


# -- CSV ------------------------------------------------------------------------------------------


def test_names_come_back_from_csv(make, nasty):
    study = gather([make(method=nasty, last=a, seed=a) for a in (7, 9)])
    head, row = csv.reader(io.StringIO(table_csv(overview(study, HERE, "1"))))
    assert head == ["method", "digits", "digits ±95%"]
    assert row[0] == nasty
    assert float(row[1]) == 65.0
    assert float(row[2]) == pytest.approx(12.706205 * 5)
    rows = list(csv.DictReader(io.StringIO(runs_csv(study))))
    assert [found["method"] for found in rows] == [nasty] * 2


def test_a_line_per_run(rich_report, rich_study):
    rows = list(csv.DictReader((rich_report / "csv" / "runs.csv").open(encoding="utf-8")))
    assert tuple(rows[0]) == RUN_COLUMNS
    assert len(rows) == len(rich_study.runs)
    for row, run in zip(rows, rich_study.runs, strict=True):
        assert float(row["ap"]) == run.ap
        assert float(row["learn_seconds"]) == run.learn
        assert row["ece"] == ("" if run.ece is None else str(run.ece))
        assert row["novelty_auroc"] == ("" if run.auroc is None else str(run.auroc))
        assert row["main"] == str(not run.changes)
    assert {row["differs"] for row in rows} == {
        "", "budget=12", "width=128", "width=512", "width=4096",
    }  # fmt: skip
