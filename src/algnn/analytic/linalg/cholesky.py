"""Symmetric positive definite systems, by Cholesky."""

from __future__ import annotations

import torch
from torch import Tensor

from algnn.errors import InputError


def factorise(matrix: Tensor, gamma: float | Tensor) -> Tensor:
    """The lower Cholesky factor of matrix + γI, for one symmetric matrix, which is overwritten."""
    matrix.diagonal().add_(gamma)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise InputError(
            f"gamma={float(gamma)!r} leaves the matrix not positive definite in float64: use a"
            " larger one, or scale graph.x down"
        )
    return factor  # type: ignore[no-any-return]


def solve(matrix: Tensor, targets: Tensor, gamma: float | Tensor) -> Tensor:
    """(matrix + γI)⁻¹ targets, for one symmetric matrix, which is overwritten."""
    return torch.cholesky_solve(targets, factorise(matrix, gamma))
