"""One JSON file per run, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

import algnn
from algnn.bench.protocol import Outcome
from algnn.errors import AlgnnError
from algnn.files import replacing

FORMAT = 1
PACKAGES = ("torch", "torch_geometric", "numpy", "scipy")
# a record's fields beside its outcome, in the order of the file
FACTS: dict[str, type] = {
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
    "started": str,
    "versions": dict,
    "machine": dict,
}
# what makes two runs comparable: all of it but the seed, and not where or when they ran
CONFIGURATION = ("dataset", "method", "settings", "base", "step", "edges", "order")


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
        Of the packages; of the hardware, without names of hosts or people.

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> record.outcome.ap, sorted(record.machine)
    (65.0, ['architecture', 'cores', 'gpu', 'processor'])
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
    started: str = field(default_factory=lambda: now())
    versions: dict[str, str] = field(default_factory=lambda: versions())
    machine: dict[str, Any] = field(default_factory=lambda: machine())


def now() -> str:
    """The time in UTC, to the second.

    Returns
    -------
    str

    Examples
    --------
    >>> now().endswith("+00:00")
    True
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of what a run's figures depend on.

    Returns
    -------
    dict

    Examples
    --------
    >>> sorted(versions())
    ['algnn', 'numpy', 'python', 'scipy', 'torch', 'torch_geometric']
    """
    installed = {package: metadata.version(package) for package in PACKAGES}
    return {"algnn": algnn.__version__, "python": platform.python_version(), **installed}


def machine() -> dict[str, Any]:
    """The hardware, without names of hosts or people.

    Returns
    -------
    dict
        ``architecture``, ``processor`` and ``gpu`` (None where unknown or absent), ``cores``.

    Examples
    --------
    >>> sorted(machine())
    ['architecture', 'cores', 'gpu', 'processor']
    """
    return {
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def digest(record: Record) -> str:
    """Twelve hexadecimal digits that tell one configuration from another.

    Parameters
    ----------
    record : Record
        Its seed, device, machine and outcome play no part; the graph's checksum does.

    Returns
    -------
    str

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> digest(record)
    'fa8b29ecf766'
    """
    parts = {name: getattr(record, name) for name in CONFIGURATION}
    parts["sha256"] = record.provenance.get("sha256")
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def file_name(record: Record) -> str:
    """Where a record belongs below the records' folder.

    Parameters
    ----------
    record : Record
        The run.

    Returns
    -------
    str
        Relative, with forward slashes; the same for a run that is done again.

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> file_name(record)
    'digits/algnn/step1-full-label-fa8b29ecf766-seed42.json'
    """
    order = record.order if record.order in ("label", "random") else "given"
    return (
        f"{_safe(record.dataset)}/{_safe(record.method)}/step{record.step}-{_safe(record.edges)}"
        f"-{order}-{digest(record)}-seed{record.seed}.json"
    )


def write(record: Record, folder: str | os.PathLike[str]) -> Path:
    """Write a record below a folder; one of the same configuration and seed is replaced.

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
    try:
        found = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise AlgnnError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise AlgnnError(f"{path} is not a whole record of a run: {error}") from error
    if not isinstance(found, dict) or "format" not in found:
        raise AlgnnError(f"{path} is not a record of a run: it has no 'format'")
    if found["format"] != FORMAT:
        raise AlgnnError(
            f"{path} is a record of format {found['format']!r}: this version reads {FORMAT}"
        )
    try:
        return _from_json(found)
    except (KeyError, TypeError, ValueError) as error:
        raise AlgnnError(f"{path} is not a record of a run: {_short(error)}") from error


def read_all(folder: str | os.PathLike[str]) -> list[Record]:
    """Read every record below a folder.

    Parameters
    ----------
    folder : str or path
        As given to `write`.

    Returns
    -------
    list of Record
        By path; files that a writer has not finished are not looked at.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_all(folder)
    []
    """
    root = Path(folder)
    if not root.is_dir():
        raise AlgnnError(f"folder={str(folder)!r} is not a folder of records")
    return [read(path) for path in sorted(root.rglob("*.json")) if path.name[0] != "."]


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
    }


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
    )
    count = len(outcome.matrix)  # raises where the counts do not fit the sessions
    for name in ("learn_seconds", "predict_seconds", "retained_bytes"):
        if len(getattr(outcome, name)) != count:
            raise TypeError(f"{name} has not one entry for each of {count} sessions")
    facts = {}
    for name, kind in FACTS.items():
        if not isinstance(found[name], kind) or isinstance(found[name], bool):
            raise TypeError(f"{name} is not of type {kind.__name__}")
        facts[name] = found[name]
    return Record(outcome=outcome, **facts)


def _processor() -> str | None:
    """The processor's name as the kernel prints it, where it prints one."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or None


def _safe(name: str) -> str:
    """A name that is one part of a path on any system, and never leads out of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", PurePath(name).name).lstrip(".") or "_"


def _short(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
