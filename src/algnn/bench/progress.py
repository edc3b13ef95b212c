"""What many runs look like while they go on: a live display, or a line per run."""

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

from algnn.bench.records import Failure, Record, Run


class Progress:
    """Keeps count of some runs, and shows nothing.

    Parameters
    ----------
    jobs : int
        How many workers there are.
    left : sequence of Run
        What is to be done.
    known : sequence of Record
        Runs done before, from which times are foreseen.

    Examples
    --------
    >>> run = Run("digits", {}, "algnn", {}, 5, 1, "full", "label", 42, "cpu")
    >>> progress = Progress(1, [run], [])
    >>> progress.begin(0, run)
    >>> progress.counts()
    '0 done · 1 running · 0 failed · 0 left'
    """

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
            clocks = record.outcome.learn_seconds + record.outcome.predict_seconds
            self._note(record, sum(clocks))

    def announce(self, where: str) -> None:
        """Work is about to begin.

        Parameters
        ----------
        where : str
            How many workers there are, and on what, in words.
        """

    def begin(self, place: int, run: Run) -> None:
        """A worker begins a run.

        Parameters
        ----------
        place : int
            The worker.
        run : Run
        """
        self.left.pop(id(run), None)
        self.running[place], self.sessions[place], self.since[place] = run, (0, 0), monotonic()

    def session(self, place: int, done: int, count: int) -> None:
        """A worker has finished a session.

        Parameters
        ----------
        place : int
            The worker.
        done, count : int
            Which, counted from 1, and how many there are.
        """
        self.sessions[place] = done, count

    def finish(self, place: int, record: Record, seconds: float) -> None:
        """A worker has finished a run.

        Parameters
        ----------
        place : int
            The worker.
        record : Record
        seconds : float
            What it took.
        """
        self.done += 1
        self.running[place] = None
        self._note(record, seconds)

    def fail(self, place: int, failure: Failure) -> None:
        """A worker's run has failed.

        Parameters
        ----------
        place : int
            The worker.
        failure : Failure
        """
        self.failed += 1
        self.running[place] = None

    def drop(self, place: int) -> None:
        """A worker's run has to be begun again.

        Parameters
        ----------
        place : int
            The worker.
        """
        run = self.running[place]
        if run is not None:
            self.left[id(run)] = run
        self.running[place] = None

    def say(self, place: int, line: str) -> None:
        """A worker has printed something.

        Parameters
        ----------
        place : int
            The worker.
        line : str
        """

    def label(self, run: Run | Record) -> str:
        """A run in a few words, among them the settings that set it apart from the others.

        Parameters
        ----------
        run : Run or Record

        Returns
        -------
        str
        """
        names = self.varying.get((run.dataset, run.method), ())
        return label(run) + "".join(f" {name}={run.settings[name]}" for name in names)

    def counts(self) -> str:
        """How many runs are where, in words.

        Returns
        -------
        str
        """
        running = sum(run is not None for run in self.running)
        return (
            f"{self.done} done · {running} running · {self.failed} failed · {len(self.left)} left"
        )

    def time_left(self) -> float | None:
        """Seconds until all is done, judging by runs of the same method on the same dataset.

        Returns
        -------
        float or None
            None as long as nothing is known.
        """
        if not self.seconds:
            return None
        work = sum(self._foreseen(run) for run in self.left.values())
        for run, since in zip(self.running, self.since, strict=True):
            if run is not None:
                work += max(0.0, self._foreseen(run) - (monotonic() - since))
        busy = len(self.left) + sum(run is not None for run in self.running)
        return work / max(1, min(busy, len(self.running)))

    def _note(self, run: Run | Record, seconds: float) -> None:
        for key in _kinds(run):
            self.seconds[key].append(seconds)

    def _foreseen(self, run: Run) -> float:
        key = next(key for key in _kinds(run) if key in self.seconds)
        return fmean(self.seconds[key])


class Lines(Progress):
    """A line on stderr for each run that ends: for log files and pipes.

    Examples
    --------
    >>> Lines(1, [], []).counts()
    '0 done · 0 running · 0 failed · 0 left'
    """

    def announce(self, where: str) -> None:
        """Say so."""
        print(_opening(self.total, self.reused, where), file=sys.stderr, flush=True)

    def finish(self, place: int, record: Record, seconds: float) -> None:
        """Say so."""
        super().finish(place, record, seconds)
        self._print(f"{self.label(record)}: AP {record.outcome.ap:.2f}, {seconds:.1f} s")

    def fail(self, place: int, failure: Failure) -> None:
        """Say so."""
        super().fail(place, failure)
        self._print(f"{self.label(failure)}: failed: {failure.reason}")

    def say(self, place: int, line: str) -> None:
        """Pass it on."""
        run = self.running[place]
        print(line if run is None else f"{self.label(run)}: {line}", file=sys.stderr, flush=True)

    def _print(self, line: str) -> None:
        print(f"[{self.done + self.failed}/{self.total}] {line}", file=sys.stderr, flush=True)


class Screen(Progress):
    """A bar, and a line for each worker, drawn anew several times a second.

    Examples
    --------
    >>> Console(width=60).print(Screen(1, [], []))
    0 done · 0 running · 0 failed · 0 left
      starting
    """

    console: Console | None = None

    def announce(self, where: str) -> None:
        """Leave a line above the bar."""
        self._print(Text(_opening(self.total, self.reused, where)))

    def fail(self, place: int, failure: Failure) -> None:
        """Leave a line above the bar."""
        super().fail(place, failure)
        self._print(Text(f"{self.label(failure)}: failed: {failure.reason}", style="red"))

    def say(self, place: int, line: str) -> None:
        """Leave a line above the bar."""
        run = self.running[place]
        self._print(Text(line if run is None else f"{self.label(run)}: {line}", style="dim"))

    def __rich__(self) -> RenderableType:
        finished = self.done + self.failed
        bar = Table.grid()
        bar.add_row(ProgressBar(total=max(1, self.total), completed=finished, width=60))
        left = self.time_left()
        about = f" · about {_duration(left)} to go" if left is not None and self.total else ""
        table = Table.grid(padding=(0, 2))
        for place, run in enumerate(self.running):
            if run is None:
                waiting = "idle" if self.since[place] else "starting"
                table.add_row("", Text(waiting, style="dim"))
                continue
            done, count = self.sessions[place]
            session = f"session {min(done + 1, count)} of {count}" if count else "base session"
            table.add_row(
                "", Text(self.label(run)), Text(session), _duration(monotonic() - self.since[place])
            )
        return Group(Text(self.counts() + about), bar, table)

    def _print(self, line: Text) -> None:
        if self.console is not None:
            self.console.print(line, soft_wrap=True)


@contextlib.contextmanager
def watch(
    progress: bool | None, jobs: int, left: Sequence[Run], known: Sequence[Record]
) -> Iterator[Progress]:
    """Show how some runs go on for as long as the block lasts.

    Parameters
    ----------
    progress : bool or None
        None for a live display where stderr is a terminal and lines elsewhere; False for neither;
        True for the display in any case.
    jobs, left, known
        As for `Progress`.

    Yields
    ------
    Progress

    Examples
    --------
    >>> with watch(False, 1, [], []) as shown:
    ...     shown.counts()
    '0 done · 0 running · 0 failed · 0 left'
    """
    live = sys.stderr.isatty() if progress is None else progress
    if progress is False or not left:
        yield Progress(jobs, left, known)
    elif not live:
        yield Lines(jobs, left, known)
    else:
        screen = Screen(jobs, left, known)
        screen.console = Console(stderr=True, force_terminal=True, highlight=False)
        with Live(screen, console=screen.console, transient=True, redirect_stdout=False):
            yield screen


def label(run: Run | Record) -> str:
    """A run in a few words.

    Parameters
    ----------
    run : Run or Record

    Returns
    -------
    str

    Examples
    --------
    >>> label(Run("cora", {}, "algnn", {}, 4, 1, "full", "label", 42, "cpu"))
    'cora algnn step 1 seed 42'
    """
    return f"{run.dataset} {run.method} step {run.step} seed {run.seed}"


def _opening(total: int, reused: int, where: str) -> str:
    before = f" ({reused} more done before)" if reused else ""
    return f"{total} run{'s' * (total != 1)} to do{before}, with {where}"


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
    """What a run's time may be judged by, the best first."""
    step = str(run.step)
    return [(run.dataset, run.method, step), (run.dataset, run.method), (run.method,), ()]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
