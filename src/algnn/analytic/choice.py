"""γ, and whatever else must be decided, from sums alone.

Each node belongs to one of two halves, by its id. Weights from the sums of one half are held
against the sums of the other, and the other way round. Where nodes are few, one way of halving them
may mislead, so several are kept, each with sums of its own.

What counts is the order of a node's scores, so scores are compared with the true classes by their
agreement, which neither a common shift of a node's scores nor a common scale changes. (Squared
error is not like that: it punishes weights for being small, and in trials on Cora, Citeseer and
PubMed, with few nodes a session, it chose too small a γ.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.statistics import Statistics

# γ is one of these: half decades, of the trace of B
GAMMAS: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-14, 0))
# where the best one is looked for first
AROUND = (4, 5, 6)
COARSE = (1, 4, 7, 10, 13)
MANY = 8
# sums of at most so many coordinates are cheap: nodes are halved in several ways, and of twice as
# many every γ is tried
FEW_SUMS = 256
# from so many nodes on, weights of one half against the other tell as much as both ways do
CROWD = 512
NOTHING = 1e-12


def halvings(nodes: int, width: int) -> int:
    """In how many ways nodes are halved: in several, as long as the sums for it are small.

    Parameters
    ----------
    nodes : int
        How many were learned, this session's included: a function of them all, so that it does not
        matter how they were divided into sessions.
    width : int
        d.

    Returns
    -------
    int

    Examples
    --------
    >>> halvings(140, 1433), halvings(50_000, 64), halvings(50_000, 3000)
    (8, 8, 1)
    """
    return MANY if min(nodes, width) <= FEW_SUMS else 1


def in_second_half(nodes: Tensor, seed: int, halving: int = 0) -> Tensor:
    """Which of some nodes belong to the second half: a coin that each node carries with it.

    It depends on nothing but the id and the seed, so sessions may come in any order and batches.

    Parameters
    ----------
    nodes : Tensor [n], int64
    seed : int
    halving : int
        Which of the ways of halving, below `MANY`.

    Returns
    -------
    Tensor [n], bool

    Examples
    --------
    >>> halves = in_second_half(torch.arange(1000), seed=0)
    >>> 450 < int(halves.sum()) < 550
    True
    """
    bits = _bits(nodes, seed)
    coin: npt.NDArray[np.bool_] = (bits >> np.uint64(63 - halving) & np.uint64(1)).astype(bool)
    return torch.from_numpy(coin)


def some_of(nodes: Tensor, seed: int, most: int) -> Tensor:
    """The places of some nodes, at most so many, that are the same however nodes are ordered.

    Parameters
    ----------
    nodes : Tensor [n], int64
    seed, most : int

    Returns
    -------
    Tensor [at most `most`], int64
        Ascending.

    Examples
    --------
    >>> some_of(torch.tensor([3, 1, 4, 1, 5]), seed=0, most=5)
    tensor([0, 1, 2, 3, 4])
    >>> some_of(torch.arange(100), seed=0, most=3).shape
    torch.Size([3])
    """
    if nodes.numel() <= most:
        return torch.arange(nodes.numel())
    # by coins that no halving tosses
    drawn = np.argsort(_bits(nodes, seed) << np.uint64(MANY), kind="stable")[:most]
    return torch.from_numpy(np.sort(drawn))


def choose_gamma(everything: Statistics, seconds: Sequence[Statistics]) -> tuple[float, float]:
    """The γ of the balanced head whose weights from either half agree best with the other half.

    Parameters
    ----------
    everything : Statistics
        Of all nodes.
    seconds : sequence of Statistics
        Of those in the second half, for each way of halving.

    Returns
    -------
    gamma : float
        Of `GAMMAS`. The largest where nothing tells them apart. Where sums are large, not all
        of them are tried: the best one is looked for uphill.
    agreement : float
        At most 1: how well the halves agree at this γ, to nine digits, since beyond them rounding
        would decide; 0 where there is nothing to compare.

    Examples
    --------
    >>> import numpy as np
    >>> Z = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 1.0]]).double()
    >>> labels = np.array([0, 0, 1, 1])
    >>> every = Statistics.empty(2).plus([Z], labels)
    >>> second = Statistics.empty(2).plus([Z[1::2]], labels[1::2])
    >>> gamma, agreement = choose_gamma(every, [second])
    >>> gamma in GAMMAS, agreement > 0.9
    (True, True)
    """
    directions = _Directions(everything, seconds)
    if not directions.count:
        return GAMMAS[-1], 0.0
    if everything.G.size(0) <= 2 * FEW_SUMS:
        scores = dict(zip(GAMMAS, directions.agreements(GAMMAS), strict=True))
    else:
        # with few nodes for so many coordinates there may be more than one hill
        crowded = int(everything.n.sum()) >= 2 * everything.G.size(0)
        scores = _searched(directions, AROUND if crowded else COARSE)
    chosen = max(scores, key=lambda gamma: (scores[gamma], gamma))
    return chosen, scores[chosen]


def agreement(Z: Tensor, nodes: Tensor, labels: npt.NDArray[Any], seed: int) -> float:
    """How well halves of some nodes agree on their classes, by these features.

    Parameters
    ----------
    Z : Tensor [n, d], float64
        However wide: only inner products of rows count.
    nodes : Tensor [n], int64
        Their ids, which say who is in which half.
    labels : array [n]
    seed : int

    Returns
    -------
    float
        Of `choose_gamma`, at the best γ.

    Examples
    --------
    >>> labels = np.arange(40) % 2
    >>> good, bad = torch.eye(2).double()[labels], torch.ones(40, 2).double()
    >>> agreement(good, torch.arange(40), labels, 0) > agreement(bad, torch.arange(40), labels, 0)
    True
    """
    kernel = Z @ Z.mT
    # rows with these inner products, as few numbers as there are nodes; twins need a little room
    kernel.diagonal().add_(1e-9 * float(kernel.diagonal().mean()) or 1.0)
    rows = torch.linalg.cholesky(kernel)
    nothing = Statistics.empty(rows.size(1), rows.device)
    seconds = []
    for halving in range(halvings(nodes.numel(), Z.size(1))):
        chosen = in_second_half(nodes, seed, halving)
        seconds.append(nothing.plus([rows[chosen.to(rows.device)]], labels[chosen.numpy()]))
    return choose_gamma(nothing.plus([rows], labels), seconds)[1]


def _searched(directions: _Directions, first: Sequence[int]) -> dict[float, float]:
    """Agreements of a few γ: at some places, and from the best of these on uphill."""
    # together, since a GPU tries three about as fast as one
    started = [GAMMAS[place] for place in first]
    scores = dict(zip(started, directions.agreements(started), strict=True))

    def at(place: int) -> float:
        if not 0 <= place < len(GAMMAS):
            return -1.0
        gamma = GAMMAS[place]
        if gamma not in scores:
            scores[gamma] = directions.agreements([gamma])[0]
        return scores[gamma]

    place = max(first, key=lambda place: (at(place), place))
    while True:
        beside = max(place - 1, place + 1, key=lambda other: (at(other), other))
        if at(beside) <= at(place):
            return scores
        place = beside


class _Directions:
    """Weights of one half, held against the sums of the other, for all ways at once."""

    def __init__(self, everything: Statistics, seconds: Sequence[Statistics]) -> None:
        G, classes = everything.G, everything.classes
        trace, both = float(G.trace()), int(everything.n.sum()) <= CROWD
        pairs = []
        for second in seconds:
            theirs = second._on(classes)
            first = Statistics(
                G - theirs.G, everything.Q - theirs.Q, everything.n - theirs.n, classes
            )
            # a half without nodes, or without features, says nothing
            if min(float(first.G.trace()), float(theirs.G.trace())) > NOTHING * trace:
                pairs += [(first, theirs), (theirs, first)] if both else [(first, theirs)]
        self.count = len(pairs)
        if not pairs:
            return
        self.matrix, self.means, self.known = _systems([fitted for fitted, _ in pairs])
        self.spread, truth, shown = _systems([other for _, other in pairs])
        # a class of one node is in one half only, and tells nothing about the other
        self.truth = truth * self.known[:, None]
        self.scale = self.matrix.diagonal(dim1=1, dim2=2).sum(1)
        known = self.known.sum(1)
        # a perfect classifier's centred scores: 1 − 1/C for the true class, −1/C for the others
        self.ideal = shown.sum(1) * (1 - 1 / known.clamp_min(2))
        self.share = self.known / known.clamp_min(1)[:, None]

    def agreements(self, gammas: Sequence[float]) -> list[float]:
        """The squared cosine between scores and truth, over the other half's nodes, for each γ."""
        count, d, _ = self.matrix.shape
        penalty = torch.tensor(gammas, device=self.scale.device, dtype=self.scale.dtype)
        penalties = penalty[:, None] * self.scale
        ridged = self.matrix.expand(len(gammas), count, d, d).clone()
        ridged.diagonal(dim1=2, dim2=3).add_(penalties[..., None])
        factor, failed = torch.linalg.cholesky_ex(ridged)
        W = torch.cholesky_solve(self.means.expand(len(gammas), *self.means.shape), factor)
        # centred over the classes that this half knows; of the others it says nothing
        W = (W - (W * self.share[:, None]).sum(-1, keepdim=True)) * self.known[:, None]
        hit = (W * self.truth).sum((-2, -1))
        size = (W * (self.spread @ W)).sum((-2, -1))
        # scores that are nothing but rounding agree with nothing: halves that share no direction
        least = NOTHING * self.spread.diagonal(dim1=1, dim2=2).sum(1) * W.square().sum((-2, -1))
        nothing = (failed > 0) | ~(size > least)
        means = (hit * hit.abs() / (size * self.ideal)).masked_fill(nothing, 0.0).mean(1)
        return [round(value, 9) for value in means.tolist()]


def _systems(halves: Sequence[Statistics]) -> tuple[Tensor, Tensor, Tensor]:
    """B [k, d, d], M [k, d, C] and which classes there are [k, C], of the balanced head."""
    device = halves[0].G.device
    n = torch.stack([half.n for half in halves]).to(device, torch.float64)
    Q = torch.stack([half.Q for half in halves])
    there = (n > 0).to(torch.float64)
    means = Q / n.clamp_min(NOTHING)[:, None] * there[:, None]
    share = (there.sum(1) / n.sum(1))[:, None]
    # Σ_c (1 − C n_c / N) μ_c μ_cᵀ + (C / N) G
    G = torch.stack([half.G for half in halves])
    matrix = torch.baddbmm(G * share[..., None], means * (1 - share * n)[:, None], means.mT)
    return matrix, means, there


def _bits(nodes: Tensor, seed: int) -> npt.NDArray[np.uint64]:
    """64 coins that each node carries with it: the finaliser of splitmix64, of id and seed."""
    with np.errstate(over="ignore"):
        bits = nodes.numpy().astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        coins: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return coins
