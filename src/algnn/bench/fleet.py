"""Many runs in worker processes: each leaves its record the moment it is done, none is done twice.

Whatever is killed, and when, at most the runs in flight are lost: what is done is on disk, and the
same call goes on from there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from algnn import methods as registry
from algnn.bench import nursery, records
from algnn.bench.plan import Plan, make_folder, runs
from algnn.bench.progress import Progress, watch
from algnn.bench.records import Failure, Record, Run
from algnn.checks import resolve_device
from algnn.errors import AlgnnError, InputError
from algnn.graph.datasets import available, load
from algnn.learner import Learner

SEEDS = (42, 43, 44, 45, 46)
DATASETS = ("digits", "cora", "citeseer", "computers")
LOCK = ".lock"
PATIENCE = 5.0  # seconds in which the workers of a killed process are certainly gone
WORKER_BYTES = 2**30  # of the machine's memory, for a worker that is not told how many there are
GPU_JOBS = 4
GPU_THREADS = 4  # little is left for the CPU, and waking many threads costs more
STILLBORN = 3
STALE = 3600.0


@dataclass
class Tally:
    """What has become of some runs.

    Attributes
    ----------
    done, reused : list of Record
        Those computed now, and those that had been before.
    failed, skipped : list of Failure
        Those tried in vain now; and those tried in vain before, which were not tried again.

    Examples
    --------
    >>> Tally().records
    []
    """

    done: list[Record] = field(default_factory=list)
    reused: list[Record] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    skipped: list[Failure] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """Every record there is, by dataset, step, method, settings and seed."""

        def place(record: Record) -> tuple[str, int, str, str, int]:
            settings = repr(sorted(record.settings.items()))
            return record.dataset, record.step, record.method, settings, record.seed

        return sorted(self.done + self.reused, key=place)


def bench(
    datasets: Sequence[str] | None = None,
    methods: Sequence[str | type[Learner]] | None = None,
    steps: Sequence[int] = (1,),
    seeds: Sequence[int] = SEEDS,
    *,
    records: str | os.PathLike[str] = "records",
    changes: dict[str, Any] | None = None,
    base: int | None = None,
    edges: str = "full",
    order: str | list[int] = "label",
    device: str = "auto",
    data: Path | None = None,
    jobs: int | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> list[Record]:
    """Every method on every dataset with every step and seed; what has been done is not done again.

    Parameters
    ----------
    datasets : sequence of str, optional
        Names, or paths of ``.npz`` files; those of `DATASETS` that are at hand by default.
    methods : sequence of str or type, optional
        Names of the registry, and learners of your own: ``"module:Class"`` or the class itself,
        which must be in a module that can be imported. The whole registry by default.
    steps, seeds : sequence of int
    records : str or path
        Folder of the records. Only one process may work on it at a time.
    changes : dict, optional
        Settings to change, in the methods that have them; one of the methods must.
    base, edges, order
        As in `ClassStream`.
    device : str
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    data : Path, optional
        The data root, where it is not the usual one.
    jobs : int, optional
        How many worker processes; by default as many as `room` says. Times can be compared only
        between runs with ``jobs=1``.
    retry_failed : bool
        Try runs again that failed before.
    progress : bool, optional
        By default a live display where stderr is a terminal, and a line per run elsewhere; False
        for neither.

    Returns
    -------
    list of Record
        By dataset, step, method and seed. A run that failed is missing; `records.failures` has it.

    Examples
    --------
    >>> import tempfile
    >>> quick = {"width": 64, "hidden": 16, "epochs": 2}
    >>> done = bench(["digits"], ["algnn", "bare"], [5], [42], changes=quick, device="cpu",
    ...              records=tempfile.mkdtemp(), jobs=1, progress=False)
    >>> [(record.method, record.seed, record.outcome.matrix.shape) for record in done]
    [('algnn', 42, (2, 2)), ('bare', 42, (2, 2))]
    """
    chosen = at_hand(data) if datasets is None else datasets
    names = [registry.find(m).name for m in (registry.METHODS if methods is None else methods)]
    for name in names:
        _check_importable(name)
    common = {"base": base, "edges": edges, "order": order, "device": device, "data": data}
    plans = cross(chosen, fit_changes(names, changes or {}), steps, seeds, **common)
    return carry_out(plans, records, jobs, retry_failed, progress).records


def cross(
    datasets: Sequence[str],
    methods: Mapping[str, dict[str, Any]],
    steps: Sequence[int],
    seeds: Sequence[int],
    **common: Any,
) -> list[Plan]:
    """Every method on every dataset with every step and seed.

    Parameters
    ----------
    datasets : sequence of str
    methods : dict
        For each method the settings that are changed.
    steps, seeds : sequence of int
    **common
        What else a `Plan` holds.

    Returns
    -------
    list of Plan

    Examples
    --------
    >>> [plan.method for plan in cross(["cora"], {"algnn": {}, "bare": {}}, [1], [42])]
    ['algnn', 'bare']
    """
    for name, given in (("datasets", datasets), ("methods", methods), ("steps", steps)):
        if len(given) == 0:
            raise InputError(f"{name} is empty: give at least one")
    return [
        Plan(os.fspath(dataset), method, list(seeds), changes, step=step, **common)
        for dataset in datasets
        for step in steps
        for method, changes in methods.items()
    ]


def at_hand(data: Path | None = None) -> list[str]:
    """Those of the benchmark's usual datasets that need no download.

    Parameters
    ----------
    data : Path, optional
        The data root.

    Returns
    -------
    list of str

    Examples
    --------
    >>> at_hand()[0]
    'digits'
    """
    return [name for name in DATASETS if available(name, data)]


def fit_changes(names: Sequence[str], changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Which of some changed settings each method has.

    Parameters
    ----------
    names : sequence of str
        Methods.
    changes : dict
        Settings and their values; each must be a setting of at least one method.

    Returns
    -------
    dict
        For each method, the changes that it can take.

    Examples
    --------
    >>> fit_changes(["algnn", "ewc"], {"gamma": 0.1, "epochs": 3})
    {'algnn': {'gamma': 0.1, 'epochs': 3}, 'ewc': {'epochs': 3}}
    """
    known = {name: registry.find(name).defaults for name in names}
    for setting in changes:
        if not any(setting in defaults for defaults in known.values()):
            apart = f" ({setting} has an option of its own)" if setting in registry.APART else ""
            raise InputError(f"{setting!r} is not a setting of {', '.join(names)}{apart}")
    return {n: {s: v for s, v in changes.items() if s in d} for n, d in known.items()}


def room(kind: str, jobs: int | None = None) -> tuple[int, int]:
    """How many workers a machine has room for, and how many threads torch has in each.

    Parameters
    ----------
    kind : str
        Of device: ``"cpu"`` or ``"cuda"``.
    jobs : int, optional
        The number of workers, where it is decided.

    Returns
    -------
    jobs, threads : int
        On a CPU, by default, a worker for each core (or for each ``OMP_NUM_THREADS`` cores, where
        that variable is set), and at most one for each GiB of free memory: graphs are small, and
        several runs side by side use a machine better than one run with many threads. On a GPU
        four, since a small graph does not fill it. Threads are the cores divided by the workers, on
        a GPU at most four.

    Examples
    --------
    >>> room("cpu", jobs=10**6)[0]
    1000000
    """
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise InputError(f"jobs={jobs!r} must be a whole number of workers, at least 1")
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    threads = int(asked) if asked.isdecimal() and int(asked) else None
    if jobs is None:
        jobs = min(cores, GPU_JOBS) if kind == "cuda" else cores // (threads or 1)
        jobs = max(1, min(jobs, _free_memory() // WORKER_BYTES))
    share = max(1, cores // jobs)
    return jobs, threads or (min(share, GPU_THREADS) if kind == "cuda" else share)


def carry_out(
    plans: Iterable[Plan],
    folder: str | os.PathLike[str],
    jobs: int | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
) -> Tally:
    """The runs of some plans in worker processes, each once.

    Parameters
    ----------
    plans : iterable of Plan
        All for the same kind of device.
    folder, jobs, retry_failed, progress
        As for `bench`.

    Returns
    -------
    Tally

    Notes
    -----
    Runs are done dataset by dataset and step by step, then seed by seed, and method by method last:
    what else the machine does meanwhile falls on all methods alike.

    Examples
    --------
    >>> import tempfile
    >>> plan = Plan("digits", "algnn", [42], {"width": 64, "hidden": 16, "epochs": 2}, step=5)
    >>> folder = tempfile.mkdtemp()
    >>> len(carry_out([plan], folder, jobs=1, progress=False).done)
    1
    >>> again = carry_out([plan], folder, jobs=1, progress=False)
    >>> len(again.done), len(again.reused)
    (0, 1)
    """
    tasks = _tasks(list(plans))
    kind = tasks[0].run.device if tasks else "cpu"
    jobs, threads = room(kind, jobs)
    make_folder(Path(folder))
    tally = Tally()
    with _locked(Path(folder)) as lock:
        _sweep(Path(folder))
        left = _sorted_out(tasks, folder, retry_failed, tally)
        jobs = min(jobs, len(left))
        with watch(progress, jobs, [task.run for task in left], tally.reused) as display:
            display.announce(_workforce(jobs, threads, kind))
            setup = {"folder": str(Path(folder).absolute()), "jobs": jobs, "threads": threads}
            _Fleet(left, setup, lock, tally, display).work()
    return tally


@dataclass
class _Task:
    plan: Plan  # with one seed
    run: Run
    lost: int = 0  # times that the whole nursery vanished under it

    def message(self) -> dict[str, Any]:
        data = self.plan.data
        return {**dataclasses.asdict(self.plan), "data": None if data is None else str(data)}


def _tasks(plans: list[Plan]) -> list[_Task]:
    """One task for each different run, in the order in which they are to be done."""
    for plan in plans:
        _check_importable(plan.method)
        resolve_device(plan.device)
    tasks: dict[str, _Task] = {}
    for key in dict.fromkeys((plan.dataset, plan.data) for plan in plans):
        here = [plan for plan in plans if (plan.dataset, plan.data) == key]
        graph = load(key[0], root=key[1])
        found = [(plan, run) for plan in here for run in runs(plan, graph)]
        steps = list(dict.fromkeys(plan.step for plan in here))
        seeds = list(dict.fromkeys(seed for plan in here for seed in plan.seeds))
        found.sort(key=lambda pair: (steps.index(pair[1].step), seeds.index(pair[1].seed)))
        for plan, run in found:
            alone = dataclasses.replace(plan, seeds=[run.seed])
            tasks.setdefault(records.file_name(run), _Task(alone, run))
    return list(tasks.values())


def _check_importable(method: str) -> None:
    if method.startswith("__main__:") or "<locals>" in method:
        raise InputError(
            f"method={method!r} is where no worker can import it from: put it into a module of its"
            " own"
        )
    registry.find(method)


def _sorted_out(
    tasks: list[_Task], folder: str | os.PathLike[str], retry_failed: bool, tally: Tally
) -> list[_Task]:
    """What is left to do; what has been done or has failed before goes to the tally."""
    left = []
    for task in tasks:
        record = records.done(task.run, folder)
        failure = None if retry_failed else records.failed(task.run, folder)
        if record is not None:
            tally.reused.append(record)
        elif failure is not None:
            tally.skipped.append(failure)
        else:
            left.append(task)
    return left


def _workforce(jobs: int, threads: int, kind: str) -> str:
    workers = f"{jobs} worker{'s' * (jobs != 1)} of {threads} thread{'s' * (threads != 1)}"
    return f"{workers} on the {'GPU' if kind == 'cuda' else 'CPU'}"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the folder's lock; so does each worker, hence it is free only once all are gone."""
    import fcntl

    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise InputError(
                        f"{folder} is in use by another algnn bench or sweep: wait for it, or give"
                        " another folder for the records"
                    ) from None
            except OSError as error:
                raise AlgnnError(f"{folder} cannot be locked: {error.strerror}") from error
            time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed; a living one needs far less than an hour."""
    for draft in folder.rglob(".*.tmp.json"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()


class _Hand:
    """A worker, and what it is at."""

    def __init__(self, place: int, child: nursery.Child) -> None:
        self.place = place
        self.child = child
        self.born = False
        self.leaving = False
        self.task: _Task | None = None
        self.unread = b""


class _Fleet:
    """Hands tasks to workers and hears from them."""

    def __init__(
        self, left: list[_Task], setup: dict[str, Any], lock: int, tally: Tally, display: Progress
    ) -> None:
        self.left = deque(left)
        self.setup = setup
        self.lock = lock
        self.tally = tally
        self.display = display
        self.hands: list[_Hand] = []
        self.stillborn = 0
        self.selector = selectors.DefaultSelector()

    def work(self) -> None:
        try:
            for place in range(self.setup["jobs"]):
                self.hire(place)
            while self.hands:
                for key, _ in self.selector.select():
                    key.data()
        finally:
            for hand in list(self.hands):
                self.dismiss(hand)
            self.selector.close()

    def hire(self, place: int) -> None:
        hand = _Hand(place, nursery.Child(self.lock, self.setup))
        os.set_blocking(hand.child.output, False)
        self.hands.append(hand)
        self.listen(hand.child.connection, lambda: self.hear(hand))
        self.listen(hand.child.output, lambda: self.overhear(hand))

    def listen(self, source: Any, react: Callable[[], None]) -> None:
        self.selector.register(source, selectors.EVENT_READ, react)

    def dismiss(self, hand: _Hand) -> int | None:
        self.hands.remove(hand)
        for source in (hand.child.connection, hand.child.output):
            with contextlib.suppress(KeyError):  # an output that has ended is not listened to
                self.selector.unregister(source)
        return hand.child.close(wait=hand.born)

    def hear(self, hand: _Hand) -> None:
        if hand not in self.hands:
            return  # gone since the selector saw it
        self.overhear(hand)  # what it printed before it said this
        messages = hand.child.receive()
        if messages is None:
            self.bury(hand)
            return
        for message in messages:
            if "session" in message:
                self.display.session(hand.place, *message["session"])
            elif "ready" in message:
                hand.born, self.stillborn = True, 0
            elif "done" in message:
                self.finish(hand, records.read(message["done"]), message["seconds"])
            elif "failed" in message:
                self.give_up(hand, message["failed"])
                hand.leaving = "leaving" in message
        if hand.born and hand.task is None and not hand.leaving:
            self.next(hand)

    def overhear(self, hand: _Hand) -> None:
        """Pass on what a worker prints, line by line."""
        if hand not in self.hands:
            return
        try:
            printed = os.read(hand.child.output, 65536)
        except BlockingIOError:
            return
        if not printed:
            with contextlib.suppress(KeyError):
                self.selector.unregister(hand.child.output)
        *lines, hand.unread = (hand.unread + printed).split(b"\n")
        for line in lines:
            self.display.say(hand.place, line.decode(errors="replace").rstrip())

    def next(self, hand: _Hand) -> None:
        if not self.left:
            self.dismiss(hand)
            return
        hand.task = self.left.popleft()
        self.display.begin(hand.place, hand.task.run)
        hand.child.send(hand.task.message())

    def finish(self, hand: _Hand, record: Record, seconds: float) -> None:
        self.tally.done.append(record)
        self.display.finish(hand.place, record, seconds)
        hand.task = None

    def give_up(self, hand: _Hand, reason: str) -> None:
        if hand.task is None:
            return
        failure = Failure(**vars(hand.task.run), reason=reason)
        records.write_failure(failure, self.setup["folder"])
        self.tally.failed.append(failure)
        self.display.fail(hand.place, failure)
        hand.task = None

    def bury(self, hand: _Hand) -> None:
        """A worker is gone: settle what has become of its run, and hire another where needed."""
        code = self.dismiss(hand)
        if not hand.born:
            self.stillborn += 1
            if self.stillborn > STILLBORN:
                raise AlgnnError("worker processes cannot be started: see above for the reason")
        elif hand.task is not None:
            self.settle(hand, hand.task, code)
        if self.left:
            self.hire(hand.place)

    def settle(self, hand: _Hand, task: _Task, code: int | None) -> None:
        record = records.done(task.run, self.setup["folder"])
        if record is not None:  # the last thing that it did
            self.finish(hand, record, sum(record.outcome.learn_seconds))
        elif code is None and task.lost == 0:
            task.lost += 1
            self.left.appendleft(task)
            self.display.drop(hand.place)
        elif code is not None and code < 0:
            self.give_up(hand, f"killed by signal {-code}")
        else:
            self.give_up(hand, f"its process ended with exit code {code}")


def _free_memory() -> int:
    """Bytes that can be had without swapping, as far as the system tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 2**62
