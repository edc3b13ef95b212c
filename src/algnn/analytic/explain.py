"""Why a node got its score: what each input feature and each neighbour contributed to it.

The label-free encoder is linear in X (or its roots) but for the length of each view's row and for
the random units beside the views. For one node that length is a number, and a unit is on, and then
linear, or off. With p_v = row i of view v's polynomial of Â, the score of class c is therefore

    score_c(i) = b_c + Σ_v Σ_j Σ_f  p_v[j] x[j, f] w_v[f],

where w_v are the rows of W for view v, through the units that are on, over the lengths: a plain sum
over neighbours j and input features f. Summed over either, it says what made up the score, and
nothing is left over. It does not say what the score would be without a feature or a neighbour:
lengths and units would then be others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.features.hops import HopEncoder as Bank
from algnn.analytic.features.expansion import random_weights
from algnn.errors import InputError
from algnn.graph.propagate import blocks

SHOWN = 5  # features and neighbours that are printed
TINY = 1e-12  # what torch's `normalize` takes for the length of a row of zeros


@dataclass(frozen=True)
class Explanation:
    """What moved the score of a class for one node; each kind of contribution sums to the score.

    Attributes
    ----------
    node : int
    label : int or str
        The class.
    score : float
        As `decision_function` gives it, but in float64 throughout.
    bias : float
        The part of the score that all nodes share.
    by_feature : array [inputs], float64
        What each input feature contributed, over all neighbours: with `bias` they sum to `score`.
    neighbours : array [m], int64
        The nodes that the encoder sees from this one, itself included.
    by_neighbour : array [m], float64
        What each of them contributed, over all features: with `bias` they sum to `score`.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(device="cpu").fit(graph, graph.train_mask, graph.y[graph.train_mask])
    >>> why = model.explain(graph, 0)
    >>> why.label, bool(abs(why.by_feature.sum() + why.bias - why.score) < 1e-12)
    (0, True)
    >>> print(why)
    node 0 scores ... for class 0
      feature ...
    """

    node: int
    label: int | str
    score: float
    bias: float
    by_feature: npt.NDArray[np.float64]
    neighbours: npt.NDArray[np.int64]
    by_neighbour: npt.NDArray[np.float64]

    def top_features(self, count: int = SHOWN) -> list[tuple[int, float]]:
        """The features that moved the score most, up or down.

        Parameters
        ----------
        count : int

        Returns
        -------
        list of (int, float)
            Column of `x` and contribution, the largest first; those without any are left out.
        """
        return _largest(np.arange(self.by_feature.size), self.by_feature, count)

    def top_neighbours(self, count: int = SHOWN) -> list[tuple[int, float]]:
        """The neighbours that moved the score most, up or down.

        Parameters
        ----------
        count : int

        Returns
        -------
        list of (int, float)
            Node and contribution, the largest first; those without any are left out.
        """
        return _largest(self.neighbours, self.by_neighbour, count)

    def __str__(self) -> str:
        rows = [("the same for all nodes", self.bias)] if self.bias else []
        for name, top, everything in (
            ("feature", self.top_features(), self.by_feature),
            ("neighbour", self.top_neighbours(), self.by_neighbour),
        ):
            for place, value in top:
                itself = " (itself)" if name == "neighbour" and place == self.node else ""
                rows.append((f"{name} {place}{itself}", value))
            rest = int(np.count_nonzero(everything)) - len(top)
            if rest:
                left = everything.sum() - sum(value for _, value in top)
                rows.append((f"{rest:,} other {name}{'s' * (rest > 1)}", left))
        width = max((len(name) for name, _ in rows), default=0)
        first = f"node {self.node} scores {self.score:+.4f} for class {self.label}"
        return "\n".join([first, *(f"  {name:<{width}}  {value:+.4f}" for name, value in rows)])


def contributions(
    bank: Bank, transposed: Tensor, x: Tensor, node: int, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What features and neighbours contribute to one node's score, without the bias.

    Parameters
    ----------
    bank : Bank
    transposed : Tensor [N, N], sparse CSR
        Âᵀ; Â itself where edges go both ways.
    x : Tensor [N, inputs]
    node : int
    weights : Tensor [width], float64
        W's column of the class.

    Returns
    -------
    by_feature : Tensor [inputs], float64
    neighbours : Tensor [m], int64
    by_neighbour : Tensor [m], float64

    Examples
    --------
    >>> import torch
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> contributions(Bank("two hops", inputs=2), pair, x, 0, torch.tensor([1.0, 1.0]).double())
    (tensor([0.6000, 0.8000], ...), tensor([0, 1]), tensor([0.6000, 0.8000], ...))
    """
    at = torch.tensor([node], device=x.device)
    seen = torch.cat([bank.seen(view, transposed, at) for view in bank.views], dim=1)
    neighbours = seen.ne(0).any(dim=1).nonzero().squeeze(1)
    seen = seen[neighbours]
    sums = seen.new_zeros(seen.size(1), x.size(1))
    for block in blocks(neighbours.numel(), 8 * x.size(1), x.device):
        sums += seen[block].mT @ bank.entries(x, neighbours[block])
    back = _per_input(bank, sums, weights.to(x.device))
    parts = torch.empty_like(seen[:, 0])
    for block in blocks(neighbours.numel(), 8 * x.size(1), x.device):
        parts[block] = (seen[block] * (bank.entries(x, neighbours[block]) @ back.mT)).sum(1)
    return (sums * back).sum(0), neighbours, parts


def _per_input(bank: Bank, sums: Tensor, weights: Tensor) -> Tensor:
    """What a unit of each input of each view adds to the score of one node, [views, inputs].

    `sums` [views, inputs] are the node's views as they are before projection and scaling.
    """
    reduction = bank.reduction(sums.device) if bank.is_reduced else None
    views = sums if reduction is None else sums @ reduction
    lengths = views.norm(dim=1, keepdim=True).clamp_min(TINY)
    worth = weights[: bank.breadth]
    if bank.expanded:
        worth = worth + _through_units(
            bank, (views / lengths).reshape(1, -1), weights[bank.breadth :]
        )
    worth = worth.view(views.shape) / lengths
    return worth if reduction is None else worth @ reduction.mT


def _through_units(bank: Bank, views: Tensor, weights: Tensor) -> Tensor:
    """What the random units of one node, those that are on, add to the weights of its views."""
    units = bank.units(views)
    length = units.norm().clamp_min(TINY)
    # without a bias, a unit that is on is its own weights times its input
    drawn = random_weights(bank.breadth, bank.expanded, bank.seed).to(views)
    slopes: Tensor = drawn @ ((units.squeeze(0) > 0) * weights / length)
    return slopes


def column_of(label: int | str, classes: npt.NDArray[Any]) -> int:
    """Where a class stands among those that are known.

    Parameters
    ----------
    label : int or str
    classes : array [C]

    Returns
    -------
    int

    Examples
    --------
    >>> column_of("fraud", np.array(["fine", "fraud"]))
    1
    """
    known: list[int | str] = classes.tolist()
    if label not in known:
        some = ", ".join(map(repr, known[:SHOWN])) + (", …" if len(known) > SHOWN else "")
        raise InputError(f"label={label!r} is none of the classes learned: use one of {some}")
    return known.index(label)


def _largest(
    names: npt.NDArray[np.int64], values: npt.NDArray[np.float64], count: int
) -> list[tuple[int, float]]:
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return [(int(names[i]), float(values[i])) for i in order if values[i]]
