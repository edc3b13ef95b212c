"""Whether some nodes can be in sums, which is asked before they are taken out again.

Sums do not tell whom they hold. But what is left of them without some nodes must still be sums that
nodes can have: a class without nodes has none, and a sum of squares has no negative direction.
Features that have changed since they were learned mostly fail in one of these.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from algnn.analytic.linalg.subspace import Span
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError

# Columns of G, beyond one for each node, from which it is told that few nodes can be in it.
SPARE = 32
# Features that differ from those that were learned by more than this are not the same features.
# Those of another machine may differ by the rounding of float32, which is less.
OTHER = 1e-5
# what sums, or a matrix made of them, lose to rounding at most, relative to their trace
ROUNDING = 1e-12


def check_spanned(span: Span, features: Iterable[Tensor], nodes: Tensor) -> None:
    """Raise `InputError` if features stick out of the span of all that was learned.

    Parameters
    ----------
    span : Span
    features : iterable of Tensor [b, d]
        Z of these nodes, in blocks of rows.
    nodes : Tensor [n], int64

    Examples
    --------
    >>> Z = torch.eye(2, 3).double()
    >>> check_spanned(Span.empty(3).extended(Z[:1]), [Z[:1]], torch.tensor([5]))
    >>> check_spanned(Span.empty(3).extended(Z[:1]), [Z], torch.tensor([5, 7]))
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: node 7 has other features in this graph than those that were learned...
    """
    if span.basis is None:
        return
    start = 0
    for Z in features:
        rest = Z - span.coordinates(Z) @ span.basis
        out = torch.linalg.vector_norm(rest, dim=1) > OTHER * torch.linalg.vector_norm(Z, dim=1)
        if bool(out.any()):
            raise _changed(f"node {int(nodes[start + int(out.int().argmax())])} has")
        start += Z.size(0)


def check_left(before: Statistics, gone: Statistics, left: Statistics) -> None:
    """Raise `InputError` if sums are left that no nodes can have.

    Parameters
    ----------
    before : Statistics
    gone : Statistics
        Of the nodes that are taken out.
    left : Statistics
        Without classes that are left without a node.

    Examples
    --------
    >>> Z = torch.tensor([[1.0], [2.0]]).double()
    >>> one, both = (Statistics.empty(1).plus([some], np.zeros(len(some))) for some in (Z[:1], Z))
    >>> check_left(both, one, both.minus(one))
    """
    # a class without nodes has no sum
    same = gone._on(before.classes)
    empty = torch.from_numpy(~np.isin(before.classes, left.classes)).to(before.Q.device)
    over = torch.linalg.vector_norm((before.Q - same.Q)[:, empty])
    if float(over) > OTHER * float(torch.linalg.vector_norm(before.Q[:, empty])):
        raise _changed("some nodes have")
    # nor has a sum of squares a negative direction, but for rounding
    matrix = left.G.clone()
    rounding = OTHER * float(gone.G.trace()) + ROUNDING * float(before.G.trace())
    matrix.diagonal().add_(rounding or 1.0)
    if int(torch.linalg.cholesky_ex(matrix).info):
        raise _changed("some nodes have")


def is_doubtful(before: Statistics, Z: Tensor, left: Statistics) -> Tensor:
    """Whether few nodes may not be in these sums, as `check_left` asks, without waiting for a GPU.

    As long as at most half as many nodes were learned as features are wide, it takes few columns of
    G. Later it takes a factorisation.

    Parameters
    ----------
    before : Statistics
    Z : Tensor [n, d], float64
        Features of these nodes.
    left : Statistics
        The sums without them, over the same classes.

    Returns
    -------
    Tensor [], bool

    Examples
    --------
    >>> Z = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double()
    >>> before = Statistics.empty(2).plus([Z], np.array([0, 0]))
    >>> is_doubtful(before, Z[:1], before.moved(Z[:1], np.array([0]), sign=-1)[0])
    tensor(False)
    >>> is_doubtful(before, 9 * Z[:1], before.moved(9 * Z[:1], np.array([0]), sign=-1)[0])
    tensor(True)
    """
    empty = (left.n == 0).nonzero().squeeze(1).to(Z.device)
    over, size = (torch.linalg.vector_norm(sums.Q[:, empty]) for sums in (left, before))
    slack = OTHER * Z.square().sum() + ROUNDING * before.G.trace()
    columns = int(before.n.sum()) + SPARE
    if 2 * columns <= Z.size(1):
        within = holds(before.G, Z, slack, columns)
    else:
        matrix = left.G.clone()
        matrix.diagonal().add_(slack)
        within = torch.linalg.cholesky_ex(matrix).info == 0
    doubtful: Tensor = (over > OTHER * size) | ~within
    return doubtful


def holds(G: Tensor, Z: Tensor, slack: Tensor, columns: int) -> Tensor:
    """Whether G + slack I ≽ ZᵀZ for sure, from some columns of G and without a factorisation of it.

    Some rows C of G, with M its entries in those rows and the columns of the same places, bound it
    from below: G ≽ Cᵀ M⁻¹ C. If Z = X C + E and X M Xᵀ ≼ 1 + ζ, then ZᵀZ is at most (1 + ζ) G but
    for what E adds, and 2 ‖Z‖ ‖E‖ + ‖E‖² + ζ ‖Z‖² is all that it is beyond G. Where G is of a lower
    rank than there are rows, and Z is within it, both E and ζ are rounding.

    Parameters
    ----------
    G : Tensor [d, d], float64
        Symmetric, without negative eigenvalues.
    Z : Tensor [n, d], float64
    slack : Tensor [], float64
    columns : int
        At most d.

    Returns
    -------
    Tensor [], bool
        False where it does not hold, or one cannot tell from these columns.

    Examples
    --------
    >>> Z = torch.tensor([[1.0, 2.0, 3.0]]).double()
    >>> slack = torch.tensor(1e-6).double()
    >>> holds(Z.mT @ Z, Z, slack, 2), holds(Z.mT @ Z, Z + 0.01, slack, 2)
    (tensor(True), tensor(False))
    """
    some = torch.arange(columns, device=G.device) * G.size(0) // columns
    C = G[some]
    M = C[:, some]
    M.diagonal().add_(ROUNDING * G.trace())
    factor, first = torch.linalg.cholesky_ex(M)
    X = torch.cholesky_solve(Z[:, some].mT, factor).mT
    size = torch.linalg.vector_norm(Z)
    rest = torch.linalg.vector_norm(torch.addmm(Z, X, C, alpha=-1))
    # half of the slack for E, half for ζ
    matrix = -(X @ M) @ X.mT
    matrix.diagonal().add_(1 + slack / (2 * size.square()))
    _, second = torch.linalg.cholesky_ex(matrix)
    sure: Tensor = (first == 0) & (second == 0) & (rest * (2 * size + rest) <= slack / 2)
    return sure


def _changed(who: str) -> InputError:
    return InputError(
        f"{who} other features in this graph than those that were learned, and forgetting them"
        " would leave sums that no nodes can have: give the graph as it was when they were learned"
    )
