from __future__ import annotations

import csv
import hashlib
import io
import re
import shutil
import subprocess

import pytest

from algnn.bench.runs import frame
from algnn.errors import AlgnnError
from algnn.progress import heard_by
from algnn.report.build import build
from algnn.report.data import gather
from algnn.report.export import (
    RUN_COLUMNS,
    latex,
    markdown,
    prose,
    runs_csv,
    table_csv,
    write,
    write_csv,
    write_latex,
    write_markdown,
)
from algnn.report.tables import leaderboard, main

HERE = "A CPU, 4 cores"


@pytest.fixture
def nasty_report(study_of, nasty):
    graph = "a|b_c*d`e<i>.npz"
    given = [(nasty, graph), ("gem", graph), (nasty, "cora"), ("bare", "cora")]
    return build(study_of(*({"method": name, "dataset": graph} for name, graph in given)))


@pytest.fixture
def three_methods(study_of):
    return build(study_of({"method": "gem"}, {"method": "ewc", "last": 9}, {"method": "joint"}))


# -- Markdown -------------------------------------------------------------------------------------


def test_a_table_in_markdown(three_methods):
    text = markdown(three_methods)
    start = text.index("| method | seeds")
    assert text[start:].split("\n\n")[0] == (
        "| method | seeds | AP | AF | learn (s) | mean AP | base | macro | micro |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| `ewc` | 1 | **70.00** | **0.00** | **1.00** | **80.0** | 90.0 | **76.7** | **76.7** |\n"
        "| `gem` | 1 | 65.00 | 10.00 | **1.00** | 77.5 | 90.0 | 70.0 | 70.0 |\n"
        "| *`joint`* | 1 | 65.00 | 10.00 | 1.00 | 77.5 | 90.0 | 70.0 | 70.0 |"
    )


def test_names_stay_text_in_markdown(nasty_report):
    text = markdown(nasty_report)
    prose = re.sub(r"```sh\n.*?```", "", text, flags=re.DOTALL)
    folded = {"<details>", "<summary>", "</summary>", "</details>"}
    assert set(re.findall(r"<[^>]*>", prose)) == {text.splitlines()[0], *folded}
    # no name makes a column more
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    assert "](y)" not in prose.replace(r"\](y)", "")
    # what follows a name is not taken into its fence
    assert text.count("```sh\n") * 2 == text.count("```")


def test_a_name_in_a_caption_is_code(study_of):
    names = ("A_b.npz", "a`b.npz")
    given = ({"dataset": graph, "method": name} for graph in names for name in ("gem", "ewc"))
    caption = leaderboard(study_of(*given)).caption
    assert "methods ran: `A_b.npz` and a'b.npz." in caption
    assert "<code>A_b.npz</code> and a&#x27;b.npz. <em>graphs</em>" in prose(caption)
    assert prose("P_b") == "P<sub>b</sub>"


def test_markdown_alone_shows_the_main_figures(study_of, tmp_path):
    told: list[tuple[str, int, int]] = []
    with heard_by(lambda *how_far: told.append(how_far)):
        path = write_markdown(study_of({}), tmp_path / "docs" / "results.md")
    spaced = write_markdown(study_of({}), tmp_path / "my (first).md")
    assert "](my%20%28first%29/stages-digits.png)" in spaced.read_text("utf-8")
    text = path.read_text("utf-8")
    assert text.startswith("<!-- made from records")
    linked = re.findall(r"\]\((results/[^)]*\.png)\)", text)
    assert linked == ["results/stages-digits.png"]
    phases = {"paired tests": 1, "sections": 11, "pictures": 1}
    assert told == [(of, i, n) for of, n in phases.items() for i in range(n + 1)]
    assert {f"results/{p.name}" for p in (path.parent / "results").iterdir()} == set(linked)


# -- LaTeX ----------------------------------------------------------------------------------------


def test_a_table_in_latex(three_methods):
    text = latex(three_methods)
    assert r"gem & 1 & 65.00 & 10.00 & \textbf{1.00} & 77.5 & 90.0 & 70.0 & 70.0 \\" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\begin{tabular}")


def test_names_stay_text_in_latex(nasty_report):
    text = latex(nasty_report)
    assert text.isascii()
    for line in text.splitlines():
        if line.endswith(r"\\"):
            bare = re.sub(r"\\[\\&%$#_{}]", "", line)
            assert not re.search(r"[%#^~]", bare)
            assert bare.count("{") == bare.count("}")
    assert r"\texttt{U+4E2D}" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_latex_compiles(nasty_report, rich_study, tmp_path):
    (tmp_path / "nasty.tex").write_text(latex(nasty_report))
    write_latex(rich_study, tmp_path / "tables.tex")
    (tmp_path / "a.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n"
        "\\input{nasty}\\input{tables}\\end{document}\n"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    # no table is wider than a line
    assert not re.search(r"Overfull .hbox .*in paragraph", done.stdout)


def test_labels_in_latex_are_unique(study_of):
    text = latex(build(study_of({"dataset": "a_b.npz"}, {"dataset": "a-b.npz"})))
    labels = re.findall(r"\\label\{(.*)\}", text)
    assert len(labels) == len(set(labels)) > 2


# -- CSV ------------------------------------------------------------------------------------------


def test_names_come_back_from_csv(study_of, nasty):
    study = study_of(*({"method": nasty, "last": a, "seed": a} for a in (7, 9)))
    head, row = csv.reader(io.StringIO(table_csv(main(study, HERE, "digits"))))
    assert head[:4] == ["method", "seeds", "AP", "AP ±95%"]
    assert row[:3] == [nasty, "2", "65.0"]
    assert float(row[3]) == pytest.approx(12.706205 * 5)
    head, row = csv.reader(io.StringIO(table_csv(leaderboard(study))))
    assert head[-3:] == ["digits", "digits micro", "digits verdict"]
    assert [float(row[-3]), float(row[-2]), row[-1]] == [65.0, 70.0, ""]
    rows = list(csv.DictReader(io.StringIO(runs_csv(study))))
    assert [found["method"] for found in rows] == [nasty] * 2


def test_graphs_whose_names_differ_in_case_have_files_apart(study_of, tmp_path):
    """Also where the disk takes a.csv and A.csv for one file."""
    write_csv(study_of({"dataset": "Mine.npz"}, {"dataset": "mine.npz"}), tmp_path)
    found = [path.name.lower() for path in tmp_path.glob("main-1-*")]
    assert len(set(found)) == len(found) == 2


def test_jobs_that_are_no_number_are_written_as_they_are(study_of):
    said = [{"machine": {"jobs": jobs}, "seed": i} for i, jobs in enumerate((2, "many", None))]
    rows = csv.DictReader(io.StringIO(runs_csv(study_of(*said))))
    assert sorted(row["jobs"] for row in rows) == ["", "2", "many"]


def test_a_line_per_run(rich_study, tmp_path):
    write_csv(rich_study, tmp_path)
    found = {path.name for path in tmp_path.iterdir()}
    assert {"leaderboard.csv", "main-1-cora.csv", "speeds-1.csv", "retained.csv"} <= found
    rows = list(csv.DictReader((tmp_path / "runs.csv").open(encoding="utf-8")))
    assert tuple(rows[0]) == RUN_COLUMNS
    assert len(rows) == len(rich_study.runs)
    for row, run in zip(rows, rich_study.runs.itertuples(), strict=True):
        assert float(row["ap"]) == run.ap
        assert float(row["learn_seconds"]) == run.learn_seconds
        assert row["ece"] == ("" if run.outcome.ece is None else str(run.ece))
        assert (row["main"], row["machine"], row["jobs"]) == (str(run.main), "A GPU", "1")
    differs = {"", "budget=12", "width=128", "width=512", "width=4096"}
    assert {row["differs"] for row in rows} == differs


# -- files ----------------------------------------------------------------------------------------


def fingerprints(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_report_is_one_file(rich_report):
    assert set(fingerprints(rich_report)) == {"index.html"}


def test_the_same_records_give_the_same_bytes(make, tmp_path):
    records = [make(method=name, seed=seed) for name in ("gem", "ewc") for seed in (1, 2)]
    for name, given in (("a", records), ("b", records[::-1])):
        study = gather(frame(given))
        write(study, tmp_path / name)
        write_markdown(study, tmp_path / name / "report.md")
        write_csv(study, tmp_path / name / "csv")
    assert fingerprints(tmp_path / "a") == fingerprints(tmp_path / "b")


def test_a_folder_that_cannot_be_written(study_of, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AlgnnError, match="cannot be written"):
        write(study_of({}), tmp_path / "file")
