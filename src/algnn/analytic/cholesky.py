"""Symmetric systems by Cholesky: factorised, and solved for a few right-hand sides."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from algnn.errors import InputError

# A GPU factorises matrices up to this size together; larger ones keep it busy one by one. And it
# substitutes row after row, however few columns there are, which is slow where rows are many:
# beyond this size it goes by blocks of rows instead, whose own triangles are inverted all at once.
TOGETHER = 512
BLOCK = 256


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
    matrix.diagonal().add_(gamma)
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info):
        raise InputError(
            f"gamma={float(gamma)!r} leaves the matrix not positive definite in float64: use a"
            " larger one, or scale graph.x down"
        )
    return factor


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
    for matrix, stream in zip(matrices, streams, strict=True):
        stream.wait_stream(here)
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


def by_blocks(factor: Tensor, targets: Tensor, size: int = BLOCK) -> Tensor:
    """The same, block after block of rows: forward with L, then backward with Lᵀ.

    Parameters
    ----------
    factor : Tensor [k, d, d]
    targets : Tensor [k, d, C]
    size : int
        Rows of a block.

    Returns
    -------
    Tensor [k, d, C]

    Examples
    --------
    >>> L = torch.tensor([[[2.0, 0.0], [1.0, 1.0]]])
    >>> by_blocks(L, torch.tensor([[[4.0], [3.0]]]), size=1).flatten()
    tensor([0.5000, 1.0000])
    """
    d, inverse = factor.size(1), _inverted(factor, size)
    starts = range(0, d, size)
    X = targets.clone()
    for place, start in enumerate(starts):
        rows, done = slice(start, start + size), slice(0, start)
        here = X[:, rows]
        if start:
            here = torch.baddbmm(here, factor[:, rows, done], X[:, done], alpha=-1)
        X[:, rows] = inverse[:, place, : here.size(1), : here.size(1)] @ here
    for place, start in reversed(list(enumerate(starts))):
        rows, done = slice(start, start + size), slice(start + size, d)
        here = X[:, rows]
        if start + size < d:
            here = torch.baddbmm(here, factor[:, done, rows].mT, X[:, done], alpha=-1)
        X[:, rows] = inverse[:, place, : here.size(1), : here.size(1)].mT @ here
    return X


def _inverted(factor: Tensor, size: int) -> Tensor:
    """The inverses of the triangles on the diagonal [k, blocks, size, size], by one call."""
    many, d, _ = factor.shape
    count = -(-d // size)
    triangles = factor.new_zeros(many, count, size, size)
    one = torch.eye(size, dtype=factor.dtype, device=factor.device)
    for place, start in enumerate(range(0, d, size)):
        piece = factor[:, start : start + size, start : start + size]
        # the last one may be smaller
        short = size - piece.size(1)
        triangles[:, place] = pad(piece, (0, short, 0, short)) if short else piece
    if d < count * size:
        triangles[:, -1].diagonal(dim1=1, dim2=2)[:, d - count * size :] = 1.0
    inverse: Tensor = torch.linalg.solve_triangular(
        triangles, one.expand_as(triangles), upper=False
    )
    return inverse
