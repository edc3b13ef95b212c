"""The progress of runs in workers: a live display, a line per run, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich import progress as rich
from rich.console import Console
from rich.text import Text

from algnn.bench.record import Failure, Record, Run


class Progress:
    """Counts runs and shows nothing. Slots, one for each worker, are numbered from 0."""

    def __init__(self, left: Sequence[Run], reused: int) -> None:
        self.total, self.reused = len(left), reused
        self.varying = _varying(left)
        self.done = 0
        self.failed = 0
        self.running: dict[int, Run] = {}

    def announce(self, where: str) -> None:
        """Work is about to begin, with the workers that `where` describes."""
        before = f" ({self.reused} more done before)" if self.reused else ""
        runs = f"{self.total} run{'s' * (self.total != 1)} to do"
        self._print(f"{runs}{before}, with {where}")

    def begin(self, slot: int, run: Run) -> None:
        """A worker begins a run."""
        self.running[slot] = run

    def session(self, slot: int, done: int, count: int) -> None:
        """A worker has finished `done` of `count` sessions."""

    def finish(self, slot: int, record: Record, seconds: float) -> None:
        """A worker has finished a run."""
        self.done += 1
        self.drop(slot)

    def fail(self, slot: int, failure: Failure) -> None:
        """A worker's run has failed."""
        self.failed += 1
        self.drop(slot)
        self._print(f"{self._count()}{self.label(failure)}: failed: {failure.reason}", "red")

    def drop(self, slot: int) -> None:
        """A worker's run is over, or has to be begun again."""
        self.running.pop(slot, None)

    def say(self, slot: int, line: str) -> None:
        """A worker has printed a line."""
        run = self.running.get(slot)
        self._print(line if run is None else f"{self.label(run)}: {line}", "dim")

    def label(self, run: Run | Record) -> str:
        """A run in a few words, with the settings that differ between the runs at hand."""
        names = self.varying.get((run.dataset, run.method), ())
        return label(run) + "".join(f" {name}={run.settings[name]}" for name in names)

    def counts(self) -> str:
        """Number of runs done, running, failed and left, in words."""
        running = len(self.running)
        left = self.total - self.done - self.failed - running
        return f"{self.done} done · {running} running · {self.failed} failed · {left} left"

    def _count(self) -> str:
        return ""

    def _print(self, line: str, style: str = "") -> None:
        pass


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
    """A bar of all runs with the time left, and one of the sessions of each that is going on."""

    def __init__(self, left: Sequence[Run], reused: int) -> None:
        super().__init__(left, reused)
        words = rich.TextColumn("{task.description}", markup=False)
        times = rich.TimeElapsedColumn(), rich.TextColumn("left:"), rich.TimeRemainingColumn()
        console = Console(stderr=True, force_terminal=True, highlight=False)
        shown = {"console": console, "transient": True, "redirect_stdout": False}
        self.bars = rich.Progress(words, rich.BarColumn(), *times, **shown)  # type: ignore[arg-type]
        self.whole = self.bars.add_task(self.counts(), total=self.total)
        self.bar_of: dict[int, rich.TaskID] = {}

    def begin(self, slot: int, run: Run) -> None:
        super().begin(slot, run)
        self.bar_of[slot] = self.bars.add_task(self.label(run), total=None)
        self._show()

    def session(self, slot: int, done: int, count: int) -> None:
        if slot in self.bar_of:
            self.bars.update(self.bar_of[slot], completed=done, total=count)

    def drop(self, slot: int) -> None:
        super().drop(slot)
        if slot in self.bar_of:
            self.bars.remove_task(self.bar_of.pop(slot))
        self._show()

    def _show(self) -> None:
        ended = self.done + self.failed
        self.bars.update(self.whole, description=self.counts(), completed=ended)

    def _print(self, line: str, style: str = "") -> None:
        self.bars.console.print(Text(line, style=style), soft_wrap=True)


@contextlib.contextmanager
def watch(progress: bool | None, left: Sequence[Run], reused: int) -> Iterator[Progress]:
    """Show the progress of runs while the block lasts.

    `progress` is None for a live display where stderr is a terminal and lines elsewhere, False for
    neither, True for the display in any case.
    """
    live = sys.stderr.isatty() if progress is None else progress
    if progress is False or not left:
        yield Progress(left, reused)
    elif not live:
        yield _Lines(left, reused)
    else:
        screen = _Screen(left, reused)
        with screen.bars:
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
