"""What a worker process does: one run after another, each record on disk as soon as it is done."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from time import perf_counter
from typing import Any

import torch
from torch_geometric.data import Data

from algnn import methods
from algnn.bench import records
from algnn.bench.plan import Plan, perform, rehearse
from algnn.checks import resolve_device
from algnn.errors import AlgnnError
from algnn.graph.datasets import load

MESSAGE = 200  # characters
NO_MEMORY = re.compile("out of memory|not enough memory|allocate memory|ALLOC_FAILED")


def serve(connection: socket.socket) -> None:
    """Do the runs that arrive, until whoever sends them is gone.

    Parameters
    ----------
    connection : socket
        The first message says where the worker is and how many threads it has; each further one is
        a plan with one seed. Answers are `{"ready": …}`, `{"session": [i, n]}` and, at the end of a
        run, `{"done": path, "seconds": …}` or `{"failed": reason}`, with `"leaving"` where another
        worker has to take over.
    """
    incoming = connection.makefile("r", encoding="utf-8")
    setup = json.loads(incoming.readline())
    os.environ.clear()
    os.environ.update(setup["environ"])
    os.chdir(setup["cwd"])
    sys.path[:] = setup["path"]
    torch.set_num_threads(setup["threads"])
    worker = _Worker(connection, Path(setup["folder"]), setup["jobs"])
    worker.say({"ready": os.getpid()})
    for line in incoming:
        worker.attempt(json.loads(line))


def reason(error: BaseException) -> str:
    """Why a run failed, in a line.

    Parameters
    ----------
    error : BaseException
        What it raised.

    Returns
    -------
    str

    Examples
    --------
    >>> reason(ZeroDivisionError("division by zero")), reason(MemoryError())
    ('ZeroDivisionError: division by zero', 'out of memory')
    """
    lines = shorten(" ".join(str(error).split()), MESSAGE, placeholder=" …")
    # torch has no type of its own for it on a CPU, nor inside a GPU's libraries
    full = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if full or (isinstance(error, RuntimeError) and NO_MEMORY.search(lines)):
        return "out of memory"
    return f"{type(error).__name__}: {lines}" if lines else type(error).__name__


class _Worker:
    def __init__(self, connection: socket.socket, folder: Path, jobs: int) -> None:
        self.connection = connection
        self.folder = folder
        self.jobs = jobs
        self.warm: set[str] = set()
        self.loaded: tuple[Any, Data] | None = None

    def say(self, message: dict[str, Any]) -> None:
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)  # nobody is left to hear it

    def attempt(self, task: dict[str, Any]) -> None:
        data = task.pop("data")
        plan = Plan(**task, data=None if data is None else Path(data))
        try:
            graph = self.graph(plan)
            self.warm_up(plan, graph)
            start = perf_counter()
            record = perform(plan, plan.seeds[0], graph, self.jobs, self.tell)
            seconds = perf_counter() - start
            path = records.write(record, self.folder)
        except AlgnnError as error:
            self.say({"failed": reason(error)})
        except BaseException as error:
            # a run that ended in a way nobody foresaw may have left anything behind
            self.say({"failed": reason(error), "leaving": True})
            os._exit(0)
        else:
            self.say({"done": str(path), "seconds": seconds})
        gc.collect()
        if self.jobs > 1:
            torch.cuda.empty_cache()  # others use the same GPU; without one this does nothing

    def tell(self, index: int, count: int) -> None:
        self.say({"session": [index + 1, count]})

    def graph(self, plan: Plan) -> Data:
        """The plan's graph; the last one is kept, since runs come sorted by graph."""
        key = plan.dataset, plan.data
        if self.loaded is None or self.loaded[0] != key:
            self.loaded = None  # before the next takes its room
            self.loaded = key, load(plan.dataset, root=plan.data)
        return self.loaded[1]

    def warm_up(self, plan: Plan, graph: Data) -> None:
        """Use a device for the first time, which costs what no method should pay for.

        A GPU loads each kernel when it is first used, and which ones are used depends on method and
        graph. Where times count, a method's first sessions are therefore rehearsed.
        """
        timed = self.jobs == 1 and resolve_device(plan.device).type == "cuda"
        key = repr(replace(plan, seeds=[])) if timed else plan.device
        if key not in self.warm:
            self.warm.add(key)
            with contextlib.suppress(Exception):  # the run itself will tell what is wrong
                if timed:
                    rehearse(plan, plan.seeds[0], graph)
                else:
                    _use(plan.device)


def _use(device: str) -> None:
    """Have a small network trained and a small system solved on a device."""
    ring = torch.arange(8)
    graph = Data(x=torch.eye(8), edge_index=torch.stack([ring, ring.roll(1)]))
    tiny: dict[str, dict[str, Any]] = {"bare": {}, "algnn-paper": {"width": 8}}
    for method, small in tiny.items():
        learner = methods.make(method, "", 0, device, epochs=2, hidden=4, **small)
        learner.fit(graph, ring, ring % 2).predict(graph, ring)
