"""Worker processes, from the standard library's forkserver; imports nothing that takes time."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, MutableMapping
from multiprocessing import forkserver, resource_tracker
from types import ModuleType
from typing import Any

from algnn.errors import AlgnnError

CONTEXT = multiprocessing.get_context("forkserver")


def start_forkserver() -> None:
    """Start the process that workers are forked from, so that it imports while we do."""
    if not hasattr(os, "fork"):
        raise AlgnnError("worker processes need a system that can fork: use Linux or macOS")
    # some imports call a GPU's driver, whose state cannot be forked: each worker does them then
    CONTEXT.set_forkserver_preload([] if has_gpu() else ["algnn.bench.worker"])
    # Ctrl-C is for this process to handle: a blocked signal stays blocked in every one below.
    # OpenBLAS reads its number of threads on import; torch is told its own by each worker.
    resource_tracker.ensure_running()  # before signals are held back: it lets SIGINT in again
    with held_back(signal.SIGINT), swapped(os.environ, "OPENBLAS_NUM_THREADS", "1"):
        forkserver.ensure_running()


@contextlib.contextmanager
def held_back(*signals: signal.Signals) -> Iterator[None]:
    """Signals that arrive in this thread wait until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def swapped(mapping: MutableMapping[str, Any], name: str, value: Any) -> Iterator[None]:
    """A name stands for another value in a mapping until the block is over."""
    before = {name: mapping[name]} if name in mapping else {}
    mapping[name] = value
    try:
        yield
    finally:
        mapping.pop(name)
        mapping.update(before)


def has_gpu() -> bool:
    """Whether there is a GPU's driver, without a call to it."""
    for driver in ("libcuda.so.1", "libamdhip64.so"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(driver)
            return True
    return False


class Worker:
    """A process that does the plan of one task, as its owner sees it."""

    def __init__(self, task: Any, setup: dict[str, Any]) -> None:
        from algnn.bench.worker import work

        start_forkserver()
        self.task = task
        self.ready, self.settled = False, False  # it has begun; what became of its run is known
        self.unread = b""
        self.messages, messages = CONTEXT.Pipe(duplex=False)
        self.output, output = CONTEXT.Pipe(duplex=False)
        os.set_blocking(self.output.fileno(), False)
        told = {**setup, "environ": dict(os.environ)}
        self.process = CONTEXT.Process(target=work, args=(task.plan, told, messages, output))
        # workers would import the user's script, which need not be written for that
        with messages, output, swapped(sys.modules, "__main__", ModuleType("__main__")):
            self.process.start()
        self.sources: list[Any] = [self.messages, self.output, self.process.sentinel]

    def gone(self) -> bool:
        """Whether the process has ended; one that it forked may hold its pipes all the same."""
        code = self.process.exitcode
        if code == 255:  # as where the forkserver was killed, and the worker may go on
            self.sources = [one for one in self.sources if one in (self.messages, self.output)]
        return code not in (None, 255)

    def lines(self, ended: bool = False) -> Iterator[str]:
        """The whole lines that the worker has printed since, and once it has `ended` the rest."""
        with contextlib.suppress(BlockingIOError):
            while printed := os.read(self.output.fileno(), 65536):
                self.unread += printed
            self.sources = [one for one in self.sources if one is not self.output]
        *lines, self.unread = (self.unread + b"\n" * (ended and self.unread != b"")).split(b"\n")
        yield from (line.decode(errors="replace").rstrip() for line in lines)

    def close(self) -> str:
        """Wait for the process's end; how it ended."""
        self.process.join()
        code = self.process.exitcode or 0
        for resource in (self.process, self.messages, self.output):
            resource.close()
        how = "killed by signal" if code < 0 else "its process ended with exit code"
        return f"{how} {abs(code)}"
