"""A summary of a learner for auditors: what it has seen, when, how well it is determined."""

from __future__ import annotations

import math

import torch

from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import penalised
from algnn.analytic.lifecycle.glance import Summary, number, schema
from algnn.analytic.lifecycle.io import fingerprint
from algnn.analytic.state import State, per_class
from algnn.learner import shortened


def summarise(known: State, retained_bytes: int) -> Summary:
    """The result of `ALGNN.summary`."""
    condition, degrees = _determined(known)
    inputs, classes = known.features.inputs, known.statistics.classes
    labels = "none" if not classes.size else "str" if classes.dtype.kind == "U" else "int"
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
        schema=schema(inputs, labels),
    )


def described(known: State) -> dict[str, str]:
    """Rows of the HTML representation of an `ALGNN`."""
    features, nodes = known.features, per_class(known.statistics)
    name = f"hops ({features.name})" if isinstance(features, HopEncoder) else "gcn"
    return {
        "encoder": f"{name}, {features.inputs} inputs → {features.width} features",
        "head": f"{known.head}, γ = {known.gamma:.3g}",
        "nodes per class": shortened(f"{c}: {number(n)}" for c, n in nodes.items()),
    }


def _determined(known: State) -> tuple[float | None, float | None]:
    """Condition number and effective degrees of freedom of the system that the head solves."""
    if known.head == "ncm" or not known.statistics.classes.size:
        return None, None
    matrix, penalty = penalised(known.head, known.statistics, known.gamma)
    values = torch.linalg.eigvalsh(matrix).clamp_min(0)
    # outside of the span there is nothing but the penalty
    least = 0.0 if known.span.basis is not None else float(values[0])
    lowest = least + penalty
    condition = (float(values[-1:].sum()) + penalty) / lowest if lowest else math.inf
    return condition, float((values / (values + penalty)).sum())
