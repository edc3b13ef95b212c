"""Symmetric systems by Cholesky: factorised, and solved for a few right-hand sides."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from algnn.errors import InputError

# A GPU factorises matrices up to this size together; larger ones keep it busy one by one. And it
# substitutes row after row, however few columns there are, which is slow where rows are many:
# beyond this size it goes by blocks of rows instead, whose own triangles are inverted: those of at
# most LEAF rows by substitution, all at once, and blocks of at most LARGEST by way of these.
TOGETHER = 512
LEAF = 384
LARGEST = 2048
# The pieces of one large triangle are smaller: torch would go through up to eight of them one by
# one.
SMALL_LEAF = 128


def factorise(matrix: Tensor, gamma: float | Tensor) -> Tensor:
    """The Cholesky factor of matrix + γI.

    Parameters
    ----------
    matrix : Tensor [d, d], float64
        Symmetric; overwritten.
    gamma : float or Tensor []
        γ > 0.

    Returns
    -------
    Tensor [d, d]
        Lower triangular.

    Examples
    --------
    >>> factorise(torch.full((1, 1), 3.0).double(), 1.0)
    tensor([[2.]], dtype=torch.float64)
    """
    factor, failed = begun(matrix, gamma)
    check_definite(failed, gamma)
    return factor


def begun(matrix: Tensor, gamma: float | Tensor) -> tuple[Tensor, Tensor]:
    """The same, without waiting for a GPU to have done it: `check_definite` tells what came of it.

    Parameters
    ----------
    matrix, gamma
        As for `factorise`.

    Returns
    -------
    factor : Tensor [d, d]
    failed : Tensor [], int32

    Examples
    --------
    >>> begun(torch.full((1, 1), -3.0).double(), 1.0)[1]
    tensor(1, dtype=torch.int32)
    """
    matrix.diagonal().add_(gamma)
    found: tuple[Tensor, Tensor] = torch.linalg.cholesky_ex(matrix)
    return found


def check_definite(failed: Tensor, gamma: float | Tensor) -> None:
    """Raise `InputError` if a factorisation has failed.

    Parameters
    ----------
    failed : Tensor [], int32
    gamma : float or Tensor []

    Examples
    --------
    >>> check_definite(torch.tensor(1), 0.5)
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: gamma=0.5 leaves the matrix not positive definite in float64: use a...
    """
    if int(failed):
        raise InputError(
            f"gamma={float(gamma)!r} leaves the matrix not positive definite in float64: use a"
            " larger one, or scale graph.x down"
        )


def factors(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """The Cholesky factors of several matrices.

    Parameters
    ----------
    matrices : Tensor [k, d, d]
        Symmetric.

    Returns
    -------
    factors : Tensor [k, d, d]
        Lower triangular.
    failed : Tensor [k], int32
        Not 0 where a matrix is not positive definite; nothing is waited for to know.

    Examples
    --------
    >>> factors(torch.tensor([[[4.0]], [[-1.0]]]))[1]
    tensor([0, 1], dtype=torch.int32)
    """
    if matrices.device.type == "cpu" or matrices.size(-1) <= TOGETHER:
        together: tuple[Tensor, Tensor] = torch.linalg.cholesky_ex(matrices)
        return together
    # each leaves most of a GPU idle, so they go side by side, in streams of their own
    here: Any = torch.cuda.current_stream(matrices.device)
    streams = _streams(matrices.device, matrices.size(0))
    found: list[Any] = []
    ready = here.record_event()
    for matrix, stream in zip(matrices, streams, strict=True):
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            found.append(torch.linalg.cholesky_ex(matrix))
    for (factor, info), stream in zip(found, streams, strict=True):
        here.wait_stream(stream)
        # what was made there is used here from now on, and must not be given away before
        factor.record_stream(here)
        info.record_stream(here)
    return torch.stack([one.L for one in found]), torch.stack([one.info for one in found])


def _streams(device: torch.device, count: int) -> list[Any]:
    """So many streams of a device, the same ones every time."""
    have = _all_streams.setdefault(device, [])
    while len(have) < count:
        have.append(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    return have[:count]


_all_streams: dict[torch.device, list[Any]] = {}


def solve(matrix: Tensor, targets: Tensor, gamma: float | Tensor) -> Tensor:
    """(matrix + γI)⁻¹ targets.

    Parameters
    ----------
    matrix : Tensor [d, d], float64
        Symmetric; overwritten.
    targets : Tensor [d, C], float64
    gamma : float or Tensor []
        γ > 0.

    Returns
    -------
    Tensor [d, C]

    Examples
    --------
    >>> solve(torch.full((1, 1), 3.0).double(), torch.ones(1, 1).double(), 1.0)
    tensor([[0.2500]], dtype=torch.float64)
    """
    return substituted(factorise(matrix, gamma), targets)


def substituted(factor: Tensor, targets: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹ targets.

    Parameters
    ----------
    factor : Tensor [..., d, d]
        L, lower triangular.
    targets : Tensor [..., d, C]

    Returns
    -------
    Tensor [..., d, C]

    Examples
    --------
    >>> substituted(torch.full((1, 1), 2.0), torch.ones(1, 1))
    tensor([[0.2500]])
    """
    solution: Tensor
    if factor.device.type == "cpu" or factor.size(-1) <= TOGETHER:
        solution = torch.cholesky_solve(targets, factor)
    elif factor.ndim == 2:
        solution = by_blocks(factor[None], targets[None])[0]
    else:
        solution = by_blocks(factor, targets)
    return solution


def inverted(factor: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹.

    Parameters
    ----------
    factor : Tensor [d, d]
        L, lower triangular.

    Returns
    -------
    Tensor [d, d]

    Examples
    --------
    >>> inverted(torch.full((1, 1), 2.0))
    tensor([[0.2500]])
    """
    d = factor.size(0)
    if factor.device.type == "cpu" or not TOGETHER < d <= LARGEST:
        return torch.cholesky_inverse(factor)
    even, halvings = _evened(factor[None], 1, LEAF if d <= 8 * SMALL_LEAF else SMALL_LEAF)
    inverse = _inverted(even[:, None], halvings)[0, 0, :d, :d]
    return inverse.mT @ inverse


def by_blocks(factor: Tensor, targets: Tensor, most: int = LARGEST, leaf: int = LEAF) -> Tensor:
    """The same, block after block of rows: forward with L, then backward with Lᵀ.

    Parameters
    ----------
    factor : Tensor [k, d, d]
    targets : Tensor [k, d, C]
    most, leaf : int
        Rows of a block, at most or a few more; and of the pieces that it is inverted by.

    Returns
    -------
    Tensor [k, d, C]

    Examples
    --------
    >>> L = torch.tensor([[[2.0, 0.0], [1.0, 1.0]]])
    >>> by_blocks(L, torch.tensor([[[4.0], [3.0]]]), most=1).flatten()
    tensor([0.5000, 1.0000])
    """
    d = factor.size(1)
    count = -(-d // most)
    factor, halvings = _evened(factor, count, leaf)
    size = factor.size(1) // count
    inverse = _inverted(_on_diagonal(factor, count), halvings)
    X = pad(targets, (0, 0, 0, factor.size(1) - d))
    if count == 1:
        return (inverse[:, 0].mT @ (inverse[:, 0] @ X))[:, :d]
    for place in range(count):
        rows, done = slice(place * size, (place + 1) * size), slice(0, place * size)
        here = torch.baddbmm(X[:, rows], factor[:, rows, done], X[:, done], alpha=-1)
        X[:, rows] = inverse[:, place] @ here
    for place in reversed(range(count)):
        rows, done = slice(place * size, (place + 1) * size), slice((place + 1) * size, None)
        here = torch.baddbmm(X[:, rows], factor[:, done, rows].mT, X[:, done], alpha=-1)
        X[:, rows] = inverse[:, place].mT @ here
    return X[:, :d]


def _evened(factor: Tensor, count: int, leaf: int) -> tuple[Tensor, int]:
    """Factors with a few more rows, of the identity, so that they divide into alike blocks.

    And how often such a block can be halved until it has at most `leaf` rows.
    """
    d = factor.size(1)
    halvings = max(0, math.ceil(math.log2(d / (count * leaf))))
    short = -d % (count << halvings)
    if short:
        factor = pad(factor, (0, short, 0, short))
        factor[:, d:].diagonal(d, 1, 2).fill_(1.0)
    return factor, halvings


def _on_diagonal(matrices: Tensor, count: int) -> Tensor:
    """The blocks on the diagonal [..., count, s, s] of matrices [..., count s, count s]."""
    size = matrices.size(-1) // count
    blocks = matrices.reshape(*matrices.shape[:-2], count, size, count, size)
    found: Tensor = blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
    return found


def _inverted(triangles: Tensor, halvings: int) -> Tensor:
    """The inverses of lower triangular matrices [k, b, s, s], by halves of halves, all at once.

    The inverse of [[A, 0], [C, B]] is [[A⁻¹, 0], [−B⁻¹ C A⁻¹, B⁻¹]].
    """
    size = triangles.size(-1) >> halvings
    leaves = _on_diagonal(triangles, 1 << halvings)
    one = torch.eye(size, dtype=triangles.dtype, device=triangles.device)
    inverse: Tensor = torch.linalg.solve_triangular(leaves, one.expand_as(leaves), upper=False)
    for level in range(halvings - 1, -1, -1):
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        below = _on_diagonal(triangles, 1 << level)[..., size:, :size]
        inverse = torch.cat(
            [
                torch.cat([first, -(second @ below @ first)], dim=-2),
                pad(second, (0, 0, size, 0)),
            ],
            dim=-1,
        )
        size *= 2
    return inverse[..., 0, :, :]
