"""Folders of records: one JSON file per run, or all of them packed; read as one table of runs.

A run leaves a file of its own the moment it is done, written whole or not at all. `pack` turns the
files of a folder into one, and everything reads both alike.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np
import pandas as pd
from scipy.special import stdtrit

from algnn.bench.record import (
    RUN_FACTS,
    Failure,
    Record,
    Run,
    as_json,
    digest,
    file_name,
    from_json,
    same,
)
from algnn.errors import AlgnnError, InputError
from algnn.files import replacing

PACK = "records.jsonl.gz"
FAILED = ".failed.json"
LOCK = ".lock"
PATIENCE = 5.0  # seconds in which a process that is being ended is certainly gone
FIGURES = (
    *("ap", "af", "macro", "micro", "base_accuracy"),
    *("learn_seconds", "predict_seconds", "selection_seconds", "retained_bytes"),
    *("ece", "novelty_auroc"),
)
COLUMNS = (
    *RUN_FACTS,
    *("started", "versions", "machine", "code", "sha256", "configuration", "hardware", "alone"),
    *("outcome", "stages", *FIGURES),
)
FAILURE_COLUMNS = (*RUN_FACTS, "code", "sha256", "configuration", "reason", "ended", "traceback")
Folder = str | os.PathLike[str]


# -- the table ------------------------------------------------------------------------------------


def read_runs(folder: Folder) -> pd.DataFrame:
    """One row for each run below a folder, from single files and packed ones.

    Parameters
    ----------
    folder : str or path
        As given to `write`. Of several records of one run in one folder, the newest counts.

    Returns
    -------
    DataFrame
        The fields of a `Record`, and

        - ``code``, ``sha256`` of the graph, ``configuration`` (the digest of all but seed, device
          and code), ``hardware`` and ``alone`` (no other run shared the machine);
        - ``ap``, ``af``, ``macro``, ``micro`` and ``base_accuracy`` in per cent;
        - ``learn_seconds``, ``predict_seconds`` and ``selection_seconds`` of all sessions together;
          ``retained_bytes``, ``ece`` and ``novelty_auroc`` at the end; NaN where not recorded;
        - ``stages``, AP after each session.

    Examples
    --------
    >>> import tempfile
    >>> read_runs(tempfile.mkdtemp()).empty
    True
    """
    return frame(read_records(folder))


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """The table that `read_runs` gives, of records at hand."""
    table = pd.DataFrame([_row(record) for record in records], columns=list(COLUMNS))
    return table.astype(dict.fromkeys(FIGURES, "float64") | {"alone": "bool"})


def read_failures(folder: Folder) -> pd.DataFrame:
    """One row for each run below a folder that failed and has not been done since."""
    records, failures = _read(folder)
    kept = [f for key, f in sorted(failures.items()) if not _done_since(f, records.get(key))]
    rows = [
        {**vars(f), "sha256": f.provenance.get("sha256"), "configuration": digest(f)} for f in kept
    ]
    return pd.DataFrame(rows, columns=list(FAILURE_COLUMNS))


def read_records(folder: Folder) -> list[Record]:
    """The records below a folder, by path."""
    return [record for _, record in sorted(_read(folder)[0].items())]


def _row(record: Record) -> dict[str, object]:
    outcome = record.outcome
    stages = outcome.stagewise
    return {
        **{name: getattr(record, name) for name in COLUMNS if hasattr(record, name)},
        "sha256": record.provenance.get("sha256"),
        "configuration": digest(record),
        "alone": record.machine.get("jobs") in (None, 1),
        "stages": stages,
        "ap": stages[-1],
        "af": outcome.af,
        "macro": outcome.macro,
        "micro": outcome.micro,
        "base_accuracy": stages[0],
        "learn_seconds": sum(outcome.learn_seconds),
        "predict_seconds": sum(outcome.predict_seconds),
        "selection_seconds": sum(outcome.selection_seconds) if outcome.selection_seconds else None,
        "retained_bytes": outcome.retained_bytes[-1],
        "ece": outcome.ece,
        "novelty_auroc": outcome.auroc,
    }


class Summary(NamedTuple):
    """Mean of a figure, half the width of its 95% interval (None for one run), number of runs."""

    mean: float
    ci95: float | None
    count: int  # type: ignore[assignment]

    @property
    def std(self) -> float | None:
        """Sample standard deviation; None for one run."""
        return None if self.ci95 is None else self.ci95 * self.count**0.5 / _student(self.count)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.ci95 is None else f"{self.mean:.2f} ± {self.ci95:.2f}"


def summarise(values: Iterable[float | None]) -> Summary:
    """Mean and 95% interval (Student's t) of one figure over runs; None and NaN are left out.

    Examples
    --------
    >>> summarise([74.0, 76.0, 78.0])
    Summary(mean=76.0, ci95=4.968..., count=3)
    >>> print(summarise([76.7]))
    76.70
    """
    given = np.asarray(list(values), dtype=np.float64)
    given = given[~np.isnan(given)]
    count = given.size
    if count == 0:
        raise InputError("values is empty: a summary needs the figure of at least one run")
    if count == 1:
        return Summary(float(given[0]), None, 1)
    std = float(given.std(ddof=1))
    return Summary(float(given.mean()), _student(count) * std / count**0.5, count)


def summary(frame: pd.DataFrame, by: Sequence[str], of: Sequence[str]) -> pd.DataFrame:
    """Mean, 95% half-width and count of figures for each group of runs.

    Parameters
    ----------
    frame : DataFrame
        As `read_runs` gives it.
    by, of : sequence of str
        Columns that make a group, and columns of figures.

    Returns
    -------
    DataFrame
        A row per group, in order of appearance, indexed by `by`; columns ``(figure, "mean")``,
        ``(figure, "ci95")`` and ``(figure, "count")``, the interval NaN for a single run.

    Examples
    --------
    >>> runs = pd.DataFrame({"method": ["a", "a", "b"], "ap": [74.0, 76.0, 80.0]})
    >>> summary(runs, ["method"], ["ap"])["ap"]["mean"].to_dict()
    {'a': 75.0, 'b': 80.0}
    """
    columns = pd.MultiIndex.from_product([list(of), Summary._fields])
    keys, rows = [], []
    for key, group in frame.groupby(list(by), sort=False, dropna=False):
        keys.append(key)
        known = [group[name].dropna() for name in of]
        rows.append([v for s in known for v in (summarise(s) if len(s) else (np.nan, np.nan, 0))])
    index = pd.MultiIndex.from_tuples(keys, names=list(by)) if keys else None
    if index is not None and len(by) == 1:
        index = index.get_level_values(0)
    return pd.DataFrame(rows, index, columns).astype(
        {column: int if column[1] == "count" else float for column in columns}
    )


def _student(count: int) -> float:
    return float(stdtrit(count - 1, 0.975))


# -- files ----------------------------------------------------------------------------------------


def write(record: Record, folder: Folder) -> Path:
    """Write a record below a folder, over an older one of that run; its failure is removed."""
    path = Path(folder) / file_name(record)
    write_atomically(path, _text(record))
    with contextlib.suppress(OSError):  # `read_failures` passes it over then
        _failed(path).unlink()
    return path


def write_failure(failure: Failure, folder: Folder) -> Path:
    """Write a failure below a folder, beside the place of the run's record."""
    path = _failed(Path(folder) / file_name(failure))
    write_atomically(path, _text(failure))
    return path


def read(path: Folder) -> Any:
    """What `write` or `write_failure` wrote."""
    noun = "failure" if os.fspath(path).endswith(FAILED) else "record"
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise AlgnnError(f"{path} cannot be read: {error.strerror}") from error
    found = from_json(text, str(path), noun)
    if isinstance(found, Failure) != (noun == "failure"):
        raise AlgnnError(f"{path} is not a {noun} of a run, by its format: mend its name")
    return found


def done(run: Run, folder: Folder) -> Record | None:
    """The run's record; None where there is none, an older version's or an unreadable one."""
    name = file_name(run)
    found = [_packed(Path(folder) / PACK).get((name, True))]
    with contextlib.suppress(AlgnnError):  # what a dying disk left behind is no reason to stop
        found.append(read(Path(folder) / name))
    return next((r for r in found if isinstance(r, Record) and same(r, run)), None)


def failed(run: Run, folder: Folder) -> Failure | None:
    """The run's failure; None where there is none, or another version's."""
    name = file_name(run)
    path = _failed(Path(folder) / name)
    found = [_packed(Path(folder) / PACK).get((name, False))]
    if path.exists():
        found.append(read(path))
    return next((f for f in found if isinstance(f, Failure) and same(f, run)), None)


def pack(folder: Folder) -> list[tuple[Path, int]]:
    """Move the single files below a folder into one packed file for each folder of records.

    A single file is removed only after the packed one is in its place; unchanged records give
    unchanged bytes. Returns each packed file that was written, and how many files went into it.
    """
    root = _folder(folder)
    loose: dict[Path, list[tuple[Path, bytes]]] = {}
    for path in _files(root):
        loose.setdefault(_home(path, root), []).append((path, path.read_bytes()))
    packed = []
    for home, files in loose.items():
        records, failures = _read(home)
        kept: dict[tuple[str, str, bool], Record | Failure] = {
            (*key, True): record for key, record in records.items() if key[0] == str(home)
        }
        for key, failure in failures.items():
            if key[0] == str(home) and not _done_since(failure, records.get(key)):
                kept[*key, False] = failure
        write_atomically(home / PACK, _zipped(kept[key] for key in sorted(kept)))
        for path, text in files:
            with contextlib.suppress(OSError):
                if path.read_bytes() == text:  # a run may have been done again meanwhile
                    path.unlink()
                for parent in list(path.parents)[: len(path.relative_to(home).parts) - 1]:
                    parent.rmdir()  # refused where something is left
        packed.append((home / PACK, len(files)))
    return packed


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other benchmarks out of a folder of records; refused where one is at work there."""
    try:
        lock = filelock.FileLock(folder / LOCK).acquire(PATIENCE)
    except filelock.Timeout:
        raise InputError(
            f"{folder} is in use by another algnn bench or sweep: wait for it, or give another"
            " folder for the records"
        ) from None
    except (OSError, NotImplementedError) as error:
        raise AlgnnError(f"{folder} cannot be locked: {error}") from error
    with lock:
        yield


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in its place in one step, so that no reader finds half of it."""
    try:
        with replacing(path) as draft:
            draft.write_bytes(content)
    except OSError as error:
        raise AlgnnError(f"{path} cannot be written: {error.strerror}") from error


def _read(folder: Folder) -> tuple[dict[tuple[str, str], Record], dict[tuple[str, str], Failure]]:
    """The newest record and the newest failure of each run, by folder of records and file name."""
    root = _folder(folder)
    records: dict[tuple[str, str], Record] = {}
    failures: dict[tuple[str, str], Failure] = {}
    for home, found in _everything(root):
        key = str(home), file_name(found)
        if isinstance(found, Failure):
            if key not in failures or found.ended >= failures[key].ended:
                failures[key] = found
        elif key not in records or found.started >= records[key].started:
            records[key] = found
    return records, failures


def _everything(root: Path) -> Iterator[tuple[Path, Record | Failure]]:
    """Packed runs first, so that of equally old ones the single file counts."""
    for path in sorted(root.rglob(PACK)):
        for found in _packed(path).values():
            yield path.parent, found
    for path in _files(root):
        yield _home(path, root), read(path)


def _packed(path: Path) -> dict[tuple[str, bool], Record | Failure]:
    """The contents of a packed file by the record's file name and whether it is a record."""
    try:
        stat = path.stat()
    except OSError:
        return {}
    return _unzipped(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _unzipped(path: Path, _mtime: int, _size: int) -> dict[tuple[str, bool], Record | Failure]:
    try:
        lines = gzip.decompress(path.read_bytes()).splitlines()
    except (OSError, EOFError, ValueError) as error:
        raise AlgnnError(f"{path} is not a whole file of packed records: {error}") from error
    parsed = [from_json(line, f"{path} line {i}") for i, line in enumerate(lines, 1)]
    return {(file_name(found), isinstance(found, Record)): found for found in parsed}


def _zipped(found: Iterable[Record | Failure]) -> bytes:
    lines = (json.dumps(as_json(one), separators=(",", ":"), allow_nan=False) for one in found)
    buffer = io.BytesIO()
    # neither a name nor a time: the bytes depend on the records alone
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return buffer.getvalue()


def _done_since(failure: Failure, record: Record | None) -> bool:
    # a writer may be killed between writing a record and removing the failure
    return record is not None and (same(record, failure) or record.started >= failure.ended)


def _text(found: Record | Failure) -> bytes:
    return json.dumps(as_json(found), indent=1, allow_nan=False).encode()


def _folder(folder: Folder) -> Path:
    if not Path(folder).is_dir():
        raise AlgnnError(f"folder={os.fspath(folder)!r} is not a folder of records")
    return Path(folder)


def _files(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*.json")) if path.name[0] != "."]


def _home(path: Path, root: Path) -> Path:
    """The folder of records of a file two folders below it, as `file_name` has it."""
    return path.parents[2] if len(path.relative_to(root).parts) > 3 else root


def _failed(path: Path) -> Path:
    """The place of a run's failure, beside that of its record."""
    return path.with_name(path.name.removesuffix(".json") + FAILED)
