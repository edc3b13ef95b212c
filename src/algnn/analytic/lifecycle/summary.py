"""A summary of a learner for auditors: what it has seen, when, how well it is determined."""

from __future__ import annotations

import hashlib
import json
import math
import textwrap
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import balanced_system
from algnn.analytic.lifecycle.audit import Event, Label
from algnn.analytic.lifecycle.io import fingerprint
from algnn.analytic.state import State, per_class
from algnn.analytic.statistics import Statistics
from algnn.learner import shortened

MOST = 40  # rows of a table that are printed; of more, the first and the last half of these


@dataclass(frozen=True)
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
    retained_bytes : int
        Bytes kept beside the encoder.
    halvings : int
        The number of random halvings of the nodes that γ is chosen by; 0 where it is given.
    record : bool
        Whether hashes of the learned nodes are kept.
    labels : {"int", "str", "none"}
        The kind of labels.
    encoder, schema : str
        SHA-256 of everything that determines how nodes are encoded; and of `inputs` and `labels`.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
    >>> found = model.summary()
    >>> sum(found.nodes.values()), found.inputs, [event.what for event in found.events]
    (200, 64, ['learn'])
    >>> print(found)
    10 classes, 200 nodes; labels are ints, x has 64 columns
    ...
    """

    nodes: dict[Label, float]
    events: tuple[Event, ...]
    head: str
    gamma: float
    condition: float | None
    degrees: float | None
    inputs: int
    width: int
    directions: int
    retained_bytes: int
    halvings: int
    record: bool
    labels: str
    encoder: str
    schema: str

    def __str__(self) -> str:
        kinds = {"int": "labels are ints", "str": "labels are strings", "none": "no labels yet"}
        lines = [
            f"{len(self.nodes)} classes, {_number(sum(self.nodes.values()))} nodes;"
            f" {kinds[self.labels]}, x has {self.inputs} columns",
            "",
            *_table(("class", "nodes"), [(str(c), _number(n)) for c, n in self.nodes.items()]),
            "",
            *_table(("time", "what", "nodes", "classes", "head", "γ"), map(_row, self.events)),
            "",
            f"head                {self.head}, γ = {self.gamma:.3g}"
            + (f", chosen from nodes halved in {self.halvings} ways" if self.halvings else ""),
            f"features            {self.width} wide, sums over {self.directions} directions",
        ]
        if self.condition is not None:
            lines += [
                f"condition number    {self.condition:.3g}",
                f"degrees of freedom  {self.degrees:.1f}, effectively",
            ]
        return "\n".join(
            [
                *lines,
                f"kept                {self.retained_bytes:,} bytes"
                + ("" if self.record else ", no record of which nodes were learned"),
                f"encoder             {self.encoder}",
                f"schema              {self.schema}",
                *textwrap.wrap(
                    f"gives away          {exposure(self.record)}", 99, subsequent_indent=" " * 20
                ),
            ]
        )


def exposure(record: bool) -> str:
    """What the file of a learner gives away, with and without a record of learned nodes."""
    who = "which nodes were learned as what, and" if record else "how many nodes were learned, and"
    return f"{who} sums of their features: keep it like the labelled data (docs/privacy.md)"


def summarise(known: State, retained_bytes: int) -> Summary:
    """The result of `ALGNN.summary`."""
    condition, degrees = _determined(known)
    inputs, classes = known.features.inputs, known.statistics.classes
    labels = "none" if not classes.size else "str" if classes.dtype.kind == "U" else "int"
    schema = json.dumps({"inputs": inputs, "labels": labels}, sort_keys=True)
    return Summary(
        nodes=per_class(known.statistics),
        events=known.log.events,
        head=known.head,
        gamma=known.gamma,
        condition=condition,
        degrees=degrees,
        inputs=inputs,
        width=known.span.width,
        directions=known.span.rank,
        retained_bytes=retained_bytes,
        halvings=known.ways,
        record=known.membership is not None,
        labels=labels,
        encoder=fingerprint(known.features),
        schema=hashlib.sha256(schema.encode()).hexdigest(),
    )


def described(known: State) -> dict[str, str]:
    """Rows of the HTML representation of an `ALGNN`."""
    features, nodes = known.features, per_class(known.statistics)
    name = f"hops ({features.name})" if isinstance(features, HopEncoder) else "gcn"
    return {
        "encoder": f"{name}, {features.inputs} inputs → {features.width} features",
        "head": f"{known.head}, γ = {known.gamma:.3g}",
        "nodes per class": shortened(f"{c}: {_number(n)}" for c, n in nodes.items()),
    }


def _determined(known: State) -> tuple[float | None, float | None]:
    """Condition number and effective degrees of freedom of the system that the head solves."""
    if known.head == "ncm" or not known.statistics.classes.size:
        return None, None
    matrix, penalty = _system(known.head, known.statistics, known.gamma)
    values = torch.linalg.eigvalsh(matrix).clamp_min(0)
    # outside of the span there is nothing but the penalty
    least = 0.0 if known.span.basis is not None else float(values[0])
    lowest = least + penalty
    condition = (float(values[-1:].sum()) + penalty) / lowest if lowest else math.inf
    return condition, float((values / (values + penalty)).sum())


def _system(head: str, statistics: Statistics, gamma: float) -> tuple[Tensor, float]:
    """The matrix, and the γ that is added to it, as in `heads`."""
    if head == "balanced":
        matrix, _ = balanced_system(statistics)
        return matrix, gamma * (float(matrix.trace()) or 1.0)
    if head == "slda":
        n = statistics.n.to(statistics.Q.device)
        return statistics.G - (statistics.Q / n) @ statistics.Q.mT, gamma
    return statistics.G, gamma


def _row(event: Event) -> tuple[str, ...]:
    count = _number(event.count) if event.nodes else ""
    classes = str(len(event.nodes)) if event.nodes else ""
    return event.time, event.what, count, classes, event.head, f"{event.gamma:.3g}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    """Columns under their heads, numbers to the right."""
    cells = [head, *rows]
    if len(cells) > MOST + 1:
        half = MOST // 2
        left_out = (f"… {len(cells) - 1 - MOST} more", *[""] * (len(head) - 1))
        cells = [*cells[: half + 1], left_out, *cells[-half:]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        return "  ".join(
            cell.rjust(width) if name in ("nodes", "classes", "γ") else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ).rstrip()

    return [line(row) for row in cells]
