from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from algnn import ALGNN
from algnn.bench import plan, processes, runs, scheduler
from algnn.bench.plan import Plan, cross, fit_changes
from algnn.bench.record import file_name, same
from algnn.bench.scheduler import Tally, bench, carry_out, room
from algnn.bench.worker import reason
from algnn.errors import AlgnnError, InputError

SMALL = {"width": 32, "hidden": 8, "epochs": 3}

# One learner that does at the end of its first session whatever it is told to.
OWN = """
import gc
import os
import signal
import struct
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from algnn import ALGNN

class Own(ALGNN):
    '''Answers like ALGNN, unless it does something else.'''

    def __init__(self, trouble="", seed=0):
        super().__init__(width=16, hidden=4, epochs=1, seed=seed, device="cpu")
        self.trouble = trouble

    def partial_fit(self, graph, nodes, labels):
        getattr(self, f"_{self.trouble or 'fine'}")()
        return super().partial_fit(graph, nodes, labels)

    def _fine(self): pass
    def _raise(self): raise ZeroDivisionError("on\\ntwo lines")
    def _leave(self): sys.exit(7)
    def _vanish(self): os._exit(4)
    def _fill(self): torch.empty(10**15)
    def _crash(self): os.kill(os.getpid(), signal.SIGKILL)
    def _cut(self):
        for one in gc.get_objects():
            if isinstance(one, Connection) and not one.closed and one.writable:
                os.write(one.fileno(), struct.pack("!i", 1000) + b"half of a message")
        self._crash()
    def _chat(self): print("hello from inside")
    def _mumble(self): sys.stdout.write("no end of line")
    def _fork(self):
        if child := os.fork():
            os.waitpid(child, 0)  # so that it has told of the run before
    def _leave_behind(self):
        if not os.fork():
            Path(f"child-{os.getpid()}").touch()
            time.sleep(600)
    def _wait(self):
        Path(f"waiting-{self.seed}").write_text(str(os.getpid()))
        while not Path("go").exists():
            time.sleep(0.01)
"""


@pytest.fixture
def file(small_graph: Data, tmp_path: Path) -> str:
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: value.numpy() for key, value in small_graph.to_dict().items()})
    return str(path)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Plan]]:
    """Plans for the learner above, which is in the current folder."""
    (tmp_path / "own_learner.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("own_learner", None)

    def troubled(file: str, trouble: str, seeds: list[int]) -> Plan:
        return Plan(file, "own_learner:Own", seeds, {"trouble": trouble}, device="cpu")

    yield troubled
    sys.modules.pop("own_learner", None)


def small(file: str, seeds: list[int], method: str = "algnn", **changes: Any) -> Plan:
    chosen = SMALL if method == "algnn" else {"hidden": 8, "epochs": 3}
    return Plan(file, method, seeds, {**chosen, **changes}, device="cpu")


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def in_background(plans: list[Plan], folder: Path, **options: Any) -> Callable[[], Tally]:
    """Carry plans out in a thread; the call gives what came of it."""
    result: list[Tally] = []
    work = threading.Thread(
        target=lambda: result.append(carry_out(plans, folder, progress=False, **options))
    )
    work.start()

    def join() -> Tally:
        work.join(60)
        return result[0]

    return join


def test_the_cross_product(file: str, tmp_path: Path) -> None:
    done = bench(
        [file], ["bare", "algnn"], [1, 2], [4, 5], changes=SMALL, records=tmp_path / "records",
        device="cpu", jobs=2, progress=False,
    )  # fmt: skip
    found = [(record.step, record.method, record.seed) for record in done]
    assert found == sorted((s, m, n) for s in (1, 2) for m in ("algnn", "bare") for n in (4, 5))
    assert all(record.machine["jobs"] == 2 for record in done)
    assert {record.settings["epochs"] for record in done} == {3}
    # what a plan alone leaves behind
    (expected,) = plan.carry_out(small(file, [4]), tmp_path / "alone")
    np.testing.assert_array_equal(done[0].outcome.correct, expected.outcome.correct)
    assert same(done[0], expected)


def test_nothing_is_done_twice(file: str, tmp_path: Path) -> None:
    plans = [small(file, [1, 2])]
    first = carry_out(plans, tmp_path / "r", 1, progress=False)
    assert (len(first.done), len(first.reused)) == (2, 0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    # twice the same plan, and two seeds more
    plans = [small(file, [2, 1]), small(file, [1, 2, 3])]
    second = carry_out(plans, tmp_path / "r", 1, progress=False)
    assert [record.seed for record in second.done] == [3]
    assert sorted(record.seed for record in second.reused) == [1, 2]
    assert [record.seed for record in second.records] == [1, 2, 3]
    for path, time_written in before.items():
        assert path.stat().st_mtime_ns == time_written


def test_a_run_without_confidence_is_done_again_where_it_is_asked_for(
    file: str, tmp_path: Path
) -> None:
    whole = small(file, [1])
    quick = replace(whole, confidence=False)
    for asked, counts in ((quick, (1, 0)), (whole, (1, 0)), (quick, (0, 1)), (whole, (0, 1))):
        tally = carry_out([asked], tmp_path / "r", 1, progress=False)
        assert (len(tally.done), len(tally.reused)) == counts
    assert tally.records[0].outcome.ece is not None


def test_drafts_of_killed_writers_are_removed(file: str, tmp_path: Path) -> None:
    folder = tmp_path / "r" / "mine.npz" / "algnn"
    folder.mkdir(parents=True)
    old, new = folder / ".0123456789ab.tmp.json", folder / ".ba9876543210.tmp.json"
    for draft in (old, new):
        draft.write_text("{")
    os.utime(old, (0, 0))
    carry_out([small(file, [1])], tmp_path / "r", 1, progress=False)
    assert (old.exists(), new.exists()) == (False, True)


def test_another_version_of_the_code_is_computed_anew(file: str, tmp_path: Path) -> None:
    plans = [small(file, [1])]
    (old,) = carry_out(plans, tmp_path / "r", 1, progress=False).done
    path = tmp_path / "r" / file_name(old)
    path.write_text(path.read_text().replace(old.code, "0123456789ab"))
    again = carry_out(plans, tmp_path / "r", 1, progress=False)
    assert (len(again.done), len(again.reused)) == (1, 0)
    (new,) = runs.read_records(tmp_path / "r")
    assert new.code == old.code


def test_the_order_of_one_worker(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds before methods, so that whatever else the machine does falls on all methods alike."""
    plans = [small(file, [1, 2], "bare"), small(file, [1, 2], "algnn")]
    carry_out(plans, tmp_path / "r", 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("4 runs to do, with 1 worker of ")
    shown = [line.split(":")[0] for line in lines[1:]]
    assert shown == [
        f"[{i + 1}/4] mine.npz {method} step 1 seed {seed}"
        for i, (seed, method) in enumerate((s, m) for s in (1, 2) for m in ("bare", "algnn"))
    ]


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("raise", "ZeroDivisionError: on two lines"),
        ("leave", "SystemExit: 7"),
        ("vanish", "its process ended with exit code 4"),
        ("fill", "out of memory"),
        ("crash", "killed by signal 9"),
        ("cut", "killed by signal 9"),
    ],
)
def test_a_run_that_fails_is_its_own_affair(
    file: str, own: Callable[..., Plan], tmp_path: Path, trouble: str, reason: str
) -> None:
    plans = [own(file, trouble, [1]), own(file, "", [2]), small(file, [3])]
    tally = carry_out(plans, tmp_path / "r", 1, progress=False)
    assert [failure.reason for failure in tally.failed] == [reason]
    assert [record.seed for record in tally.records] == [3, 2]
    (kept,) = runs.read_failures(tmp_path / "r").itertuples()
    assert (kept.reason, kept.seed, kept.method) == (reason, 1, "own_learner:Own")
    assert kept.settings == {"trouble": trouble}
    # the place in a user's code is kept where there is one
    assert (f"in _{trouble}" in kept.traceback) == (trouble in ("raise", "leave", "fill"))


def test_what_failed_is_tried_again_only_on_demand(
    file: str, own: Callable[..., Plan], tmp_path: Path
) -> None:
    plans = [own(file, "raise", [1])]
    carry_out(plans, "r", 1, progress=False)
    again = carry_out(plans, "r", 1, progress=False)
    assert (len(again.failed), len(again.skipped)) == (0, 1)
    # a learner that has been mended is another one: it needs no demand
    source = Path("own_learner.py")
    broken = source.read_text()
    source.write_text(broken.replace("raise ZeroDivisionError", "return; "))
    del sys.modules["own_learner"]
    mended = carry_out(plans, "r", 1, progress=False)
    assert len(mended.done) == 1
    assert runs.read_failures("r").empty
    source.write_text(broken)
    del sys.modules["own_learner"]
    for retry, failed in ((False, 1), (False, 0), (True, 1)):
        assert len(carry_out(plans, "r", 1, retry, progress=False).failed) == failed


def test_an_error_that_we_foresaw(file: str, tmp_path: Path) -> None:
    """Training that diverges ends the run, not the worker."""
    plan = small(file, [1], "bare", lr=1e30, epochs=30)
    tally = carry_out([plan, small(file, [2])], tmp_path / "r", 1, progress=False)
    (failure,) = tally.failed
    assert failure.reason.startswith("InputError: training diverged")
    assert len(tally.done) == 1


def test_a_worker_that_is_killed_is_replaced(
    file: str, own: Callable[..., Plan], tmp_path: Path
) -> None:
    join = in_background([own(file, "wait", [1, 2, 3])], tmp_path / "r", jobs=1)
    note = tmp_path / "waiting-1"
    os.kill(int(wait_for(lambda: note.exists() and note.read_text())), signal.SIGKILL)
    (tmp_path / "go").touch()
    tally = join()
    assert [(f.seed, f.reason) for f in tally.failed] == [(1, "killed by signal 9")]
    assert [record.seed for record in tally.done] == [2, 3]


def test_a_forkserver_that_is_killed_is_replaced(
    file: str, own: Callable[..., Plan], tmp_path: Path
) -> None:
    """Its workers finish their runs; others come from a new one."""
    join = in_background([own(file, "wait", [1, 2, 3])], tmp_path / "r", jobs=2)
    for seed in (1, 2):
        note = tmp_path / f"waiting-{seed}"
        wait_for(lambda note=note: note.exists() and note.read_text())
    os.kill(processes.forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    tally = join()
    assert tally.failed == []
    assert len(tally.records) == 3


def test_processes_that_never_begin(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any) -> None:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(scheduler, "Worker", refuse)
    with pytest.raises(AlgnnError, match="cannot be started: see above"):
        carry_out([small(file, [1])], tmp_path / "r", 1)
    assert capsys.readouterr().err.count("no more processes\n") == 4
    assert runs.read_failures(tmp_path / "r").empty


def test_where_there_is_a_gpu_the_forkserver_imports_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(processes.CONTEXT, "set_forkserver_preload", asked.append)
    for gpu in (True, False):
        monkeypatch.setattr(processes, "has_gpu", lambda gpu=gpu: gpu)
        processes.start_forkserver()
    assert asked == [[], ["algnn.bench.worker"]]


def test_only_one_at_a_time_in_a_folder(
    file: str, own: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PATIENCE", 0.1)
    join = in_background([own(file, "wait", [1])], tmp_path / "r", jobs=1)
    wait_for((tmp_path / "waiting-1").exists)
    with pytest.raises(InputError, match="is in use by another algnn bench"):
        carry_out([small(file, [1])], tmp_path / "r", 1, progress=False)
    # another folder is another matter
    assert len(carry_out([small(file, [1])], tmp_path / "s", 1, progress=False).done) == 1
    (tmp_path / "go").touch()
    assert len(join().done) == 1
    assert len(carry_out([small(file, [1])], tmp_path / "r", 1, progress=False).done) == 1


def test_what_a_worker_prints_is_passed_on(
    file: str, own: Callable[..., Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out([own(file, "chat", [1])], tmp_path / "r", 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("mine.npz own_learner:Own step 1 seed 1: hello from inside\n") == 2


def test_text_without_an_end_of_line_is_passed_on_too(
    file: str, own: Callable[..., Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out([own(file, "mumble", [1])], tmp_path / "r", 1)
    assert capsys.readouterr().err.endswith("no end of line\n")


def test_a_learner_that_goes_on_in_two_processes_counts_once(
    file: str, own: Callable[..., Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads of torch do not outlive a fork
    tally = carry_out([own(file, "fork", [1])], tmp_path / "r", 1)
    assert (len(tally.done), len(tally.failed)) == (1, 0)
    assert "[1/1]" in (err := capsys.readouterr().err)
    assert "[2/1]" not in err


def test_a_process_that_a_learner_leaves_behind_is_not_waited_for(
    file: str, own: Callable[..., Plan], tmp_path: Path
) -> None:
    join = in_background([own(file, "leave_behind", [1])], tmp_path / "r", jobs=1)
    try:
        assert len(join().done) == 1
    finally:
        for child in tmp_path.glob("child-*"):
            os.kill(int(child.name.removeprefix("child-")), signal.SIGKILL)


def test_a_class_by_itself(
    file: str, own: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    import own_learner

    (record,) = bench(
        [file], [own_learner.Own], seeds=[1], records="r", device="cpu", jobs=1, progress=False
    )
    assert record.method == "own_learner:Own"
    assert record.settings == {"trouble": ""}
    assert "+" in record.code


def test_classes_that_no_worker_could_import(file: str, tmp_path: Path) -> None:
    class Local(ALGNN):
        pass

    program = type("Program", (ALGNN,), {"__module__": "__main__"})
    for learner in (Local, program):
        with pytest.raises(InputError, match="put it into a module of its own"):
            bench([file], [learner], seeds=[1], records=tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": ["nowhere.npz"]}, "nowhere.npz"),
        ({"datasets": []}, "datasets is empty"),
        ({"methods": []}, "methods is empty"),
        ({"methods": ["best"]}, "method='best'"),
        ({"methods": ["no_such_module:X"]}, "there is no module no_such_module"),
        ({"steps": [0]}, "step=0"),
        ({"steps": []}, "steps is empty"),
        ({"seeds": []}, "seeds is empty"),
        ({"changes": {"gama": 1}}, "'gama' is not a setting of algnn, bare"),
        ({"changes": {"gamma": "x"}}, "gamma='x' must be a number"),
        ({"changes": {"gamma": -1.0}}, "gamma=-1.0"),
        ({"changes": {"seed": 1}}, "seed has an option of its own"),
        ({"device": "abacus"}, "device='abacus'"),
        ({"jobs": 0}, "jobs=0 must be a whole number"),
        ({"jobs": True}, "jobs=True must be a whole number"),
    ],
)
def test_nonsense_leaves_nothing_behind(
    file: str, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    sound = {"datasets": [file], "methods": ["algnn", "bare"], "seeds": [1]}
    with pytest.raises(AlgnnError) as caught:
        bench(**{**sound, **options}, records=tmp_path / "r")
    assert message in str(caught.value)
    assert not (tmp_path / "r").exists()


def test_changes_go_to_those_who_know_them() -> None:
    found = fit_changes(["algnn", "gem"], {"gamma": 1.0, "margin": 0.1, "epochs": 3})
    assert found == {"algnn": {"gamma": 1.0, "epochs": 3}, "gem": {"margin": 0.1, "epochs": 3}}
    plans = cross(["a", "b"], found, [1, 5], [42])
    assert [(p.dataset, p.step, p.method) for p in plans] == [
        (d, s, m) for d in "ab" for s in (1, 5) for m in ("algnn", "gem")
    ]
    assert plans[1].changes == {"margin": 0.1, "epochs": 3}


def test_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(scheduler, "_free_memory", lambda: 2**40)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert room("cpu") == (16, 1)
    assert room("cpu", 1) == (1, 16)
    assert room("cpu", 5) == (5, 3)
    assert room("cpu", 99) == (99, 1)
    assert room("cuda") == (4, 4)
    monkeypatch.setattr(scheduler, "_free_memory", lambda: 3 * 2**30)
    assert room("cpu") == (3, 5)
    monkeypatch.setattr(scheduler, "_free_memory", lambda: 0)
    assert room("cpu") == (1, 16)
    monkeypatch.setattr(scheduler, "_free_memory", lambda: 2**40)
    for setting in ("2", "2,1"):
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
        assert room("cpu") == (8, 2)
        assert room("cpu", 1) == (1, 2)
    for setting in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
        assert room("cpu") == (16, 1)


def test_what_has_been_packed_is_not_done_again(tmp_path: Path, file: str) -> None:
    plan = small(file, [2, 1])
    carry_out([plan], tmp_path / "r", 1, progress=False)
    runs.pack(tmp_path / "r")
    tally = carry_out([plan], tmp_path / "r", 1, progress=False)
    assert (len(tally.done), [record.seed for record in tally.reused]) == (0, [2, 1])
    assert list(tally.of(plan)["seed"]) == [record.seed for record in tally.records] == [1, 2]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("training diverged"), "InputError: training diverged"),
        (ValueError("on\n  two lines\n"), "ValueError: on two lines"),
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
        (SystemExit(3), "SystemExit: 3"),
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), "out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "out of memory"),
        (RuntimeError("CUDA error: out of memory"), "out of memory"),
        (RuntimeError("memory format differs"), "RuntimeError: memory format differs"),
        (OSError("not enough memory for a joke"), "OSError: not enough memory for a joke"),
    ],
)
def test_reasons(error: BaseException, expected: str) -> None:
    assert reason(error) == expected


def test_a_long_story_is_cut_short() -> None:
    told = reason(RuntimeError("CUDA error: " + "and so on " * 100))
    assert told.startswith("RuntimeError: CUDA error: and so on")
    assert told.endswith(" …")
    assert len(told) < 250


def test_what_a_torch_without_memory_really_says() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert reason(caught.value) == "out of memory"
