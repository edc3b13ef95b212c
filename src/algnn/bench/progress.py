"""The progress of runs in workers: a live display, a line per run, or nothing."""

import sys
from collections import defaultdict
from collections.abc import Sequence

from rich import progress as rich
from rich.console import Console
from rich.text import Text

from algnn.bench.record import Record, Run


class Progress:
    """Counts runs, and shows nothing, ``"lines"`` on stderr or ``"bars"`` that move.

    A bar is of all runs, with the time left, or of the sessions of one that is going on. They move
    while the block ``with progress.bars`` lasts. `progress` is as in `scheduler.bench`.
    """

    def __init__(self, left: Sequence[Run], reused: int, progress: bool | None = False) -> None:
        live = sys.stderr.isatty() if progress is None else progress
        self.shows = "" if progress is False or not left else "bars" if live else "lines"
        self.total, self.reused, self.done, self.failed = len(left), reused, 0, 0
        self.running: dict[Run, rich.TaskID] = {}
        self.values: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        for run in left:
            for name, value in run.settings.items():
                self.values[run.dataset, run.method, name].add(repr(value))
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

    def begin(self, run: Run) -> None:
        """A worker begins a run."""
        self.running[run] = self.bars.add_task(self.label(run), total=None)
        self._count()

    def session(self, run: Run, done: int, count: int) -> None:
        """A run has finished `done` of `count` sessions; it may be told late."""
        if run in self.running:
            self.bars.update(self.running[run], completed=done, total=count)

    def finish(self, run: Run, ap: float, seconds: float) -> None:
        """A run is done."""
        self.done += 1
        self.drop(run)
        if self.shows == "lines":
            self._print(f"{self._count()}{self.label(run)}: AP {ap:.2f}, {seconds:.1f} s")

    def fail(self, run: Run, reason: str) -> None:
        """A run has failed."""
        self.failed += 1
        self.drop(run)
        self._print(f"{self._count()}{self.label(run)}: failed: {reason}", "red")

    def drop(self, run: Run) -> None:
        """A run is over, or has to be begun again."""
        self.bars.remove_task(self.running.pop(run))
        self._count()

    def say(self, run: Run, line: str) -> None:
        """A run has printed a line."""
        self._print(f"{self.label(run)}: {line}", "dim")

    def label(self, run: Run) -> str:
        """A run with the settings that differ between the runs of its dataset and method."""
        varying = (n for n in run.settings if len(self.values[run.dataset, run.method, n]) > 1)
        return label(run) + "".join(f" {name}={run.settings[name]}" for name in varying)

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
        if self.shows == "lines":  # as they are: rich leaves out \r and tabs of what workers print
            print(line, file=sys.stderr, flush=True)
        elif self.shows:
            self.bars.console.print(Text(line, style=style), soft_wrap=True)


def label(run: Run | Record) -> str:
    """A run in a few words."""
    return f"{run.dataset} {run.method} step {run.step} seed {run.seed}"
