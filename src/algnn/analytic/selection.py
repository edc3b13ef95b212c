"""γ, and the choice between encoders, from sums alone.

A hash bit of its id puts each node in one of two halves. Weights from the sums of one half are held
against the sums of the other, and the other way round. Where nodes are few, one way of halving them
may mislead, so several are kept, each with sums of its own.

What counts is the order of a node's scores, so scores are compared with the true classes by their
agreement, which neither a common shift of a node's scores nor a common scale changes. (Squared
error is not like that: it punishes weights for being small, and in trials on Cora, Citeseer and
PubMed, with few nodes a session, it chose too small a γ.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.classes import CodedLabels
from algnn.analytic.statistics import Statistics
from algnn.checks import onto

# γ is one of these: half decades, relative to the trace of B
GAMMAS: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-14, 0))
# The places in GAMMAS from which the search starts: all over the grid, or around its middle where
# sums are large and nodes many, since there is then one maximum only.
COARSE_START = (1, 4, 7, 10, 13)
MIDDLE_START = (4, 5, 6, 7)
SMOOTH_WIDTH = 512
# The ways of halving that are kept while sums have at most so many coordinates: they are cheap.
MOST_HALVINGS = 8
SMALL_SUMS = 256
# From so many nodes on, weights of one half against the other tell as much as both directions do.
ONE_DIRECTION_NODES = 512
# Relative size below which a squared length is rounding, and a count next to nothing.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Choice:
    """A γ of `GAMMAS`, and how well the halves agree at it (at most 1, to nine digits)."""

    gamma: float
    agreement: float


def halvings(nodes: int, width: int) -> int:
    """The number of ways in which nodes are halved: several, as long as the sums are small.

    `nodes` counts all nodes learned, this session's included, so that the answer does not depend on
    how they were divided into sessions.
    """
    return MOST_HALVINGS if min(nodes, width) <= SMALL_SUMS else 1


def half_masks(nodes: Tensor, seed: int, ways: int) -> npt.NDArray[np.bool_]:
    """The second half of some nodes, as a mask [ways, n]: one hash bit of (id, seed) for each way.

    It depends on nothing else, so sessions may come in any order and batches.
    """
    bits = np.arange(63, 63 - ways, -1, dtype=np.uint64)[:, None]
    masks: npt.NDArray[np.bool_] = (_hashes(nodes, seed) >> bits & np.uint64(1)).astype(bool)
    return masks


def some_of(nodes: Tensor, seed: int, most: int) -> Tensor:
    """Ascending places of at most `most` nodes, the same nodes in whatever order they come."""
    if nodes.numel() <= most:
        return torch.arange(nodes.numel())
    # by hash bits that no halving uses
    drawn = np.argsort(_hashes(nodes, seed) << np.uint64(MOST_HALVINGS), kind="stable")[:most]
    return torch.from_numpy(np.sort(drawn))


def choose_gamma(everything: Statistics, half_sums: Statistics) -> Choice:
    """The γ of the balanced head whose weights from either half agree best with the other half.

    `half_sums` [k] are those of the second half, for each way of halving. Not every γ is tried: the
    best of a few is the start of a search uphill. Of several equally good ones the largest is
    taken.
    """
    nodes, width = int(everything.n.sum()), everything.G.size(0)
    # with few nodes for so many coordinates there may be more than one maximum
    smooth = width > SMOOTH_WIDTH and nodes >= 2 * width
    whole = Statistics(
        everything.G[None], everything.Q[None], everything.n[None], half_sums.classes
    )
    halves = _Halves(whole, half_sums, both=nodes <= ONE_DIRECTION_NODES)
    (found,) = _search(halves, MIDDLE_START if smooth else COARSE_START)
    return found


def agreements(
    kernels: Tensor, nodes: Tensor, labels: CodedLabels, seed: int, ways: int
) -> list[float]:
    """How well halves of some nodes agree on their classes, by each of b encoders at its best γ.

    `kernels` [b, n, n] are Z Zᵀ of each, which is overwritten: however wide features are, only
    inner products of rows count.
    """
    # rows with these inner products, as few numbers as there are nodes; equal rows need a little
    # room to be told apart
    room = 1e-9 * kernels.diagonal(dim1=1, dim2=2).mean(1, keepdim=True)
    kernels.diagonal(dim1=1, dim2=2).add_(torch.where(room > 0, room, 1.0))
    rows, failed = torch.linalg.cholesky_ex(kernels)
    # rows of zeros agree with nothing
    rows = rows.masked_fill(failed[:, None, None] != 0, 0.0)
    count, masks = rows.size(0), half_masks(nodes, seed, ways)
    Y = np.eye(labels.classes.size)[labels.codes]
    truth, chosen = (onto(torch.from_numpy(a), rows.device) for a in (Y, masks.astype(np.float64)))
    theirs = rows.mT[:, None] * chosen[:, None]
    n = torch.from_numpy(Y.sum(0)).expand(count, -1)
    whole = Statistics(rows.mT @ rows, rows.mT @ truth, n, labels.classes)
    half_sums = Statistics(
        (theirs @ rows[:, None]).flatten(0, 1),
        (theirs @ truth).flatten(0, 1),
        torch.from_numpy(masks @ Y).repeat(count, 1),
        labels.classes,
    )
    halves = _Halves(whole, half_sums, both=nodes.numel() <= ONE_DIRECTION_NODES)
    return [found.agreement for found in _search(halves, COARSE_START)]


def _search(halves: _Halves, start: Sequence[int]) -> list[Choice]:
    """The best γ of each encoder: some places of `GAMMAS`, and from the best of these uphill."""
    tried = {place: halves.agreement(GAMMAS[place]) for place in start}
    found = []
    for of in range(halves.encoders):
        visited = set(start)
        best = max(visited, key=lambda place: (tried[place][of], place))
        while True:
            beside = [place for place in (best - 1, best + 1) if 0 <= place < len(GAMMAS)]
            for place in beside:
                if place not in tried:
                    tried[place] = halves.agreement(GAMMAS[place])
            visited.update(beside)
            higher = max(beside, key=lambda place: (tried[place][of], place))
            if not tried[higher][of] > tried[best][of]:
                break
            best = higher
        best = max(visited, key=lambda place: (tried[place][of], place))
        found.append(Choice(GAMMAS[best], tried[best][of]))
    return found


class _Halves:
    """The balanced systems of both halves, for b encoders and k ways of halving, as one batch.

    `everything` [b] are sums of all nodes, `half_sums` [b k] those of the second half. Each half is
    solved, and held against the other; with both=False only the first half is.
    """

    def __init__(self, everything: Statistics, half_sums: Statistics, *, both: bool) -> None:
        self.encoders, self.sides = everything.G.size(0), 2 if both else 1
        pairs = half_sums.G.size(0)
        each = pairs // self.encoders
        # first halves, then second halves
        G, Q, n = (
            torch.cat([whole.repeat_interleave(each, 0) - second, second])
            for whole, second in (
                (everything.G, half_sums.G),
                (everything.Q, half_sums.Q),
                (everything.n, half_sums.n),
            )
        )
        counts = n.to(torch.float64)
        there = (counts > 0).to(torch.float64)
        nodes, classes = counts.sum(1), there.sum(1)
        per_class = nodes / classes.clamp_min(1)
        invert = onto(there / counts.clamp_min(NEGLIGIBLE), G.device)[:, None]
        weigh = onto(per_class[:, None] - counts, G.device)[:, None]
        # B = (C / N) (G + Σ_c (N / C − n_c) μ_c μ_cᵀ); its factor changes no direction
        means = Q * invert
        matrices = G.baddbmm_(means * weigh, means.mT)
        traces = matrices.diagonal(dim1=1, dim2=2).sum(1)
        # Weights are centred over the classes that their half knows, since of the others it says
        # nothing; what they are solved from may be centred as well.
        share = onto(1 / classes.clamp_min(1), G.device)[:, None, None]
        targets = (means - means.sum(-1, keepdim=True) * share) * onto(there, G.device)[:, None]
        fitted = slice(0, self.sides * pairs)
        self.matrices, self.traces, self.targets = matrices[fitted], traces[fitted], targets[fitted]

        def other(t: Tensor) -> Tensor:
            return torch.cat([t[pairs:], t[:pairs]]) if both else t[pairs:]

        self.spread, self.truth, self.scale = other(matrices), other(means), other(traces)
        # a perfect classifier's centred scores: 1 − 1/C for the true class, −1/C for the others
        perfect = other(classes) * (1 - 1 / classes[fitted].clamp_min(2))
        self.perfect = onto(perfect / other(per_class).clamp_min(NEGLIGIBLE), G.device)
        # where one half has no nodes, neither says anything, nor counts
        told = ((nodes[:pairs] > 0) & (nodes[pairs:] > 0)).reshape(self.encoders, -1).sum(1)
        self.directions = self.sides * told.clamp_min(1)

    def agreement(self, gamma: float) -> list[float]:
        """The mean squared cosine between scores and truth over the other half, per encoder."""
        matrices = self.matrices.clone()
        matrices.diagonal(dim1=1, dim2=2).add_((gamma * self.traces)[:, None])
        factors, failed = torch.linalg.cholesky_ex(matrices)
        W = torch.cholesky_solve(self.targets, factors)
        hit = (W * self.truth).sum((1, 2))
        size = (W * (self.spread @ W)).sum((1, 2))
        # Scores that are nothing but rounding agree with nothing: halves that share no direction,
        # and what may be left of a half that has lost all its nodes.
        least = NEGLIGIBLE * self.scale * W.square().sum((1, 2))
        fine = (failed == 0) & (size > least) & (self.perfect > 0)
        cosines = torch.where(fine, hit * hit.abs() / (size * self.perfect), 0.0)
        # a direction, an encoder, a way of halving
        means = cosines.view(self.sides, self.encoders, -1).sum((0, 2)).cpu() / self.directions
        return [round(x, 9) for x in means.tolist()]


def _hashes(nodes: Tensor, seed: int) -> npt.NDArray[np.uint64]:
    """64 hash bits of (id, seed): the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        bits = nodes.numpy().astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashed: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return hashed
