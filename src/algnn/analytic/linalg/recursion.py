"""The paper's recursion: R_t and W_t from session to session, where the library carries sums.

Both give the joint solution; the sums (`Statistics`) give it with a smaller error (5e-14 against
1e-5 at γ = 1e-3). `Recursion` is the reference that tests compare with. Where a session has few
nodes the recursion is the cheaper one, so there the two work together: an `Inverse` stands for R_t,
proposes weights, and `refined` corrects them by the sums. The same works backwards, for few nodes
that are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from algnn.analytic.linalg.cholesky import inverted

REFINEMENTS = 3
# the largest last step, relative to the largest weight, after which W counts as settled; mostly the
# first one is at rounding already
CONVERGED = 1e-9
# and the largest residual before it, relative to the largest target: an R that is far too small
# makes small steps as well
CLOSE = 1e-6
# an `Inverse` that carries more than d / WIDE nodes costs more than the factorisation it saves
WIDE = 4


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
    # not checked: rounding may cost R its definiteness, and a reference shows that
    factor, _ = torch.linalg.cholesky_ex(inner)
    half = torch.linalg.solve_triangular(factor, ZR, upper=False)
    return torch.addmm(R, half.mT, half, alpha=-1)


@dataclass(frozen=True)
class Inverse:
    """R = (G + γI)⁻¹ after a factorisation, with few nodes learned or forgotten since.

    On a GPU it is a matrix: memory is quick there, and substitution slow. Not so on a CPU: with
    F Fᵀ = G + γI as it was factorised, R = F⁻ᵀ (I − Vᵀ S V) F⁻¹, a row of V for each node since,
    and S = ±1 for learned or forgotten. No array of d² numbers is written for a session then, and
    none is inverted.

    Attributes
    ----------
    root : Tensor [d, d], float64
        F, lower triangular, or R itself.
    whole : bool
        Whether it is R itself.
    V : Tensor [k, d], float64
    signs : Tensor [k, 1], float64

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, 1).double()
    >>> R, W = Inverse.of(2 * one).updated(one, one, 0 * one)
    >>> R.times(one), W
    (tensor([[0.2000]], dtype=torch.float64), tensor([[0.2000]], dtype=torch.float64))
    """

    root: Tensor
    whole: bool
    V: Tensor
    signs: Tensor

    @classmethod
    def of(cls, factor: Tensor, whole: bool | None = None) -> Inverse:
        """R of a Cholesky factor.

        Parameters
        ----------
        factor : Tensor [d, d], float64
            F, lower triangular; kept, or inverted.
        whole : bool, optional
            By default on a GPU.

        Returns
        -------
        Inverse
        """
        whole = factor.is_cuda if whole is None else whole
        root = inverted(factor) if whole else factor
        return cls(root, whole, factor.new_zeros(0, factor.size(0)), factor.new_zeros(0, 1))

    def has_room(self, count: int) -> bool:
        """Whether so many more nodes are cheaper by way of it than by a new factorisation.

        Parameters
        ----------
        count : int

        Returns
        -------
        bool
        """
        return self.whole or WIDE * (self.V.size(0) + count) <= self.V.size(1)

    def times(self, X: Tensor) -> Tensor:
        """R X.

        Parameters
        ----------
        X : Tensor [d, m], float64

        Returns
        -------
        Tensor [d, m]
        """
        return self.root @ X if self.whole else self._back(self._without(self._forth(X)))

    def updated(
        self, Z: Tensor, Y: Tensor, W: Tensor, *, sign: int = 1, unless: Tensor | None = None
    ) -> tuple[Inverse, Tensor]:
        """R and W with some more nodes, Eq. (Rt_woodbury) and (Wt_recursive), or without them.

        Parameters
        ----------
        Z : Tensor [n, d], float64
        Y : Tensor [n, C], float64
            One-hot labels.
        W : Tensor [d, C], float64
            Weights so far, with zeros for classes that are new.
        sign : {1, -1}
            −1 to take the nodes out again.
        unless : Tensor [], bool, optional
            Where true, no weights: for nodes that are taken out.

        Returns
        -------
        Inverse
        Tensor [d, C]
            Wrong where there are none, NaN when nodes are taken out that were never in it: what
            comes next (`refined`) will see it, and a GPU need not be waited for here.
        """
        if self.whole:
            seen = self.root @ Z.mT
            inner = Z @ seen
        else:
            half = self._forth(Z.mT)
            seen = self._without(half)
            inner = half.mT @ seen
        if sign < 0:
            inner.neg_()
        inner.diagonal().add_(1)
        factor, info = torch.linalg.cholesky_ex(inner)
        # R and what W gets wrong in one substitution
        both = torch.cat([seen.mT, torch.addmm(Y, Z, W, alpha=-1)], dim=1)
        both = torch.linalg.solve_triangular(factor, both, upper=False)
        rows, error = both[:, : seen.size(0)], both[:, seen.size(0) :]
        if sign < 0:
            error.masked_fill_(info != 0 if unless is None else (info != 0) | unless, torch.nan)
        if self.whole:
            R = torch.addmm(self.root, rows.mT, rows, alpha=-sign)
            return replace(self, root=R), torch.addmm(W, rows.mT, error, alpha=sign)
        signs = torch.cat([self.signs, self.signs.new_full((Z.size(0), 1), sign)])
        after = replace(self, V=torch.cat([self.V, rows]), signs=signs)
        return after, torch.add(W, self._back(rows.mT @ error), alpha=sign)

    def _forth(self, X: Tensor) -> Tensor:
        """F⁻¹ X."""
        found: Tensor = torch.linalg.solve_triangular(self.root, X, upper=False)
        return found

    def _back(self, X: Tensor) -> Tensor:
        """F⁻ᵀ X."""
        found: Tensor = torch.linalg.solve_triangular(self.root.mT, X, upper=True)
        return found

    def _without(self, X: Tensor) -> Tensor:
        """(I − Vᵀ S V) X."""
        return torch.addmm(X, self.V.mT, self.signs * (self.V @ X), alpha=-1)


def refined(W: Tensor, R: Inverse, G: Tensor, Q: Tensor, gamma: float) -> Tensor | None:
    """(G + γI)⁻¹ Q from weights and an R that are only nearly right.

    W ← W + R (Q − (G + γI) W), a few times: each shrinks the error by the factor by which R is
    off, and G, which is exact, decides where it ends.

    Parameters
    ----------
    W : Tensor [d, C], float64
    R : Inverse
    G : Tensor [d, d], float64
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
    >>> refined(0 * Q, Inverse.of(torch.full((1, 1), 2.00001).double()), G, Q, 1.0)
    tensor([[0.2500]], dtype=torch.float64)
    >>> refined(0 * Q, Inverse.of(torch.full((1, 1), 0.5).double()), G, Q, 1.0) is None
    True
    """
    for _ in range(REFINEMENTS):
        W, norms = corrected(W, R.times, G, Q, gamma)
        if is_settled(norms):
            return W
    return None


def corrected(
    W: Tensor,
    times_R: Callable[[Tensor], Tensor],
    G: Tensor,
    Q: Tensor,
    gamma: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """One step of `refined`, and what `is_settled` tells from whether it was enough.

    Parameters
    ----------
    W : Tensor [d, C], float64
    times_R : callable
        Gives R X.
    G : Tensor [d, d], float64
    Q : Tensor [d, C], float64
    gamma : float or Tensor []

    Returns
    -------
    W : Tensor [d, C]
    norms : Tensor [4]

    Examples
    --------
    >>> import torch
    >>> one = torch.ones(1, 1).double()
    >>> corrected(0 * one, lambda X: X / 4, 3 * one, one, 1.0)[0]
    tensor([[0.2500]], dtype=torch.float64)
    """
    residual = torch.addmm(Q, G, W, alpha=-1).sub_(W * gamma)
    step = times_R(residual)
    W = W + step
    # all four at once: on a GPU it is the number of calls that counts here
    four = torch.stack([step, W, residual, Q])
    return W, torch.linalg.vector_norm(four, torch.inf, (1, 2))


def is_settled(norms: Tensor) -> bool:
    """Whether weights are right to rounding.

    Parameters
    ----------
    norms : Tensor [4]
        The largest entries of the last step, of W, of the residual before that step and of Q.

    Returns
    -------
    bool

    Examples
    --------
    >>> import torch
    >>> is_settled(torch.tensor([1e-12, 1.0, 1e-9, 1.0])), is_settled(torch.full((4,), torch.nan))
    (True, False)
    """
    last, size, rest, target = norms.tolist()
    # what is still wrong is a small part of the last step; NaN is never small enough
    return bool(last <= CONVERGED * size and rest <= CLOSE * target)
