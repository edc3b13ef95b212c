from __future__ import annotations

import re
from pathlib import Path

import pytest

from algnn.bench import runs
from algnn.cli import main
from algnn.graph.datasets import available

PNG = b"\x89PNG"


def test_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--methods", "algnn,bare"]) == 0
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


def test_the_whole_demo_takes_cora_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--full", "--methods", "ncm"]) == 0
    names = [name for name in ("digits", "cora") if available(name)]
    found = {(r.dataset, r.method) for r in runs.read_records("demo/records")}
    assert found == {(name, "ncm") for name in names}
    assert all(Path("demo", f"{name}.png").is_file() for name in names)
