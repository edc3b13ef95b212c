"""Calibrated probabilities, from the sums and from scores of unlabelled nodes.

Probabilities are softmax(β s) of the scores s, from ten classes on a mixture of two. The sums give
β, by scores of nodes that the weights have not seen, and a sample of the graph's nodes corrects it:
``docs/confidence.md`` says how and why, what else was tried, and how well it works.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit
from torch import Tensor

from algnn.analytic.heads import HEADS, Affine, penalised
from algnn.analytic.linalg import factorise
from algnn.analytic.statistics import Statistics

# Student's t with so many degrees of freedom, integrated at points that are dense in the middle and
# reach far into the tails
TAILS = 4
GRID = np.linspace(-5, 5, 61)
POINTS = np.sinh(GRID)
DENSITY = (1 + POINTS**2 / TAILS) ** (-(TAILS + 1) / 2) * np.cosh(GRID)
WEIGHTS = DENSITY / DENSITY.sum()
# β is searched between e^LEAST and e^MOST, in units of 1 / Scores.apart()
LEAST, MOST = -14.0, 6.0
# a leverage of 1 would divide by zero
MOST_LEVERAGE = 1 - 1e-9
# Of more rivals than these the most likely are looked at: time is linear in classes beyond them.
MOST_RIVALS = 100
MOST_PULL = 700.0  # the logarithm of a pull on a score is searched between this and its negative
# The mixture, as one β does not suit dozens of classes, which differ in scatter: from FEW on, and
# in full from MANY, the blunt softmax has this share, its inverse temperature is this fraction of
# the sharp one's, and the sharp one's is so much above β. Chosen on validation nodes of nine graphs
# with 3 to 70 classes, two of them with more than ten.
FEW, MANY = 10, 20
BLUNT_SHARE, BLUNT_FRACTION, SHARPER = 0.3, 0.3, 1.5
# The sample of a graph has so many nodes and moves β by at most this factor, to the power 1/2 where
# so many nodes tell and nearly in full where far more do. Chosen on validation nodes of 13 graphs.
SAMPLE, MOST_MOVE, HALF_TOLD = 2048, 1.3, 200
# Weights of the sample are exponential in the size of scores: this keeps them from extremes.
TILT_PENALTY = 0.01

Array = npt.NDArray[np.float64]
Faded = tuple[Array, Array]  # how many nodes, and what each of them still counts for


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of nodes that the weights have not seen."""

    mean: Array  # [C, C]: row c has the mean scores of nodes of class c
    scatter: Array  # [C, C]: covariance of scores about these means, over all classes
    n: Array  # [C]: nodes of each class

    def apart(self) -> float:
        """Mean distance between the score of a node's own class and the mean of the others."""
        C, own = len(self.mean), self.mean.diagonal()
        others = (self.mean.sum(1) - own) / max(C - 1, 1)
        return float(np.average(np.abs(own - others), weights=self.n))

    @cached_property
    def confusion(self) -> Array:
        """Variance of the confusion between each pair of classes, [C, C], with a zero diagonal."""
        # what a node's own class lacks a rival has gained: where two take from each other, the
        # entry of the pair is negative
        centred = np.eye(len(self.mean)) - 1 / len(self.mean)
        scatter = centred @ self.scatter @ centred
        share = self.n / self.n.sum()
        pairs = np.clip(-scatter, 0, None)
        np.fill_diagonal(pairs, 0)
        # nodes of either class are confused with the other
        pairs = pairs / (share[:, None] + share)
        whole = 2 * float((share[:, None] * pairs).sum())
        confusion: Array = pairs * (max(np.trace(scatter), 0.0) / whole if whole else 0.0)
        return confusion

    def log_loss(self, beta: float) -> float:
        """The mean of −log p(true class) under softmax(β s), over these nodes and one more."""
        C, confusion, share = len(self.mean), self.confusion, self.n / self.n.sum()
        size = confusion.sum(1, keepdims=True)
        anyone = (1 - np.eye(C)) / max(C - 1, 1)
        rivals = np.where(size > 0, confusion / np.where(size > 0, size, 1), anyone)
        logits = beta * self.mean
        own = logits.diagonal()[:, None]
        # all classes but a node's own and its rival
        others = np.where(np.eye(C, dtype=bool), -np.inf, logits)
        top = others.max(1, keepdims=True)
        with np.errstate(under="ignore"):  # whatever the caller has set
            mass = np.exp(others - top)
        rest = np.log(np.clip(mass.sum(1, keepdims=True) - mass, 1e-300, None)) + top
        # t has a variance of ν / (ν − 2)
        unit = beta * np.sqrt(size * (TAILS - 2) / TAILS)
        near = np.sort(np.argsort(-rivals, axis=1, kind="stable")[:, :MOST_RIVALS], axis=1)
        rival, left = (np.take_along_axis(a, near, axis=1) for a in (logits, rest))
        likely = np.take_along_axis(rivals, near, axis=1)
        likely /= likely.sum(1, keepdims=True)
        total = np.zeros_like(rival)
        with np.errstate(under="ignore"):
            for weight, u in zip(WEIGHTS, POINTS, strict=True):
                mine, theirs = own - u * unit, rival + u * unit
                total += weight * (np.logaddexp(left, np.logaddexp(mine, theirs)) - mine)
            # one more scores like the mean of one class and is of another, so that β stays finite
            # where the sums separate all classes
            mistaken = np.logaddexp(rest, np.logaddexp(own, logits)) - logits
        N = self.n.sum()
        both = N * (likely * total).sum(1) + (anyone * mistaken).sum(1)
        return float(share @ both / (N + 1))


def held_out(
    head: str,
    gamma: float,
    statistics: Statistics,
    solved: Affine | None = None,
    faded: Faded | None = None,
) -> Scores:
    """Leave-one-out scores of all nodes, from their sums; `solved` is what the head gives for them.

    Of heads that are no regression, scores as they are. `faded` is what nodes still count for,
    unless all of them count for one.
    """
    W, b = solved or HEADS[head](statistics, gamma)
    n = statistics.n.to(W.device, torch.float64)
    mean = (statistics.Q / n).mT @ W
    scatter = (W.mT @ (statistics.G @ W) - (mean.mT * n) @ mean) / n.sum()
    seen, spread, counts = (t.cpu().numpy() for t in (mean + b, scatter, n))
    # a node's score without it is (s − h y) / (1 − h), h being its leverage; here its mean
    h = min(_leverage(head, gamma, statistics, faded), MOST_LEVERAGE)
    return Scores((seen - h * np.eye(len(seen))) / (1 - h), spread / (1 - h) ** 2, counts)


def sharpness(scores: Scores) -> float:
    """The β of maximum likelihood for nodes with such scores; 1 where the sums decide nothing."""
    apart = scores.apart()
    if len(scores.mean) < 2 or not apart > 0:
        return 1.0
    # log loss is convex in β, so there is one least value
    best = minimize_scalar(
        lambda log: scores.log_loss(float(np.exp(log)) / apart),
        bounds=(LEAST, MOST),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(np.exp(best.x)) / apart


def adjusted_sharpness(beta: float, scores: Scores, sample: Tensor) -> float:
    """β, moved by the scores [m, C] of a sample of the graph, of which no labels are known."""
    if len(scores.mean) < 2 or not scores.apart() > 0 or not len(sample):
        return beta
    # what all classes share decides nothing
    C, share = len(scores.mean), scores.n / scores.n.sum()
    centred = np.eye(C) - 1 / C
    mean = scores.mean @ centred
    own = float(share @ mean.diagonal())
    size = float(np.trace(centred @ scores.scatter) + share @ np.square(mean).sum(1))
    found = sample.cpu() - sample.cpu().mean(1, keepdim=True)
    # some were learned, some are of classes not named yet: weighed to be as large as left-out ones
    weights = _tilted_weights(found.square().sum(1), size)

    def excess(log: float) -> float:
        p = probabilities(found, beta * float(np.exp(log)))
        return float(weights @ (p * found).sum(1)) - own

    most = float(np.log(MOST_MOVE))
    log = -most if excess(-most) > 0 else most if excess(most) < 0 else brentq(excess, -most, most)
    told = min(float(scores.n.sum()), len(sample))
    return beta * float(np.exp(log * told / (told + HALF_TOLD)))


def _tilted_weights(sizes: Tensor, mean: float) -> Tensor:
    """Weights [m] that add up to one, exponential in sizes [m], whose mean comes out as asked."""
    spread = sizes.std(unbiased=False)
    far = (sizes - mean) / spread if spread > 0 else torch.zeros_like(sizes)
    # the penalty outweighs twice the most that the mean can be off by at either end
    end = 2 * (float(far.abs().max()) or 1.0) / TILT_PENALTY

    def off(tilt: float) -> float:
        return float(torch.softmax(tilt * far, dim=0) @ far) + TILT_PENALTY * tilt

    return torch.softmax(brentq(off, -end, end) * far, dim=0)


def probabilities(scores: Tensor, beta: float) -> Tensor:
    """Probabilities [n, C] from scores: softmax(β s), or a mixture of two for many classes."""
    degree = min(1.0, max(0.0, (scores.size(1) - FEW) / (MANY - FEW)))
    share, sharp = BLUNT_SHARE * degree, beta * (1 + (SHARPER - 1) * degree)
    found = torch.softmax(sharp * scores, dim=1)
    return found.lerp(torch.softmax(BLUNT_FRACTION * sharp * scores, dim=1), share)


def _leverage(head: str, gamma: float, statistics: Statistics, faded: Faded | None) -> float:
    """The mean leverage of a node: the effective number of parameters over that of nodes."""
    if head not in ("ridge", "balanced"):
        return 0.0
    matrix, penalty = penalised(head, statistics, gamma)
    nodes = float(statistics.n.sum())
    share = statistics.n.numel() / nodes if head == "balanced" else 1.0
    # tr((A + γI)⁻¹ G), both symmetric: each node counts for `share` in A
    influence = (torch.cholesky_inverse(factorise(matrix.clone(), penalty)) * statistics.G).sum()
    parameters = float(influence) * share
    return parameters / nodes if faded is None else _mean_leverage(parameters, *faded)


def _mean_leverage(parameters: float, counts: Array, weights: Array) -> float:
    """The mean of leverages w q / (1 + w q), with the q by which they add up to `parameters`."""
    with np.errstate(divide="ignore"):  # of what counts for nothing any more
        logs = np.log(weights)

    def excess(log: float) -> float:
        return float(counts @ expit(logs + log)) - parameters

    if excess(MOST_PULL) <= 0:
        return 1.0
    if excess(-MOST_PULL) >= 0:  # features are all zero
        return 0.0
    log = brentq(excess, -MOST_PULL, MOST_PULL)
    return float(np.average(expit(logs + log), weights=counts * weights))
