"""The out-of-distribution score of a node, from the sums.

A node is either of a seen class, drawn from N(μ_c, Σ) with the classes' means and shared scatter;
or it is anything, drawn from one wide Gaussian: half of it the seen classes together, half of it a
sample of the graph as it is now. Both are widened, so that they differ only in what the sums know
well; outside of what nodes span they cancel. ``docs/confidence.md`` has more.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from algnn.analytic.linalg import factorise
from algnn.analytic.statistics import Statistics
from algnn.progress import tell

# Both Gaussians are widened by this multiple of the noise of Σ. In trials with classes held out
# among the validation nodes of five graphs anything from 3 to 30 was about as good.
WIDENING = 10.0
# Size of the sample of a graph: at least so many nodes, and so many per coordinate of the sums. In
# these trials more were hardly better, and 512 for 767 coordinates were worse.
SMALLEST_SAMPLE, PER_COORDINATE = 512, 2


@dataclass(frozen=True, eq=False)
class NoveltyModel:
    """Gaussians of the seen classes, which share a covariance, and of any node."""

    means: Tensor  # [C, d], of the classes
    centre: Tensor  # [d], of any node
    within: Tensor  # [d, d]: Cholesky factor of the covariance of a class
    anything: Tensor  # [d, d]: that of any node

    @classmethod
    def of(cls, statistics: Statistics, sample: Tensor) -> Self:
        """From the sums, and Z [m, d] of a sample of the graph in the coordinates of the sums."""
        tell("novelty model", 1, 1)
        n = statistics.n.to(sample.device, torch.float64)
        means = (statistics.Q / n).mT
        scatter = (statistics.G - (means.mT * n) @ means) / n.sum()
        of_means, of_graph = means.mean(0), sample.mean(0)
        centre = (of_means + of_graph) / 2
        seen, found = means - centre, sample - centre
        both = (scatter + seen.mT @ seen / len(means) + found.mT @ found / len(sample)) / 2
        # where every class is a single node there is no scatter
        spread, total = float(scatter.trace()), float(both.trace())
        spread = spread if spread > 1e-9 * total else total
        # and where all nodes look the same there is rounding alone
        spread = max(spread, 1e-9 * float(statistics.G.trace() / n.sum()))
        wider = WIDENING * spread / max(float(n.sum()), 1.0) or 1.0
        return cls(means, centre, factorise(scatter, wider), factorise(both, wider))

    def novelty(self, Z: Tensor) -> Tensor:
        """Scores [n] from 0 to 1: above a half where `anything` is likelier than any seen class.

        With r = log N(z; anything) − max_c log N(z; μ_c, Σ), it is (1 + r / (1 + |r|)) / 2.
        """
        whole = _whitened(Z - self.centre, self.anything).square().sum(1)
        here, there = (_whitened(rows - self.centre, self.within) for rows in (Z, self.means))
        # ‖here − there‖², but for what all classes share
        apart = there.square().sum(1) - 2 * here @ there.mT
        nearest = here.square().sum(1) + apart.min(dim=1).values
        sizes = self.within.diagonal().log().sum() - self.anything.diagonal().log().sum()
        ratio = (nearest - whole) / 2 + sizes
        return (1 + ratio / (1 + ratio.abs())) / 2


def sample_size(coordinates: int) -> int:
    """How many nodes of a graph are held against sums over so many coordinates."""
    return max(SMALLEST_SAMPLE, PER_COORDINATE * coordinates)


def spread_out(num_nodes: int, most: int) -> Tensor:
    """A sample of a graph's nodes: all, or so many evenly among their ids."""
    size = min(most, num_nodes)
    return torch.arange(size) * num_nodes // max(size, 1)


def _whitened(rows: Tensor, factor: Tensor) -> Tensor:
    whitened: Tensor = torch.linalg.solve_triangular(factor, rows.mT, upper=False)
    return whitened.mT
