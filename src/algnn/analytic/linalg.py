"""Dense linear algebra: systems by Cholesky, and the subspace that a few nodes span.

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
from algnn.errors import InputError
from algnn.progress import tell

# Beyond width / MOST_ROWS_DIVISOR rows an update costs as much as the factorisation it saves.
MOST_ROWS_DIVISOR = 4
# Corrections by the sums, and the largest last correction, relative to the weights, after which
# they count as exact. The residual is bounded as well: an inverse that is far too small makes small
# corrections.
CORRECTIONS = 3
LARGEST_CORRECTION = 1e-9
LARGEST_RESIDUAL = 1e-6
# Beyond this share of d, the basis and the sums together are no smaller than the sums alone:
# r d + r² / 2 reaches d² / 2 at (√2 − 1) d. About there, so many nodes in one session also take as
# long to find their span (3.2 s for 1,000 nodes at d = 3,072, one core) as sums and factors over
# all features do; in several sessions the span is quicker.
LARGEST_SHARE = 0.41
# A direction is new if it sticks out of the span by more than this share of the rows.
NEW_DIRECTION = 1e-13
# What the eigenvalues of a Gram matrix can show beside the largest one (half of the digits), and
# what they show beyond doubt.
VISIBLE = 1e-12
CLEARLY_VISIBLE = 1e-6
GRAM_PASSES = 3
ORTHONORMAL_STEPS = 3
SMALL_STEP = 1e-8  # below this, the square of what rows were off by is rounding
# After a subtraction: what is below this in G, relative to what G was, and below NEW_DIRECTION in
# all other sums, is rounding.
SUBTRACTION_ROUNDING = 1e-14


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


@dataclass(frozen=True)
class UpdatedFactor:
    """R = (G + γI)⁻¹ = L⁻ᵀ (I − VᵀV) L⁻¹: Eq. (Rt_woodbury) applied to a factor.

    L Lᵀ = G + γI as it was factorised; V has a row for each node that was learned since. At a width
    of 2,048 a session of 20 nodes takes 0.05 s on one CPU core in this way, and 0.23 s with a
    factorisation of its own.
    """

    L: Tensor
    V: Tensor

    @classmethod
    def of(cls, G: Tensor, gamma: float) -> UpdatedFactor:
        """Factorise G + γI."""
        return cls(factorise(G.clone(), gamma), G.new_zeros(0, G.size(0)))

    def has_room(self, rows: int) -> bool:
        """Whether taking in so many more rows is cheaper than a new factorisation."""
        return MOST_ROWS_DIVISOR * (self.V.size(0) + rows) <= self.L.size(0)

    def plus(self, Z: Tensor) -> UpdatedFactor:
        """With the rows Z [n, d] in G."""
        half = torch.linalg.solve_triangular(self.L, Z.mT, upper=False)
        seen = self._without(half)
        inner = half.mT @ seen
        inner.diagonal().add_(1)
        # not checked: where it fails, `weights` will not settle
        root, _ = torch.linalg.cholesky_ex(inner)
        rows = torch.linalg.solve_triangular(root, seen.mT, upper=False)
        return UpdatedFactor(self.L, torch.cat([self.V, rows]))

    def times(self, X: Tensor) -> Tensor:
        """R X."""
        half = self._without(torch.linalg.solve_triangular(self.L, X, upper=False))
        found: Tensor = torch.linalg.solve_triangular(self.L.mT, half, upper=True)
        return found

    def weights(self, G: Tensor, Q: Tensor, gamma: float) -> Tensor | None:
        """(G + γI)⁻¹ Q, corrected by the sums; None where R has drifted too far from them."""
        W = self.times(Q)
        for _ in range(CORRECTIONS):
            residual = torch.addmm(Q, G, W, alpha=-1).sub_(W, alpha=gamma)
            step = self.times(residual)
            W = W + step
            largest = [t.abs().amax() for t in (step, W, residual, Q)]
            last, size, rest, target = torch.stack(largest).tolist()
            # NaN is never small enough
            if last <= LARGEST_CORRECTION * size and rest <= LARGEST_RESIDUAL * target:
                return W
        return None

    def _without(self, X: Tensor) -> Tensor:
        """(I − VᵀV) X."""
        return torch.addmm(X, self.V.mT, self.V @ X, alpha=-1)


@dataclass(frozen=True)
class Span:
    """A subspace of the feature space, or all of it."""

    width: int  # d
    basis: Tensor | None  # [r, d] with orthonormal rows in float64; None for the whole space

    @classmethod
    def empty(cls, width: int, device: torch.device | str = "cpu") -> Span:
        """The subspace of rank 0."""
        return cls(width, torch.zeros(0, width, dtype=torch.float64, device=device))

    @property
    def rank(self) -> int:
        """The number of coordinates: r, or d."""
        return self.width if self.basis is None else self.basis.size(0)

    def has_room(self, nodes: int) -> bool:
        """Whether it saves memory once so many nodes were learned."""
        # nodes, not the rank: the answer must not depend on how nodes were divided into sessions
        return self.basis is not None and nodes <= LARGEST_SHARE * self.width

    def extended(self, Z: Tensor) -> Span:
        """With the directions of Z [n, d] that it lacks, after those that it has."""
        if self.basis is None:
            return self
        tell("finding directions", 1, 1)
        V, least = self.basis, None
        # a Gram matrix shows directions down to half the digits, so what it hides is looked for
        # again once these are out of the way; in float64 a second pass sees all there is
        for _ in range(GRAM_PASSES):
            rest = _without(_without(Z, V), V)
            # decided on the CPU, for which one copy is waited for
            gram = torch.cat([rest @ rest.mT, Z.square().sum(1, keepdim=True)], dim=1).cpu()
            sizes, mix = torch.linalg.eigh(gram[:, :-1])
            least = NEW_DIRECTION**2 * float(gram[:, -1].sum()) if least is None else least
            found = sizes > max(least, float(sizes[-1:].sum()) * VISIBLE)
            if not bool(found.any()):
                break
            turn = onto((mix[:, found] / sizes[found].sqrt()).mT, Z.device)
            V = torch.cat([V, _orthonormal(_without(turn @ rest, V))])
            if bool((sizes > float(sizes[-1]) * CLEARLY_VISIBLE).all()):
                break  # as many directions as rows, and none that others could have hidden
        return Span(self.width, V)

    def narrowed(
        self, sums: Statistics, half_sums: Statistics, before: Statistics
    ) -> tuple[Span, Tensor]:
        """Directions that sums still need without some nodes, and what takes coordinates there."""
        # eigenvectors of G, and what else Q and the half sums hold, beyond the rounding of `before`
        assert self.basis is not None
        trace, size = float(before.G.trace()), float(torch.linalg.vector_norm(before.Q))
        # small matrices, which the CPU decomposes faster than a GPU
        values, vectors = (t.to(sums.G.device) for t in torch.linalg.eigh(sums.G.cpu()))
        seen = values > SUBTRACTION_ROUNDING * trace
        turn, unseen = vectors[:, seen].flip(1), vectors[:, ~seen]
        held = [sums.Q / (size or 1.0)]
        held += [*(half_sums.Q / (size or 1.0)), *(half_sums.G @ turn / (trace or 1.0))]
        rest = (unseen.mT @ torch.cat(held, dim=1)).cpu()
        mix, sizes, _ = torch.linalg.svd(rest, full_matrices=False)
        more = mix[:, sizes > NEW_DIRECTION].to(turn.device)
        turn = torch.cat([turn, unseen @ more], dim=1)
        # at most as many as there are nodes: the strongest come first, and what is beyond is noise
        turn = turn[:, : int(sums.n.sum())]
        return Span(self.width, _orthonormal(turn.mT @ self.basis)), turn

    def whole(self, statistics: Statistics) -> Statistics:
        """Sums over coordinates as the sums over features that they stand for."""
        return statistics if self.basis is None else statistics.turned(self.basis)

    def coordinates(self, Z: Tensor) -> Tensor:
        """Features [n, d] as coordinates [n, r]."""
        return Z if self.basis is None else Z @ self.basis.mT

    def lift(self, weights: Tensor) -> Tensor:
        """Weights [r, C] for coordinates as weights [d, C] for features."""
        return weights if self.basis is None else self.basis.mT @ weights


def _without(Z: Tensor, V: Tensor) -> Tensor:
    """What of Z is orthogonal to the rows of V."""
    return torch.addmm(Z, Z @ V.mT, V, alpha=-1)


def _orthonormal(rows: Tensor) -> Tensor:
    """Rows that are nearly orthonormal, made so: each step squares what they are off by."""
    for _ in range(ORTHONORMAL_STEPS):
        gram = rows @ rows.mT
        rows = torch.addmm(rows, gram, rows, beta=1.5, alpha=-0.5)
        gram.diagonal().sub_(1)
        if float(torch.linalg.vector_norm(gram)) < SMALL_STEP:
            break
    return rows
