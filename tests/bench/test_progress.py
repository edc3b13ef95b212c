from __future__ import annotations

import io
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from algnn.bench import progress
from algnn.bench.progress import Progress, _Lines, _Screen, watch
from algnn.bench.protocol import Outcome
from algnn.bench.record import RUN_FACTS, Failure, Record, Run


def a_run(method: str = "algnn", seed: int = 42, dataset: str = "cora", step: int = 1) -> Run:
    return Run(dataset, {}, method, {}, 2, step, "full", "label", seed, "cpu")


def recorded(run: Run, seconds: float = 1.0) -> Record:
    outcome = Outcome(((0, 1),), np.array([[3, 4]]), np.array([4, 4]), (seconds,), (0.0,), (8,))
    return Record(**{name: getattr(run, name) for name in RUN_FACTS}, outcome=outcome)


def drawn(screen: _Screen) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(screen)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_counts() -> None:
    left = [a_run(seed=seed) for seed in range(5)]
    shown = Progress(2, left, [])
    assert shown.counts() == "0 done · 0 running · 0 failed · 5 left"
    shown.begin(0, left[0])
    shown.begin(1, left[1])
    assert shown.counts() == "0 done · 2 running · 0 failed · 3 left"
    shown.finish(0, recorded(left[0]), 1.0)
    shown.fail(1, Failure(**vars(left[1]), reason="x"))
    assert shown.counts() == "1 done · 0 running · 1 failed · 3 left"
    shown.begin(0, left[2])
    shown.drop(0)
    assert shown.counts() == "1 done · 0 running · 1 failed · 3 left"


def test_time_left_follows_the_nearest_of_kin(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: clock[0])
    left = [a_run("bare"), a_run("algnn"), a_run("algnn", dataset="digits"), a_run("new")]
    assert Progress(1, left, []).time_left() is None
    known = [recorded(a_run("bare", 1), 10.0), recorded(a_run("algnn", 1), 2.0)]
    # one unknown method: the mean of all there is
    assert Progress(1, left, known).time_left() == 10 + 2 + 2 + 6
    shown = Progress(2, left, known)
    assert shown.time_left() == 20 / 2
    shown.begin(0, left[0])
    clock[0] += 4
    assert shown.time_left() == (6 + 10) / 2
    clock[0] += 40  # it takes longer than ever: nobody knows how long
    assert shown.time_left() == 10 / 2
    shown.finish(0, recorded(left[0]), 44.0)
    assert shown.time_left() == pytest.approx((2 + 2 + (10 + 2 + 44) / 3) / 2)


def test_settings_that_tell_runs_apart() -> None:
    runs = [
        replace(a_run(seed=s), settings={"width": w, "lr": 0.1}) for s in (1, 2) for w in (8, 16)
    ]
    runs.append(replace(a_run("bare"), settings={"lr": 0.2}))
    shown = Progress(1, runs, [])
    assert shown.label(runs[1]) == "cora algnn step 1 seed 1 width=16"
    assert shown.label(runs[-1]) == "cora bare step 1 seed 42"


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    left = [a_run(seed=1), a_run("bare", 2)]
    shown = _Lines(1, left, [recorded(a_run(seed=3))])
    shown.announce("1 worker")
    shown.begin(0, left[0])
    shown.say(0, "hello")
    shown.finish(0, recorded(left[0]), 1.25)
    shown.begin(0, left[1])
    shown.fail(0, Failure(**vars(left[1]), reason="out of memory"))
    shown.say(0, "the end")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "2 runs to do (1 more done before), with 1 worker",
        "cora algnn step 1 seed 1: hello",
        "[1/2] cora algnn step 1 seed 1: AP 87.50, 1.2 s",
        "[2/2] cora bare step 1 seed 2: failed: out of memory",
        "the end",
    ]


def test_the_screen() -> None:
    left = [a_run(seed=1), a_run("own.module:Own", 2)]
    screen = _Screen(2, left, [])
    screen.begin(1, left[1])
    assert " ".join(drawn(screen).split()) == (
        "0 done · 1 running · 0 failed · 1 left starting"
        " cora own.module:Own step 1 seed 2 base session 0 s"
    )
    screen.session(1, 1, 4)
    assert "session 2 of 4" in drawn(screen)
    screen.session(1, 4, 4)
    assert "session 4 of 4" in drawn(screen)
    screen.finish(1, recorded(left[1]), 90.0)
    assert "idle" in drawn(screen)
    assert "about 1 min 30 s to go" in drawn(screen)
    assert max(map(len, drawn(screen).splitlines())) <= 80


def test_the_screen_leaves_failures_and_takes_itself_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = [a_run(seed=1)]
    with watch(True, 1, left, []) as shown:
        shown.announce("1 worker [of many]")
        shown.begin(0, left[0])
        shown.say(0, "[bold]hello")
        shown.fail(0, Failure(**vars(left[0]), reason="out of memory"))
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
    ("wish", "terminal", "runs", "kind"),
    [
        (None, True, 1, _Screen),
        (None, False, 1, _Lines),
        (False, True, 1, Progress),
        (None, False, 0, Progress),
        (None, True, 0, Progress),
    ],
)
def test_who_watches(
    wish: bool | None, terminal: bool, runs: int, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with watch(wish, 1, [a_run()] * runs, []) as shown:
        assert type(shown) is kind


def test_durations() -> None:
    given = (0, 0.4, 59.6, 61, 3599, 3600, 90_000)
    assert [progress._duration(s) for s in given] == [
        "0 s", "0 s", "1 min 00 s", "1 min 01 s", "59 min 59 s", "1 h 00 min", "25 h 00 min",
    ]  # fmt: skip
