"""The paper's recursion: R_t and W_t from session to session, where the library carries sums.

Both give the joint solution; the sums (`Statistics`) give it with a smaller error (5e-14 against
1e-5 at γ = 1e-3). This is the reference that tests compare with; nothing in the library runs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Recursion:
    """R_t = (Σ ZᵀZ + γI)⁻¹ [d, d] of Eq. (Rt_def) and Ŵ_cls^(t) [d, C] after session t."""

    R: Tensor
    W: Tensor

    @classmethod
    def base(cls, Z: Tensor, Y: Tensor, gamma: float) -> Recursion:
        """The base session, with one-hot labels Y: R_0 of Eq. (R0), W of Eq. (base_closed_form)."""
        identity = torch.eye(Z.size(1), dtype=Z.dtype, device=Z.device)
        R = torch.linalg.inv(Z.mT @ Z + gamma * identity)
        return cls(R, R @ Z.mT @ Y)

    def update(self, Z: Tensor, Y: Tensor) -> Recursion:
        """A session that brings only new classes, with one-hot labels Y."""
        R = woodbury(self.R, Z)
        # Eq. (Wt_recursive): correct the old columns, append the new ones
        corrected = self.W - R @ Z.mT @ (Z @ self.W)
        return Recursion(R, torch.cat([corrected, R @ Z.mT @ Y], dim=1))


def woodbury(R: Tensor, Z: Tensor) -> Tensor:
    """Eq. (Rt_woodbury): R_t = R − R Zᵀ (I + Z R Zᵀ)⁻¹ Z R."""
    ZR = Z @ R
    inner = ZR @ Z.mT
    inner.diagonal().add_(1)
    # not checked: rounding may cost R its definiteness, and a reference shows that
    factor, _ = torch.linalg.cholesky_ex(inner)
    half = torch.linalg.solve_triangular(factor, ZR, upper=False)
    return torch.addmm(R, half.mT, half, alpha=-1)
