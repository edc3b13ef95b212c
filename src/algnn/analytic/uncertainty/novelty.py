"""How little a node looks like anything seen, from the same sums.

Two explanations of a node are held against each other. Either it is of a class that was seen: then
it is drawn from N(μ_c, Σ), with the classes' means and their shared scatter, both from G, Q and n.
Or it is anything at all: then it is drawn from one wide Gaussian, half of it the seen classes
together, half of it the graph as it is now, of which some nodes are looked at, without labels. What
nobody has named yet is often in the graph already, and there it shows.

Where fewer nodes were learned than features are wide, Σ is known in few directions, and badly in
most of those: its noise is about tr(Σ) / N in size. Both Gaussians are widened by a multiple of
that, so that they differ only in what the sums know well. Outside of the directions that nodes
span the two are the same, and say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algnn.analytic.linalg.cholesky import factorise
from algnn.analytic.statistics import Statistics

# How many times the noise of Σ both Gaussians are widened by. In trials with classes held out
# among the validation nodes of five graphs anything from 3 to 30 was about as good.
WIDENING = 10.0
# Nodes of a graph that are looked at: at least so many, and so many for each coordinate of sums.
# In these trials more were hardly better, and 512 for 767 coordinates were worse.
FEW = 512
EACH = 2


@dataclass(frozen=True, eq=False)
class Familiar:
    """What the seen classes look like, and what anything looks like.

    Attributes
    ----------
    means : Tensor [C, d]
        Of the classes.
    centre : Tensor [d]
        Of anything.
    within, anything : Tensor [d, d]
        Cholesky factors of the covariance of a class, and of anything.

    Examples
    --------
    >>> import numpy as np
    >>> left, right, above = torch.tensor([[-3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]).double()
    >>> noise = torch.randn(90, 2, generator=torch.Generator().manual_seed(0)).double() / 3
    >>> graph = noise + torch.stack([left, right, above]).repeat(30, 1)
    >>> sums = Statistics.empty(2).plus([graph[0::3], graph[1::3]], np.arange(60) // 30)
    >>> familiar = Familiar.of(sums, graph)
    >>> familiar.novelty(torch.stack([left, right, above])) > 0.5
    tensor([False, False,  True])
    """

    means: Tensor
    centre: Tensor
    within: Tensor
    anything: Tensor

    @classmethod
    def of(cls, statistics: Statistics, sample: Tensor) -> Familiar:
        """From the sums, and some nodes of the graph.

        Parameters
        ----------
        statistics : Statistics
            Of at least one class.
        sample : Tensor [m, d], float64
            Z of these nodes, in the coordinates of the sums.

        Returns
        -------
        Familiar
        """
        n = statistics.n.to(sample.device, torch.float64)
        means = (statistics.Q / n).mT
        scatter = (statistics.G - (means.mT * n) @ means) / n.sum()
        of_means, of_graph = means.mean(0), sample.mean(0)
        centre = (of_means + of_graph) / 2
        seen, found = means - centre, sample - centre
        # as sums are made: by half of the products, since they are symmetric
        squares = Statistics.empty(sample.size(1), sample.device).plus(
            [found], np.zeros(len(found), dtype=np.int64)
        )
        both = (scatter + seen.mT @ seen / len(means) + squares.G / len(sample)) / 2
        # where every class is a single node there is no scatter to speak of
        spread = float(scatter.trace())
        spread = spread if spread > 1e-9 * float(both.trace()) else float(both.trace())
        wider = WIDENING * spread / max(float(n.sum()), 1.0) or 1.0
        return cls(means, centre, factorise(scatter, wider), factorise(both, wider))

    def novelty(self, Z: Tensor) -> Tensor:
        """Between 0 and 1: above a half where anything explains a node better than a seen class.

        With r = log N(z; anything) − max_c log N(z; μ_c, Σ), it is (1 + r / (1 + |r|)) / 2.

        Parameters
        ----------
        Z : Tensor [n, d], float64
            In the coordinates of the sums.

        Returns
        -------
        Tensor [n]
        """
        whole = _whitened(Z - self.centre, self.anything).square().sum(1)
        here, there = (_whitened(rows - self.centre, self.within) for rows in (Z, self.means))
        # ‖here − there‖², but for what all classes share
        apart = there.square().sum(1) - 2 * here @ there.mT
        nearest = here.square().sum(1) + apart.min(dim=1).values
        sizes = self.within.diagonal().log().sum() - self.anything.diagonal().log().sum()
        ratio = (nearest - whole) / 2 + sizes
        return (1 + ratio / (1 + ratio.abs())) / 2


def spread_out(num_nodes: int, width: int) -> Tensor:
    """The nodes of a graph that are looked at: all, or some evenly among their ids.

    Parameters
    ----------
    num_nodes : int
    width : int
        Of the sums.

    Returns
    -------
    Tensor [m], int64

    Examples
    --------
    >>> len(spread_out(100, 10)), spread_out(4096, 512)[:3]
    (100, tensor([0, 4, 8]))
    """
    size = min(max(FEW, EACH * width), num_nodes)
    return torch.arange(size) * num_nodes // max(size, 1)


def _whitened(rows: Tensor, factor: Tensor) -> Tensor:
    whitened: Tensor = torch.linalg.solve_triangular(factor, rows.mT, upper=False)
    return whitened.mT
