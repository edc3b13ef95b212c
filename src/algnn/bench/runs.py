"""Folders of records: one JSON file per run, or all of them packed; read as one table of runs.

A run leaves a file of its own the moment it is done, written whole or not at all. `pack` turns the
files of a folder into one, and everything reads both alike.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from algnn.bench import record as form
from algnn.bench.record import FAILED, RUN_FACTS, Failure, Record, Run, file_name, same
from algnn.errors import AlgnnError, InputError
from algnn.files import locked as file_locked
from algnn.files import write_atomically
from algnn.progress import counted

if TYPE_CHECKING:
    import pandas as pd

PACK = "records.jsonl.gz"
PATIENCE = 5.0  # seconds in which a process that is being ended is certainly gone
FIGURES = (
    *("ap", "af", "macro", "micro", "mean_ap", "base_accuracy"),
    *("learn_seconds", "predict_seconds", "selection_seconds", "retained_bytes"),
    *("ece", "novelty_auroc"),
)
META = (*RUN_FACTS, "started", "versions", "machine", "code", "sha256", "configuration", "hardware")
COLUMNS = (*META, "alone", "outcome", "stages", *FIGURES)
FAILURE_COLUMNS = (*RUN_FACTS, "code", "sha256", "configuration", "reason", "ended", "traceback")
Folder = str | os.PathLike[str]


def read_runs(folder: Folder, split: str = "test") -> pd.DataFrame:
    """One row for each run below a folder, from single files and packed ones.

    Parameters
    ----------
    folder : str or path
        As given to `write`. Of several records of one run in one folder, the newest counts.
    split : {"test", "val"}
        ``"val"`` for trials, whose figures are those of validation nodes; they are left out
        otherwise.

    Returns
    -------
    DataFrame
        The fields of a `Record`, and

        - ``code``, ``sha256`` of the graph, ``configuration`` (the digest of all but seed, device
          and code), ``hardware`` and ``alone`` (no other run shared the machine);
        - ``stages``, AP after each session, ``ap``, ``af``, ``macro``, ``micro``, ``mean_ap`` (over
          the stages) and ``base_accuracy``, in per cent;
        - ``learn_seconds``, ``predict_seconds`` and ``selection_seconds`` of all sessions together;
          ``retained_bytes``, ``ece`` and ``novelty_auroc`` at the end; NaN where not recorded.

    Examples
    --------
    >>> import tempfile
    >>> read_runs(tempfile.mkdtemp()).empty
    True
    """
    return frame(record for record in read_records(folder) if record.split == split)


def frame(records: Iterable[Record]) -> pd.DataFrame:
    """The table that `read_runs` gives, of records at hand."""
    import pandas as pd  # not at the top: packing records needs none

    table = pd.DataFrame([_row(record) for record in records], columns=list(COLUMNS))
    return table.astype(dict.fromkeys(FIGURES, "float64") | {"alone": "bool"})


def read_failures(folder: Folder) -> pd.DataFrame:
    """One row for each run below a folder that failed and has not been done since."""
    return read_tables([folder])[2]


def read_tables(folders: Iterable[Folder]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The runs, trials and failures below some folders; each file is read once."""
    import pandas as pd

    found = list(_read(*folders).values())
    records = [one for one in found if isinstance(one, Record)]
    runs, trials = (frame(r for r in records if r.split == split) for split in ("test", "val"))
    rows = [_facts(one, FAILURE_COLUMNS) for one in found if isinstance(one, Failure)]
    return runs, trials, pd.DataFrame(rows, columns=list(FAILURE_COLUMNS))


def read_records(folder: Folder) -> list[Record]:
    """The records below a folder, by path."""
    return [one for one in _read(folder).values() if isinstance(one, Record)]


def _row(record: Record) -> dict[str, object]:
    outcome, stages = record.outcome, record.outcome.stagewise
    return {
        **_facts(record, META),
        **{name: getattr(outcome, name) for name in ("af", "macro", "micro", "mean_ap", "ece")},
        "alone": record.machine.get("jobs") in (None, 1),
        **{"outcome": outcome, "stages": stages, "ap": stages[-1], "base_accuracy": stages[0]},
        **{name: sum(getattr(outcome, name)) for name in ("learn_seconds", "predict_seconds")},
        "selection_seconds": sum(outcome.selection_seconds) if outcome.selection_seconds else None,
        **{"retained_bytes": outcome.retained_bytes[-1], "novelty_auroc": outcome.auroc},
    }


def _facts(found: Record | Failure, names: Iterable[str]) -> Any:
    """What is known of a run, with U+FFFD for what no table holds: bytes that are no UTF-8."""
    text = json.dumps({name: getattr(found, name) for name in names}, ensure_ascii=False)
    return json.loads(re.sub(r"[\ud800-\udfff]", "\ufffd", text))


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
    """Mean and 95% interval (Student's t) of one figure over runs; None and NaN are left out."""
    given = np.asarray(list(values), dtype=np.float64)
    given = given[~np.isnan(given)]
    if not (count := given.size):
        raise InputError("values is empty: a summary needs the figure of at least one run")
    half = _student(count) * float(given.std(ddof=1)) / count**0.5 if count > 1 else None
    return Summary(float(given.mean()), half, count)


def _student(count: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 0.975))


def write(found: Record | Failure, folder: Folder) -> Path:
    """Write a record, which takes its run's failure away, or a failure; returns the file's path."""
    path = Path(folder) / file_name(found)
    write_atomically(path, json.dumps(form.as_json(found), indent=1, allow_nan=False).encode())
    if isinstance(found, Record):
        with contextlib.suppress(OSError):  # `read_failures` passes it over then
            (Path(folder) / file_name(found, failed=True)).unlink()
    return path


def read(path: Folder) -> Any:
    """What `write` wrote."""
    try:
        found = form.from_json(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise AlgnnError(f"{path} cannot be read: {error.strerror}") from error
    if isinstance(found, Failure) != os.fspath(path).endswith(FAILED):
        kind = "failure" if isinstance(found, Failure) else "record"
        raise AlgnnError(f"{path} holds the {kind} of a run, by its format: mend its name")
    return found


def stored(run: Run, folder: Folder, failed: bool = False) -> Any:
    """The run's record, or failure; None without one, or with an older version's or unreadable."""
    name = file_name(run, failed)
    found = [_packed(Path(folder) / PACK).get(name)]
    with contextlib.suppress(AlgnnError):  # what a dying disk left behind is no reason to stop
        found.append(read(Path(folder) / name))
    return next((one for one in found if one is not None and same(one, run)), None)


def pack(folder: Folder) -> list[tuple[Path, int]]:
    """Move the single files below a folder into one packed file for each folder of records.

    Returns each packed file that was written, and how many files went into it.
    """
    loose: dict[Path, list[tuple[Path, int]]] = {}
    for home, path in _single(folder):
        whole, inside = path.resolve(), len(path.relative_to(folder).parts) < 3
        if inside and whole.parts[-3:] == Path(file_name(read(path))).parts:
            above = whole.parents[2]  # the only place where benchmarks look
            raise InputError(f"folder={os.fspath(folder)!r} is a part of {above}: pack that one")
        loose.setdefault(home, []).append((path, path.stat().st_mtime_ns))
    for home, paths in loose.items():
        with locked(home):
            kept = (form.as_json(one) for (at, _), one in _read(home).items() if at == home)
            lines = [json.dumps(one, separators=(",", ":"), allow_nan=False) for one in kept]
            # without a time the bytes depend on the records alone
            content = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
            write_atomically(home / PACK, content)
            for path, written in paths:
                if path.stat().st_mtime_ns == written:  # and not written again meanwhile
                    path.unlink()
                with contextlib.suppress(OSError):  # where something else is left, as at home
                    os.removedirs(path.parent)
    return [(home / PACK, len(paths)) for home, paths in loose.items()]


def locked(folder: Path) -> contextlib.AbstractContextManager[bool]:
    """Keep other benchmarks out of a folder of records; refused where one is at work there."""
    remedy = "wait for it, or give another folder for the records"
    busy = f"{folder} is in use by another algnn bench or sweep: {remedy}"
    return file_locked(folder / PACK, PATIENCE, busy)


def _read(*roots: Folder) -> dict[tuple[Path, str], Record | Failure]:
    """The newest record or failure of each run, by folder of records and file name."""
    # read first, since `pack` may move them meanwhile into those that are read next
    single = []
    for home, path in counted("", _single(*roots)):
        try:
            single.append((home, file_name(one := read(path)), one))
        except AlgnnError:
            if path.exists():
                raise
    many = [(p.parent, *i) for _, p in _files(*roots) if p.name == PACK for i in _packed(p).items()]
    # but packed ones count first, so that of equally old ones the single file is taken
    each = sorted((*many, *single), key=lambda found: _date(found[-1]))
    found = {(home, name): one for home, name, one in each}
    newest = {name: one for _, name, one in each}
    for (home, name), one in list(found.items()):
        record = newest.get(name.replace(FAILED, ".json")) if name.endswith(FAILED) else None
        # a run that has been done since, in another folder or by a writer that was killed
        if record and (same(record, one) or _date(record) >= _date(one)):
            del found[home, name]
    return dict(sorted(found.items()))


def _packed(path: Path) -> dict[str, Record | Failure]:
    """The contents of a packed file by the names of the files that went into it."""
    return _unzipped(path, path.stat().st_mtime_ns) if path.exists() else {}


@lru_cache(maxsize=8)
def _unzipped(path: Path, _: int) -> dict[str, Record | Failure]:
    try:
        lines = gzip.decompress(path.read_bytes()).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        remedy = "put a copy of it in its place, or move it away to go on without its runs"
        raise AlgnnError(f"{path} is no whole file of packed records: {error}; {remedy}") from error
    found = (form.from_json(one, f"{path} line {i}") for i, one in enumerate(counted("", lines), 1))
    return {file_name(one): one for one in sorted(found, key=_date)}  # the newest of a name


def _date(one: Record | Failure) -> str:
    return one.started if isinstance(one, Record) else one.ended


def _single(*roots: Folder) -> list[tuple[Path, Path]]:
    """Single files, after their folders of records: two folders above, as `file_name` has it."""
    files = [(r, p) for r, p in _files(*roots) if p.suffix == ".json" and p.name[0] != "."]
    return [(p.parents[2] if len(p.relative_to(r).parts) > 3 else r, p) for r, p in files]


def _files(*roots: Folder) -> Iterator[tuple[Path, Path]]:
    """Files below some folders, after these; of folders that links lead to, too, but once each."""
    seen: set[str] = set()
    for root in map(Path, roots):
        if not root.is_dir():
            raise AlgnnError(f"folder={os.fspath(root)!r} is not a folder of records")
        for folder, inside, names in os.walk(root, followlinks=True):
            new = (real := os.path.realpath(folder)) not in seen
            yield from ((root, Path(folder, name)) for name in sorted(names) if new)
            inside[:] = sorted(inside) if new else []
            seen.add(real)
