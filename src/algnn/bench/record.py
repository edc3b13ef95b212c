"""A run and what became of it: its identity, its record or its failure, and their JSON form."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import Any

import numpy as np

from algnn.bench.environment import code_version, machine, now, versions
from algnn.bench.metrics import BINS, Counts, Outcome
from algnn.errors import AlgnnError

FORMAT = 1
FAILURE_FORMAT = "failure-1"
FAILED = ".failed.json"
# what makes two runs comparable: everything but the seed, the machine and the date
CONFIGURATION = ("dataset", "method", "settings", "base", "step", "edges", "order")
IDENTITY = (*CONFIGURATION, "seed", "device", "code")


@dataclass(frozen=True, eq=False)
class _Facts:
    dataset: str
    provenance: dict[str, Any]
    method: str
    settings: dict[str, Any]  # all parameters of the learner but seed and device
    base: int
    step: int
    edges: str
    order: str  # an explicit one is joined by commas
    seed: int
    device: str
    split: str = "test"  # the nodes that were asked about: those of a trial are "val"

    @property
    def sha256(self) -> Any:
        """The graph's checksum."""
        return self.provenance.get("sha256")

    @property
    def configuration(self) -> str:
        """Twelve hexadecimal digits of all but seed, device and code."""
        return hashlib.sha256(_parts(self, CONFIGURATION).encode()).hexdigest()[:12]


RUN_FACTS = tuple(field.name for field in fields(_Facts))


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(_Facts):
    """Everything that a run's figures depend on; known before it starts."""

    code: str = field(default_factory=code_version)


@dataclass(frozen=True, eq=False, kw_only=True)
class Failure(Run):
    """A run without a result: the reason in a line, and the traceback of an exception."""

    reason: str = ""
    ended: str = field(default_factory=now)
    traceback: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Record(_Facts):
    """A finished run: its outcome, when it started, the packages, the machine and who shared it."""

    outcome: Outcome
    started: str = field(default_factory=now)
    versions: dict[str, str] = field(default_factory=versions)
    machine: dict[str, Any] = field(default_factory=machine)

    @property
    def code(self) -> str:
        """The version of the code that ran; empty in the first records, which lack it."""
        return str(self.versions.get("code", ""))

    @property
    def hardware(self) -> str:
        """The GPU's name, or the processor's and its cores; clocks compare within one only."""
        if self.device != "cpu":
            return str(self.machine.get("gpu") or self.device)
        name = self.machine.get("processor") or self.machine.get("architecture") or "cpu"
        cores = self.machine.get("cores")
        return f"{name}, {cores} core{'s' * (cores != 1)}" if cores else str(name)


def same(one: Run | Record, other: Run | Record) -> bool:
    """Whether two have one configuration, graph, seed, kind of device and version of the code."""
    return _parts(one, IDENTITY) == _parts(other, IDENTITY)


def file_name(run: Run | Record, failed: bool = False) -> str:
    """Path of a run's record, or failure, below its folder, whatever the version of the code."""
    order = run.order if run.order in ("label", "random") else "given"
    ending = FAILED if failed or isinstance(run, Failure) else ".json"
    return (
        f"{_safe(run.dataset)}/{_safe(run.method)}/step{run.step}-{_safe(run.edges)}-{order}"
        f"-{run.configuration}-{_safe(run.device)}-seed{run.seed}{ending}"
    )


def as_json(found: Record | Failure) -> dict[str, Any]:
    """A record with every figure that follows from its counts, or a failure."""
    if isinstance(found, Failure):
        return {"format": FAILURE_FORMAT, **vars(found)}
    outcome, bins = found.outcome, found.outcome.reliability
    clocks = ("learn_seconds", "selection_seconds", "predict_seconds", "retained_bytes")
    return {
        "format": FORMAT,
        **{f.name: getattr(found, f.name) for f in fields(found) if f.name != "outcome"},
        "sessions": outcome.sessions,
        **{name: getattr(outcome, name).tolist() for name in ("correct", "total")},
        "matrix": rows(outcome),
        **{name: getattr(outcome, name) for name in ("ap", "af", "macro", "micro", "mean_ap")},
        "stagewise": outcome.stagewise.tolist(),
        **{name: getattr(outcome, name) for name in clocks},
        **{"ece": outcome.ece, "novelty_auroc": outcome.auroc},
        **{name: getattr(outcome, name) for name in ("calibration_errors", "novelty_aurocs")},
        # column by column, in as few digits as a picture needs
        "reliability": None if bins is None else bins.T.round(3).tolist(),
        "answers": packed(outcome.answers, outcome.total.size),
    }


def rows(outcome: Outcome) -> list[list[float | None]]:
    """An outcome's accuracy matrix with None above the diagonal, as JSON needs it."""
    return [[None if np.isnan(v) else v for v in row] for row in outcome.matrix.tolist()]


def from_json(text: bytes, where: str) -> Record | Failure:
    """What `as_json` made, its figures computed anew; errors name the place `where` it was."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = "delete it; algnn bench then does the run anew"
        raise AlgnnError(f"{where} is not a whole record of a run ({error}): {remedy}") from error
    if not isinstance(found, dict) or "format" not in found:
        raise AlgnnError(f"{where} is not a record of a run, it has no 'format': move it elsewhere")
    try:
        if found["format"] == FAILURE_FORMAT:
            return Failure(**_checked({"traceback": "", "split": "test", **found}, Failure))
        if type(found["format"]) is int and found["format"] == FORMAT:
            return Record(outcome=_outcome(found), **_checked({"split": "test", **found}, Record))
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error) as error:
        lacks = "it has no " * isinstance(error, KeyError)
        words = " ".join(str(error).split())
        raise AlgnnError(f"{where} is not a record of a run: {lacks}{words}") from error
    reads = f"this version reads {FORMAT} and {FAILURE_FORMAT!r}"
    raise AlgnnError(f"{where} is a record of format {found['format']!r}: {reads}")


def _outcome(found: Mapping[str, Any]) -> Outcome:
    lacking = ("selection_seconds", "calibration_errors", "novelty_aurocs")  # in old records
    bins = found.get("reliability")
    parts: list[Any] = [
        tuple(tuple(map(int, part)) for part in found["sessions"]),
        *(np.array(found[name], dtype=np.int64) for name in ("correct", "total")),
        *(tuple(map(float, found[name])) for name in ("learn_seconds", "predict_seconds")),
        tuple(map(int, found["retained_bytes"])),
        *(tuple(map(float, found.get(name, ()))) for name in lacking),
        None if bins is None else np.array(bins, dtype=np.float64).T,
        _unpacked(found.get("answers"), found["total"]),
    ]
    outcome = Outcome(*parts)
    count = len(outcome.matrix)  # raises where the counts do not fit the sessions
    trial = found.get("split", "test") != "test"  # which may have sessions without nodes
    if not trial and np.isnan(outcome.matrix[-1]).any():
        raise TypeError("total counts no test node in a session")
    if outcome.answers is not None:
        given = np.split(outcome.answers, outcome.total.cumsum()[:-1])
        if [(one == i).sum() for i, one in enumerate(given)] != outcome.correct[-1].tolist():
            raise TypeError("answers and the last row of correct do not agree")
    lengths = dict.fromkeys(("learn_seconds", "predict_seconds", "retained_bytes"), (count,))
    aurocs = tuple(range(count)) if trial else (0, count - 1)
    optional = dict.fromkeys(lacking, (0, count)) | {"novelty_aurocs": aurocs}
    for name, wanted in (lengths | optional).items():
        given = getattr(outcome, name)
        if len(given) not in wanted or not np.isfinite(given).all():
            raise TypeError(f"{name} is not a number for each of {count} sessions")
    bins = outcome.reliability
    if bins is not None and (bins.shape != (BINS, 3) or not 0 <= bins.min() <= bins.max() < np.inf):
        raise TypeError(f"reliability is not three rows of {BINS} figures")
    if bool(outcome.calibration_errors) != (bins is not None):
        raise TypeError("calibration_errors and reliability are not both there")
    return outcome


def packed(answers: Counts | None, classes: int) -> str | None:
    """Columns of classes, up to `classes`, in a byte or two each, compressed."""
    if answers is None:
        return None
    kind = "<u1" if classes < 256 else "<u2"
    return base64.b64encode(zlib.compress(answers.astype(kind).tobytes(), 9)).decode()


def _unpacked(text: str | None, total: list[int]) -> Counts | None:
    if text is None:
        return None
    kind, nodes = np.dtype("<u1" if len(total) < 256 else "<u2"), sum(total)
    # a damaged file must not be believed on how much it unpacks to
    content = zlib.decompressobj().decompress(base64.b64decode(text), nodes * kind.itemsize + 1)
    if len(content) != nodes * kind.itemsize:
        raise TypeError(f"answers are not those of {nodes} nodes")
    return np.frombuffer(content, kind).astype(np.int64)


def _checked(found: Mapping[str, Any], kind: type[Failure | Record]) -> dict[str, Any]:
    """The fields of a dataclass, each of its type."""
    types: Any = {f.name: f.type if f.type in (str, int) else dict for f in fields(kind)}
    types.pop("outcome", None)
    for name, wanted in types.items():
        if type(found[name]) is not wanted:
            raise TypeError(f"{name} is not of type {wanted.__name__}")
    if not isinstance(found["provenance"].get("sha256"), str | None):
        raise TypeError("sha256 is not of type str")
    json.dumps([found[name] for name in types], allow_nan=False)  # as `pack` writes it again
    _ = [float(v) for v in found["settings"].values() if type(v) is int]  # raises if too large
    return {name: found[name] for name in types}


def _parts(run: _Facts, names: tuple[str, ...]) -> str:
    asked = () if run.split == "test" else ("split",)
    return json.dumps({n: getattr(run, n) for n in (*names, *asked, "sha256")}, sort_keys=True)


def _safe(name: str) -> str:
    """A name that is one part of a path on any system, and never leads out of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", PurePath(name).name).lstrip(".") or "_"
