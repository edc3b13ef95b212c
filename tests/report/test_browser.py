"""The page as a browser shows it, on a desktop and on a phone, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from algnn.report.data import Study

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
WIDTHS = (1440, 390)  # a desktop, a phone
LOOK = (Path(__file__).parent / "look.js").read_text("utf-8")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def look(page: str, dark: bool, folder: Path) -> list[dict]:
    """What `look.js` sees in the page at each width.

    The page stands in frames: a window is never 390 pixels wide.
    """
    looked_at = html.escape(page.replace("</body>", f"<script>{LOOK}</script></body>"))
    frames = [f'<iframe width="{w}" height="900" srcdoc="{looked_at}"></iframe>' for w in WIDTHS]
    host = folder / "host.html"
    host.write_text(f"<!doctype html><meta charset=utf-8><body>{''.join(frames)}</body>", "utf-8")
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--dump-dom", host.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.findall(r'<pre id="verdict">(.*?)</pre>', done.stdout, re.DOTALL)
    verdicts = [json.loads(html.unescape(text)) for text in found if text.startswith("{")]
    assert len(verdicts) == len(WIDTHS), done.stderr[-2000:]
    return verdicts


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_in_a_browser(
    rich_report: Path, rich_study: Study, tmp_path: Path, dark: bool
) -> None:
    verdicts = look((rich_report / "index.html").read_text("utf-8"), dark, tmp_path)
    assert {seen["width"] for seen in verdicts} == set(WIDTHS)
    for seen in verdicts:
        assert seen["problems"] == []
        assert seen["smallest"] >= 11
        assert seen["contrast"] >= 4.5
        assert (seen["ground"] < 0.1) == dark
        assert seen["copies"] > 20
        check_sorting(seen)
        assert len(set(seen["marks"])) == len(seen["marks"]) == len(rich_study.methods())


def check_sorting(seen: dict) -> None:
    before, down, up = ([list(map(float, body)) for body in order] for order in seen["orders"])
    assert len(before) == 2
    assert down == [sorted(body, reverse=True) for body in before] != before
    assert up == [sorted(body) for body in before]
    assert seen["sorts"] == [None, "descending", "ascending", None]
    for order in seen["gaps"]:
        full = [key for key in order if key]
        assert 1 < len(full) < len(order)
        assert order == full + [""] * (len(order) - len(full))
    # as a reader sorts names: without regard to signs and capitals
    known = [name for name in seen["names"] if re.fullmatch("[a-z-]+", name)]
    assert known == sorted(known)
    assert seen["reachable"]
