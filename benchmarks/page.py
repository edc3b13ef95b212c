"""The report's page as a browser shows it, for the docs: `python benchmarks/page.py`.

Needs Chromium. From the records in docs/records it writes docs/page.png (a desktop, light),
docs/page-dark.png (a desktop, dark, four methods of one graph alone) and docs/page-phone.png.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import tempfile
from pathlib import Path

from algnn.cli import main

DOCS = Path(__file__).parents[1] / "docs"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDE, PHONE = (1440, 900), (390, 1500)
ALONE = "#graph=arxiv-graph&only=algnn&only=algnn-paper&only=slda&only=gem"


def photograph(page: str, picture: Path, size: tuple[int, int], *, dark: bool = False) -> None:
    """A screenshot of the top of a page at an address."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        raise SystemExit("this needs Chromium: install it first")
    with tempfile.TemporaryDirectory() as profile:
        # a window is never as narrow as a phone: the page stands in a frame
        frame = Path(profile) / "frame.html"
        look = f'style="border:0" width="{size[0]}" height="{size[1]}"'
        body = f'<iframe {look} src="{html.escape(page)}"></iframe>'
        frame.write_text(f'<!doctype html><body style="margin:0">{body}')
        command = [
            browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--window-size={max(size[0], 500)},{size[1]}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--screenshot={picture}", frame.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    _shrink(picture, size)


def _shrink(picture: Path, size: tuple[int, int]) -> None:
    from PIL import Image

    image = Image.open(picture).convert("RGB").crop((0, 0, *size))
    image.quantize(256, dither=Image.Dither.NONE).save(picture, "png", optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if code := main(["report", "--records", str(DOCS / "records"), "--out", folder]):
            raise SystemExit(code)
        address = (Path(folder) / "index.html").as_uri()
        photograph(address, DOCS / "page.png", WIDE)
        photograph(address + ALONE, DOCS / "page-dark.png", WIDE, dark=True)
        photograph(address, DOCS / "page-phone.png", PHONE)
