"""The paper's recursion: R_t and W_t from session to session, where the library carries sums.

Both give the joint solution; the sums (`Statistics`) give it with a smaller error (5e-14 against
1e-5 at γ = 1e-3). `Recursion` is the reference that tests compare with. Where a session has few
nodes the recursion is the cheaper one, so there the two work together: `refined` lets R_t propose
weights and the sums correct them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

REFINEMENTS = 3
# the largest last step, relative to the largest weight, after which W counts as settled; mostly the
# first one is at rounding already
CONVERGED = 1e-9


@dataclass(frozen=True)
class Recursion:
    """R_t and Ŵ_cls^(t) after session t, in float64.

    Attributes
    ----------
    R : Tensor [d, d]
        (Σ ZᵀZ + γI)⁻¹, Eq. (Rt_def).
    W : Tensor [d, C]
        Weights, a column per class.

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> first = Recursion.base(one, one, gamma=1.0)
    >>> first.W.item(), first.update(one, one).W.tolist()
    (0.5, [[0.333..., 0.333...]])
    """

    R: Tensor
    W: Tensor

    @classmethod
    def base(cls, Z: Tensor, Y: Tensor, gamma: float) -> Recursion:
        """The base session: R_0 of Eq. (R0) and W of Eq. (base_closed_form).

        Parameters
        ----------
        Z : Tensor [n, d], float64
        Y : Tensor [n, C], float64
            One-hot labels.
        gamma : float

        Returns
        -------
        Recursion
        """
        identity = torch.eye(Z.size(1), dtype=Z.dtype, device=Z.device)
        R = torch.linalg.inv(Z.mT @ Z + gamma * identity)
        return cls(R, R @ Z.mT @ Y)

    def update(self, Z: Tensor, Y: Tensor) -> Recursion:
        """A session that brings only new classes.

        Parameters
        ----------
        Z : Tensor [n, d], float64
        Y : Tensor [n, new classes], float64

        Returns
        -------
        Recursion
        """
        R = woodbury(self.R, Z)
        # Eq. (Wt_recursive): correct the old columns, append the new ones
        corrected = self.W - R @ Z.mT @ (Z @ self.W)
        return Recursion(R, torch.cat([corrected, R @ Z.mT @ Y], dim=1))


def woodbury(R: Tensor, Z: Tensor) -> Tensor:
    """Eq. (Rt_woodbury): R_t = R − R Zᵀ (I + Z R Zᵀ)⁻¹ Z R.

    Parameters
    ----------
    R : Tensor [d, d], float64
        R_{t−1}.
    Z : Tensor [n, d], float64

    Returns
    -------
    Tensor [d, d]

    Examples
    --------
    >>> import torch
    >>> woodbury(torch.ones(1, 1).double(), torch.ones(1, 1).double())
    tensor([[0.5000]], dtype=torch.float64)
    """
    ZR = Z @ R
    inner = ZR @ Z.mT
    inner.diagonal().add_(1)
    # not checked: where rounding has cost R its definiteness, `refined` will notice
    factor, _ = torch.linalg.cholesky_ex(inner)
    half = torch.linalg.solve_triangular(factor, ZR, upper=False)
    return torch.addmm(R, half.mT, half, alpha=-1)


def refined(R: Tensor, G: Tensor, Q: Tensor, gamma: float) -> Tensor | None:
    """W = (G + γI)⁻¹ Q from an R that is only nearly that inverse.

    W ← W + R (Q − (G + γI) W), a few times: each shrinks the error by the factor by which R is
    off, and G, which is exact, decides where it ends. This takes matrix products only.

    Parameters
    ----------
    R, G : Tensor [d, d], float64
    Q : Tensor [d, C], float64
    gamma : float

    Returns
    -------
    Tensor [d, C] or None
        None where R is too far off: then only a factorisation helps.

    Examples
    --------
    >>> import torch
    >>> G, Q = torch.full((1, 1), 3.0).double(), torch.ones(1, 1).double()
    >>> refined(torch.full((1, 1), 0.250001).double(), G, Q, 1.0)
    tensor([[0.2500]], dtype=torch.float64)
    >>> refined(torch.full((1, 1), 9.0).double(), G, Q, 1.0) is None
    True
    """
    W = R @ Q
    for _ in range(REFINEMENTS):
        step = R @ torch.addmm(Q, G, W, alpha=-1).sub_(W, alpha=gamma)
        W = W + step
        norms = [torch.linalg.vector_norm(t, torch.inf) for t in (step, W)]
        last, size = torch.stack(norms).tolist()
        # what is still wrong is a small part of the last step; NaN is never small enough
        if last <= CONVERGED * size:
            return W
    return None
