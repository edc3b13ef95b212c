"""One JSON file per run, written whole or not at all.

A `Run` says which run is meant, and is known before anything has been computed; a `Record` is a run
that is done, a `Failure` one that could not be. All three know their file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from algnn.bench.environment import code_version, machine, now, versions
from algnn.bench.metrics import BINS, Matrix
from algnn.bench.protocol import Outcome
from algnn.errors import AlgnnError
from algnn.files import replacing

FORMAT = 1
FAILURE_FORMAT = "failure-1"
FAILED = ".failed.json"
# the fields that say which run it is, in the order of the file
RUN_FACTS: dict[str, type] = {
    "dataset": str,
    "provenance": dict,
    "method": str,
    "settings": dict,
    "base": int,
    "step": int,
    "edges": str,
    "order": str,
    "seed": int,
    "device": str,
}
# then those of a record, beside its outcome, and those of a failure
FACTS: dict[str, type] = {**RUN_FACTS, "started": str, "versions": dict, "machine": dict}
FAILURE_FACTS: dict[str, type] = {**RUN_FACTS, "code": str, "reason": str, "ended": str}
# what makes two runs comparable: all of it but the seed, and not where or when they ran
CONFIGURATION = ("dataset", "method", "settings", "base", "step", "edges", "order")
# what makes two runs the same one: there is no need to do it twice
IDENTITY = (*CONFIGURATION, "seed", "device", "code")


@dataclass(frozen=True, eq=False)
class Run:
    """Which run: all that its figures depend on, known before it is run.

    Attributes
    ----------
    dataset, provenance, method, settings, base, step, edges, order, seed, device
        As in `Record`.
    code : str
        The version of the code, as `code_version` gives it.

    Examples
    --------
    >>> run = Run("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label", 42,
    ...           "cpu")
    >>> file_name(run)
    'digits/algnn/step1-full-label-fa8b29ecf766-cpu-seed42.json'
    """

    dataset: str
    provenance: dict[str, Any]
    method: str
    settings: dict[str, Any]
    base: int
    step: int
    edges: str
    order: str
    seed: int
    device: str
    code: str = field(default_factory=code_version)


@dataclass(frozen=True, eq=False)
class Failure(Run):
    """A run that could not be done.

    Attributes
    ----------
    reason : str
        In a line: the error's type and message, ``"out of memory"``, ``"killed by signal 9"``.
    ended : str
        When, in UTC.

    Examples
    --------
    >>> failure = Failure("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                   42, "cpu", reason="out of memory")
    >>> failure.seed, failure.reason
    (42, 'out of memory')
    """

    reason: str = ""
    ended: str = field(default_factory=now)


@dataclass(frozen=True, eq=False)
class Record:
    """A run: what was asked for, what came out, and what it ran on.

    Attributes
    ----------
    dataset : str
        The graph's name.
    provenance : dict
        Where the graph came from, its size and its ``sha256``.
    method : str
        The method's name.
    settings : dict
        Every parameter of the learner but its seed and its device.
    base, step, edges, order
        The stream, as `algnn.ClassStream` takes it; `order` is ``"label"``, ``"random"`` or the
        classes, joined by commas.
    seed : int
        Of the learner, and of a random order.
    outcome : Outcome
        What was counted and clocked.
    device : str
        Kind of device: ``"cpu"`` or ``"cuda"``.
    started : str
        When, in UTC.
    versions, machine : dict
        Of the packages and of the code (`code_version`); of the hardware, without names of hosts or
        people, and how many runs shared it.

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> record.outcome.ap, sorted(record.machine)
    (65.0, ['architecture', 'cores', 'gpu', 'jobs', 'processor'])
    """

    dataset: str
    provenance: dict[str, Any]
    method: str
    settings: dict[str, Any]
    base: int
    step: int
    edges: str
    order: str
    seed: int
    outcome: Outcome
    device: str
    started: str = field(default_factory=now)
    versions: dict[str, str] = field(default_factory=versions)
    machine: dict[str, Any] = field(default_factory=machine)

    @property
    def code(self) -> str:
        """The version of the code that ran; empty in the first records, which do not say."""
        return str(self.versions.get("code", ""))


def digest(run: Run | Record) -> str:
    """Twelve hexadecimal digits that tell one configuration from another.

    Parameters
    ----------
    run : Run or Record
        Its seed, device, machine and outcome play no part; the graph's checksum does.

    Returns
    -------
    str

    Examples
    --------
    >>> run = Run("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label", 42,
    ...           "cpu")
    >>> digest(run)
    'fa8b29ecf766'
    """
    return hashlib.sha256(_parts(run, CONFIGURATION).encode()).hexdigest()[:12]


def same(one: Run | Record, other: Run | Record) -> bool:
    """Whether two are the same run: same configuration, graph, seed, kind of device and code.

    Parameters
    ----------
    one, other : Run or Record

    Returns
    -------
    bool

    Examples
    --------
    >>> facts = ("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label", 42)
    >>> same(Run(*facts, "cpu"), Run(*facts, "cpu")), same(Run(*facts, "cpu"), Run(*facts, "cuda"))
    (True, False)
    """
    return _parts(one, IDENTITY) == _parts(other, IDENTITY)


def file_name(run: Run | Record) -> str:
    """Where a run's record belongs below the records' folder.

    Parameters
    ----------
    run : Run or Record
        The run.

    Returns
    -------
    str
        Relative, with forward slashes; the same for a run that is done again, whatever has become
        of the code.

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> file_name(record)
    'digits/algnn/step1-full-label-fa8b29ecf766-cpu-seed42.json'
    """
    order = run.order if run.order in ("label", "random") else "given"
    return (
        f"{_safe(run.dataset)}/{_safe(run.method)}/step{run.step}-{_safe(run.edges)}-{order}"
        f"-{digest(run)}-{_safe(run.device)}-seed{run.seed}.json"
    )


def write(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write a record below a folder; one of the same configuration, device and seed is replaced.

    A failure of that run, if there was one, is gone afterwards.

    Parameters
    ----------
    record : Record
        The run.
    folder : str or path
        Created where it does not exist.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> outcome = Outcome(((0, 1),), np.array([[9, 9]]), np.array([10, 10]), (0.5,), (0.1,), (800,))
    >>> record = Record("digits", {}, "algnn", {}, 2, 1, "full", "label", 42, outcome, "cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write(record, folder)
    ...     read(path).outcome.ap
    90.0
    """
    path = Path(folder) / file_name(record)
    text = json.dumps(_as_json(record), indent=1, allow_nan=False)
    write_atomically(path, text.encode())
    with contextlib.suppress(OSError):  # `failures` passes it over then
        _failed(path).unlink()
    return path


def write_failure(failure: Failure, folder: str | os.PathLike[str]) -> Path:
    """Write a failure below a folder, beside the place of the run's record.

    Parameters
    ----------
    failure : Failure
    folder : str or path
        As for `write`.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> failure = Failure("digits", {}, "algnn", {}, 2, 1, "full", "label", 42, "cpu", reason="x")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_failure(failure, folder)
    ...     path.name, [found.reason for found in failures(folder)], read_all(folder)
    ('step1-full-label-...-cpu-seed42.failed.json', ['x'], [])
    """
    path = _failed(Path(folder) / file_name(failure))
    found = {name: getattr(failure, name) for name in FAILURE_FACTS}
    text = json.dumps({"format": FAILURE_FORMAT, **found}, indent=1, allow_nan=False)
    write_atomically(path, text.encode())
    return path


def read(path: str | os.PathLike[str]) -> Record:
    """Read a record that `write` wrote.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Record
        With its figures computed anew from the counts.

    Examples
    --------
    >>> read("no/such/record.json")
    Traceback (most recent call last):
        ...
    algnn.errors.AlgnnError: no/such/record.json cannot be read: No such file or directory
    """
    found = _read_json(path, FORMAT, "record")
    try:
        return _from_json(found)
    except (KeyError, TypeError, ValueError) as error:
        raise AlgnnError(f"{path} is not a record of a run: {_short(error)}") from error


def done(run: Run, folder: str | os.PathLike[str]) -> Record | None:
    """The record of a run, if it has been done.

    Parameters
    ----------
    run : Run
    folder : str or path
        As given to `write`.

    Returns
    -------
    Record or None
        None too where the record is that of another version of the code, or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> run = Run("digits", {}, "algnn", {}, 2, 1, "full", "label", 42, "cpu")
    >>> done(run, tempfile.mkdtemp()) is None
    True
    """
    path = Path(folder) / file_name(run)
    try:
        record = read(path)
    except AlgnnError:
        return None  # what a dying disk left behind is no reason not to go on
    return record if same(record, run) else None


def failed(run: Run, folder: str | os.PathLike[str]) -> Failure | None:
    """The failure of a run, if it has been tried in vain.

    Parameters
    ----------
    run : Run
    folder : str or path
        As given to `write_failure`.

    Returns
    -------
    Failure or None
        None too where another version of the code has failed.

    Examples
    --------
    >>> import tempfile
    >>> run = Run("digits", {}, "algnn", {}, 2, 1, "full", "label", 42, "cpu")
    >>> failed(run, tempfile.mkdtemp()) is None
    True
    """
    path = _failed(Path(folder) / file_name(run))
    if not path.exists():
        return None
    failure = _read_failure(path)
    return failure if same(failure, run) else None


def read_all(folder: str | os.PathLike[str]) -> list[Record]:
    """Read every record below a folder.

    Parameters
    ----------
    folder : str or path
        As given to `write`.

    Returns
    -------
    list of Record
        By path; failures, and files that a writer has not finished, are passed over.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_all(folder)
    []
    """
    return [read(path) for path in _files(folder) if not path.name.endswith(FAILED)]


def failures(folder: str | os.PathLike[str]) -> list[Failure]:
    """Read every failure below a folder.

    Parameters
    ----------
    folder : str or path
        As given to `write_failure`.

    Returns
    -------
    list of Failure
        By path; without those of runs that have been done since.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     failures(folder)
    []
    """
    found = [_read_failure(path) for path in _files(folder) if path.name.endswith(FAILED)]
    # a writer may have been killed between writing a record and removing the failure
    return [failure for failure in found if done(failure, folder) is None]


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in its place in one step: whoever looks finds the old one or the whole new one.

    Parameters
    ----------
    path : Path
        The file; its folder is created where it does not exist.
    content : bytes
        All of it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "new", "greeting"), b"hello")
    ...     Path(folder, "new", "greeting").read_bytes()
    b'hello'
    """
    try:
        with replacing(path) as draft:
            draft.write_bytes(content)
    except OSError as error:
        raise AlgnnError(f"{path} cannot be written: {error.strerror}") from error


def _as_json(record: Record) -> dict[str, Any]:
    """The record's own fields, then the counts and every figure that follows from them."""
    outcome = record.outcome
    return {
        "format": FORMAT,
        **{name: getattr(record, name) for name in FACTS},
        "sessions": outcome.sessions,
        "correct": outcome.correct.tolist(),
        "total": outcome.total.tolist(),
        "matrix": rows(outcome),
        "ap": outcome.ap,
        "af": outcome.af,
        "macro": outcome.macro,
        "micro": outcome.micro,
        "stagewise": outcome.stagewise.tolist(),
        "learn_seconds": outcome.learn_seconds,
        "selection_seconds": outcome.selection_seconds,
        "predict_seconds": outcome.predict_seconds,
        "retained_bytes": outcome.retained_bytes,
        "ece": outcome.ece,
        "novelty_auroc": outcome.auroc,
        "calibration_errors": outcome.calibration_errors,
        "novelty_aurocs": outcome.novelty_aurocs,
        "reliability": _columns(outcome),
    }


def _columns(outcome: Outcome) -> list[list[float]] | None:
    """The reliability bins column by column, in as few digits as a picture needs."""
    if outcome.reliability is None:
        return None
    return [[round(value, 3) for value in column] for column in outcome.reliability.T.tolist()]


def rows(outcome: Outcome) -> list[list[float | None]]:
    """An outcome's matrix as JSON can hold it.

    Parameters
    ----------
    outcome : Outcome
        Of T+1 sessions.

    Returns
    -------
    list of T+1 lists of T+1
        None above the diagonal.

    Examples
    --------
    >>> rows(Outcome(((0,), (1,)), np.array([[4, 0], [3, 5]]), np.array([4, 5]), (), (), ()))
    [[100.0, None], [75.0, 100.0]]
    """
    return [
        [value if i <= t else None for i, value in enumerate(row)]
        for t, row in enumerate(outcome.matrix.tolist())
    ]


def _from_json(found: Mapping[str, Any]) -> Record:
    outcome = Outcome(
        tuple(tuple(int(c) for c in part) for part in found["sessions"]),
        np.array(found["correct"], dtype=np.int64),
        np.array(found["total"], dtype=np.int64),
        tuple(float(s) for s in found["learn_seconds"]),
        tuple(float(s) for s in found["predict_seconds"]),
        tuple(int(b) for b in found["retained_bytes"]),
        # not in the first records
        tuple(float(s) for s in found.get("selection_seconds", ())),
        tuple(float(e) for e in found.get("calibration_errors", ())),
        tuple(float(a) for a in found.get("novelty_aurocs", ())),
        _bins(found.get("reliability")),
    )
    count = len(outcome.matrix)  # raises where the counts do not fit the sessions
    for name in ("learn_seconds", "predict_seconds", "retained_bytes"):
        if len(getattr(outcome, name)) != count:
            raise TypeError(f"{name} has not one entry for each of {count} sessions")
    for name, wanted in (("calibration_errors", count), ("novelty_aurocs", count - 1)):
        if len(getattr(outcome, name)) not in (0, wanted):
            raise TypeError(f"{name} has neither no entry nor {wanted}")
    if bool(outcome.calibration_errors) != (outcome.reliability is not None):
        raise TypeError("calibration_errors and reliability are not both there")
    return Record(outcome=outcome, **_facts(found, FACTS))


def _bins(found: Any) -> Matrix | None:
    if found is None:
        return None
    bins = np.array(found, dtype=np.float64)
    if bins.shape != (3, BINS) or not (bins >= 0).all():
        raise TypeError(f"reliability is not three rows of {BINS} figures")
    return bins.T


def _facts(found: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    for name, kind in kinds.items():
        if not isinstance(found[name], kind) or isinstance(found[name], bool):
            raise TypeError(f"{name} is not of type {kind.__name__}")
    return {name: found[name] for name in kinds}


def _read_failure(path: Path) -> Failure:
    found = _read_json(path, FAILURE_FORMAT, "failure")
    try:
        return Failure(**_facts(found, FAILURE_FACTS))
    except (KeyError, TypeError) as error:
        raise AlgnnError(f"{path} is not a failure of a run: {_short(error)}") from error


def _read_json(path: str | os.PathLike[str], wanted: int | str, noun: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise AlgnnError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise AlgnnError(
            f"{path} is not a whole {noun} of a run ({error}): delete it; algnn bench then does the"
            " run anew"
        ) from error
    if not isinstance(found, dict) or "format" not in found:
        raise AlgnnError(
            f"{path} is not a {noun} of a run, it has no 'format': move it out of the folder"
        )
    if found["format"] != wanted:
        raise AlgnnError(
            f"{path} is a {noun} of format {found['format']!r}: this version reads {wanted}"
        )
    return found


def _files(folder: str | os.PathLike[str]) -> list[Path]:
    root = Path(folder)
    if not root.is_dir():
        raise AlgnnError(f"folder={str(folder)!r} is not a folder of records")
    return [path for path in sorted(root.rglob("*.json")) if path.name[0] != "."]


def _failed(path: Path) -> Path:
    """Where the failure of the run belongs whose record would be `path`."""
    return path.with_name(path.name.removesuffix(".json") + FAILED)


def _parts(run: Run | Record, names: tuple[str, ...]) -> str:
    parts = {name: getattr(run, name) for name in names}
    parts["sha256"] = run.provenance.get("sha256")
    return json.dumps(parts, sort_keys=True)


def _safe(name: str) -> str:
    """A name that is one part of a path on any system, and never leads out of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", PurePath(name).name).lstrip(".") or "_"


def _short(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
