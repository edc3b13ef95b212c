"""What the tests share: small graphs made here, and the real ones where their files are at hand."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from algnn.bench.processes import CONTEXT, start_forkserver, swapped
from algnn.bench.protocol import Outcome
from algnn.bench.record import Record
from algnn.methods import METHODS
from algnn.methods import settings as settings_of

# A shell starts what runs in the background with Ctrl-C ignored, and so would every process that a
# test starts and interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# No test is about time, and on a busy machine any example may be slow; forty find what they will.
settings.register_profile("patient", deadline=None, max_examples=40)
settings.load_profile("patient")

# A process for each core (`make test`): with threads of their own they would wait for each other,
# and the tests would take three times as long.
torch.set_num_threads(1)


def community_graph(
    classes: int = 4, per_class: int = 15, features: int = 12, seed: int = 0
) -> Data:
    """Communities that are easy to tell apart, labels and split included."""
    generator = torch.Generator().manual_seed(seed)
    count = classes * per_class
    y = torch.arange(classes).repeat(per_class)
    x = torch.randn(count, features, generator=generator)
    x[torch.arange(count), y % features] += 3.0
    source = torch.arange(count).repeat_interleave(3)
    hop = torch.randint(1, per_class, (count * 3,), generator=generator) * classes
    edge_index = to_undirected(torch.stack([source, (source + hop) % count]), num_nodes=count)
    place = torch.arange(count) // classes % 5
    return Data(
        x=x,
        edge_index=edge_index,
        y=y,
        train_mask=place < 2,
        val_mask=place == 2,
        test_mask=place > 2,
    )


@pytest.fixture
def small_graph() -> Data:
    return community_graph()


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Data]:
    return community_graph


@pytest.fixture(scope="session")
def real_graph() -> Callable[[str], Data]:
    """Load a named graph once; skip the test where its files are not at hand."""
    from algnn.graph import datasets

    loaded = cache(datasets.load)

    def load(name: str) -> Data:
        if not datasets.available(name):
            pytest.skip(f"{name} is not at hand: point ALGNN_DATA at its files")
        return loaded(name)

    return load


# what `python -c` does first: arguments, folder, environment, and Ctrl-C as a shell leaves it
BEGIN = """
import os, signal, sys
os.environ.clear()
os.environ.update(environ)
os.chdir(folder)
sys.argv = ["-c", *arguments]
for place in (1, 2):
    os.dup2(os.open(output[place - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), place)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
exec(compile(code, "-c", "exec"), {"__name__": "__main__"})
"""


@pytest.fixture(scope="session")
def start_process() -> Callable[..., BaseProcess]:
    """Start a process like ``python -c code arguments``, forked from one with all imports done.

    Imports take five seconds; this way one process pays them for all tests.
    """

    def start(
        code: str, *arguments: object, out: str | Path = os.devnull, err: str | Path = os.devnull
    ) -> BaseProcess:
        start_forkserver()
        names = {
            "code": code,
            "arguments": [str(argument) for argument in arguments],
            "output": [os.path.abspath(out), os.path.abspath(err)],
            "folder": os.getcwd(),
            "environ": dict(os.environ),
        }
        process = CONTEXT.Process(target=exec, args=(BEGIN, names))
        with swapped(sys.modules, "__main__", ModuleType("__main__")):
            process.start()
        return process

    return start


@pytest.fixture(scope="session")
def run_process(
    start_process: Callable[..., BaseProcess], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., str]:
    """Run a process to its end, which must be a good one unless told; what it printed."""
    folder = tmp_path_factory.mktemp("processes")

    def run(code: str, *arguments: object, exitcode: int = 0) -> str:
        out, err = folder / "out", folder / "err"
        process = start_process(code, *arguments, out=out, err=err)
        process.join(300)
        process.kill()  # nothing, where it has ended
        process.join()
        assert process.exitcode == exitcode, err.read_text() + out.read_text()
        return out.read_text()

    return run


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of every version, each a file, and beside it what its learner said."""
    folder = tmp_path_factory.mktemp("golden")
    for archive in (Path(__file__).parent / "golden").glob("*.zip"):
        with ZipFile(archive) as packed:
            packed.extractall(folder)
    return folder


def example_record(**changes: Any) -> Record:
    """A record of three classes in two sessions: AP 65, AF 10, 0.6 s to learn, 880 B kept."""
    counts = np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10])
    name, dataset = changes.get("method", "algnn"), changes.get("dataset", "digits")
    fields = {
        "dataset": dataset,
        "provenance": {"sha256": "a1"},
        "method": name,
        "settings": settings_of(name, dataset) if name in METHODS else {"width": 8},
        "base": 2,
        "step": 1,
        "edges": "full",
        "order": "label",
        "seed": 42,
        "device": "cpu",
        "outcome": Outcome(((0, 1), (2,)), *counts, (0.5, 0.1), (0.01, 0.01), (800, 880)),
        "started": "2026-01-01T00:00:00+00:00",
        "versions": {"algnn": "0.1.0", "torch": "2.11.0", "code": "c0de"},
        "machine": {"architecture": "x86_64", "processor": "A CPU", "cores": 4, "gpu": None},
    }
    return Record(**{**fields, **changes})


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    return example_record
