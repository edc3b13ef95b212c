"""Weights from statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from algnn.errors import InputError


def ridge(G: Tensor, Q: Tensor, gamma: float) -> Tensor:
    """The paper's joint solution (Eq. joint_closed_form), W = (G + γI)⁻¹ Q, by Cholesky.

    Parameters
    ----------
    G : Tensor [d, d], float64
    Q : Tensor [d, C], float64
    gamma : float
        γ > 0.

    Returns
    -------
    Tensor [d, C], float64

    Examples
    --------
    >>> import torch
    >>> ridge(torch.tensor([[3.0]], dtype=torch.float64), torch.tensor([[2.0]]).double(), 1.0)
    tensor([[0.5000]], dtype=torch.float64)
    """
    regularised = G.clone()
    regularised.diagonal().add_(gamma)
    factor, info = torch.linalg.cholesky_ex(regularised)
    if int(info):
        raise InputError(
            f"gamma={gamma!r} leaves G + γI not positive definite in float64: use a larger gamma"
        )
    return torch.cholesky_solve(Q, factor)
