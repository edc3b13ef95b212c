"""The progress of runs: a live display or a line per run, and a bar for runs in this process."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from time import monotonic

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from algnn.bench.record import Failure, Record, Run


class Progress:
    """Counts runs and estimates the time left; shows nothing. Slots are numbered from 0."""

    def __init__(self, jobs: int, left: Sequence[Run], known: Sequence[Record]) -> None:
        self.total = len(left)
        self.left = {id(run): run for run in left}
        self.varying = _varying(left)
        self.reused = len(known)
        self.done = 0
        self.failed = 0
        self.running: list[Run | None] = [None] * jobs
        self.sessions = [(0, 0)] * jobs
        self.since = [0.0] * jobs
        self.seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for record in known:
            self._note(record, sum(record.outcome.learn_seconds + record.outcome.predict_seconds))

    def announce(self, where: str) -> None:
        """Work is about to begin, with the workers that `where` describes."""
        before = f" ({self.reused} more done before)" if self.reused else ""
        runs = f"{self.total} run{'s' * (self.total != 1)} to do"
        self._print(f"{runs}{before}, with {where}")

    def begin(self, slot: int, run: Run) -> None:
        """A worker begins a run; it may be one that has joined since."""
        while slot >= len(self.running):
            self.running.append(None)
            self.sessions.append((0, 0))
            self.since.append(0.0)
        self.left.pop(id(run), None)
        self.running[slot], self.sessions[slot], self.since[slot] = run, (0, 0), monotonic()

    def session(self, slot: int, done: int, count: int) -> None:
        """A worker has finished `done` of `count` sessions."""
        self.sessions[slot] = done, count

    def finish(self, slot: int, record: Record, seconds: float) -> None:
        """A worker has finished a run."""
        self.done += 1
        self.running[slot] = None
        self._note(record, seconds)

    def fail(self, slot: int, failure: Failure) -> None:
        """A worker's run has failed."""
        self.failed += 1
        self.running[slot] = None
        self._print(f"{self._count()}{self.label(failure)}: failed: {failure.reason}", "red")

    def drop(self, slot: int) -> None:
        """A worker's run has to be begun again."""
        run, self.running[slot] = self.running[slot], None
        if run is not None:
            self.left[id(run)] = run

    def say(self, slot: int, line: str) -> None:
        """A worker has printed a line."""
        run = self.running[slot]
        self._print(line if run is None else f"{self.label(run)}: {line}", "dim")

    def label(self, run: Run | Record) -> str:
        """A run in a few words, with the settings that differ between the runs at hand."""
        names = self.varying.get((run.dataset, run.method), ())
        return label(run) + "".join(f" {name}={run.settings[name]}" for name in names)

    def counts(self) -> str:
        """Number of runs done, running, failed and left, in words."""
        running = sum(run is not None for run in self.running)
        left = len(self.left)
        return f"{self.done} done · {running} running · {self.failed} failed · {left} left"

    def time_left(self) -> float | None:
        """Seconds to go, judging by similar runs; None as long as nothing is known."""
        if not self.seconds:
            return None
        work = [self._expected(run) for run in self.left.values()]
        for run, since in zip(self.running, self.since, strict=True):
            if run is not None:
                work.append(max(0.0, self._expected(run) - (monotonic() - since)))
        return sum(work) / max(1, min(len(work), len(self.running)))

    def _count(self) -> str:
        return ""

    def _print(self, line: str, style: str = "") -> None:
        pass

    def _note(self, run: Run | Record, seconds: float) -> None:
        for key in _kinds(run):
            self.seconds[key].append(seconds)

    def _expected(self, run: Run) -> float:
        key = next(key for key in _kinds(run) if key in self.seconds)
        return fmean(self.seconds[key])


class _Lines(Progress):
    """A line on stderr for each run that ends: for log files and pipes."""

    def finish(self, slot: int, record: Record, seconds: float) -> None:
        super().finish(slot, record, seconds)
        ap = f"AP {record.outcome.ap:.2f}"
        self._print(f"{self._count()}{self.label(record)}: {ap}, {seconds:.1f} s")

    def _count(self) -> str:
        return f"[{self.done + self.failed}/{self.total}] "

    def _print(self, line: str, style: str = "") -> None:
        print(line, file=sys.stderr, flush=True)


class _Screen(Progress):
    """A bar, and a line for each worker, drawn anew several times a second."""

    console: Console | None = None

    def __rich__(self) -> RenderableType:
        bar = ProgressBar(total=max(1, self.total), completed=self.done + self.failed, width=60)
        left = self.time_left()
        about = f" · about {_duration(left)} to go" if left is not None and self.total else ""
        table = Table.grid(padding=(0, 2))
        for run, (done, count), since in zip(self.running, self.sessions, self.since, strict=True):
            if run is None:
                table.add_row("", Text("idle" if since else "starting", style="dim"))
                continue
            session = f"session {min(done + 1, count)} of {count}" if count else "base session"
            table.add_row("", Text(self.label(run)), Text(session), _duration(monotonic() - since))
        return Group(Text(self.counts() + about), bar, table)

    def _print(self, line: str, style: str = "") -> None:
        if self.console is not None:
            self.console.print(Text(line, style=style), soft_wrap=True)


@contextlib.contextmanager
def watch(
    progress: bool | None, jobs: int, left: Sequence[Run], known: Sequence[Record]
) -> Iterator[Progress]:
    """Show the progress of runs while the block lasts; `known` runs serve to estimate times.

    `progress` is None for a live display where stderr is a terminal and lines elsewhere, False for
    neither, True for the display in any case.
    """
    live = sys.stderr.isatty() if progress is None else progress
    if progress is False or not left:
        yield Progress(jobs, left, known)
    elif not live:
        yield _Lines(jobs, left, known)
    else:
        screen = _Screen(jobs, left, known)
        screen.console = Console(stderr=True, force_terminal=True, highlight=False)
        with Live(screen, console=screen.console, transient=True, redirect_stdout=False):
            yield screen


def label(run: Run | Record) -> str:
    """A run in a few words."""
    return f"{run.dataset} {run.method} step {run.step} seed {run.seed}"


def _varying(runs: Sequence[Run]) -> dict[tuple[str, str], list[str]]:
    """For each dataset and method, the settings that its runs do not have in common."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.dataset, run.method].append(run)
    return {
        key: [n for n in group[0].settings if len({repr(run.settings[n]) for run in group}) > 1]
        for key, group in groups.items()
    }


def _kinds(run: Run | Record) -> list[tuple[str, ...]]:
    """Keys of runs whose times are similar, the most similar first."""
    step = str(run.step)
    return [(run.dataset, run.method, step), (run.dataset, run.method), (run.method,), ()]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
