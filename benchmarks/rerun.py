"""Runs on record done once more with today's code, many in a process.

    python benchmarks/rerun.py docs/records/gpu OUT [JOBS [SECONDS [DEVICE]]]
    python benchmarks/rerun.py docs/records/gpu OUT JOBS SECONDS DEVICE clocks
    algnn records pack OUT              # then copy the file into docs/records, and `make results`

`algnn bench` gives each run a process of its own, whose start takes longer than a short run where
there is a GPU. Here each of JOBS processes does one run after another, as `algnn run` does; a third
of them the longest first, so that never all of the GPU's memory is asked for at once. Runs that
today's code has done are left out, those in OUT too, so the same command goes on. After SECONDS no
run is begun that would not be done by then. With NVIDIA's MPS (docs/benchmark.md) the 3,802
shortest runs took 14 minutes on an H200 with JOBS 16.

Runs that had the machine to themselves are done with `clocks` instead: as in `algnn bench --jobs 1`
each has a process of its own and rehearses off the clock, but JOBS of them rehearse side by side.
Then they take turns, and who waits does nothing.
"""

import contextlib
import multiprocessing
import os
import re
import sys
import time
import traceback
from itertools import cycle
from pathlib import Path
from typing import Any

from algnn import methods
from algnn.bench import runs
from algnn.bench.environment import code_version
from algnn.bench.plan import Plan, perform, rehearse
from algnn.bench.record import Record, file_name
from algnn.bench.scheduler import room
from algnn.graph.datasets import load

KEPT_GRAPHS = 10  # in a process
SHARE = 0.3  # of the seconds on record, which were taken while runs took turns
LONG = 20.0  # seconds: the runs that only a third of the processes begins with
PATIENCE = 300.0  # seconds that a rehearsal may take
CONTEXT = multiprocessing.get_context("spawn")


def plan_of(record: Record, device: str) -> Plan:
    """The plan of one seed that a record is of."""
    usual = methods.settings(record.method, record.dataset)
    changes = {name: one for name, one in record.settings.items() if usual.get(name) != one}
    drawn = re.fullmatch(r"random .*, seed (\d+)", str(record.provenance.get("split")))
    given = record.order.replace(",", "").isdecimal()
    return Plan(
        record.dataset,
        record.method,
        [record.seed],
        changes,
        base=record.base,
        step=record.step,
        edges=record.edges,
        order=[int(one) for one in record.order.split(",")] if given else record.order,
        device=device,
        confidence=bool(record.outcome.calibration_errors or record.outcome.novelty_aurocs),
        split=record.split,
        **({"draw": int(drawn[1])} if drawn else {}),
    )


def seconds_of(record: Record) -> float:
    """About how long a run takes beside others."""
    return 0.5 + SHARE * (sum(record.outcome.learn_seconds) + sum(record.outcome.predict_seconds))


def wanted(folder: Path, out: Path, alone: bool = False) -> list[Record]:
    """The records to make anew, the longest first: of runs that shared the machine, or had it."""
    code = code_version()
    done = {file_name(one) for one in runs.read_records(out) if one.code == code}
    found = [one for one in runs.read_records(folder) if one.code != code]
    found = [one for one in found if (one.machine.get("jobs") in (None, 1)) == alone]
    left = (one for one in found if file_name(one) not in done)
    return sorted(left, key=seconds_of, reverse=True)


def work(queues: list[Any], out: Path, jobs: int, end: float) -> None:
    """Do runs, from one queue after the other, until there are none, or no time for the next."""
    import torch

    torch.set_num_threads(1)
    graphs: dict[tuple[str, int], Any] = {}
    for queue in queues:
        while task := queue.get():
            plan, takes = task
            if time.time() + takes > end:
                continue
            key = plan.dataset, plan.draw
            if key not in graphs:
                while len(graphs) >= KEPT_GRAPHS:
                    graphs.pop(next(iter(graphs)))
                graphs[key] = load(plan.dataset, seed=plan.draw)
            try:
                runs.write(perform(plan, plan.seeds[0], graphs[key], jobs), out)
            except Exception:
                print(f"failed: {plan}\n{traceback.format_exc()}", flush=True)
            torch.cuda.empty_cache()


def share(left: list[Record], out: Path, jobs: int, end: float, device: str) -> None:
    """Runs beside one another."""
    queues = [CONTEXT.Queue(), CONTEXT.Queue()]
    for record in left:
        takes = seconds_of(record)
        queues[takes < LONG].put((plan_of(record, device), takes))
    for queue in queues:
        for _ in range(jobs):
            queue.put(None)
    workers = []
    for number in range(jobs):
        mine = queues if number % 3 == 0 else queues[::-1]
        given = (mine, out, jobs, end)
        workers.append(CONTEXT.Process(target=work, args=given, daemon=True))
        workers[-1].start()
    while any(worker.is_alive() for worker in workers) and time.time() < end:
        time.sleep(0.5)
    for worker in workers:
        worker.kill()
    for queue in queues:
        queue.cancel_join_thread()


def clocked(plan: Plan, out: Path, threads: int, ready: Any, turn: Any) -> None:
    """Rehearse, wait until all have, and do a run once it is this one's turn."""
    import torch

    torch.set_num_threads(threads)
    graph = load(plan.dataset, seed=plan.draw)
    with contextlib.suppress(Exception):  # the run itself will tell what is wrong
        rehearse(plan, plan.seeds[0], graph)
    ready.wait(PATIENCE)
    with turn:
        runs.write(perform(plan, plan.seeds[0], graph), out)


def take_turns(left: list[Record], out: Path, jobs: int, end: float, device: str) -> None:
    """Runs one after another, so many of which get ready together; long and short ones mixed."""
    _, threads = room("cpu" if device == "cpu" else "cuda", 1)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in `algnn bench`
    groups: list[list[Record]] = [[] for _ in range(-(-len(left) // jobs))]
    for group, record in zip(cycle(groups), left, strict=False):
        group.append(record)
    for group in groups:
        if time.time() + sum(map(seconds_of, group)) > end:
            continue
        ready, turn = CONTEXT.Barrier(len(group)), CONTEXT.Lock()
        given = [(plan_of(one, device), out, threads, ready, turn) for one in group]
        workers = [CONTEXT.Process(target=clocked, args=one, daemon=True) for one in given]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, end - time.time()))
            worker.kill()


def main(
    folder: str,
    out: str,
    jobs: str = "2",
    seconds: str = "1e9",
    device: str = "auto",
    clocks: str = "",
) -> None:
    there, end = Path(out), time.time() + float(seconds)
    there.mkdir(parents=True, exist_ok=True)
    asked = Path(folder), there, bool(clocks)
    left = wanted(*asked)
    (take_turns if clocks else share)(left, there, int(jobs), end, device)
    print(f"{len(left) - len(wanted(*asked))} of {len(left)} runs done")


if __name__ == "__main__":
    main(*sys.argv[1:])
