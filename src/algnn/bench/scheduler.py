"""Many runs side by side, each in a process of its own and none of them twice.

Whatever is killed, and when, only the runs in flight are lost: the same call goes on from there.
"""

import contextlib
import os
import signal
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pandas as pd

from algnn import methods as registry
from algnn.bench import runs
from algnn.bench.environment import from_kernel
from algnn.bench.plan import Plan, at_hand, cross, fit_changes, planned
from algnn.bench.processes import Worker, held_back
from algnn.bench.progress import Progress
from algnn.bench.record import Failure, Record, Run, file_name, same
from algnn.checks import check_number, resolve_device
from algnn.errors import AlgnnError, InputError
from algnn.files import make_folder
from algnn.graph.datasets import load
from algnn.learner import Learner

WORKER_BYTES = 2**30  # of the machine's memory, for a worker whose number is not given
GPU_JOBS = 4  # a small graph does not fill it
GPU_THREADS = 4  # little is left for the CPU, and waking many threads costs more
FALSE_STARTS = 3  # in a row
STALE = 3600.0  # seconds after which a draft is that of a writer who was killed


class Task(NamedTuple):
    """A plan of one seed, and the run that it is."""

    plan: Plan
    run: Run


@dataclass
class Tally:
    """What became of the runs of a call."""

    done: list[Record] = field(default_factory=list)
    reused: list[Record] = field(default_factory=list)  # known before
    failed: list[Failure] = field(default_factory=list)
    skipped: list[Failure] = field(default_factory=list)  # failed before, and not tried again
    plans: list[tuple[Plan, str]] = field(default_factory=list)  # and their configurations

    @property
    def records(self) -> list[Record]:
        """Every record there is, by dataset, step, method, settings and seed."""
        return sorted(
            self.done + self.reused,
            key=lambda r: (r.dataset, r.step, r.method, repr(sorted(r.settings.items())), r.seed),
        )

    def of(self, *plans: Plan) -> pd.DataFrame:
        """The runs of some plans, as `algnn.bench.runs.read_runs` gives them."""
        wanted = {configuration for one, configuration in self.plans if one in plans}
        return runs.frame(one for one in self.records if one.configuration in wanted)

    def wanted(self, *plans: Plan) -> int:
        """The number of different runs of some plans."""
        return len({(of, seed) for one, of in self.plans if one in plans for seed in one.seeds})


def bench(
    datasets: Sequence[str] | None = None,
    methods: Sequence[str | type[Learner]] | None = None,
    steps: Sequence[int] = (1,),
    seeds: Sequence[int] = (42, 43, 44, 45, 46),
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
    """Run every method on every dataset with every step and seed, unless it has been done before.

    Parameters
    ----------
    datasets : sequence of str, optional
        Names, or paths of ``.npz`` files; the small ones that are at hand by default.
    methods : sequence of str or type, optional
        Names, ``"module:Class"`` or classes that can be imported; the whole registry by default.
    steps, seeds : sequence of int
        Classes of each later session, and seeds; one run for each pair.
    records : str or path
        Folder of the records. Only one process may work on it at a time.
    changes : dict, optional
        Settings to change, in the methods that have them; one of the methods must.
    base, edges, order
        As in `ClassStream`.
    device, data
        As in `algnn.methods.make` and `algnn.load`.
    jobs : int, optional
        Number of worker processes; by default one for each core that has a GiB of free memory, and
        four on a GPU. Times can be compared only between runs with ``jobs=1``.
    retry_failed : bool
        Try runs again that failed before.
    progress : bool, optional
        By default a live display where stderr is a terminal, and a line per run elsewhere; False
        for neither, True for the display.

    Returns
    -------
    list of Record
        By dataset, step, method and seed. A run that failed is missing;
        `algnn.bench.runs.read_failures` has it.

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
    wanted = registry.METHODS if methods is None else methods
    names = [_importable(registry.find(method).name) for method in wanted]
    common = {"base": base, "edges": edges, "order": order, "device": device, "data": data}
    plans = cross(chosen, fit_changes(names, changes or {}), steps, seeds, **common)
    return carry_out(plans, records, jobs, retry_failed, progress).records


def room(kind: str, jobs: int | None = None) -> tuple[int, int]:
    """The number of workers for a kind of device, unless given, and of torch's threads in each."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    threads = int(asked) if asked.isdecimal() else 0
    if jobs is not None:
        check_number("jobs", jobs, 1, whole=True)
    else:
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
    client: Any = None,
) -> Tally:
    """Do the runs of some plans, all for one kind of device, each once; as `bench`.

    Method by method last: what else the machine does meanwhile falls on all methods alike. With a
    `distributed.Client` the workers of its cluster do them, which must see the same files.
    """
    tally, place = Tally(), Path(folder)
    tasks = _tasks(plans, tally)
    kind = tasks[0].run.device if tasks else "cpu"
    jobs, threads = room(kind, jobs)
    make_folder(place)
    with runs.locked(place):
        for draft in place.rglob(".*.tmp.json"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > STALE:
                    draft.unlink()
        left = []
        for task in tasks:
            if record := _done(task, place):
                tally.reused.append(record)
            elif not retry_failed and (failure := runs.stored(task.run, place, failed=True)):
                tally.skipped.append(failure)
            else:
                left.append(task)
        jobs = min(jobs if client is None else len(client.nthreads()), len(left))
        display = Progress([task.run for task in left], len(tally.reused), progress)
        with display.bars:
            each = f" of {threads} thread{'s' * (threads != 1)}" if client is None else ""
            workers = f"{jobs} worker{'s' * (jobs != 1)}{each}"
            display.announce(f"{workers} on the {'GPU' if kind == 'cuda' else 'CPU'}")
            setup = {"folder": str(place.absolute()), "jobs": jobs, "threads": threads}
            work = _Scheduler if client is None else _Cluster
            work(deque(left), {**setup, "client": client}, tally, display).work()
    return tally


def _tasks(plans: Iterable[Plan], tally: Tally) -> list[Task]:
    """A plan of one seed for each different run, in the order in which they are to be done."""
    graphs: dict[Any, list[Plan]] = defaultdict(list)
    for plan in plans:
        registry.find(_importable(plan.method))
        resolve_device(plan.device)
        graphs[plan.dataset, plan.data, plan.draw].append(plan)
    tasks: dict[str, Task] = {}
    for (name, root, draw), here in graphs.items():
        graph = load(name, root=root, seed=draw)
        found = [(plan, planned(plan, graph)) for plan in here]
        tally.plans += [(plan, some[0].configuration) for plan, some in found]
        every = [Task(replace(plan, seeds=[r.seed]), r) for plan, some in found for r in some]
        seeds = list(dict.fromkeys(task.run.seed for task in every))
        for task in sorted(every, key=lambda task: seeds.index(task.run.seed)):
            tasks.setdefault(file_name(task.run), task)
    return list(tasks.values())


def _done(task: Task, folder: str | Path) -> Record | None:
    """A task's record, unless it lacks the confidence that the task is to measure."""
    one: Any = runs.stored(task.run, folder)
    return one if one and (one.outcome.calibration_errors or not task.plan.confidence) else None


def _importable(method: str) -> str:
    if method.startswith("__main__:") or "<locals>" in method:
        words = "is where no worker can import it from: put it into a module of its own"
        raise InputError(f"method={method!r} {words}")
    return method


@dataclass
class _Scheduler:
    """Gives each task a process and hears from it."""

    left: deque[Task]
    setup: dict[str, Any]
    tally: Tally
    display: Progress
    workers: list[Worker] = field(default_factory=list)
    false_starts: int = 0

    def work(self) -> None:
        try:
            while self.left or self.workers:
                for _ in range(min(self.setup["jobs"] - len(self.workers), len(self.left))):
                    self.start(self.left.popleft())
                sources = [source for worker in self.workers for source in worker.sources]
                ready = set(wait(sources)) if sources else set()
                for worker in [w for w in self.workers if ready.intersection(w.sources)]:
                    self.hear(worker)
        finally:
            for worker in self.workers:
                worker.process.kill()
            for worker in self.workers:
                worker.close()

    def start(self, task: Task) -> None:
        self.display.begin(task.run)
        try:
            with held_back(signal.SIGINT, signal.SIGTERM):  # no process that is not in the list
                self.workers.append(Worker(task, self.setup))
        except (OSError, EOFError) as error:  # the forkserver or the worker was killed meanwhile
            self.display.say(task.run, f"no process could be started: {error}")
            self.start_again(task)

    def start_again(self, task: Task) -> None:
        """A process ended before it began its run, which is thus not to blame."""
        self.display.drop(task.run)
        self.left.appendleft(task)
        self.false_starts += 1
        if self.false_starts > FALSE_STARTS:
            raise AlgnnError("worker processes cannot be started: see above for the reason")

    def hear(self, worker: Worker) -> None:
        said, ended = [], worker.gone()
        try:
            while worker.messages.poll():
                said.append(worker.messages.recv())
        except (EOFError, OSError):  # it may have been killed in the middle of a message
            ended = True
        # only now: once there are no more messages, all that it printed is there
        for line in worker.lines(ended):
            self.display.say(worker.task.run, line)
        for what, *details in said:
            if worker.settled:  # the rest is from a process that the worker has forked
                break
            if what == "ready":
                worker.ready, self.false_starts = True, 0
            elif what == "session":
                self.display.session(worker.task.run, *details)
            elif what == "done":
                self.finish(worker.task, runs.read(details[0]), details[1])
            else:
                self.give_up(worker.task, *details)
            worker.settled = what in ("done", "failed")
        if ended:
            self.end(worker)

    def end(self, worker: Worker) -> None:
        """A process has ended: settle its run, unless it has said itself what became of it."""
        self.workers.remove(worker)
        ended = worker.close()
        if worker.settled:
            return
        if record := _done(worker.task, self.setup["folder"]):  # the last thing it did
            self.finish(worker.task, record, sum(record.outcome.learn_seconds))
        elif not worker.ready:
            self.start_again(worker.task)
        else:
            self.give_up(worker.task, ended)

    def finish(self, task: Task, record: Record, seconds: float) -> None:
        self.tally.done.append(record)
        self.display.finish(task.run, record.outcome.ap, seconds)

    def give_up(self, task: Task, reason: str, traceback: str = "") -> None:
        failure = Failure(**vars(task.run), reason=reason, traceback=traceback)
        runs.write(failure, self.setup["folder"])
        self.tally.failed.append(failure)
        self.display.fail(task.run, reason)


class _Cluster(_Scheduler):
    """Gives tasks to a Dask cluster, which does a run again whose worker has died."""

    def work(self) -> None:
        from distributed import as_completed

        from algnn.bench.worker import work_on_cluster

        client, topic = self.setup["client"], f"algnn-{uuid4().hex}"
        begun: list[Run] = []  # a run's sessions are told by its place here
        tell = self.display.session
        client.subscribe_topic(topic, lambda event: tell(begun[event[1][0]], *event[1][1:]))
        running: dict[Any, Task] = {}
        ended: Any = as_completed()
        try:
            while self.left or running:
                client.wait_for_workers(1)
                workers = list(client.nthreads())
                for _ in range(min(len(workers) - len(running), len(self.left))):
                    task = self.left.popleft()
                    self.display.begin(task.run)
                    name, device = task.plan.dataset, task.run.device
                    there = os.path.abspath(name) if name.endswith(".npz") else name
                    plan = replace(task.plan, dataset=there, device=device)
                    given = plan, len(begun), workers, topic
                    begun.append(task.run)
                    future = client.submit(work_on_cluster, *given, pure=False)
                    running[future] = task
                    ended.add(future)
                future = next(ended)
                error = future.exception()
                self.settle(running.pop(future), *((str(error), "") if error else future.result()))
        finally:
            client.cancel(list(running))
            client.unsubscribe_topic(topic)

    def settle(self, task: Task, found: Any, detail: Any) -> None:
        if isinstance(found, str):
            self.give_up(task, found, detail)
        elif not same(found, task.run):
            self.give_up(task, "its worker has another version of algnn, method or graph")
        else:
            runs.write(found, self.setup["folder"])
            self.finish(task, found, detail)


def _free_memory() -> int:
    """Bytes that can be had without swapping, as far as the system tells."""
    kilobytes = from_kernel("meminfo", "MemAvailable").partition(" ")[0]
    return 1024 * int(kilobytes) if kilobytes.isdecimal() else 2**62
