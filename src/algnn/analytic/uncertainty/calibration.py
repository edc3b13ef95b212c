"""Probabilities that mean something, from sums alone.

Scores become probabilities by a softmax with one factor, the sharpness β: p = softmax(β s). It is
the β under which the true classes of nodes that the weights have not seen are most likely. No node
is kept to try it on, so what such nodes would score is worked out from the sums: G, Q and n give
the mean scores of each class and how far scores scatter about them, and how many parameters a node
uses up tells how much of it comes from the weights having seen the node.

The sums hold one scatter for all classes together, though a node of a class varies mostly in the
score of that class. Where scores add up to about one, what a node's own class lacks some rival has
got. So the scatter is read as doubts between two classes: its entry for a pair, negative where the
two take from each other, says how large the doubts between them are. Doubts have long tails (most
nodes have next to none, a few look like another class altogether), hence Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar

from algnn.analytic.linalg.cholesky import factorise
from algnn.analytic.heads import HEADS, Affine, balanced_system
from algnn.analytic.statistics import Statistics

# Student's t with so many degrees of freedom; a mean over it is taken at a few points, dense in the
# middle and reaching far into the tails
TAILS = 4
GRID = np.linspace(-5, 5, 61)
POINTS = np.sinh(GRID)
DENSITY = (1 + POINTS**2 / TAILS) ** (-(TAILS + 1) / 2) * np.cosh(GRID)
WEIGHTS = DENSITY / DENSITY.sum()
# β is looked for between e^LEAST and e^MOST, in units of 1 over how far mean scores lie apart
LEAST, MOST = -4.0, 6.0
# a node that alone decides its score would divide by zero
MOST_LEVERAGE = 0.999

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """How nodes score that the weights have not seen.

    Attributes
    ----------
    mean : array [C, C]
        Row c: the mean scores of nodes of class c.
    scatter : array [C, C]
        The covariance of scores about these means, all classes together.
    n : array [C]
        Nodes per class.

    Examples
    --------
    >>> sure = Scores(np.eye(2), 0.01 * np.eye(2), np.full(2, 500))
    >>> unsure = Scores(np.eye(2), 0.3 * np.eye(2), np.full(2, 500))
    >>> sharpness(sure) > 5 > sharpness(unsure) > 0
    True
    """

    mean: Array
    scatter: Array
    n: Array

    def left_out(self, leverage: float) -> Scores:
        """As each node would score if the weights had not seen it, where they have.

        A node's regression onto its class without it is (s − h y) / (1 − h), h being how much a
        node decides its own score.

        Parameters
        ----------
        leverage : float
            The mean of h over nodes.

        Returns
        -------
        Scores
        """
        h = min(leverage, MOST_LEVERAGE)
        mean = (self.mean - h * np.eye(len(self.mean))) / (1 - h)
        return Scores(mean, self.scatter / (1 - h) ** 2, self.n)

    def apart(self) -> float:
        """How far the mean score of a class lies above the others', on average."""
        C = len(self.mean)
        own = self.mean.diagonal()
        others = (self.mean.sum(1) - own) / max(C - 1, 1)
        return float(np.average(np.abs(own - others), weights=self.n))

    def doubts(self) -> Array:
        """The variance of the doubt between a class and each other one, [C, C], zero diagonal."""
        C = len(self.mean)
        centred = np.eye(C) - 1 / C
        scatter = centred @ self.scatter @ centred
        share = self.n / self.n.sum()
        pairs = np.clip(-scatter, 0, None)
        np.fill_diagonal(pairs, 0)
        # nodes of either class are in doubt about the other
        pairs = pairs / (share[:, None] + share)
        whole = 2 * float((share[:, None] * pairs).sum())
        doubts: Array = pairs * (max(np.trace(scatter), 0.0) / whole if whole else 0.0)
        return doubts

    def log_loss(self, beta: float) -> float:
        """The mean of −log p(true class) under softmax(β s), over these nodes and a mistaken one.

        However sure the sums make one, the next node may be the first to be wrong: one more is
        counted, which scores like the mean of a class and is of another.
        """
        C, doubts, share = len(self.mean), self.doubts(), self.n / self.n.sum()
        size = doubts.sum(1, keepdims=True)
        anyone = (1 - np.eye(C)) / max(C - 1, 1)
        rivals = np.where(size > 0, doubts / np.where(size > 0, size, 1), anyone)
        logits = beta * self.mean
        own = logits.diagonal()[:, None]
        # all classes but a node's own and its rival
        others = np.where(np.eye(C, dtype=bool), -np.inf, logits)
        top = others.max(1, keepdims=True)
        mass = np.exp(others - top)
        rest = np.log(np.clip(mass.sum(1, keepdims=True) - mass, 1e-300, None)) + top
        # t has a variance of ν / (ν − 2)
        unit = beta * np.sqrt(size * (TAILS - 2) / TAILS)
        total = np.zeros((C, C))
        for weight, u in zip(WEIGHTS, POINTS, strict=True):
            mine, theirs = own - u * unit, logits + u * unit
            total += weight * (np.logaddexp(rest, np.logaddexp(mine, theirs)) - mine)
        mistaken = np.logaddexp(rest, np.logaddexp(own, logits)) - logits
        N = self.n.sum()
        both = N * rivals * total + anyone * mistaken
        return float((share[:, None] * both).sum() / (N + 1))


def held_out(
    head: str, gamma: float, statistics: Statistics, solved: Affine | None = None
) -> Scores:
    """How nodes score that the weights have not seen.

    Parameters
    ----------
    head : str
        A key of `HEADS`.
    gamma : float
    statistics : Statistics
        Of all nodes.
    solved : tuple of Tensor [d, C] and [C], optional
        What the head makes of these sums, where that is known already.

    Returns
    -------
    Scores
        Of all nodes with each left out, as far as sums tell it. For heads that are no regression,
        of nodes that the weights have seen.

    Examples
    --------
    >>> Z = torch.tensor([[1.0, 0.0], [0.8, 0.2], [0.0, 1.0], [0.2, 0.8]]).double()
    >>> sums = Statistics.empty(2).plus([Z], np.array([0, 0, 1, 1]))
    >>> held_out("balanced", 0.1, sums).mean.round(2)
    array([[0.67, 0.09],
           [0.09, 0.67]])
    """
    W, b = solved or HEADS[head](statistics, gamma)
    n = statistics.n.to(W.device, torch.float64)
    mean = (statistics.Q / n).mT @ W
    scatter = (W.mT @ (statistics.G @ W) - (mean.mT * n) @ mean) / n.sum()
    seen = Scores(*(t.cpu().numpy() for t in (mean + b, scatter, n)))
    return seen.left_out(_leverage(head, gamma, statistics))


def sharpness(scores: Scores) -> float:
    """The β under which the true classes of nodes with such scores are most likely.

    Parameters
    ----------
    scores : Scores

    Returns
    -------
    float
        1 where there is nothing to go by.

    Examples
    --------
    >>> sharpness(Scores(np.zeros((2, 2)), np.zeros((2, 2)), np.ones(2)))
    1.0
    """
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


def _leverage(head: str, gamma: float, statistics: Statistics) -> float:
    """How much a node decides its own score, on average: the effective parameters per node."""
    if head == "ridge":
        matrix, penalty, share = statistics.G, gamma, 1.0
    elif head == "balanced":
        matrix, _ = balanced_system(statistics)
        penalty = gamma * (float(matrix.trace()) or 1.0)
        share = statistics.n.numel() / float(statistics.n.sum())
    else:
        return 0.0
    # tr((A + γI)⁻¹ G), both symmetric: each node counts for `share` in A
    influence = (torch.cholesky_inverse(factorise(matrix.clone(), penalty)) * statistics.G).sum()
    return float(influence) * share / float(statistics.n.sum())
