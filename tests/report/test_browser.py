"""The page as a browser shows it, on a desktop and on a phone, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from algnn.methods import METHODS
from algnn.report import tables
from algnn.report.build import build
from algnn.report.data import ALL_LABELS, Study
from algnn.report.export import page
from algnn.report.table import Column
from algnn.report.verdicts import mark

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
WIDTHS = (1440, 390)  # a desktop, a phone
LOOK = (Path(__file__).parent / "look.js").read_text("utf-8")
# what someone else sent: a graph, a chart, a metric, two methods alone, an order, a hidden column
LINK = (
    "#graph=corafull-graph&chart=novelty&metric=af&sort=-on+cora&only=gem&only=ewc"
    "&hide=micro&family=replay&family=regularisation"
)

DARK = "@media screen and (prefers-color-scheme: dark)"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def verdicts(rich_report: Path, tmp_path_factory) -> list[dict]:
    """What `look.js` sees: on a desktop and on a phone, on a dark desktop, and with a link's state.

    One browser for all of them. The page stands in frames: a window is never 390 pixels wide.
    """
    folder = tmp_path_factory.mktemp("browser")
    page = (rich_report / "index.html").read_text("utf-8")
    page = page.replace("</body>", f"<script>{LOOK}</script></body>")
    assert page.count(DARK) == 2
    (folder / "light.html").write_text(page, "utf-8")
    (folder / "dark.html").write_text(page.replace(DARK, "@media screen"), "utf-8")
    frames = [(WIDTHS[0], "light.html"), (WIDTHS[1], "light.html"), (WIDTHS[0], "dark.html"),
              (WIDTHS[0], f"light.html{html.escape(LINK)}")]  # fmt: skip
    host = folder / "host.html"
    shown = [f'<iframe width="{w}" height="900" src="{source}"></iframe>' for w, source in frames]
    host.write_text(f"<!doctype html><meta charset=utf-8><body>{''.join(shown)}", "utf-8")
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1600,1000",
        "--blink-settings=preferredColorScheme=1",
        "--allow-file-access-from-files", "--dump-dom", host.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.findall(r'<pre id="verdict">(.*?)</pre>', done.stdout, re.DOTALL)
    seen = [json.loads(html.unescape(text)) for text in found if text.startswith("{")]
    assert len(seen) == len(frames), done.stderr[-2000:]
    # frames are done in any order
    seen.sort(key=lambda one: (bool(one["hash"]), one["ground"] < 0.1, -one["width"]))
    assert [one["width"] for one in seen] == [width for width, _ in frames]
    assert [one["ground"] < 0.1 for one in seen] == [False, False, True, False]
    return seen


def test_everything_is_legible(verdicts, rich_study: Study) -> None:
    for seen in verdicts:
        assert seen["problems"] == []
        assert seen.get("smallest", 12) >= 12
        assert seen["contrast"][0] >= 4.5, seen["contrast"]
        assert seen["copies"] > 5
        check_sorting(seen)
        # folded, a desktop shows it in six screens, the first with the whole of the chart
        if seen["width"] == WIDTHS[0]:
            assert seen["screens"] <= 6
            assert seen["board"] <= 900
        assert len(set(seen["marks"])) == len(seen["marks"])
    assert len(verdicts[0]["marks"]) == len(rich_study.methods())


def test_every_chart_is_drawn_and_says_its_values(verdicts) -> None:
    for seen in verdicts[:2]:
        kinds = {"stages", "tradeoff", "matrix", "times", "kept", "novelty", "curve"}
        for graph, more in (("cora", {"width"}), ("corafull-graph", {"steps"})):
            drawn = {kind: titles for g, kind, titles in seen["charts"] if g == graph}
            assert set(drawn) == kinds | more
            # every method has at least one value to point at
            assert all(titles >= 4 for titles in drawn.values()), drawn
        assert re.fullmatch(
            r".+, after session 0: \d+\.\d( ± \d+\.\d)?", seen["start"]["titles"][0]
        )


def test_search_chips_tabs_and_columns(verdicts, rich_study: Study) -> None:
    for seen in verdicts[:2]:
        start = seen["start"]
        assert start["heads"] == [
            "method", "rank", "mean AP", "mean micro", "against algnn", "cora", "corafull-graph",
        ]  # fmt: skip
        assert (start["graph"], start["kind"], start["metric"]) == ("cora", "stages", "ap")
        assert start["sorted"] == [["rank", "ascending"]]
        assert set(start["rows"]) == set(rich_study.methods())
        assert set(start["rows"][-len(ALL_LABELS) :]) == set(ALL_LABELS)
        assert seen["found"]["rows"] == ["gem"]
        assert "q=GEM+grad" in seen["found"]["hash"]
        assert seen["nothing"] == "No method of this name or family"
        replay = [name for name, method in METHODS.items() if method.kind == "replay"]
        assert set(seen["chip"]["rows"]) == set(replay)
        assert set(seen["chip"]["bright"]) == {"gem"}  # the others did not run on cora
        clicked = seen["clicked"]
        assert (clicked["graph"], clicked["metric"]) == ("corafull-graph", "af")
        assert clicked["bright"] == clicked["only"] == ["gem"]
        assert clicked["heads"] == [
            "method", "rank", "mean AP", "against algnn", "cora", "corafull-graph",
        ]  # fmt: skip
        # no search, and none who learned less than `bare`, decides on who forgets least
        best = {
            row.values[0]
            for graph in rich_study.datasets(step=1)
            for table in [tables.main(rich_study, rich_study.main_hardware(graph), graph)]
            for row in table.rows
            if [column.name for column in table.columns].index("AF") in row.best
        }
        assert best
        assert set(clicked["bold"]) == best
        # the least forgetting first, then the most; where there is none, last
        assert clicked["sorted"] == [["on cora", "ascending"]]
        assert seen["turned"]["sorted"] == [["on cora", "descending"]]
        ran = {"algnn-paper", "bare", "gem"}
        orders = [
            [name for name in state["rows"] if name in ran] for state in (clicked, seen["turned"])
        ]
        assert orders[0] == orders[1][::-1]


def test_marks_are_those_of_the_paired_test(verdicts, rich_study: Study) -> None:
    for seen in verdicts[:2]:
        start = seen["start"]
        assert start["marks"] == {
            name: mark(rich_study.against("corafull-graph", name, "ap")) for name in start["rows"]
        }
        assert set(start["marks"].values()) == {"", "△", "▽"}
        # bold is a claim, and the test makes none here
        assert start["bold"] == []
        assert set(seen["bare"]["marks"].values()) == {""}


def test_a_link_shows_the_same_again(verdicts) -> None:
    state = verdicts[3]["start"]
    assert (state["graph"], state["kind"], state["metric"]) == ("corafull-graph", "novelty", "af")
    assert state["sorted"] == [["on cora", "descending"]]
    assert set(state["only"]) == set(state["bright"]) == {"gem", "ewc"}
    assert "mean micro" not in state["heads"]
    assert set(state["families"]) == {"replay", "regularisation"}
    assert {METHODS[name].kind for name in state["rows"]} == {"replay", "regularisation"}


def test_many_classes_names_that_are_nearly_one_and_halves(study_of, long_run, tmp_path) -> None:
    wide = {"dataset": "cora", "base": 400, "outcome": long_run(800, 1, 0.5, 1.0, 1)}
    text = page(build(study_of(wide, {"dataset": "cora.npz"}, {"dataset": "a.npz"})))
    halves = [60.25, 60.75, -0.25, 58.35, 60.5]
    script = (
        "const all = (of) => [...document.querySelectorAll(of)].map((one) => one.textContent);"
        f"const got = [all('#plot rect').length, all('#graphs button'), {halves}.map(WRITE.point)];"
        "document.body.textContent = JSON.stringify(got);"
    )
    (tmp_path / "wide.html").write_text(
        text.replace("</body>", f"<script>{script}</script></body>"), "utf-8"
    )
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"{(tmp_path / 'wide.html').as_uri()}#graph=cora&chart=matrix",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    (found,) = re.findall(r">(\[.*\])\s*</body>", done.stdout)
    written = [Column("x", "point").write(value) for value in halves]
    assert json.loads(found) == [401 * 402 // 2, ["cora", "a", "cora.npz"], written]


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
