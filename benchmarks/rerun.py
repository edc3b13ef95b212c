"""Runs on record done once more with today's code, many in a process.

    python benchmarks/rerun.py docs/records/gpu OUT [JOBS [SECONDS [DEVICE]]]
    python benchmarks/rerun.py docs/records/gpu OUT 1 inf DEVICE clocks
    algnn records pack OUT              # then copy the file into docs/records, and `make results`

`algnn bench` gives each run a process of its own, whose start takes longer than a short run where
there is a GPU. Here each of JOBS processes does one run after another, as `algnn run` does: short
and long ones in turns, as the first keep the CPU busy and the last the GPU. Runs that today's code
has done are left out, those in OUT too, so the same command goes on. After SECONDS no run is begun
that would not be done by then. With NVIDIA's MPS (docs/benchmark.md) and JOBS 16 an H200 does some
two thousand of the shortest runs in ten minutes, and some thirty of the longest
(`docs/ablation/repeats.json`, under `time`).

With JOBS 1 and `clocks`, those that had the machine to themselves are done instead, graph by graph,
each after a rehearsal as in `algnn bench --jobs 1`.
"""

import multiprocessing
import re
import sys
import time
import traceback
from itertools import zip_longest
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
WAITS = (10, 20, 40, 0)  # seconds before a run without memory is tried again; then it is left out
SHARE = 1.2  # of the seconds on record: 1 to 2 where sixteen run side by side


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
    """The records to make anew: those of runs that were alone, graph by graph, or that were not."""
    code = {name: code_version(method.learner) for name, method in methods.METHODS.items()}
    done = {file_name(one) for one in runs.read_records(out) if one.code == code[one.method]}
    found = [one for one in runs.read_records(folder) if one.code != code[one.method]]
    found = [one for one in found if (one.machine.get("jobs") in (None, 1)) == alone]
    left = [one for one in found if file_name(one) not in done]
    if alone:
        return sorted(left, key=lambda one: (one.dataset, one.seed, one.method))
    left.sort(key=seconds_of)
    turns = zip_longest(left[: len(left) // 2], reversed(left[len(left) // 2 :]))
    return [one for pair in turns for one in pair if one]


def work(tasks: Any, out: Path, jobs: int, end: float) -> None:
    """Do runs until there are none, or no time for the next."""
    import torch

    torch.set_num_threads(room("cuda" if torch.cuda.is_available() else "cpu", jobs)[1])
    graphs: dict[tuple[str, int], Any] = {}
    while task := tasks.get():
        plan, takes = task
        if time.time() + takes > end:
            continue
        key = plan.dataset, plan.draw
        if key not in graphs:
            while len(graphs) >= KEPT_GRAPHS:
                graphs.pop(next(iter(graphs)))
            graphs[key] = load(plan.dataset, seed=plan.draw)
        for wait in WAITS:
            try:
                if jobs == 1:
                    rehearse(plan, plan.seeds[0], graphs[key])
                runs.write(perform(plan, plan.seeds[0], graphs[key], jobs), out)
                break
            except torch.OutOfMemoryError:  # another run has it, for now
                time.sleep(wait)
            except Exception:
                print(f"failed: {plan}\n{traceback.format_exc()}", flush=True)
                break
            finally:
                torch.cuda.empty_cache()
        else:
            print(f"out of memory: {plan}", flush=True)


def share(left: list[Record], out: Path, jobs: int, end: float, device: str) -> None:
    """Do runs side by side."""
    context = multiprocessing.get_context("spawn")
    tasks = context.Queue()
    for record in left:
        tasks.put((plan_of(record, device), seconds_of(record)))
    for _ in range(jobs):
        tasks.put(None)
    given = (tasks, out, jobs, end)
    workers = [context.Process(target=work, args=given, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers) and time.time() < end:
        time.sleep(0.5)
    for worker in workers:
        worker.kill()
    tasks.cancel_join_thread()


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
    if clocks and int(jobs) != 1:
        sys.exit("clocks: what is timed has the machine to itself: give JOBS 1")
    left = wanted(*asked)
    share(left, there, int(jobs), end, device)
    print(f"{len(left) - len(wanted(*asked))} of {len(left)} runs done")


if __name__ == "__main__":
    main(*sys.argv[1:])
