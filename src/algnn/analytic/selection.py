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
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.linalg.cholesky import TOGETHER, factors, substituted
from algnn.analytic.classes import distinct, one_hot
from algnn.analytic.statistics import Statistics
from algnn.checks import onto
from algnn.graph.propagate import blocks

# γ is one of these: half decades, of the trace of B
GAMMAS: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-14, 0))
# where the best one is looked for first
AROUND = (4, 5, 6, 7)
COARSE = (1, 4, 7, 10, 13)
MANY = 8
# sums of at most so many coordinates are cheap: nodes are halved in several ways
FEW_SUMS = 256
# from so many nodes on, weights of one half against the other tell as much as both ways do
CROWD = 512
NOTHING = 1e-12


@dataclass(frozen=True)
class Choice:
    """A γ, and how it was found.

    Attributes
    ----------
    gamma : float
        Of `GAMMAS`.
    agreement : float
        At most 1: how well the halves agree at this γ, to nine digits, since beyond them rounding
        would decide; 0 where there is nothing to compare.
    weights : Tensor [d, C] or None
        Of all nodes at this γ, where they are at hand: a GPU has solved for them along with the
        halves.
    """

    gamma: float
    agreement: float
    weights: Tensor | None


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


def second_halves(nodes: Tensor, seed: int, ways: int) -> npt.NDArray[np.bool_]:
    """Which of some nodes belong to the second half: coins that each node carries with it.

    They depend on nothing but the id and the seed, so sessions may come in any order and batches.

    Parameters
    ----------
    nodes : Tensor [n], int64
    seed : int
    ways : int
        In how many ways nodes are halved, at most `MANY`.

    Returns
    -------
    array [ways, n], bool

    Examples
    --------
    >>> halves = second_halves(torch.arange(1000), seed=0, ways=2)
    >>> halves.shape, bool(450 < halves[0].sum() < 550)
    ((2, 1000), True)
    """
    coins = np.arange(63, 63 - ways, -1, dtype=np.uint64)[:, None]
    chosen: npt.NDArray[np.bool_] = (_bits(nodes, seed) >> coins & np.uint64(1)).astype(bool)
    return chosen


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


def choose_gamma(everything: Statistics, seconds: Statistics, guess: float = 0.0) -> Choice:
    """The γ of the balanced head whose weights from either half agree best with the other half.

    Parameters
    ----------
    everything : Statistics
        Of all nodes.
    seconds : Statistics, of the same classes
        Of those in the second half, for each way of halving, side by side.
    guess : float
        A γ that it may well be, such as the last one: it changes nothing but what a GPU solves for
        in advance.

    Returns
    -------
    Choice
        γ is the largest where nothing tells them apart. Not all of them are tried: the best of a
        few is the start, and from there on it goes uphill.

    Examples
    --------
    >>> import numpy as np
    >>> Z = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 1.0]]).double()
    >>> labels = np.array([0, 0, 1, 1])
    >>> every = Statistics.empty(2).plus([Z], labels)
    >>> second = Statistics.empty(2).plus([Z[1::2]], labels[1::2])
    >>> chosen = choose_gamma(every, second.alone())
    >>> chosen.gamma in GAMMAS, chosen.agreement > 0.9
    (True, True)
    """
    nodes, width = int(everything.n.sum()), everything.G.size(0)
    # with few nodes for so many coordinates there may be more than one hill
    crowded = width > TOGETHER and nodes >= 2 * width
    at_once = everything.G.is_cuda and width <= TOGETHER
    own: Sequence[int] = ()
    # a class that has all but faded away is for the head alone to weigh
    if everything.G.is_cuda and float(everything.n.min()) > NOTHING:
        own = [place for place, gamma in enumerate(GAMMAS) if at_once or gamma == guess]
    directions = _Directions(everything.alone(), seconds, both=nodes <= CROWD, own=own)
    (scores,) = _searched(directions, AROUND if crowded else COARSE, at_once)
    place = max(scores, key=lambda place: (scores[place], place))
    return Choice(GAMMAS[place], scores[place], directions.weights.get(place))


def agreements(
    kernels: Tensor, nodes: Tensor, labels: npt.NDArray[Any], seed: int, ways: int
) -> list[float]:
    """How well halves of some nodes agree on their classes, by each of several features.

    Parameters
    ----------
    kernels : Tensor [b, n, n], float64
        Z Zᵀ of each: however wide features are, only inner products of rows count. Overwritten.
    nodes : Tensor [n], int64
        Their ids, which say who is in which half.
    labels : array [n]
    seed : int
    ways : int
        In how many ways nodes are halved.

    Returns
    -------
    list of float
        Of `choose_gamma`, at the best γ of each.

    Examples
    --------
    >>> labels = np.arange(40) % 2
    >>> good, bad = torch.eye(2).double()[labels], torch.ones(40, 2).double()
    >>> kernels = torch.stack([good @ good.mT, bad @ bad.mT])
    >>> found = agreements(kernels, torch.arange(40), labels, seed=0, ways=4)
    >>> found[0] > found[1]
    True
    """
    # rows with these inner products, as few numbers as there are nodes; twins need a little room
    room = 1e-9 * kernels.diagonal(dim1=1, dim2=2).mean(1, keepdim=True)
    kernels.diagonal(dim1=1, dim2=2).add_(torch.where(room > 0, room, 1.0))
    rows, failed = torch.linalg.cholesky_ex(kernels)
    # rows of zeros agree with nothing
    rows = rows.masked_fill(failed[:, None, None] != 0, 0.0)
    classes, _ = distinct(labels)
    Y = one_hot(labels, classes).numpy()
    count, device, chosen = rows.size(0), rows.device, second_halves(nodes, seed, ways)
    halves = onto(torch.from_numpy(chosen), device).to(torch.float64)
    theirs = rows.mT[:, None] * halves[:, None]
    truth = onto(torch.from_numpy(Y), device)
    n = torch.from_numpy(Y.sum(0)).expand(count, -1)
    everything = Statistics(rows.mT @ rows, rows.mT @ truth, n, classes)
    seconds = Statistics(
        (theirs @ rows[:, None]).flatten(0, 1),
        (theirs @ truth).flatten(0, 1),
        torch.from_numpy(chosen @ Y).repeat(count, 1),
        classes,
    )
    directions = _Directions(everything, seconds, both=len(labels) <= CROWD, own=())
    return [max(scores.values()) for scores in _searched(directions, COARSE, rows.is_cuda)]


def _searched(
    directions: _Directions, first: Sequence[int], at_once: bool
) -> list[dict[int, float]]:
    """Agreements at a few places of `GAMMAS`: some, and from the best of these on uphill.

    A GPU tries all of them at once sooner than one after the other; the way uphill is the same.
    """
    tried = directions.at(range(len(GAMMAS)) if at_once else first)
    found = []
    for of in range(directions.count):
        place, visited = max(first, key=lambda place: (tried[place][of], place)), {*first}
        while True:
            beside = [p for p in (place - 1, place + 1) if 0 <= p < len(GAMMAS)]
            # both together, where they are new
            tried |= directions.at([p for p in beside if p not in tried])
            visited.update(beside)
            higher = max(beside, key=lambda place: (tried[place][of], place))
            if not tried[higher][of] > tried[place][of]:
                break
            place = higher
        found.append({place: tried[place][of] for place in visited})
    return found


class _Directions:
    """Weights of one half, held against the sums of the other, for all ways at once.

    Parameters
    ----------
    everything : Statistics [b]
        Sums of all nodes, for each of b features.
    seconds : Statistics [b k]
        Sums of the second half, for each of them and each way of halving.
    both : bool
        Whether weights of the second half are held against the first as well.
    own : sequence of int
        Places of `GAMMAS` for which, if they are tried, `weights` shall be kept: those of all
        nodes, of one of the features.
    """

    def __init__(
        self, everything: Statistics, seconds: Statistics, *, both: bool, own: Sequence[int]
    ) -> None:
        self.count, self.sides = everything.G.size(0), 2 if both else 1
        self.weights: dict[int, Tensor] = {}
        self.own, half = frozenset(own), seconds.G.size(0)
        self.systems = self.sides * half
        # first halves, then second halves, then all nodes
        G, Q, n = (
            torch.cat([_each(whole, half) - second, second, *([whole] if own else [])])
            for whole, second in (
                (everything.G, seconds.G),
                (everything.Q, seconds.Q),
                (everything.n, seconds.n),
            )
        )
        # what follows from counts alone is small: it is found on the CPU, and goes over in one copy
        counts = n.numpy().astype(np.float64)
        there, nodes = (counts > 0).astype(np.float64), counts.sum(1)
        classes = there.sum(1)
        # B = (C / N) (G + Σ_c (N / C − n_c) μ_c μ_cᵀ); its factor changes no direction
        per_class = nodes / classes.clip(1)
        # weights are centred over the classes that this half knows, since of the others it says
        # nothing; what they are solved from may be centred as well. Those of all nodes are not.
        middle, scale = np.repeat(1 / classes.clip(1)[:, None], n.size(1), 1), there.copy()
        middle[2 * half :], scale[2 * half :] = 0.0, per_class[2 * half :, None]
        each = np.stack(
            [there / counts.clip(NOTHING), per_class[:, None] - counts, middle, scale], 1
        )
        invert, weigh, centre, rescale = torch.split(onto(torch.from_numpy(each), G.device), 1, 1)
        means = Q * invert
        self.matrix = G.baddbmm_(means * weigh, means.mT)
        self.targets = means.addcmul(means.sum(-1, keepdim=True), centre, value=-1) * rescale
        self.trace = self.matrix.diagonal(dim1=1, dim2=2).sum(1)
        # each half is held against the other. A class of one node is in one half only, and tells
        # nothing about the other: weights for it are zero.
        other = np.roll(np.arange(2 * half), half)[: self.systems]
        self.spread, self.truth = (
            torch.cat([t[half : 2 * half], t[:half]]) if both else t[half : 2 * half]
            for t in (self.matrix, means)
        )
        # a perfect classifier's centred scores: 1 − 1/C for the true class, −1/C for the others
        ideal = classes[other] * (1 - 1 / classes[: self.systems].clip(2))
        self.ideal, self.other = ideal / per_class[other].clip(NOTHING), other
        # where one half has no nodes, neither says anything, nor counts
        told = ((nodes[:half] > 0) & (nodes[half : 2 * half] > 0)).reshape(self.count, -1)
        self.told = self.sides * told.sum(1).clip(1)

    def at(self, places: Sequence[int]) -> dict[int, list[float]]:
        """The squared cosine between scores and truth, over the other half's nodes, for each γ.

        The mean over all ways and directions, of each of the features.
        """
        if not places:
            return {}
        count, m, own = len(places), self.systems, [place for place in places if place in self.own]
        # each γ for every system, and some for that of all nodes, which is the last one
        which = np.concatenate([np.tile(np.arange(m), count), np.full(len(own), -1)])
        gammas = np.array(GAMMAS)[np.concatenate([np.repeat(places, m), own]).astype(np.int64)]
        W, failed = self._weights(which, gammas)
        (tried, d, C), left = W.shape, W[count * m :]
        # all γ of a system side by side, as so many more columns
        W = W[: count * m].view(count, m, d, C).permute(1, 2, 0, 3).contiguous()
        seen = (self.spread @ W.view(m, d, count * C)).view_as(W)
        parts = [(W * self.truth[:, :, None]).sum((1, 3)), (W * seen).sum((1, 3))]
        parts += [torch.linalg.vector_norm(W, dim=(1, 3)), failed, self.trace, left.sum((1, 2))]
        # the device is looked at once
        found = torch.cat([part.flatten().to(torch.float64) for part in parts]).cpu().numpy()
        hit, size, length = found[: 3 * m * count].reshape(3, m, count)
        bad, trace, sums = np.split(found[3 * m * count :], [tried, tried + self.trace.numel()])
        for place, weights, fails, total in zip(own, left, bad[count * m :], sums, strict=True):
            if not fails and np.isfinite(total):
                self.weights[place] = weights
        # scores that are nothing but rounding agree with nothing: halves that share no direction
        least = NOTHING * trace[self.other, None] * length**2
        fine = (bad[: count * m].reshape(count, m).T == 0) & (size > least)
        # of a half without nodes there may be rounding left, which is nothing to agree with
        fine &= self.ideal[:, None] > 0
        cosines = np.zeros((m, count))
        np.divide(hit * abs(hit), size * self.ideal[:, None], out=cosines, where=fine)
        # a direction, one of the features, a way
        means = cosines.reshape(self.sides, self.count, -1, count).sum((0, 2)).T / self.told
        return {
            place: [round(x, 9) for x in row]
            for place, row in zip(places, means.tolist(), strict=True)
        }

    def _weights(
        self, which: npt.NDArray[np.int64], gammas: npt.NDArray[np.float64]
    ) -> tuple[Tensor, Tensor]:
        """Weights [t, d, C] of some systems, each with a γ, and [t] not 0 where there are none."""
        d, device = self.targets.size(1), self.trace.device
        each = onto(torch.from_numpy(which), device)
        penalties = onto(torch.from_numpy(gammas), device) * self.trace[each]
        found = []
        # in portions, which on a CPU stay in its cache
        portion = 16 if device.type == "cpu" else 1
        for some in blocks(which.size, portion * 8 * d * d, device):
            matrix = self.matrix[each[some]]
            matrix.diagonal(dim1=1, dim2=2).add_(penalties[some, None])
            factor, failed = factors(matrix)
            found.append((substituted(factor, self.targets[each[some]]), failed))
        if len(found) == 1:
            return found[0]
        return torch.cat([W for W, _ in found]), torch.cat([failed for _, failed in found])


def _each(whole: Tensor, count: int) -> Tensor:
    """Something of each of the features, once for each way."""
    return whole if whole.size(0) == 1 else whole.repeat_interleave(count // whole.size(0), 0)


def _bits(nodes: Tensor, seed: int) -> npt.NDArray[np.uint64]:
    """64 coins that each node carries with it: the finaliser of splitmix64, of id and seed."""
    with np.errstate(over="ignore"):
        bits = nodes.numpy().astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        coins: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return coins
