"""Runs on a Dask cluster of real processes: the records of one process, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn.bench import runs
from algnn.bench.plan import Plan, perform
from algnn.bench.processes import start_forkserver
from algnn.bench.record import same
from algnn.cli import main
from algnn.graph.datasets import load

# a learner that refuses one seed, and at another waits until it is killed, once
OWN = """
import os
import time
from pathlib import Path

from algnn import ALGNN

class Own(ALGNN):
    def __init__(self, seed=0):
        super().__init__(width=16, hidden=4, epochs=1, seed=seed, device="cpu")

    def partial_fit(self, graph, nodes, labels):
        if self.seed == 1:
            raise ZeroDivisionError("by one")
        if self.seed == 2 and not Path("waiting").exists():
            Path("draft").write_text(str(os.getpid()))
            Path("draft").rename("waiting")
            time.sleep(600)
        return super().partial_fit(graph, nodes, labels)
"""


def kill_who_waits() -> None:
    deadline = time.monotonic() + 120
    while not Path("waiting").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int(Path("waiting").read_text()), signal.SIGKILL)


def test_runs_are_spread_over_workers_and_a_killed_one_costs_a_retry(
    small_graph: Data,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    # from the process in which all is imported: seconds less for each worker
    start_forkserver()
    monkeypatch.chdir(tmp_path)
    arrays = {key: value.numpy() for key, value in small_graph.to_dict().items()}
    np.savez("mine.npz", **arrays)
    Path("own_far.py").write_text(OWN)
    command = ["bench", "--datasets", "mine.npz", "--methods", "own_far:Own", "--seeds", "1,2,3"]
    command += ["--device", "cpu", "--json"]
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(
            2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
    ):
        killer = threading.Thread(target=kill_who_waits)
        killer.start()
        assert main([*command, "--scheduler", cluster.scheduler_address]) == 1
        killer.join()
        out, err = capsys.readouterr()
        # nothing is left to do but what failed
        again = main([*command, "--scheduler", cluster.scheduler_address])
    found = json.loads(out)
    assert (found["done"], again) == (2, 1)
    told = [(failure["seed"], failure["reason"]) for failure in found["failed"]]
    assert told == [(1, "ZeroDivisionError: by one")]
    assert "3 runs to do, with 2 workers on the CPU" in err
    second = json.loads(capsys.readouterr().out)
    assert (second["done"], second["reused"], second["results"]) == (0, 2, found["results"])
    for record in runs.read_records("records"):
        plan = Plan("mine.npz", "own_far:Own", [record.seed], device="cpu")
        alone = perform(plan, record.seed, load("mine.npz"))
        assert same(record, alone)
        np.testing.assert_array_equal(record.outcome.correct, alone.outcome.correct)


def test_a_scheduler_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    common = ["bench", "--datasets", "digits", "--methods", "bare", "--seeds", "1"]
    assert main([*common, "--scheduler", "nowhere"]) == 2
    assert "--scheduler nowhere cannot be reached" in capsys.readouterr().err
