"""γ, and whatever else must be decided, from sums alone.

Each node belongs to one of two halves, by its id. Weights from the sums of one half are held
against the sums of the other, and the other way round. Where nodes are few, one way of halving them
may mislead, so several are kept, each with sums of its own.

What counts is the order of a node's scores, so scores are compared with the true classes by their
agreement, which neither a common shift of a node's scores nor a common scale changes. (Squared
error is not like that: it punishes weights for being small, and in trials on Cora, Citeseer and
PubMed, with few nodes a session, it chose γ so small that AP was 1 to 2 points lower.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.heads import balanced_system, solve
from algnn.analytic.statistics import Statistics

DECADES = tuple(10.0**k for k in range(-6, 0))
BETWEEN = 10.0**0.5
MANY = 4
FEW_SUMS = 1024
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
    (4, 4, 1)
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
    # the finaliser of splitmix64: neighbouring ids land anywhere
    with np.errstate(over="ignore"):
        bits = nodes.numpy().astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    coin: npt.NDArray[np.bool_] = (bits >> np.uint64(63 - halving) & np.uint64(1)).astype(bool)
    return torch.from_numpy(coin)


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
        Of `DECADES`, or half a decade beside one. The largest where nothing tells them apart.
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
    >>> 0 < gamma <= 10 ** 0.5, agreement > 0.9
    (True, True)
    """
    directions: list[_Direction] = []
    trace = float(everything.G.trace())
    for second in seconds:
        first = everything.minus(second)
        # a half without nodes, or without features, says nothing
        if min(float(first.G.trace()), float(second.G.trace())) > NOTHING * trace:
            directions += [_Direction(first, second), _Direction(second, first)]

    def agreement(gamma: float) -> float:
        found = [d.agreement(gamma) for d in directions]
        return round(float(torch.stack(found).mean()), 9) if found else 0.0

    scores = {gamma: agreement(gamma) for gamma in DECADES}
    best = max(DECADES, key=lambda gamma: (scores[gamma], gamma))
    for gamma in (best / BETWEEN, best * BETWEEN):
        scores[gamma] = agreement(gamma)
    chosen = max(scores, key=lambda gamma: (scores[gamma], gamma))
    return chosen, scores[chosen]


class _Direction:
    """Weights of one half, held against the sums of the other."""

    def __init__(self, fitted: Statistics, other: Statistics) -> None:
        self.matrix, self.means = balanced_system(fitted)
        self.scale = float(self.matrix.trace())
        # a class of one node is in one half only, and tells nothing about the other
        _, ours, theirs = np.intersect1d(fitted.classes, other.classes, return_indices=True)
        self.columns = torch.from_numpy(ours).to(self.means.device)
        self.spread, truth = balanced_system(other)
        self.spread_classes = truth.size(1)
        self.truth = truth[:, torch.from_numpy(theirs).to(truth.device)]

    def agreement(self, gamma: float) -> Tensor:
        """The squared cosine between scores and truth, over the other half's nodes."""
        W = solve(self.matrix.clone(), self.means, gamma * self.scale)
        W = W - W.mean(dim=1, keepdim=True)
        hit = (W[:, self.columns] * self.truth).sum()
        size = (W * (self.spread @ W)).sum()
        # a perfect classifier's centred scores: 1 − 1/C for the true class, −1/C for the others
        ideal = self.spread_classes * (1 - 1 / max(2, W.size(1)))
        return (hit * hit.abs() / (size * ideal)).nan_to_num(0.0)
