"""Killing the benchmark at random moments loses nothing that is done, and does nothing twice.

As a program (``python test_killing.py GRAPH FOLDER``) this file starts a benchmark again and again
and kills it each time in another way, at another moment. Everything is imported once and each
benchmark is a fork, so that killing many does not cost as many imports; their workers are those
that every benchmark has. The test runs that program, and then interrupts the command.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from algnn.bench.processes import CONTEXT, forkserver, start_forkserver

if __name__ == "__main__":
    start_forkserver()  # imports beside us

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn.bench import runs
from algnn.bench.plan import cross
from algnn.bench.record import same
from algnn.bench.scheduler import Tally, carry_out

WAYS = ("parent", "worker", "interrupt", "everyone")
SEEDS = range(16)
METHODS = {"algnn": {"width": 32, "hidden": 8, "epochs": 3}, "bare": {"hidden": 8, "epochs": 3}}
JOBS = 2

Files = dict[Path, tuple[bytes, int, int]]


def benchmark(graph: str, folder: Path, seeds: range = SEEDS) -> Tally:
    plans = cross([graph], METHODS, [1], list(seeds), device="cpu")
    return carry_out(plans, folder, jobs=JOBS, retry_failed=True, progress=False)


def command(graph: str, folder: Path) -> list[str]:
    """The same as a user types it."""
    options = {
        "--datasets": graph,
        "--methods": ",".join(METHODS),
        "--seeds": ",".join(map(str, SEEDS)),
        "--jobs": str(JOBS),
        "--device": "cpu",
        "--records": str(folder),
    }
    changes = [f"--set={name}={value}" for name, value in METHODS["algnn"].items()]
    words = [word for pair in options.items() for word in pair]
    return ["bench", *words, *changes, "--retry-failed"]


# -- looking at what is left ----------------------------------------------------------------------


def processes(column: int, number: int) -> list[int]:
    """Living processes by a column of their status: 1 is the parent, 3 the session."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            columns = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone meanwhile
        if int(columns[column]) == number and columns[0] not in "ZX":
            found.append(int(status.parent.name))
    return found


def record_files(folder: Path) -> list[Path]:
    return [f for f in folder.rglob("step*.json") if not f.name.endswith(runs.FAILED)]


def finished(folder: Path) -> Files:
    """Content, inode and time of every record; each must be whole."""
    if folder.exists():
        runs.read_runs(folder)
        runs.read_failures(folder)
    return {
        f: (f.read_bytes(), f.stat().st_ino, f.stat().st_mtime_ns) for f in record_files(folder)
    }


def check_untouched(before: Files, after: Files) -> None:
    for file, facts in before.items():
        assert after.get(file) == facts, f"{file} was lost or written again"


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.002)


def wait_for_progress(folder: Path, before: Files, dice: random.Random, least: int = 0) -> None:
    more = len(before) + least + dice.randrange(3)
    wait_until(lambda: len(record_files(folder)) >= more, "no progress")
    time.sleep(dice.uniform(0, 0.15))


# -- killing forks --------------------------------------------------------------------------------


def killed(some: list[int]) -> bool:
    """Whether the first of some processes could be killed: it may have ended by itself."""
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(some[0], signal.SIGKILL)
        return True
    return False


def ensure_forkserver() -> None:
    """Wait for a forkserver that answers.

    Python's own ends where a process that asks it for another is killed half-way.
    """
    while True:
        start_forkserver()
        process = CONTEXT.Process(target=int)
        with contextlib.suppress(OSError, EOFError):
            process.start()
            process.join()
            if process.exitcode == 0:
                return


def kill_once(graph: str, folder: Path, way: str, dice: random.Random) -> None:
    ensure_forkserver()
    before = finished(folder)
    parent = os.fork()
    if parent == 0:
        # the forkserver is not this process's child, and needs no looking after
        forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None
        try:
            benchmark(graph, folder)
        except KeyboardInterrupt:
            os._exit(130)
        os._exit(0)

    def workers() -> list[int]:
        return processes(1, forkserver._forkserver._forkserver_pid)

    # an interrupt while a process is being forked is lost in Python's own handlers: not so early
    wait_for_progress(folder, before, dice, least=int(way == "interrupt"))
    if way in ("worker", "everyone"):
        wait_until(lambda: killed(dice.sample(found := workers(), len(found))), "no workers")
    if way == "worker":
        wait_for_progress(folder, before, dice)
    os.kill(parent, signal.SIGINT if way == "interrupt" else signal.SIGKILL)
    if way == "everyone":
        for worker in workers():
            killed([worker])
    code = os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1])
    assert code == (130 if way == "interrupt" else -signal.SIGKILL), f"{way}: ended with {code}"
    wait_until(lambda: not workers(), f"{way}: workers are left", 5)
    after = finished(folder)
    check_untouched(before, after)
    print(f"{way}: {len(after) - len(before)} new records, {len(after)} in all", flush=True)


def main(graph: str, folder: Path) -> None:
    dice = random.Random()
    for way in WAYS:
        kill_once(graph, folder, way, dice)


# -- killing the command --------------------------------------------------------------------------


# in a session of its own, as a shell would start it
COMMAND = "import os, sys; os.setsid(); from algnn.cli import main; sys.exit(main(sys.argv[1:]))"


def interrupt_command(graph: str, folder: Path, start_process: Callable[..., BaseProcess]) -> None:
    before, said = finished(folder), folder.parent / "said.txt"
    process = start_process(COMMAND, *command(graph, folder), err=said)
    wait_for_progress(folder, before, random.Random(), least=1)
    # to the whole group, as a terminal does
    os.killpg(process.pid, signal.SIGINT)
    wait_until(lambda: "goes on from there\n" in said.read_text(), "not interrupted")
    while process.is_alive():
        # and again, as impatient people do
        time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
    assert process.exitcode == 130
    assert said.read_text().endswith("goes on from there\nalgnn: interrupted\n")
    wait_until(lambda: not processes(3, process.pid), "processes are left", 5)
    check_untouched(before, finished(folder))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_killed_at_any_moment(
    small_graph: Data,
    tmp_path: Path,
    run_process: Callable[..., str],
    start_process: Callable[..., BaseProcess],
) -> None:
    graph, folder = str(tmp_path / "mine.npz"), tmp_path / "records"
    np.savez(graph, **{key: value.numpy() for key, value in small_graph.to_dict().items()})
    told = run_process(Path(__file__).read_text("utf-8"), graph, folder)
    assert len(told.splitlines()) == len(WAYS)
    interrupt_command(graph, folder, start_process)
    before = finished(folder)
    # all of them hit work, and some work had been done by then
    assert 0 < len(before) < len(METHODS) * len(SEEDS)

    tally = benchmark(graph, folder)
    check_untouched(before, finished(folder))
    assert len(tally.reused) == len(before)
    cells = runs.read_runs(folder)[["method", "seed"]].itertuples(index=False, name=None)
    assert sorted(cells) == sorted((method, seed) for method in METHODS for seed in SEEDS)
    assert runs.read_failures(folder).empty
    few = SEEDS[:3]
    uninterrupted = benchmark(graph, tmp_path / "again", few)
    interrupted = [record for record in tally.records if record.seed in few]
    for one, other in zip(interrupted, uninterrupted.records, strict=True):
        assert same(one, other)
        np.testing.assert_array_equal(one.outcome.correct, other.outcome.correct)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
