"""The label-free encoder: a node's features as its neighbourhood shows them, near and far.

Nothing is trained. Which views of a neighbourhood help differs between graphs: where neighbours
share their class, a wide average is best; where they do not, the node's own features must not be
drowned. So a few banks of views are held against each other once, in the base session, by the sums
of its two halves, and the best one is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from algnn.analytic.expansion import random_weights
from algnn.errors import InputError
from algnn.graph.propagate import spmm

# the views of each bank: Â^k X, or personalised PageRank
BANKS: dict[str, tuple[str, ...]] = {
    "pagerank": ("pagerank",),
    "two hops": ("2",),
    "hops": ("0", "1", "2", "3"),
    "raw": ("0",),
}
RETURN = 0.1  # PageRank's chance of going back to the node itself at each of its steps
STEPS = 10
# Features wider than this are projected, on graphs so large that the width would be felt.
WIDEST = 1024
LARGE = 4096


@dataclass(frozen=True)
class Bank:
    """Views of a neighbourhood side by side, each with rows of length one.

    Attributes
    ----------
    name : str
        A key of `BANKS`.
    inputs : int
        Width of X.
    projected : int
        Width to which X is projected before anything else; 0 where it is taken as it is.
    seed : int
        Of the projection.

    Examples
    --------
    >>> import torch
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> Bank("hops", inputs=2).prepare(pair, x)[0]
    tensor([0.6000, 0.8000, 0.6000, 0.8000, 0.6000, 0.8000, 0.6000, 0.8000])
    """

    name: str
    inputs: int
    projected: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in BANKS:
            raise InputError(f"bank={self.name!r} is unknown: use one of {', '.join(BANKS)}")

    @property
    def width(self) -> int:
        """d, of all views together."""
        return (self.projected or self.inputs) * len(BANKS[self.name])

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """The views of every node.

        Parameters
        ----------
        adjacency : Tensor [N, N], sparse CSR
            Â of `normalised_adjacency`.
        x : Tensor [N, inputs], float32

        Returns
        -------
        Tensor [N, width], float32
        """
        if self.projected:
            x = x @ random_weights(self.inputs, self.projected, self.seed).to(x.device)
        views = BANKS[self.name]
        if views == ("pagerank",):
            return normalize(_pagerank(adjacency, x))
        parts, current = [], x
        for hop in range(int(views[-1]) + 1):
            if hop:
                current = spmm(adjacency, current)
            if str(hop) in views:
                parts.append(normalize(current))
        return torch.cat(parts, dim=1)

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z of some rows of what `prepare` gave.

        Parameters
        ----------
        prepared : Tensor [n, width]

        Returns
        -------
        Tensor [n, width], float64
        """
        return prepared.to(torch.float64)


def projected_width(inputs: int, num_nodes: int) -> int:
    """To how many columns X is projected: 0, for not at all, unless it is wide and long.

    Parameters
    ----------
    inputs, num_nodes : int

    Returns
    -------
    int

    Examples
    --------
    >>> projected_width(8710, 19793), projected_width(3703, 3327), projected_width(602, 232965)
    (1024, 0, 0)
    """
    return WIDEST if inputs > WIDEST and num_nodes > LARGE else 0


def _pagerank(adjacency: Tensor, x: Tensor) -> Tensor:
    current = x
    for _ in range(STEPS):
        current = spmm(adjacency, current).mul_(1 - RETURN).add_(x, alpha=RETURN)
    return current
