from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from algnn.bench.progress import Progress
from algnn.bench.record import Run


def a_run(method: str = "algnn", seed: int = 42, dataset: str = "cora", step: int = 1) -> Run:
    return Run(dataset, {}, method, {}, 2, step, "full", "label", seed, "cpu")


def drawn(screen: Progress) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(screen.bars)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_counts() -> None:
    left = [a_run(seed=seed) for seed in range(5)]
    shown = Progress(left, 0)
    assert shown.counts() == "0 done · 0 running · 0 failed · 5 left"
    shown.begin(left[0])
    shown.begin(left[1])
    assert shown.counts() == "0 done · 2 running · 0 failed · 3 left"
    shown.finish(left[0], 87.5, 1.0)
    shown.fail(left[1], "x")
    assert shown.counts() == "1 done · 0 running · 1 failed · 3 left"
    shown.begin(left[2])
    shown.drop(left[2])
    assert shown.counts() == "1 done · 0 running · 1 failed · 3 left"


def test_settings_that_tell_runs_apart() -> None:
    runs = [
        replace(a_run(seed=s), settings={"width": w, "lr": 0.1}) for s in (1, 2) for w in (8, 16)
    ]
    runs.append(replace(a_run("bare"), settings={"lr": 0.2}))
    shown = Progress(runs, 0)
    assert shown.label(runs[1]) == "cora algnn step 1 seed 1 width=16"
    assert shown.label(runs[-1]) == "cora bare step 1 seed 42"


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    left = [a_run(seed=1), a_run("bare", 2)]
    shown = Progress(left, 1, None)
    shown.announce("1 worker")
    shown.begin(left[0])
    shown.say(left[0], "hello")
    shown.say(left[0], "1\t10%\r20%")
    shown.finish(left[0], 87.5, 1.25)
    shown.begin(left[1])
    shown.fail(left[1], "out of memory")
    shown.say(left[1], "\x1b[1mthe end")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.split("\n")[:-1] == [
        "2 runs to do (1 more done before), with 1 worker",
        "cora algnn step 1 seed 1: hello",
        "cora algnn step 1 seed 1: 1\t10%\r20%",
        "[1/2] cora algnn step 1 seed 1: AP 87.50, 1.2 s",
        "[2/2] cora bare step 1 seed 2: failed: out of memory",
        "cora bare step 1 seed 2: \x1b[1mthe end",
    ]


def test_the_screen() -> None:
    left = [a_run(seed=1), a_run("own.module:Own", 2)]
    screen = Progress(left, 0, True)
    screen.begin(left[1])
    assert "0 done · 1 running · 0 failed · 1 left" in drawn(screen)
    assert "cora own.module:Own step 1 seed 2" in drawn(screen)
    screen.session(left[1], 1, 4)
    whole, own = screen.bars.tasks
    assert (own.completed, own.total) == (1, 4)
    screen.finish(left[1], 87.5, 90.0)
    assert "own.module" not in drawn(screen)
    assert (whole.completed, whole.total) == (1, 2)
    screen.session(left[1], 2, 4)  # of a run that is over: a cluster may tell late


def test_the_screen_leaves_failures_and_takes_itself_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = [a_run(seed=1)]
    shown = Progress(left, 0, True)
    with shown.bars:
        shown.announce("1 worker [of many]")
        shown.begin(left[0])
        shown.say(left[0], "[bold]hello")
        shown.fail(left[0], "out of memory")
    out, err = capsys.readouterr()
    assert out == ""
    for line in (
        "1 run to do, with 1 worker [of many]",
        "cora algnn step 1 seed 1: [bold]hello",
        "cora algnn step 1 seed 1: failed: out of memory",
    ):
        assert line in err
    # the cursor is back
    assert err.rindex("\x1b[?25h") > err.rindex("\x1b[?25l")


@pytest.mark.parametrize(
    ("wish", "terminal", "runs", "shows"),
    [
        (None, True, 1, "bars"),
        (None, False, 1, "lines"),
        (False, True, 1, ""),
        (None, False, 0, ""),
        (None, True, 0, ""),
    ],
)
def test_who_watches(
    wish: bool | None, terminal: bool, runs: int, shows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert Progress([a_run()] * runs, 0, wish).shows == shows
