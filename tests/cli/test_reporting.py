"""`algnn report` and `algnn demo`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from algnn.bench import runs
from algnn.bench.record import Failure
from algnn.bench.runs import write
from algnn.cli import main
from algnn.graph.datasets import available


@pytest.fixture
def folder(make_record, tmp_path: Path) -> Path:
    write(make_record(), tmp_path / "records")
    return tmp_path / "records"


def test_a_page(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--out", "page"]) == 0
    assert capsys.readouterr().out.splitlines() == ["1 run", "report: page/index.html"]
    assert (tmp_path / "page" / "index.html").read_text("utf-8").startswith("<!doctype html>")


def test_several_folders(make_record, folder, tmp_path, capsys):
    write(make_record(seed=43), tmp_path / "more")
    write(
        Failure("digits", {}, "gem", {}, 2, 1, "full", "label", 42, "cpu", reason="x"),
        tmp_path / "more",
    )
    arguments = ["--records", str(folder), "--records", str(tmp_path / "more")]
    assert main(["report", *arguments, "--markdown", str(tmp_path / "a" / "r.md")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "2 runs, 1 failed"
    assert "| `algnn` | 2 |" in (tmp_path / "a" / "r.md").read_text("utf-8")


def test_other_forms_when_asked_for(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--latex", "a/tables.tex", "--csv", "b"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == ["1 run", "report: a/tables.tex", "report: b"]
    assert r"\begin{tabular}" in (tmp_path / "a" / "tables.tex").read_text()
    assert {"runs.csv", "main-1-digits.csv"} <= {path.name for path in (tmp_path / "b").iterdir()}
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--records", "nowhere"], "--records 'nowhere' is not a folder"),
        (["--records", "empty"], "holds no record of a run: make some with `algnn bench`"),
        (["--markdown", "results.txt"], "end it in .md"),
        (["--latex", "results.txt"], "end it in .tex"),
        (["--out", "records/file"], "cannot be a folder"),
        (["--records", "broken"], "is not a whole record of a run"),
    ],
)
def test_mistakes_are_one_line(folder, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.json").write_text("{")
    (folder / "file").write_text("")
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("notes.md", ["--markdown", "notes.md"]),
        ("notes.tex", ["--csv", "b", "--latex", "notes.tex"]),
        ("index.html", ["--out", "."]),
        ("runs.csv", ["--csv", "."]),
    ],
)
def test_only_a_report_is_replaced_by_one(folder, tmp_path, monkeypatch, capsys, name, arguments):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / name
    own.write_bytes("mine, with an ä".encode("latin-1"))
    assert main(["report", *arguments]) == 2
    assert f"{name} is no report of algnn's: move it away, or give" in capsys.readouterr().err
    assert own.read_bytes().startswith(b"mine")
    own.unlink()
    for _ in range(2):
        assert main(["report", *arguments]) == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mine/leaderboard.csv", ["--csv", "mine"]),
        ("mine/stages-digits.png", ["--markdown", "mine.md"]),
    ],
)
def test_tables_and_pictures_of_the_users_own_are_left_alone(
    folder, tmp_path, monkeypatch, capsys, name, arguments
):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / name
    own.parent.mkdir()
    own.write_text("mine")
    assert main(["report", *arguments]) == 2
    assert f"{name} was not made by a report" in capsys.readouterr().err
    assert own.read_text() == "mine"


def test_tables_of_an_earlier_report_are_named(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--csv", "b"]) == 0
    (tmp_path / "b" / "main-1-cora.csv").write_text("of another graph")
    os.utime(tmp_path / "b" / "main-1-cora.csv", (0, 0))
    capsys.readouterr()
    assert main(["report", "--csv", "b"]) == 0
    assert capsys.readouterr().out.endswith(
        "b also holds what is older than this report: main-1-cora.csv\n"
    )


# -- the demo -------------------------------------------------------------------------------------


PNG = b"\x89PNG"


def test_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--methods", "algnn, bare"]) == 0
    *_, sentence, chart, page = capsys.readouterr().out.splitlines()
    found = {r.method: r.outcome.ap for r in runs.read_records("demo/records")}
    assert set(found) == {"algnn", "bare"}
    assert [float(part) for part in re.findall(r"([\d.]+)%", sentence)] == [
        round(found["algnn"], 1),
        round(found["bare"], 1),
    ]
    assert "over 10 classes" in sentence
    assert chart == f"chart: {Path('demo', 'digits.png')}"
    assert Path("demo", "digits.png").read_bytes().startswith(PNG)
    assert page == f"page: {Path('demo', 'index.html')}"
    text = Path("demo", "index.html").read_text("utf-8")
    assert all(word in text for word in ("algnn", "bare", "digits"))
    Path("demo", "index.html").write_text("mine")
    assert main(["demo"]) == 2
    assert "is no report of algnn's" in capsys.readouterr().err


def test_the_whole_demo_takes_cora_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--full", "--methods", "bare"]) == 0
    names = [name for name in ("digits", "cora") if available(name)]
    found = {(r.dataset, r.method) for r in runs.read_records("demo/records")}
    assert found == {(name, "bare") for name in names}
    assert all(Path("demo", f"{name}.png").is_file() for name in names)
