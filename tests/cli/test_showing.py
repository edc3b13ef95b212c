from __future__ import annotations

from pathlib import Path

import pytest

from algnn.bench import runs
from algnn.cli import main
from algnn.graph.datasets import available


def test_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--methods", "algnn,bare"]) == 0
    out = capsys.readouterr().out
    names = ["digits", "cora"] if available("cora") else ["digits"]
    for name in names:
        assert f"picture: {Path('demo', name)}.png" in out
        assert Path("demo", f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert out.splitlines()[-1] == f"page: {Path('demo', 'index.html')}"
    page = Path("demo", "index.html").read_text("utf-8")
    assert all(word in page for word in ("algnn", "bare", *names))
    found = {(r.dataset, r.method, r.seed) for r in runs.read_records("demo/records")}
    assert found == {(name, method, 42) for name in names for method in ("algnn", "bare")}
