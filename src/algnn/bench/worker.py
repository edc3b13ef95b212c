"""A worker process: it does one run, leaves its record or says why not, and ends."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from textwrap import shorten
from time import perf_counter
from typing import Any

import torch
from torch_geometric.data import Data

from algnn import methods
from algnn.bench import environment, runs
from algnn.bench.plan import Plan, Tell, perform, rehearse
from algnn.bench.record import Record
from algnn.checks import resolve_device
from algnn.errors import AlgnnError, is_out_of_memory
from algnn.graph.datasets import load

# a process has one random generator, one number of threads and one GPU
ALONE = threading.Lock()
# imported once, before workers are forked
LEARNERS = {method.learner for method in methods.METHODS.values()}
environment.code_version()  # reads the sources as they are now that they have been imported


def work(plan: Plan, setup: dict[str, Any], messages: Connection, output: Connection) -> None:
    """Do the run of a plan with one seed: messages say how far it is, `output` what it prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the scheduler decides what Ctrl-C means
    threading.Thread(target=_die_with_parent, daemon=True).start()
    for standard in (1, 2):
        os.dup2(output.fileno(), standard)
    output.close()
    sys.stdout, sys.stderr = (open(i, "w", buffering=1, closefd=False) for i in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(setup["environ"])
    torch.set_num_threads(setup["threads"])
    messages.send(("ready",))
    try:
        record, seconds = _done(plan, setup["jobs"], lambda *at: messages.send(("session", *at)))
        messages.send(("done", str(runs.write(record, setup["folder"])), seconds))
    except BaseException as error:
        messages.send(("failed", *_told(error)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a learner's threads and exit handlers are not waited for


def work_on_cluster(plan: Plan, number: int, workers: list[str], topic: str) -> tuple[Any, Any]:
    """Do a run as a task of Dask: its record and seconds, or its reason and traceback."""
    from distributed import get_worker

    here: Any = get_worker()
    host = here.address.rpartition(":")[0]
    jobs = max(1, sum(other.rpartition(":")[0] == host for other in workers))
    with ALONE:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
        try:
            return _done(plan, jobs, lambda *at: here.log_event(topic, (number, *at)))
        except BaseException as error:
            return _told(error)


def _done(plan: Plan, jobs: int, tell: Tell) -> tuple[Record, float]:
    graph = load(plan.dataset, root=plan.data, seed=plan.draw)
    _warm_up(plan, graph, jobs)
    start = perf_counter()
    return perform(plan, plan.seeds[0], graph, jobs, tell), perf_counter() - start


def _told(error: BaseException) -> tuple[str, str]:
    """The reason of a failure, and where it was, unless we foresaw it."""
    return reason(error), "" if isinstance(error, AlgnnError) else traceback.format_exc()


def reason(error: BaseException) -> str:
    """The cause of a failure, in a line."""
    if is_out_of_memory(error):
        return "out of memory"
    line = shorten(str(error), width=200, placeholder=" …")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def _die_with_parent() -> None:
    """End this process, whatever it is doing, once the scheduler's is gone."""
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _warm_up(plan: Plan, graph: Data, jobs: int) -> None:
    """Use a device for the first time, off the clock: a GPU loads kernels when first used."""
    with contextlib.suppress(Exception):  # the run itself will tell what is wrong
        if jobs == 1 and resolve_device(plan.device).type == "cuda":
            rehearse(plan, plan.seeds[0], graph)
            return
        ring = torch.arange(8)
        tiny = Data(x=torch.eye(8), edge_index=torch.stack([ring, ring.roll(1)]))
        learner = methods.make("algnn-paper", "", 0, plan.device, epochs=2, hidden=4, width=8)
        learner.fit(tiny, ring, ring % 2).predict(tiny, ring)
