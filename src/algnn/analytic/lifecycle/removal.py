"""Checks before a subtraction: whether sums can hold the nodes that are to be forgotten.

Sums do not tell which nodes they hold. But what is left of them without some nodes must still be
sums that nodes can have: a class without nodes has no sum, and a Gram matrix has no negative
eigenvalue. Features that have changed since they were learned mostly fail in one of these.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from algnn.analytic.lifecycle.membership import CHANGED_FEATURES
from algnn.analytic.linalg.subspace import Span
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError

# what G loses to rounding at most, relative to its trace
GRAM_ROUNDING = 1e-12


def check_spanned(span: Span, Z: Tensor, nodes: Tensor) -> None:
    """Raise `InputError` if features Z [n, d] stick out of the span of all that was learned."""
    if span.basis is None:
        return
    rest = torch.linalg.vector_norm(Z - span.coordinates(Z) @ span.basis, dim=1)
    outside = rest > CHANGED_FEATURES * torch.linalg.vector_norm(Z, dim=1)
    if bool(outside.any()):
        raise _changed(f"node {int(nodes[int(outside.int().argmax())])} has")


def check_left(before: Statistics, gone: Statistics, left: Statistics) -> None:
    """Raise `InputError` if `left` = `before` − `gone` are sums that no nodes can have."""
    # a class without nodes has no sum
    empty = torch.from_numpy(~np.isin(before.classes, left.classes)).to(before.Q.device)
    over = torch.linalg.vector_norm((before.Q - gone._on(before.classes).Q)[:, empty])
    if float(over) > CHANGED_FEATURES * float(torch.linalg.vector_norm(before.Q[:, empty])):
        raise _changed("some nodes have")
    # nor has a sum of squares a negative direction, but for rounding
    rounding = CHANGED_FEATURES * float(gone.G.trace()) + GRAM_ROUNDING * float(before.G.trace())
    matrix = left.G.clone()
    matrix.diagonal().add_(rounding or 1.0)
    if int(torch.linalg.cholesky_ex(matrix).info):
        raise _changed("some nodes have")


def _changed(who: str) -> InputError:
    return InputError(
        f"{who} other features in this graph than those that were learned, and forgetting them"
        " would leave sums that no nodes can have: give the graph as it was when they were learned"
    )
