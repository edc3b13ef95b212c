"""The report's page as a browser shows it, for the README: `python benchmarks/page.py`.

Needs Chromium. It writes docs/page.png, the top of the page in light colours, and
docs/page-figures.png, its first figures in dark ones, from the records in docs/records.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from algnn.cli import main

DOCS = Path(__file__).parents[1] / "docs"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = (1280, 1150)
# what precedes the figures
HIDDEN = "main section:not(#figures), header, .headlines, .notes { display: none !important }"


def photograph(page: Path, picture: Path, *, dark: bool) -> None:
    """A screenshot of the top of a page."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        raise SystemExit("this needs Chromium: install it first")
    command = [
        browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={page.parent / 'profile'}", f"--window-size={SIZE[0]},{SIZE[1]}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--screenshot={picture}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if code := main(["report", "--records", str(DOCS / "records"), "--out", folder]):
            raise SystemExit(code)
        page = Path(folder) / "index.html"
        photograph(page, DOCS / "page.png", dark=False)
        figures = page.read_text("utf-8").replace("</head>", f"<style>{HIDDEN}</style></head>")
        page.write_text(figures, "utf-8")
        photograph(page, DOCS / "page-figures.png", dark=True)
