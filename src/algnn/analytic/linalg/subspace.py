"""The few directions that a few nodes span, so that wide features cost no more than they must.

While fewer nodes were learned than features are wide, all their features lie in a subspace, and so
do the weights of every head. Sums over coordinates in an orthonormal basis of it hold the same as
sums over the features themselves, in r² numbers instead of d².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algnn.analytic.statistics import Statistics
from algnn.checks import onto

# Beyond this share of d, the basis and the sums together are no smaller than the sums alone:
# r d + r² / 2 reaches d² / 2 at (√2 − 1) d.
SHARE = 0.41
# A direction counts as new if it sticks out of the span by more than rounding does.
ROUNDING = 1e-13
HALF_DIGITS = 1e-12
ALL_DIGITS = 1e-6
LOOKS = 3
STEPS = 3
# The same for sums from which nodes were taken: what is below this in G, relative to what G was,
# and below ROUNDING in all other sums, is what subtracting has left over.
LEFT_OVER = 1e-14


@dataclass(frozen=True)
class Span:
    """A subspace of the features' space, or all of it.

    Attributes
    ----------
    width : int
        d.
    basis : Tensor [r, d], float64, or None
        Orthonormal rows; None for the whole space.

    Examples
    --------
    >>> import torch
    >>> Z = torch.tensor([[3.0, 0.0, 4.0, 0.0, 0.0]]).double()
    >>> span = Span.empty(5).extended(Z)
    >>> span.coordinates(Z).abs(), span.lift(torch.ones(1, 1).double()).mT.abs()
    (tensor([[5.]], dtype=torch.float64), tensor([[0.6000, 0.0000, 0.8000, 0.0000, 0.0000]], ...))
    """

    width: int
    basis: Tensor | None

    @classmethod
    def empty(cls, width: int, device: torch.device | str = "cpu") -> Span:
        """The subspace of nothing.

        Parameters
        ----------
        width : int
        device : device

        Returns
        -------
        Span
        """
        return cls(width, torch.zeros(0, width, dtype=torch.float64, device=device))

    @property
    def rank(self) -> int:
        """How many coordinates there are: r, or d."""
        return self.width if self.basis is None else self.basis.size(0)

    def has_room(self, nodes: int) -> bool:
        """Whether it stays a subspace worth having.

        Parameters
        ----------
        nodes : int
            How many will have been learned. Not the rank, which may be less: nodes are counted the
            same whatever sessions they come in.

        Returns
        -------
        bool
        """
        return self.basis is not None and nodes <= SHARE * self.width

    def extended(self, Z: Tensor) -> Span:
        """With whatever directions of some features it lacks; `basis` goes first, as it was.

        Parameters
        ----------
        Z : Tensor [n, d], float64

        Returns
        -------
        Span
        """
        if self.basis is None:
            return self
        V, least = self.basis, None
        # a Gram matrix shows directions down to half the digits, so what it hides is looked for
        # again once these are out of the way; in float64 a second look sees all there is
        for _ in range(LOOKS):
            rest = _without(_without(Z, V), V)
            # what must be decided is decided on the CPU, for which one copy is waited for
            gram = torch.cat([rest @ rest.mT, Z.square().sum(1, keepdim=True)], dim=1).cpu()
            sizes, mix = torch.linalg.eigh(gram[:, :-1])
            least = ROUNDING**2 * float(gram[:, -1].sum()) if least is None else least
            found = sizes > max(least, float(sizes[-1:].sum()) * HALF_DIGITS)
            if not bool(found.any()):
                break
            turn = onto((mix[:, found] / sizes[found].sqrt()).mT, Z.device)
            V = torch.cat([V, _orthonormal(_without(turn @ rest, V))])
            if bool((sizes > float(sizes[-1]) * ALL_DIGITS).all()):
                break  # as many directions as rows, and none that others could have hidden
        return Span(self.width, V)

    def narrowed(
        self, sums: Statistics, halves: Statistics, before: Statistics
    ) -> tuple[Span, Tensor]:
        """The directions that sums still need once nodes were taken from them, and no others.

        A basis of the nodes as they were would go on showing the directions of those that are gone.
        So it is made anew from what is left: eigenvectors of G, and whatever else the other sums
        hold, to which a direction too weak to be seen in G may still matter.

        Parameters
        ----------
        sums : Statistics
            Of all nodes, over coordinates in this span.
        halves : Statistics, side by side
            Of halves of them.
        before : Statistics
            Those of all nodes before some were taken away, which say what rounding is.

        Returns
        -------
        span : Span
        turn : Tensor [r, k]
            For `Statistics.turned`: what takes old coordinates to new ones.

        Examples
        --------
        >>> import numpy as np, torch
        >>> Z, labels = torch.eye(2, 5).double(), np.array([0, 1])
        >>> span = Span.empty(5).extended(Z)
        >>> both = Statistics.empty(2).plus([span.coordinates(Z)], labels)
        >>> second = Statistics.empty(2).plus([span.coordinates(Z[1:])], labels[1:])
        >>> span.narrowed(both.minus(second), Statistics.empty(2, ways=0), both)[0].basis.abs()
        tensor([[1., 0., 0., 0., 0.]], dtype=torch.float64)
        """
        if self.basis is None:
            raise ValueError("the whole space has no basis to narrow")
        trace, size = float(before.G.trace()), float(torch.linalg.vector_norm(before.Q))
        values, vectors = _eigh(sums.G)
        seen = values > LEFT_OVER * trace
        turn, unseen = vectors[:, seen].flip(1), vectors[:, ~seen]
        held = [sums.Q / (size or 1.0)]
        held += [*(halves.Q / (size or 1.0)), *(halves.G @ turn / (trace or 1.0))]
        mix, sizes, _ = torch.linalg.svd(
            (unseen.mT @ torch.cat(held, dim=1)).cpu(), full_matrices=False
        )
        more = mix[:, sizes > ROUNDING].to(turn.device)
        turn = torch.cat([turn, unseen @ more], dim=1)
        # at most as many as there are nodes: the strongest come first, and what is beyond is noise
        turn = turn[:, : int(sums.n.sum())]
        return Span(self.width, _orthonormal(turn.mT @ self.basis)), turn

    def whole(self, statistics: Statistics) -> Statistics:
        """Sums over coordinates as the sums over features that they stand for.

        Parameters
        ----------
        statistics : Statistics
            Of coordinates in this span.

        Returns
        -------
        Statistics
        """
        if self.basis is None:
            return statistics
        G = self.basis.mT @ statistics.G @ self.basis
        return Statistics(G, self.lift(statistics.Q), statistics.n, statistics.classes)

    def coordinates(self, Z: Tensor) -> Tensor:
        """Features as coordinates in the basis.

        Parameters
        ----------
        Z : Tensor [n, d], float64

        Returns
        -------
        Tensor [n, r]
        """
        return Z if self.basis is None else Z @ self.basis.mT

    def lift(self, weights: Tensor) -> Tensor:
        """Weights for coordinates as weights for features.

        Parameters
        ----------
        weights : Tensor [r, C]

        Returns
        -------
        Tensor [d, C]
        """
        return weights if self.basis is None else self.basis.mT @ weights


def _without(Z: Tensor, V: Tensor) -> Tensor:
    """What of Z is orthogonal to the rows of V."""
    return torch.addmm(Z, Z @ V.mT, V, alpha=-1)


def _orthonormal(rows: Tensor) -> Tensor:
    """Rows that are nearly orthonormal, made so: each step squares what they are off by."""
    for _ in range(STEPS):
        rows = torch.addmm(rows, rows @ rows.mT, rows, beta=1.5, alpha=-0.5)
    return rows


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and vectors of a small matrix, by the CPU: it is no work for a GPU."""
    values, vectors = torch.linalg.eigh(matrix.cpu())
    return values.to(matrix.device), vectors.to(matrix.device)
