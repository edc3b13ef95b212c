"""The progress of runs in workers: a live display, a line per run, or nothing."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich import progress as rich
from rich.console import Console
from rich.text import Text

from algnn.bench.record import Failure, Record, Run


class Progress:
    """Counts runs, and shows nothing, ``"lines"`` on stderr or ``"bars"`` that move.

    A bar is of all runs, with the time left, or of the sessions of one that is going on. They move
    while the block ``with progress.bars`` lasts. `progress` is as in `scheduler.bench`.
    """

    def __init__(self, left: Sequence[Run], reused: int, progress: bool | None = False) -> None:
        live = sys.stderr.isatty() if progress is None else progress
        self.shows = "" if progress is False or not left else "bars" if live else "lines"
        self.total, self.reused, self.done, self.failed = len(left), reused, 0, 0
        self.running: dict[int, tuple[Run, rich.TaskID]] = {}
        # of each dataset and method the settings that its runs do not have in common
        cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for run in left:
            cells[run.dataset, run.method].append(run.settings)
        self.varying = {
            cell: [name for name in given[0] if len({repr(one[name]) for one in given}) > 1]
            for cell, given in cells.items()
        }
        self.bars = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            *(rich.BarColumn(), rich.TimeElapsedColumn()),
            *(rich.TextColumn("left:"), rich.TimeRemainingColumn()),
            console=Console(stderr=True, force_terminal=True, highlight=False),
            transient=True,
            redirect_stdout=False,
            disable=self.shows != "bars",
        )
        self.whole = self.bars.add_task(self.counts(), total=self.total)

    def announce(self, where: str) -> None:
        """Work is about to begin, with the workers that `where` describes."""
        before = f" ({self.reused} more done before)" if self.reused else ""
        self._print(f"{self.total} run{'s' * (self.total != 1)} to do{before}, with {where}")

    def begin(self, slot: int, run: Run) -> None:
        """A worker begins a run."""
        self.running[slot] = run, self.bars.add_task(self.label(run), total=None)
        self._count()

    def session(self, slot: int, done: int, count: int) -> None:
        """A worker has finished `done` of `count` sessions; it may be told late."""
        if slot in self.running:
            self.bars.update(self.running[slot][1], completed=done, total=count)

    def finish(self, slot: int, record: Record, seconds: float) -> None:
        """A worker has finished a run."""
        self.done += 1
        self.drop(slot)
        if self.shows == "lines":
            ap = f"AP {record.outcome.ap:.2f}"
            self._print(f"{self._count()}{self.label(record)}: {ap}, {seconds:.1f} s")

    def fail(self, slot: int, failure: Failure) -> None:
        """A worker's run has failed."""
        self.failed += 1
        self.drop(slot)
        self._print(f"{self._count()}{self.label(failure)}: failed: {failure.reason}", "red")

    def drop(self, slot: int) -> None:
        """A worker's run is over, or has to be begun again."""
        if slot in self.running:
            self.bars.remove_task(self.running.pop(slot)[1])
        self._count()

    def say(self, slot: int, line: str) -> None:
        """A worker has printed a line."""
        run = self.running.get(slot)
        self._print(line if run is None else f"{self.label(run[0])}: {line}", "dim")

    def label(self, run: Run | Record) -> str:
        """A run with the settings that differ between the runs at hand."""
        names = self.varying.get((run.dataset, run.method), ())
        return label(run) + "".join(f" {name}={run.settings[name]}" for name in names)

    def counts(self) -> str:
        """Number of runs done, running, failed and left, in words."""
        running = len(self.running)
        left = self.total - self.done - self.failed - running
        return f"{self.done} done · {running} running · {self.failed} failed · {left} left"

    def _count(self) -> str:
        """Move the bar of all runs; what a line begins with."""
        ended = self.done + self.failed
        self.bars.update(self.whole, description=self.counts(), completed=ended)
        return f"[{ended}/{self.total}] " if self.shows == "lines" else ""

    def _print(self, line: str, style: str = "") -> None:
        if self.shows == "lines":
            print(line, file=sys.stderr, flush=True)
        elif self.shows:
            self.bars.console.print(Text(line, style=style), soft_wrap=True)


def label(run: Run | Record) -> str:
    """A run in a few words."""
    return f"{run.dataset} {run.method} step {run.step} seed {run.seed}"
