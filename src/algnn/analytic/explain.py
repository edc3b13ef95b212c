"""Attribution of a score to input features and to neighbours, exact for the label-free encoder.

That encoder is linear in X (or its roots, less their means where it centres them: a feature at its
mean then has no part) but for the norm of each view's row and for the random ReLU units beside the
views. For one node that norm is a number, and a unit is on, and then linear, or off. With p_v = row
i of view v's polynomial of Â, the score of class c is therefore

    score_c(i) = b_c + s_c(‖x_i‖²) + Σ_v Σ_j Σ_f  p_v[j] x[j, f] w_v[f],

where w_v are the rows of W for view v, through the units that are on, over the norms, and s_c is
what the size of its own row adds, which counts for each feature by its share of ‖x_i‖²: a sum over
neighbours j and input features f. Summed over either it accounts for the whole score. It is no
counterfactual: without a feature or a neighbour, norms, units and sizes would be others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.features.blocked import polynomial
from algnn.analytic.features.hops import HopEncoder
from algnn.checks import Array
from algnn.graph.propagate import blocks, take_rows
from algnn.graph.store import FLOAT

SHOWN = 5  # features and neighbours that are printed
TINY = 1e-12  # the least norm by which torch's `normalize` divides
ROUNDING = 1e-13  # of terms' sizes: a sum below it is none


@dataclass(frozen=True)
class Explanation:
    """Contributions to the score of a class for one node; each kind sums to the score.

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
        The contribution of each input feature, over all neighbours, and its share in what the size
        of the node's own row adds; with `bias` they sum to `score`.
    neighbours : array [m], int64
        The nodes in the receptive field of this one, itself included.
    by_neighbour : array [m], float64
        The contribution of each of them, over all features; with `bias` they sum to `score`.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(width=256).fit(graph, graph.train_mask, graph.y[graph.train_mask])
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
        """The columns of `x` with the `count` largest contributions other than 0, and these."""
        return _largest(np.arange(self.by_feature.size), self.by_feature, count)

    def top_neighbours(self, count: int = SHOWN) -> list[tuple[int, float]]:
        """The nodes with the largest contributions; otherwise as `top_features`."""
        return _largest(self.neighbours, self.by_neighbour, count)

    def __str__(self) -> str:
        rows = [("the same for all nodes", self.bias)] if self.bias else []
        for kind, top, others, rest in self._ranked(SHOWN):
            rows += [(f"{kind} {name}", value) for name, value in top.items()]
            if others:
                rows.append((f"{others:,} other {kind}{'s' * (others > 1)}", rest))
        width = max((len(name) for name, _ in rows), default=0)
        first = f"node {self.node} scores {self.score:+.4f} for class {self.label}"
        return "\n".join([first, *(f"  {name:<{width}}  {value:+.4f}" for name, value in rows)])

    def _ranked(self, count: int) -> Iterator[tuple[str, dict[str, float], int, float]]:
        """Of features, then of neighbours: the largest by name, how many others, their sum."""
        for kind, top, every in (
            ("feature", self.top_features(count), self.by_feature),
            ("neighbour", self.top_neighbours(count), self.by_neighbour),
        ):
            own = self.node if kind == "neighbour" else None
            named = {f"{n} (itself)" if n == own else str(n): value for n, value in top}
            others = int(np.count_nonzero(every)) - len(top)
            yield kind, named, others, every.sum() - sum(named.values())


def contributions(
    encoder: HopEncoder, transposed: Tensor, x: Tensor, node: int, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Parts of one node's score, by feature and by neighbour, from Âᵀ, X and a column of W."""
    indicator = torch.zeros(x.size(0), 1, dtype=FLOAT, device=x.device)
    indicator[node] = 1
    # row i of a polynomial of Â is the same polynomial of Âᵀ, applied to the indicator of i
    seen = torch.cat([polynomial(view, transposed, indicator) for view in encoder.views], dim=1)
    neighbours = seen.ne(0).any(dim=1).nonzero().squeeze(1)
    seen = seen[neighbours]
    sums, sizes = seen.new_zeros(2, seen.size(1), x.size(1))
    for block in blocks(neighbours.numel(), 8 * x.size(1), x.device):
        entries = encoder.entries(take_rows(x, neighbours[block])).to_dense()
        sums += seen[block].mT @ entries
        sizes += seen[block].abs().mT @ entries.abs()
    # where neighbours cancel what is left is rounding, and of length one it would be a view
    sums[sums.abs() < ROUNDING * sizes] = 0
    back = _gradient(encoder, sums, weights.to(x.device))
    parts = torch.empty_like(seen[:, 0])
    for block in blocks(neighbours.numel(), 8 * x.size(1), x.device):
        entries = encoder.entries(take_rows(x, neighbours[block])).to_dense()
        parts[block] = (seen[block] * (entries @ back.mT)).sum(1)
    by_feature = (sums * back).sum(0)
    if encoder.sizes:
        own = take_rows(x, torch.tensor([node], device=x.device))
        worth = weights[encoder.breadth : encoder.prepared_width].to(x.device)
        size = encoder.size_columns(own).squeeze(0) @ worth
        shares = encoder.measured(own).to_dense().squeeze(0).to(by_feature).square()
        by_feature += size * shares / shares.sum().clamp_min(TINY)
        parts[neighbours == node] += size
    return by_feature, neighbours, parts


def _gradient(encoder: HopEncoder, sums: Tensor, weights: Tensor) -> Tensor:
    """The gradient of a node's score by its views [views, inputs] before they are scaled."""
    reduction = encoder.reduction(sums.device)
    views = sums if reduction is None else sums @ reduction
    widths = torch.tensor(encoder.widths, device=views.device)[:, None]
    there = torch.arange(views.size(1), device=views.device) < widths
    lengths = (views * there).norm(dim=1, keepdim=True).clamp_min(TINY)
    worth, _, beyond = weights.tensor_split([encoder.breadth, encoder.prepared_width])
    if encoder.expanded:
        units = encoder.units((views / lengths)[there][None], views.new_empty(1, beyond.numel()))
        # without a bias, a unit that is on is its own weights times its input
        active = (units.squeeze(0) > 0) * beyond / units.norm().clamp_min(TINY)
        worth = worth + encoder.unit_weights(views.device) @ active
    back = torch.zeros_like(views).masked_scatter(there, worth) / lengths
    return back if reduction is None else torch.mm(back, reduction.mT)


def _largest(names: Array, values: Array, count: int) -> list[tuple[int, float]]:
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return [(int(names[i]), float(values[i])) for i in order if values[i]]
