from __future__ import annotations

import getpass
import gzip
import json
import os
import platform
import re
import resource
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from algnn.bench import record as entry
from algnn.bench import runs
from algnn.bench.environment import code_version
from algnn.bench.protocol import Outcome
from algnn.bench.record import Failure, Record, Run, file_name, same
from algnn.errors import AlgnnError, InputError

OUTCOME = Outcome(
    ((0, 1), (2,)),
    np.array([[9, 9, 0], [8, 8, 5]]),
    np.array([10, 10, 10]),
    (0.5, 0.125),
    (0.25, 0.0625),
    (800, 880),
)


def a_record(**changes: Any) -> Record:
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
    return Record(**{**facts, **changes})


def test_what_the_file_holds(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)
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
    text = runs.write(a_record(), tmp_path).read_text()
    private = [str(Path.home()), str(tmp_path), str(Path.cwd())]
    private += [name for name in (platform.node(), getpass.getuser()) if len(name) > 4]
    for word in private:
        assert word == "/" or word not in text


def test_there_and_back(tmp_path: Path) -> None:
    record = a_record()
    back = runs.read(runs.write(record, tmp_path))
    for name in Record.__dataclass_fields__:
        if name != "outcome":
            assert getattr(back, name) == getattr(record, name)
    np.testing.assert_array_equal(back.outcome.correct, OUTCOME.correct)
    np.testing.assert_array_equal(back.outcome.matrix, OUTCOME.matrix)
    assert back.outcome.learn_seconds == OUTCOME.learn_seconds
    assert back.outcome.sessions == OUTCOME.sessions
    assert back.configuration == record.configuration


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(0, 2**32 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_name_stays_in_the_folder(dataset: str, method: str, seed: int, gamma: float) -> None:
    record = a_record(dataset=dataset, method=method, seed=seed, settings={"gamma": gamma})
    parts = file_name(record).split("/")
    assert len(parts) == 3
    for part in parts:
        assert part.isascii()
        assert part[0] != "."
        assert not set(part) & set('\\:*?"<>| \n\0')


def test_names_of_files() -> None:
    assert file_name(a_record()).startswith("digits/algnn/step1-full-label-")
    assert file_name(a_record()).endswith("-cpu-seed42.json")
    assert file_name(a_record(device="cuda")).endswith("-cuda-seed42.json")
    assert file_name(a_record(dataset="../../etc/my graph.npz")).startswith("my_graph.npz/")
    assert "-given-" in file_name(a_record(order="2,0,1"))


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
    assert a_record(**change).configuration != a_record().configuration


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
    assert other.configuration == a_record().configuration
    assert len(other.configuration) == 12


def test_a_run_done_again_replaces_its_record(tmp_path: Path) -> None:
    runs.write(a_record(started="first"), tmp_path)
    runs.write(a_record(started="second"), tmp_path)
    runs.write(a_record(seed=43, started="third"), tmp_path)
    assert [record.started for record in runs.read_records(tmp_path)] == ["second", "third"]


def test_devices_live_side_by_side(tmp_path: Path) -> None:
    runs.write(a_record(device="cpu"), tmp_path)
    runs.write(a_record(device="cuda"), tmp_path)
    assert [record.device for record in runs.read_records(tmp_path)] == ["cpu", "cuda"]


def test_the_first_records_can_be_read(tmp_path: Path) -> None:
    """They say neither which code ran, nor how many runs went on, nor what selection took."""
    found = entry.as_json(a_record())
    del found["versions"]["code"], found["machine"]["jobs"], found["selection_seconds"]
    path = tmp_path / "digits" / "algnn" / "step1-full-label-0123456789ab-seed42.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(found))
    (record,) = runs.read_records(tmp_path)
    assert (record.outcome.ap, record.code) == (65, "")
    assert not same(record, a_record())


# -- which run it is ------------------------------------------------------------------------------


def a_run(**changes: Any) -> Run:
    record = a_record()
    facts = {name: getattr(record, name) for name in (*entry.RUN_FACTS, "code")}
    return Run(**{**facts, **changes})


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
    assert same(a_run(), a_record())
    runs.write(a_record(), tmp_path)
    assert runs.stored(a_run(), tmp_path).outcome.ap == 65
    assert not same(a_run(**change), a_record())
    assert runs.stored(a_run(**change), tmp_path) is None


def test_lists_in_settings_are_the_same_in_a_file(tmp_path: Path) -> None:
    record = a_record(settings={"hops": (0, 1, 2)})
    runs.write(record, tmp_path)
    assert runs.stored(a_run(settings={"hops": (0, 1, 2)}), tmp_path) is not None


def test_a_new_version_of_the_code_takes_the_same_place(tmp_path: Path) -> None:
    old = a_record(versions={"code": "old"})
    runs.write(old, tmp_path)
    assert file_name(old) == file_name(a_record())
    runs.write(a_record(), tmp_path)
    (found,) = runs.read_records(tmp_path)
    assert found.code == code_version()


# -- failures -------------------------------------------------------------------------------------


def a_failure(**changes: Any) -> Failure:
    return Failure(**vars(a_run()), **{"reason": "out of memory", **changes})


def test_a_failure_there_and_back(tmp_path: Path) -> None:
    failure = a_failure(ended="2026-01-01T00:00:00+00:00")
    path = runs.write(failure, tmp_path)
    assert path.name == Path(file_name(a_run())).stem + ".failed.json"
    (back,) = runs.read_failures(tmp_path).to_dict("records")
    assert {name: back[name] for name in vars(failure)} == vars(failure)
    assert runs.read_runs(tmp_path).empty
    assert vars(runs.stored(a_run(), tmp_path, failed=True)) == vars(failure)
    assert runs.stored(a_run(code="newer"), tmp_path, failed=True) is None
    assert runs.stored(a_run(seed=43), tmp_path, failed=True) is None


def test_success_removes_the_failure(tmp_path: Path) -> None:
    runs.write(a_failure(), tmp_path)
    other = runs.write(Failure(**vars(a_run(seed=43)), reason="x"), tmp_path)
    path = runs.write(a_record(), tmp_path)
    assert sorted(path.parent.iterdir()) == sorted([path, other])


def test_a_failure_that_a_killed_writer_left_behind_does_not_count(tmp_path: Path) -> None:
    runs.write(a_record(), tmp_path)
    runs.write(a_failure(), tmp_path)
    assert runs.read_failures(tmp_path).empty
    # but an older record of older code is no success of this one
    old = {"versions": {"code": "old"}, "started": "2000-01-01T00:00:00+00:00"}
    runs.write(a_record(**old), tmp_path)
    runs.write(a_failure(), tmp_path)
    assert len(runs.read_failures(tmp_path)) == len(runs.read_records(tmp_path)) == 1
    # nor does a failure count that was made good in another folder
    runs.write(a_record(), tmp_path / "elsewhere")
    assert runs.read_tables([tmp_path, tmp_path / "elsewhere"])[2].empty


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 1}', '{"format": "failure-1"}', '{"format": "failure-2"}'],
)
def test_a_file_that_is_no_failure(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.failed.json").write_text(content)
    with pytest.raises(AlgnnError, match=r"odd\.failed\.json is") as caught:
        runs.read_failures(tmp_path)
    assert "\n" not in str(caught.value)


# -- files ----------------------------------------------------------------------------------------


def test_an_unfinished_file_is_not_a_record(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)
    (path.parent / ".0123.tmp.json").write_text('{"format"')
    assert len(runs.read_records(tmp_path)) == 1


def test_the_old_record_stays_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    path = runs.write(a_record(started="first"), tmp_path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(AlgnnError, match="cannot be written: File too large"):
            runs.write(a_record(started="second"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AlgnnError, match="cannot be written"):
        runs.write(a_record(), tmp_path / "file")
    with pytest.raises(AlgnnError, match="not a folder"):
        runs.read_records(tmp_path / "file")


def _without(name: str) -> dict[str, Any]:
    found = entry.as_json(a_record())
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
        runs.read_records(tmp_path)
    assert "odd.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_record(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(AlgnnError, match="not a whole record"):
            runs.read(path)
    path.unlink()
    with pytest.raises(AlgnnError, match="cannot be read"):
        runs.read(path)


# A megabyte of provenance, so that much of a writer's time goes into writing; a kill hits a writer
# somewhere else each time. Without the atomic step several of the records here are cut short.
WRITERS = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
from algnn.bench.environment import code_version
from algnn.bench.protocol import Outcome
from algnn.bench.record import Record
from algnn.bench.runs import write

code_version()  # once, not by each of the forks
outcome = Outcome(((0, 1),), np.array([[7, 8]]), np.array([9, 9]), (0.1,), (0.1,), (8,))

def go_on_writing(folder):
    provenance = {"source": "x" * 2**20}
    for turn in range(10**9):
        seed = turn % 2
        facts = ("g", provenance, "m", {}, 2, 1, "full", "label", seed, "cpu")
        write(Record(*facts, outcome=outcome), folder)

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


def test_a_writer_that_is_killed_leaves_whole_records(
    tmp_path: Path, run_process: Callable[..., str]
) -> None:
    kills = 8
    run_process(WRITERS, tmp_path, kills)
    for kill in range(kills):
        found = runs.read_records(tmp_path / str(kill))
        assert [record.seed for record in found] == [0, 1]
        assert all(record.outcome.micro == pytest.approx(100 * 15 / 18) for record in found)


def test_a_setting_that_json_cannot_hold_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        runs.write(replace(a_record(), provenance={"size": float("nan")}), tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


def measured() -> Outcome:
    bins = np.zeros((15, 3))
    bins[14] = 30, 29.12345, 21
    return replace(OUTCOME, calibration_errors=(0.1, 0.2), novelty_aurocs=(0.75,), reliability=bins)


def test_calibration_and_novelty_there_and_back(tmp_path: Path) -> None:
    path = runs.write(a_record(outcome=measured()), tmp_path)
    found = json.loads(path.read_text())
    assert (found["ece"], found["novelty_auroc"]) == (0.2, 0.75)
    back = runs.read(path).outcome
    assert back.calibration_errors == (0.1, 0.2)
    assert back.novelty_aurocs == (0.75,)
    assert back.reliability is not None
    assert back.reliability[14].tolist() == [30, 29.123, 21]
    assert not back.reliability[:14].any()


def test_a_record_from_before_they_were_measured(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)
    found = json.loads(path.read_text())
    assert found["ece"] is None
    for name in ("ece", "novelty_auroc", "calibration_errors", "novelty_aurocs", "reliability"):
        del found[name]
    path.write_text(json.dumps(found))
    back = runs.read(path).outcome
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
        ("calibration_errors", [0.1, float("inf")], "calibration_errors"),
        ("learn_seconds", [0.1, float("nan")], "learn_seconds"),
        ("selection_seconds", [0.1, float("nan")], "odd.json.*selection_seconds"),
        ("reliability", [[float("inf")] * 15] * 3, "odd.json.*three rows of 15"),
        ("settings", {"norm": float("nan")}, "odd.json.*not JSON compliant"),
        ("settings", {"norm": 10**400}, "odd.json.*too large"),
        ("provenance", {"sha256": ["x"]}, "odd.json.*sha256 is not of type str"),
        ("total", [10, 10, 10**30], "too large"),
    ],
)
def test_figures_that_do_not_fit(tmp_path: Path, name: str, value: Any, words: str) -> None:
    found = json.loads(runs.write(a_record(outcome=measured()), tmp_path).read_text())
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({**found, name: value}))
    with pytest.raises(AlgnnError, match=words):
        runs.read(path)


def test_only_a_trial_may_lack_the_nodes_of_a_session(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)
    found = json.loads(path.read_text())
    found |= {"correct": [[9, 9, 0], [8, 8, 0]], "total": [10, 10, 0], "answers": None}
    path.write_text(json.dumps(found))
    with pytest.raises(AlgnnError, match="no test node in a session"):
        runs.read(path)
    path.write_text(json.dumps({**found, "split": "val"}))
    assert runs.read(path).outcome.ap == 80


# -- the table ------------------------------------------------------------------------------------


def test_a_row_of_the_table(tmp_path: Path) -> None:
    hardware = {"architecture": "aarch64", "processor": None, "cores": 2, "gpu": None}
    runs.write(a_record(outcome=measured(), machine={**hardware, "jobs": 2}), tmp_path)
    runs.write(a_record(seed=43, device="cuda", machine={"gpu": "H200"}), tmp_path)
    one, other = runs.read_runs(tmp_path).itertuples()
    assert (one.dataset, one.method, one.seed, one.step, one.sha256) == (
        "digits", "algnn", 42, 1, "abc",
    )  # fmt: skip
    assert (one.ap, one.af, one.macro, one.micro, one.base_accuracy) == (65, 10, 70, 70, 90)
    assert list(one.stages) == [90, 65]
    assert (one.learn_seconds, one.predict_seconds, one.retained_bytes) == (0.625, 0.3125, 880)
    assert (one.ece, one.novelty_auroc) == (0.2, 0.75)
    assert np.isnan([one.selection_seconds, other.ece, other.novelty_auroc]).all()
    assert (one.hardware, one.alone, other.hardware, other.alone) == (
        "aarch64, 2 cores", False, "H200", True,
    )  # fmt: skip
    assert one.configuration == other.configuration == a_record().configuration
    assert one.code == code_version()
    (tmp_path / "empty").mkdir()
    assert list(runs.read_runs(tmp_path / "empty").columns) == list(runs.COLUMNS)


def test_what_is_no_character_is_replaced_in_a_table(tmp_path: Path) -> None:
    """As Python reads a file's name that is no UTF-8; the record itself keeps it."""
    name = "caf\udce9.npz"
    runs.write(a_record(dataset=name, settings={"path": [name, "🙂"]}), tmp_path)
    runs.write(replace(a_failure(), reason=f"no {name}"), tmp_path)
    found, _, failures = runs.read_tables([tmp_path])
    assert (found.dataset[0], found.settings[0]) == ("caf�.npz", {"path": ["caf�.npz", "🙂"]})
    assert failures.reason[0] == "no caf�.npz"
    assert runs.read_records(tmp_path)[0].dataset == name


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=20))
def test_mean_and_interval_are_the_textbook_ones(values: list[float]) -> None:
    found, std = runs.summarise(values), statistics.stdev(values)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert found.std == pytest.approx(std, abs=1e-6)
    expected = student.ppf(0.975, len(values) - 1) * std / len(values) ** 0.5
    assert found.ci95 == pytest.approx(expected, abs=1e-6)


def test_mean_and_interval_by_hand() -> None:
    # Student's t with two degrees of freedom: 4.3027
    found = runs.summarise([74.0, 76.0, 78.0, None, float("nan")])
    assert found == (76.0, pytest.approx(4.30265 * 2 / 3**0.5, rel=1e-5), 3)
    assert found.std == pytest.approx(2.0)
    assert str(found) == "76.00 ± 4.97"
    alone = runs.summarise([76.0])
    assert (alone, alone.std, str(alone)) == ((76.0, None, 1), None, "76.00")
    with pytest.raises(InputError, match="at least one run"):
        runs.summarise([None])


# -- packed files ---------------------------------------------------------------------------------


def same_rows(one: Any, other: Any) -> None:
    given, found = (t.drop(columns=["outcome", "stages"]) for t in (one, other))
    pd.testing.assert_frame_equal(given, found)


def test_packed_records_say_the_same(tmp_path: Path) -> None:
    """Each folder of records has a packed file of its own, whose bytes depend on them alone."""
    for name in ("cpu", "gpu"):
        for seed in (3, 1, 2):
            record = a_record(seed=seed, outcome=measured(), started=f"{name}{seed}")
            runs.write(record, tmp_path / name)
    runs.write(a_failure(), tmp_path / "cpu")
    before, failures = runs.read_runs(tmp_path), runs.read_failures(tmp_path)
    packed = [tmp_path / name / runs.PACK for name in ("cpu", "gpu")]
    assert runs.pack(tmp_path) == [(packed[0], 4), (packed[1], 3)]
    assert sorted(path for path in tmp_path.rglob("[!.]*") if path.is_file()) == packed
    assert not (tmp_path / "cpu" / "digits").exists()
    same_rows(before, runs.read_runs(tmp_path))
    pd.testing.assert_frame_equal(failures, runs.read_failures(tmp_path))
    assert runs.stored(a_run(seed=1), tmp_path / "cpu").outcome.reliability is not None
    assert runs.stored(a_run(), tmp_path / "cpu", failed=True).reason == "out of memory"
    content = packed[0].read_bytes()
    assert runs.pack(tmp_path) == []
    assert packed[0].read_bytes() == content
    # the same records packed in two goes
    first, *rest = runs.read_records(tmp_path / "gpu")
    for some in ([first], rest):
        for record in some:
            runs.write(record, tmp_path / "again")
        runs.pack(tmp_path / "again")
    assert (tmp_path / "again" / runs.PACK).read_bytes() == packed[1].read_bytes()


def test_links_are_followed_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    (folder := tmp_path / "records").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / "digits").symlink_to(tmp_path / "elsewhere")
    runs.write(a_record(), folder)
    for name in ("a", "z"):  # links that lead round and round
        (folder / name).symlink_to(folder)
    relative = Path(os.path.relpath(folder))
    assert len(runs.read_tables([folder])[0]) == 1
    assert len(runs.read_tables([folder, relative, relative / "digits"])[0]) == 1
    assert runs.pack(folder) == [(folder / runs.PACK, 1)]
    assert len(runs.read_tables([relative, folder])[0]) == 1
    assert runs.stored(a_run(), folder)


def test_a_part_of_a_folder_of_records_is_not_packed(tmp_path: Path) -> None:
    """Its runs would be looked for above it, and done again."""
    path = runs.write(a_record(), tmp_path)
    for part in (path.parent, path.parents[1]):
        with pytest.raises(InputError, match=rf"is a part of {re.escape(str(tmp_path))}: pack"):
            runs.pack(part)
    assert runs.stored(a_run(), tmp_path)
    # a file that was copied to somewhere else has no such folder
    copied = tmp_path / "copied" / path.name
    copied.parent.mkdir()
    path.rename(copied)
    assert runs.pack(copied.parent) == [(copied.parent / runs.PACK, 1)]


def test_of_a_run_in_both_the_newest_counts(tmp_path: Path) -> None:
    def starts() -> list[str]:
        return list(runs.read_runs(tmp_path)["started"])

    runs.write(a_record(started="2"), tmp_path)
    runs.pack(tmp_path)
    runs.write(a_record(started="1", versions={}), tmp_path)
    assert starts() == ["2"]
    runs.write(a_record(started="3", versions={}), tmp_path)
    assert starts() == ["3"]
    assert runs.stored(a_run(), tmp_path).started == "2"  # by the code of this version
    runs.write(a_failure(ended="0"), tmp_path)
    runs.pack(tmp_path)
    assert starts() == ["3"]
    assert runs.read_failures(tmp_path).empty
    # also where somebody has joined two files
    first = (tmp_path / runs.PACK).read_bytes()
    runs.write(a_record(started="4"), tmp_path)
    runs.pack(tmp_path)
    later = (tmp_path / runs.PACK).read_bytes()
    for joined in (later + first, first + later):
        (tmp_path / runs.PACK).write_bytes(joined)
        assert starts() == ["4"]


def test_what_is_packed_while_it_is_read_is_not_missed(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)

    def packed_meanwhile(root: Path) -> Any:
        found = [(tmp_path, path)]
        runs.pack(tmp_path)
        return found

    with pytest.MonkeyPatch.context() as patch:
        single = runs._single
        patch.setattr(runs, "_single", lambda root: patch.undo() or packed_meanwhile(root))
        assert len(runs.read_records(tmp_path)) == 1
    assert runs._single is single
    assert not path.exists()


def test_nothing_is_removed_where_packing_fails(tmp_path: Path) -> None:
    path = runs.write(a_record(), tmp_path)
    odd = path.with_name("odd.json")
    odd.write_text("{")
    with pytest.raises(AlgnnError, match=r"odd\.json is not a whole record"):
        runs.pack(tmp_path)
    odd.unlink()
    (tmp_path / runs.PACK).write_bytes(b"no archive")
    with pytest.raises(AlgnnError, match="no whole file of packed records"):
        runs.pack(tmp_path)
    assert path.exists()
    (tmp_path / runs.PACK).write_bytes(gzip.compress(b'{"format": 1}\n'))
    with pytest.raises(AlgnnError, match="gz line 1 is not a record"):
        runs.read_runs(tmp_path)
