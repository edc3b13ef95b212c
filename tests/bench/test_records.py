from __future__ import annotations

import getpass
import json
import platform
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algnn.bench import records
from algnn.bench.protocol import Outcome
from algnn.errors import AlgnnError

OUTCOME = Outcome(
    ((0, 1), (2,)),
    np.array([[9, 9, 0], [8, 8, 5]]),
    np.array([10, 10, 10]),
    (0.5, 0.125),
    (0.25, 0.0625),
    (800, 880),
)


def a_record(**changes: Any) -> records.Record:
    facts: dict[str, Any] = {
        "dataset": "digits",
        "provenance": {"name": "digits", "sha256": "abc"},
        "method": "algnn",
        "settings": {"width": 64, "gamma": 0.1, "expansion": "gcn"},
        "base": 2,
        "step": 1,
        "edges": "full",
        "order": "label",
        "seed": 42,
        "outcome": OUTCOME,
        "device": "cpu",
    }
    return records.Record(**{**facts, **changes})


def test_what_the_file_holds(tmp_path: Path) -> None:
    path = records.write(a_record(), tmp_path)
    found = json.loads(path.read_text())
    assert found["format"] == 1
    assert found["sessions"] == [[0, 1], [2]]
    assert found["correct"] == [[9, 9, 0], [8, 8, 5]]
    assert found["total"] == [10, 10, 10]
    assert found["matrix"] == [[90, None], [80, 50]]
    assert (found["ap"], found["af"], found["macro"], found["micro"]) == (65, 10, 70, 70)
    assert found["stagewise"] == [90, 65]
    assert found["learn_seconds"] == [0.5, 0.125]
    assert found["predict_seconds"] == [0.25, 0.0625]
    assert found["retained_bytes"] == [800, 880]
    assert found["started"].endswith("+00:00")
    assert set(found["versions"]) == {
        "algnn", "code", "python", "torch", "torch_geometric", "numpy", "scipy",
    }  # fmt: skip
    assert set(found["machine"]) == {"architecture", "processor", "cores", "gpu", "jobs"}


def test_nothing_names_the_host_or_the_user(tmp_path: Path) -> None:
    text = records.write(a_record(), tmp_path).read_text()
    private = [str(Path.home()), str(tmp_path), str(Path.cwd())]
    private += [name for name in (platform.node(), getpass.getuser()) if len(name) > 4]
    for word in private:
        assert word == "/" or word not in text


def test_there_and_back(tmp_path: Path) -> None:
    record = a_record()
    back = records.read(records.write(record, tmp_path))
    for name in records.Record.__dataclass_fields__:
        if name != "outcome":
            assert getattr(back, name) == getattr(record, name)
    np.testing.assert_array_equal(back.outcome.correct, OUTCOME.correct)
    np.testing.assert_array_equal(back.outcome.matrix, OUTCOME.matrix)
    assert back.outcome.learn_seconds == OUTCOME.learn_seconds
    assert back.outcome.sessions == OUTCOME.sessions
    assert records.digest(back) == records.digest(record)


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(0, 2**32 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_name_stays_in_the_folder(dataset: str, method: str, seed: int, gamma: float) -> None:
    record = a_record(dataset=dataset, method=method, seed=seed, settings={"gamma": gamma})
    parts = records.file_name(record).split("/")
    assert len(parts) == 3
    for part in parts:
        assert part.isascii()
        assert part[0] != "."
        assert not set(part) & set('\\:*?"<>| \n\0')


def test_names_of_files() -> None:
    assert records.file_name(a_record()).startswith("digits/algnn/step1-full-label-")
    assert records.file_name(a_record()).endswith("-cpu-seed42.json")
    assert records.file_name(a_record(device="cuda")).endswith("-cuda-seed42.json")
    assert records.file_name(a_record(dataset="../../etc/my graph.npz")).startswith("my_graph.npz/")
    assert "-given-" in records.file_name(a_record(order="2,0,1"))


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "cora"},
        {"provenance": {"name": "digits", "sha256": "abd"}},
        {"method": "algnn-paper"},
        {"settings": {"width": 65, "gamma": 0.1, "expansion": "gcn"}},
        {"base": 3},
        {"step": 2},
        {"edges": "seen"},
        {"order": "random"},
        {"order": "2,0,1"},
    ],
)
def test_another_configuration_has_another_digest(change: dict[str, Any]) -> None:
    assert records.digest(a_record(**change)) != records.digest(a_record())


def test_what_a_digest_leaves_out() -> None:
    other = a_record(
        seed=43,
        device="cuda",
        started="long ago",
        machine={},
        versions={},
        provenance={"source": "elsewhere", "sha256": "abc"},
        settings={"expansion": "gcn", "gamma": 0.1, "width": 64},
    )
    assert records.digest(other) == records.digest(a_record())
    assert len(records.digest(other)) == 12


def test_a_run_done_again_replaces_its_record(tmp_path: Path) -> None:
    records.write(a_record(started="first"), tmp_path)
    records.write(a_record(started="second"), tmp_path)
    records.write(a_record(seed=43, started="third"), tmp_path)
    assert [record.started for record in records.read_all(tmp_path)] == ["second", "third"]


def test_devices_live_side_by_side(tmp_path: Path) -> None:
    records.write(a_record(device="cpu"), tmp_path)
    records.write(a_record(device="cuda"), tmp_path)
    assert [record.device for record in records.read_all(tmp_path)] == ["cpu", "cuda"]


def test_the_first_records_can_be_read(tmp_path: Path) -> None:
    """They say neither which code ran, nor how many runs went on, nor what selection took."""
    found = records._as_json(a_record())
    del found["versions"]["code"], found["machine"]["jobs"], found["selection_seconds"]
    path = tmp_path / "digits" / "algnn" / "step1-full-label-0123456789ab-seed42.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(found))
    (record,) = records.read_all(tmp_path)
    assert (record.outcome.ap, record.code) == (65, "")
    assert not records.same(record, a_record())


# -- which run it is ------------------------------------------------------------------------------


def a_run(**changes: Any) -> records.Run:
    record = a_record()
    facts = {name: getattr(record, name) for name in (*records.RUN_FACTS, "code")}
    return records.Run(**{**facts, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"provenance": {"sha256": "abd"}},
        {"settings": {"width": 65}},
        {"seed": 43},
        {"device": "cuda"},
        {"code": "0123456789ab"},
        {"order": "random"},
    ],
)
def test_another_run(tmp_path: Path, change: dict[str, Any]) -> None:
    assert records.same(a_run(), a_record())
    records.write(a_record(), tmp_path)
    assert records.done(a_run(), tmp_path).outcome.ap == 65
    assert not records.same(a_run(**change), a_record())
    assert records.done(a_run(**change), tmp_path) is None


def test_lists_in_settings_are_the_same_in_a_file(tmp_path: Path) -> None:
    record = a_record(settings={"hops": (0, 1, 2)})
    records.write(record, tmp_path)
    assert records.done(a_run(settings={"hops": (0, 1, 2)}), tmp_path) is not None


def test_a_new_version_of_the_code_takes_the_same_place(tmp_path: Path) -> None:
    old = a_record(versions={"code": "old"})
    records.write(old, tmp_path)
    assert records.file_name(old) == records.file_name(a_record())
    records.write(a_record(), tmp_path)
    (found,) = records.read_all(tmp_path)
    assert found.code == records.code_version()


# -- failures -------------------------------------------------------------------------------------


def a_failure(**changes: Any) -> records.Failure:
    return records.Failure(**vars(a_run()), **{"reason": "out of memory", **changes})


def test_a_failure_there_and_back(tmp_path: Path) -> None:
    failure = a_failure(ended="2026-01-01T00:00:00+00:00")
    path = records.write_failure(failure, tmp_path)
    assert path.name == Path(records.file_name(a_run())).stem + ".failed.json"
    (back,) = records.failures(tmp_path)
    assert vars(back) == vars(failure)
    assert records.read_all(tmp_path) == []
    assert vars(records.failed(a_run(), tmp_path)) == vars(failure)
    assert records.failed(a_run(code="newer"), tmp_path) is None
    assert records.failed(a_run(seed=43), tmp_path) is None


def test_success_removes_the_failure(tmp_path: Path) -> None:
    records.write_failure(a_failure(), tmp_path)
    other = records.write_failure(records.Failure(**vars(a_run(seed=43)), reason="x"), tmp_path)
    path = records.write(a_record(), tmp_path)
    assert sorted(path.parent.iterdir()) == sorted([path, other])


def test_a_failure_that_a_killed_writer_left_behind_does_not_count(tmp_path: Path) -> None:
    records.write(a_record(), tmp_path)
    records.write_failure(a_failure(), tmp_path)
    assert records.failures(tmp_path) == []
    # but a record of older code is no success of this one
    records.write(a_record(versions={"code": "old"}), tmp_path)
    records.write_failure(a_failure(), tmp_path)
    assert len(records.failures(tmp_path)) == len(records.read_all(tmp_path)) == 1


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 1}', '{"format": "failure-1"}', '{"format": "failure-2"}'],
)
def test_a_file_that_is_no_failure(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.failed.json").write_text(content)
    with pytest.raises(AlgnnError, match=r"odd\.failed\.json is") as caught:
        records.failures(tmp_path)
    assert "\n" not in str(caught.value)


# -- files ----------------------------------------------------------------------------------------


def test_an_unfinished_file_is_not_a_record(tmp_path: Path) -> None:
    path = records.write(a_record(), tmp_path)
    (path.parent / ".0123.tmp.json").write_text('{"format"')
    assert len(records.read_all(tmp_path)) == 1


def test_the_old_record_stays_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    path = records.write(a_record(started="first"), tmp_path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(AlgnnError, match="cannot be written: File too large"):
            records.write(a_record(started="second"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AlgnnError, match="cannot be written"):
        records.write(a_record(), tmp_path / "file")
    with pytest.raises(AlgnnError, match="not a folder"):
        records.read_all(tmp_path / "file")


def _without(name: str) -> dict[str, Any]:
    found = records._as_json(a_record())
    del found[name]
    return found


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"format"',
        '{"ap": 3}',
        '{"format": 1}',
        '{"format": 2}',
        '{"format": "1"}',
        "\x00\x01\xff",
        "[" * 100_000,
        json.dumps(_without("correct")),
        json.dumps(_without("started")),
        json.dumps(_without("settings")),
        json.dumps({**_without("correct"), "correct": [[1]]}),
        json.dumps({**_without("correct"), "correct": [[11, 9, 0], [8, 8, 5]]}),
        json.dumps({**_without("correct"), "correct": [[9, 9], [8, 8, 5]]}),
        json.dumps({**_without("total"), "total": None}),
        json.dumps({**_without("sessions"), "sessions": 5}),
        json.dumps({**_without("sessions"), "sessions": [["a", "b"], ["c"]]}),
        json.dumps({**_without("learn_seconds"), "learn_seconds": [0.5]}),
        json.dumps({**_without("retained_bytes"), "retained_bytes": [1, 2, 3]}),
        json.dumps({**_without("settings"), "settings": []}),
        json.dumps({**_without("dataset"), "dataset": 7}),
        json.dumps({**_without("seed"), "seed": "x"}),
    ],
)
def test_a_file_that_is_no_record(tmp_path: Path, content: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(AlgnnError) as caught:
        records.read_all(tmp_path)
    assert "odd.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_record(tmp_path: Path) -> None:
    path = records.write(a_record(), tmp_path)
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(AlgnnError, match="not a whole record"):
            records.read(path)
    path.unlink()
    with pytest.raises(AlgnnError, match="cannot be read"):
        records.read(path)


# A megabyte of provenance, so that much of a writer's time goes into writing; a kill hits a writer
# somewhere else each time. Without the atomic step several of the records here are cut short.
WRITERS = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from algnn.bench.protocol import Outcome
from algnn.bench.records import Record, write

outcome = Outcome(((0, 1),), np.array([[7, 8]]), np.array([9, 9]), (0.1,), (0.1,), (8,))

def go_on_writing(folder):
    provenance = {"source": "x" * 2**20}
    for turn in range(10**9):
        seed = turn % 2
        write(Record("g", provenance, "m", {}, 2, 1, "full", "label", seed, outcome, "cpu"), folder)

for kill in range(int(sys.argv[2])):
    folder = Path(sys.argv[1], str(kill))
    writer = os.fork()
    if writer == 0:
        go_on_writing(folder)
    while len(list(folder.glob("g/m/step*.json"))) < 2:
        time.sleep(0.001)
    time.sleep(0.0031 * kill)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
"""


def test_a_writer_that_is_killed_leaves_whole_records(tmp_path: Path) -> None:
    kills = 12
    subprocess.run([sys.executable, "-c", WRITERS, str(tmp_path), str(kills)], check=True)
    for kill in range(kills):
        found = records.read_all(tmp_path / str(kill))
        assert [record.seed for record in found] == [0, 1]
        assert all(record.outcome.micro == pytest.approx(100 * 15 / 18) for record in found)


def test_a_setting_that_json_cannot_hold_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        records.write(replace(a_record(), provenance={"size": float("nan")}), tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


def measured() -> Outcome:
    bins = np.zeros((15, 3))
    bins[14] = 30, 29.12345, 21
    return replace(OUTCOME, calibration_errors=(0.1, 0.2), novelty_aurocs=(0.75,), reliability=bins)


def test_calibration_and_novelty_there_and_back(tmp_path: Path) -> None:
    path = records.write(a_record(outcome=measured()), tmp_path)
    found = json.loads(path.read_text())
    assert (found["ece"], found["novelty_auroc"]) == (0.2, 0.75)
    back = records.read(path).outcome
    assert back.calibration_errors == (0.1, 0.2)
    assert back.novelty_aurocs == (0.75,)
    assert back.reliability is not None
    assert back.reliability[14].tolist() == [30, 29.123, 21]
    assert not back.reliability[:14].any()


def test_a_record_from_before_they_were_measured(tmp_path: Path) -> None:
    path = records.write(a_record(), tmp_path)
    found = json.loads(path.read_text())
    assert found["ece"] is None
    for name in ("ece", "novelty_auroc", "calibration_errors", "novelty_aurocs", "reliability"):
        del found[name]
    path.write_text(json.dumps(found))
    back = records.read(path).outcome
    assert (back.ece, back.auroc, back.reliability) == (None, None, None)
    assert back.ap == 65


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("calibration_errors", [0.1], "calibration_errors"),
        ("novelty_aurocs", [0.1, 0.2], "novelty_aurocs"),
        ("reliability", [[1, 2], [3, 4]], "three rows of 15"),
        ("reliability", None, "not both there"),
        ("calibration_errors", ["x", "y"], "could not convert"),
    ],
)
def test_figures_that_do_not_fit(tmp_path: Path, name: str, value: Any, words: str) -> None:
    path = records.write(a_record(outcome=measured()), tmp_path)
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, name: value}))
    with pytest.raises(AlgnnError, match=words):
        records.read(path)
