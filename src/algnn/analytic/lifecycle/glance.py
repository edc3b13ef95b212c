"""What a model knows, read from its file in a moment: without torch, and without its sums."""

import hashlib
import json
import os
import textwrap
from dataclasses import dataclass
from math import prod
from typing import Any

from algnn.analytic.lifecycle.audit import AuditLog, Event, Label
from algnn.checkpoint import MISFITS, Facts, Shapes, peek
from algnn.errors import CheckpointError

MOST = 40  # rows of a table that are printed; of more, the first and the last half of these


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Everything that an auditor asks about a learner; its text is a table to read.

    Attributes
    ----------
    nodes : dict
        The nodes learned of each class, or the weight that is left of them where they decay.
    events : tuple of Event
        The audit log, the oldest event first.
    head, gamma : str, float
        The head, and γ as it is now.
    condition : float or None
        Condition number of the matrix that is solved, γ included; None where nothing is solved.
    degrees : float or None
        Effective degrees of freedom, tr((A + γI)⁻¹ A) of that matrix A.
    inputs, width, directions : int
        Width of `x`, of the features made of it, and of the span that the sums are kept over.
    retained_bytes, halvings : int
        Bytes kept beside the encoder; and by how many random halvings of the nodes γ is chosen, 0
        where it is given.
    record, labels : bool, {"int", "str", "none"}
        Whether hashes of the learned nodes are kept; and the kind of labels.
    encoder, schema : str
        SHA-256 of everything that determines how nodes are encoded; and of `inputs` and `labels`.

    `glance` leaves `condition`, `degrees` and `encoder` out: they take torch, and time.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
    >>> found = model.summary()
    >>> sum(found.nodes.values()), found.inputs, [event.what for event in found.events]
    (200, 64, ['learn'])
    """

    nodes: dict[Label, float]
    events: tuple[Event, ...]
    head: str
    gamma: float
    condition: float | None = None
    degrees: float | None = None
    inputs: int
    width: int
    directions: int
    retained_bytes: int
    halvings: int
    record: bool
    labels: str
    encoder: str = ""
    schema: str

    def __str__(self) -> str:
        kinds = {"int": "labels are ints", "str": "labels are strings", "none": "no labels yet"}
        ways = f"{self.halvings} halvings" if self.halvings > 1 else "halves"
        chosen = f", chosen from {ways} of the nodes" if self.halvings else ""
        rows = {"head": f"{self.head}, γ = {self.gamma:.3g}{chosen}" if self.nodes else self.head}
        rows["features"] = f"{self.width} wide, sums over {self.directions} directions"
        if self.condition is not None:
            rows["condition number"] = f"{self.condition:.3g}"
            rows["degrees of freedom"] = f"{self.degrees:.1f}, effectively"
        kept = "" if self.record else ", no record of which nodes were learned"
        rows["kept"] = f"{self.retained_bytes:,} bytes{kept}"
        rows |= {"encoder": self.encoder} if self.encoder else {}
        rows |= {"schema": self.schema, "gives away": exposure(self.record, bool(self.nodes))}
        lines = [
            f"{len(self.nodes)} classes, {number(sum(self.nodes.values()))} nodes;"
            f" {kinds[self.labels]}, x has {self.inputs} columns",
            "",
        ]
        if self.nodes:
            counts = [(str(c), number(n)) for c, n in self.nodes.items()]
            lines += [*_table(("class", "nodes"), counts), ""]
        if self.events:
            heads = ("time", "what", "nodes", "classes", "head", "γ")
            lines += [*_table(heads, map(_row, self.events)), ""]
        for name, value in rows.items():
            lines += textwrap.wrap(f"{name:<20}{value}", 99, subsequent_indent=" " * 20)
        return "\n".join(lines)


def exposure(record: bool, taught: bool) -> str:
    """What the file of a learner gives away, with and without a record of learned nodes."""
    if not taught:
        return "no label and no sum; its encoder, as far as features are reduced or it was trained"
    who = "which nodes were learned as what, and" if record else "how many nodes were learned, and"
    return f"{who} sums of their features: keep it like the labelled data (docs/privacy.md)"


def glance(path: str | os.PathLike[str]) -> Summary | dict[str, str]:
    """The summary of an `ALGNN` in a file; of a `PrivateALGNN`, rows of names and words."""
    # the log is checked; the content is not compared with its SHA-256, which `load` does
    header, shapes, arrays = peek(path, ("statistics.n", "shown.n", "spent"))
    kind, facts = header["kind"], header["facts"]
    try:
        if kind == "ALGNN":
            return summary_of(facts, shapes, arrays["statistics.n"].tolist())
        if kind == "PrivateALGNN":
            return _private(facts, shapes, arrays)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except MISFITS as error:
        raise CheckpointError(f"{path} holds no model that this version knows") from error
    raise CheckpointError(f"{path} holds a {kind}: only models of algnn fit are summarised")


def summary_of(facts: Facts, shapes: Shapes, counts: list[float]) -> Summary:
    """A summary of what a checkpoint holds: facts, shapes of its tensors, n of each class."""
    directions, classes = shapes["statistics.Q"][0], facts["classes"]
    labels = "none" if not classes else "str" if isinstance(classes[0], str) else "int"
    inputs = facts["bank"]["inputs"] if "bank" in facts else shapes["encoder.weight"][0]
    sizes = {name: prod(shapes[name]) for name in shapes if not name.startswith("encoder.")}
    # files of early versions have no sketches; where they are loaded they get empty ones
    sizes.setdefault("record.prints", sizes.get("record.hashes", 0))
    nodes = dict(zip(classes, counts, strict=True))
    schema = json.dumps({"inputs": inputs, "labels": labels}, sort_keys=True)
    return Summary(
        nodes=nodes,
        events=AuditLog.of(facts, nodes).events,
        head=facts["head"],
        gamma=facts["gamma"],
        inputs=inputs,
        width=shapes["span.basis"][1] if "span.basis" in shapes else directions,
        directions=directions,
        retained_bytes=8 * sum(sizes.values()),
        halvings=sum(name.startswith("second") and name.endswith(".G") for name in shapes),
        record="record.hashes" in shapes,
        labels=labels,
        schema=hashlib.sha256(schema.encode()).hexdigest(),
    )


def _private(facts: Facts, shapes: Shapes, arrays: dict[str, Any]) -> dict[str, str]:
    from algnn.analytic.privacy.accountant import attained_epsilon

    nodes = zip(facts["classes"], arrays["shown.n"].tolist(), strict=True)
    delta = float(facts["params"]["delta"])
    # kept is Σ 1/σ² of each class
    spent = attained_epsilon(delta, float(arrays["spent"].max()) ** -0.5)
    return {
        "private": f"ε ≤ {spent:.3g} at δ = {delta:g} for each labelled node",
        "nodes per class, noisy": ", ".join(f"{name}: {count:.0f}" for name, count in nodes),
        "kept": f"{8 * sum(prod(shape) for shape in shapes.values()):,} bytes",
        "gives away": private_exposure(spent, delta),
    }


def private_exposure(spent: float, delta: float) -> str:
    """What the file of a private learner gives away."""
    return (
        f"of a labelled node ε ≤ {spent:.3g} at δ = {delta:g}; not covered are"
        " its neighbours' features and the names of classes (docs/privacy.md)"
    )


def _row(event: Event) -> tuple[str, ...]:
    counts = (number(event.count), str(len(event.nodes))) if event.nodes else ("", "")
    return event.time, event.what, *counts, event.head, f"{event.gamma:.3g}"


def number(value: float) -> str:
    """A count as it is printed; where nodes decay, it is no whole one."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    """Columns under their heads, numbers to the right."""
    cells = [head, *rows]
    if len(cells) > MOST + 1:
        left_out = (f"… {len(cells) - 1 - MOST} more", *[""] * (len(head) - 1))
        half = MOST // 2
        cells[half + 1 : -half] = [left_out]
    columns = []
    for column in zip(*cells, strict=True):
        pad = str.rjust if column[0] in ("nodes", "classes", "γ") else str.ljust
        columns.append([pad(cell, max(map(len, column))) for cell in column])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
