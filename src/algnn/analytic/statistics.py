"""G, Q and n: the whole memory of the learner (Eq. (Rt_def) before it is inverted).

All three may have a leading batch dimension, for several sums over the same classes: one for each
way of halving the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor
from torch.nn.functional import pad

from algnn.analytic.classes import GONE, union
from algnn.checks import onto
from algnn.graph.propagate import blocks

# From this many rows on the CPU adds half of the Gram matrix (a symmetric rank-n update), which
# halves the time of a large session.
SYMMETRIC_ROWS = 128
Masks = npt.NDArray[np.bool_]  # [k, n]: the rows of a half, for each way of halving


@dataclass(frozen=True)
class Statistics:
    """Sums over all labelled nodes seen so far, in float64.

    Sums commute, so they are the same for every order of sessions and every batching of one.
    float64 is not a luxury: at the paper's γ of 1e-3 the same recursion in float32 diverges.
    """

    G: Tensor  # [d, d] or [k, d, d]: Σ ZᵀZ, symmetric
    Q: Tensor  # [d, C] or [k, d, C]: Σ ZᵀY, a column per class
    # [C] or [k, C], always on the CPU: nodes per class, int64; float64 where old sessions fade
    n: Tensor
    classes: npt.NDArray[Any]  # [C], sorted

    @classmethod
    def empty(
        cls, width: int, device: torch.device | str = "cpu", ways: int | None = None
    ) -> Statistics:
        """Sums over no nodes; `width` is d, and `ways` k, the batch dimension, if there is one."""
        batch = () if ways is None else (ways,)
        zeros = torch.zeros(width, width, dtype=torch.float64, device=device)
        # the same zeros for all of them, as long as nothing is added
        G, Q = zeros.expand(*batch, -1, -1), zeros.new_zeros(*batch, width, 0)
        return cls(G, Q, torch.zeros(*batch, 0, dtype=torch.int64), np.arange(0))

    def plus(self, features: Iterable[Tensor], labels: npt.NDArray[Any]) -> Statistics:
        """These sums and those of one more session: Z in blocks of rows, and each row's class."""
        no_masks = np.zeros((0, labels.size), dtype=bool)
        no_halves = Statistics.empty(self.G.size(-1), self.G.device, ways=0)
        return with_session(self, no_halves, features, labels, no_masks)[0]

    def minus(self, other: Statistics) -> Statistics:
        """These sums without some of their terms; classes that are left without a node are gone."""
        left = self.less(other)
        return left.on(self.classes[(left.n > 0).numpy()])

    def less(self, other: Statistics) -> Statistics:
        """The same difference over all classes, those without a node included."""
        same = other.on(self.classes)
        n = self.n - same.n
        # of a class without nodes nothing is left, not even rounding
        there = onto(n != 0, self.Q.device)[..., None, :]
        return Statistics(self.G - other.G, (self.Q - same.Q) * there, n, self.classes)

    def merged(self, other: Statistics) -> Statistics:
        """These sums and others of the same features, on any device, of any classes."""
        classes = union(self.classes, other.classes)
        ours, theirs = self.on(classes), other.on(classes)
        G, Q = (t.to(self.G.device) for t in (theirs.G, theirs.Q))
        return Statistics(ours.G + G, ours.Q + Q, ours.n + theirs.n, classes)

    def scaled(self, factor: float) -> Statistics:
        """The same sums, each node counting for less; classes that count for nothing go."""
        n = self.n.to(torch.float64) * factor
        less = Statistics(self.G * factor, self.Q * factor, n, self.classes)
        return less.on(self.classes[(n >= GONE).numpy()]) if n.ndim == 1 else less

    def __getitem__(self, which: int | slice) -> Statistics:
        """One or some of a batch of sums; over all classes, also those of which it has no node."""
        return Statistics(self.G[which], self.Q[which], self.n[which], self.classes)

    def padded(self, width: int) -> Statistics:
        """The same sums over features with more columns, in which these nodes had zeros."""
        more = width - self.G.size(-1)
        if not more:
            return self
        G, Q = pad(self.G, (0, more, 0, more)), pad(self.Q, (0, 0, 0, more))
        return Statistics(G, Q, self.n, self.classes)

    def turned(self, turn: Tensor) -> Statistics:
        """The same sums over other coordinates: `turn` [d, k] takes a row of features to them."""
        G = turn.mT @ self.G @ turn
        # symmetric to the last bit, as sums are
        return Statistics((G + G.mT) / 2, turn.mT @ self.Q, self.n, self.classes)

    def on(self, classes: npt.NDArray[Any]) -> Statistics:
        """The same sums over other classes, sorted: zeros for new ones; G keeps those left out."""
        if classes.size == self.classes.size:
            return self
        _, *places = np.intersect1d(self.classes, classes, return_indices=True)
        ours, theirs = map(torch.from_numpy, places)
        n, Q = (t.new_zeros(*t.shape[:-1], classes.size) for t in (self.n, self.Q))
        n[..., theirs] = self.n[..., ours]
        Q[..., theirs.to(Q.device)] = self.Q[..., ours.to(Q.device)]
        return Statistics(self.G, Q, n, classes)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds: the lower triangle of G row by row, Q, n."""
        rows = [row[: place + 1] for place, row in enumerate(self.G)]
        return {"G": torch.cat([self.G.new_zeros(0), *rows]), "Q": self.Q, "n": self.n}

    @classmethod
    def from_tensors(cls, G: Tensor, Q: Tensor, n: Tensor, classes: npt.NDArray[Any]) -> Statistics:
        """The reverse of `tensors`: G is the triangle [d (d + 1) / 2]."""
        full = G.new_zeros(Q.size(0), Q.size(0))
        for place, row in enumerate(torch.split(G, list(range(1, Q.size(0) + 1)))):
            full[place, : place + 1] = row
        _mirror(full)
        return cls(full, Q, n.cpu(), classes)


def with_session(
    sums: Statistics,
    half_sums: Statistics,
    features: Iterable[Tensor],
    labels: npt.NDArray[Any],
    half_masks: Masks,
) -> tuple[Statistics, Statistics]:
    """Both sums with one more session: Z in blocks of rows, and the rows [k, n] of each half."""
    classes = union(sums.classes, np.unique(labels))
    codes = np.searchsorted(classes, labels)
    sums, half_sums = _copy(sums.on(classes)), _copy(half_sums.on(classes))
    every = [sums, *(half_sums[way] for way in range(len(half_masks)))]
    everyone = np.ones(codes.size, dtype=bool)
    masks, apart = [everyone, *half_masks], len(half_masks) == 1
    if apart:
        # both halves are added up apart and then joined: no row is multiplied twice
        masks[0] = ~half_masks[0]
        sums.G.sub_(every[1].G)
        sums.Q.sub_(every[1].Q)
    device, start = sums.G.device, 0
    columns = torch.arange(classes.size, device=device)
    for given in features:
        for part in blocks(given.size(0), 8 * sums.G.size(0), device):
            Z = given[part].to(torch.float64)
            rows = slice(start + part.start, start + part.stop)
            # one-hot products rather than index_add: the same sum in the same order every time
            Y = (onto(torch.from_numpy(codes[rows]), device)[:, None] == columns).to(torch.float64)
            for one, mask in zip(every, masks, strict=True):
                chosen = onto(torch.from_numpy(mask[rows].nonzero()[0]), device)
                _add(one, Z[chosen], Y[chosen])
        start += given.size(0)
    if apart:
        sums.G.add_(every[1].G)
        sums.Q.add_(every[1].Q)
    for one, mask in zip(every, [everyone, *half_masks], strict=True):
        # symmetric to the last bit: a checkpoint keeps one triangle
        _mirror(one.G)
        one.n.add_(torch.from_numpy(np.bincount(codes[mask], minlength=classes.size)))
    return sums, half_sums


def _copy(sums: Statistics) -> Statistics:
    """The same sums in memory of their own."""
    # contiguous, also where a batch of zeros was one matrix expanded
    G, Q, n = (t.clone(memory_format=torch.contiguous_format) for t in (sums.G, sums.Q, sums.n))
    return Statistics(G, Q, n, sums.classes)


def _add(sums: Statistics, Z: Tensor, Y: Tensor) -> None:
    """Q += ZᵀY and G += ZᵀZ, of G the lower triangle at least."""
    sums.Q.addmm_(Z.mT, Y)
    if sums.G.is_cpu and Z.size(0) >= SYMMETRIC_ROWS and Z.size(1):
        # Seen in Fortran's order G is its own transpose, so its "upper" triangle is our lower one.
        dsyrk(1.0, Z.numpy().T, beta=1.0, c=sums.G.numpy().T, overwrite_c=True, lower=False)
    else:
        sums.G.addmm_(Z.mT, Z)


def _mirror(G: Tensor) -> None:
    """Copy the lower triangle over the upper one."""
    for start in range(0, G.size(0), 512):
        rows = slice(start, start + 512)
        corner = G[rows, rows]
        corner.copy_(corner.tril() + corner.tril(-1).mT)
        G[:start, rows] = G[rows, :start].mT
