"""A graph network that is trained without labels, as one more block beside the views.

Two copies of the graph, each with some edges and some columns of X dropped at random, are embedded
by one GCN. Its weights are moved until the two embeddings of a node agree while the embedding's
columns stay uncorrelated (CCA-SSG: Zhang, Wu, Yan, Wipf and Yu, From Canonical Correlation Analysis
to Self-supervised Graph Neural Networks, NeurIPS 2021). It sees no label and is frozen before the
first one is learned, so all that is exact without it is exact with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from algnn.analytic.features.hops import HopEncoder
from algnn.gcn import glorot, train
from algnn.graph.propagate import Operator, csr, spmm
from algnn.graph.rows import FLOAT

STEPS = 60
LEARNING_RATE = 1e-3
DROPPED = 0.3  # of the edges, and of the columns of X, in each copy
DECORRELATION = 1e-3  # weight of the term that keeps columns uncorrelated
SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True, eq=False)
class SelfSupervisedEncoder(HopEncoder):
    """All columns of `HopEncoder`, and H = Â ReLU(Â X W_1) W_2, its rows of length one.

    X is the first view: the node's own features, of length one.

    Attributes
    ----------
    weight1 : Tensor [view_width, h], float32
    weight2 : Tensor [h, h], float32
    """

    weight1: Tensor | None = None
    weight2: Tensor | None = None

    @classmethod
    def trained(
        cls, hops: HopEncoder, adjacency: Tensor, x: Tensor, hidden: int
    ) -> SelfSupervisedEncoder:
        """Train on a graph, beside its label-free encoder, a GCN of width h."""
        own = hops.prepare(adjacency, x)[:, : hops.view_width].contiguous()
        return cls.beside(hops, *_trained(Operator(adjacency), own, hidden, hops.seed))

    @classmethod
    def beside(cls, hops: HopEncoder, weight1: Tensor, weight2: Tensor) -> SelfSupervisedEncoder:
        """An embedding with given weights beside the views and units of an encoder."""
        shared = {field.name: getattr(hops, field.name) for field in fields(HopEncoder)}
        return cls(**shared, weight1=weight1, weight2=weight2)

    @property
    def weights(self) -> dict[str, Tensor]:
        """W_1 and W_2 by name."""
        assert self.weight1 is not None
        assert self.weight2 is not None
        return {"weight1": self.weight1, "weight2": self.weight2}

    @property
    def width(self) -> int:
        """d: of views, sizes, units and embedding."""
        return super().width + self.weights["weight2"].size(1)

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """Views, sizes and embedding [N, prepared_width + h] of every node in float32."""
        views = super().prepare(adjacency, x)
        return torch.cat([views, self._embedding(adjacency, views[:, : self.view_width])], dim=1)

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        views, embedding = prepared.tensor_split([self.prepared_width], dim=1)
        return torch.cat([super().__call__(views), embedding.to(FLOAT)], dim=1)

    def _embedding(self, adjacency: Tensor, own: Tensor) -> Tensor:
        # in float64, so that devices agree on what is rounded in the end
        exact = adjacency.to(FLOAT)
        W1, W2 = (weight.to(FLOAT) for weight in self.weights.values())
        hidden = spmm(exact, own.to(FLOAT) @ W1).relu_()
        found: Tensor = normalize(spmm(exact, hidden @ W2))
        return found.to(torch.float32)


def _trained(adjacency: Operator, x: Tensor, hidden: int, seed: int) -> tuple[Tensor, Tensor]:
    """W_1 and W_2."""
    count, width = x.shape
    initial = torch.Generator().manual_seed(seed)
    shapes = ((width, hidden), (hidden, hidden))
    weights = [nn.Parameter(glorot(*shape, initial).to(x.device)) for shape in shapes]
    chance = torch.Generator(x.device).manual_seed(seed)
    thinned = _Thinning(adjacency, chance)
    unit = torch.eye(hidden, dtype=x.dtype, device=x.device)

    def copy() -> Tensor:
        kept = torch.rand(width, generator=chance, dtype=x.dtype, device=x.device) > DROPPED
        some = thinned.draw()
        H = torch.relu(some @ ((x * kept) @ weights[0]))
        embedded = some @ (H @ weights[1])
        deviation = embedded.std(dim=0, correction=0) + SMALLEST_DEVIATION
        scaled: Tensor = (embedded - embedded.mean(dim=0)) / (deviation * count**0.5)
        return scaled

    def loss() -> Tensor:
        one, two = copy(), copy()
        correlated = sum((each.mT @ each - unit).square().sum() for each in (one, two))
        total: Tensor = (one - two).square().sum() + DECORRELATION * correlated
        return total

    train(weights, loss, STEPS, LEARNING_RATE, 0.0)
    return weights[0].detach(), weights[1].detach()


class _Thinning:
    """Â of the graph with some of its edges dropped at random."""

    def __init__(self, adjacency: Operator, chance: torch.Generator) -> None:
        self.matrix, self.transpose = adjacency.matrix, adjacency.T.matrix
        self.chance = chance
        counts = self.matrix.crow_indices().diff()
        rows = torch.arange(counts.numel(), device=counts.device).repeat_interleave(counts)
        self.rows, self.columns = rows, self.matrix.col_indices()
        self.diagonal = self.columns == rows
        # with self-loops of weight 1, Â_ii = 1 / D_ii, and edges have the weight Â_ij √(D_ii D_jj)
        roots = self.matrix.values()[self.diagonal].rsqrt()
        self.weights = self.matrix.values() * roots[rows] * roots[self.columns]
        # entry e of the transpose is entry order[e] of the matrix
        self.order = torch.argsort(self.matrix.col_indices(), stable=True)

    def draw(self) -> Operator:
        drawn = torch.rand(
            self.rows.numel(),
            generator=self.chance,
            dtype=torch.float32,
            device=self.rows.device,
        )
        kept = self.weights * ((drawn > DROPPED) | self.diagonal)
        ones = kept.new_ones(self.matrix.size(0), 1)
        roots = spmm(_with(self.matrix, kept), ones)[:, 0].rsqrt()
        thin = kept * roots[self.rows] * roots[self.columns]
        return Operator(_with(self.matrix, thin), _with(self.transpose, thin[self.order]))


def _with(matrix: Tensor, values: Tensor) -> Tensor:
    shape = (matrix.size(0), matrix.size(1))
    return csr(matrix.crow_indices(), matrix.col_indices(), values, shape)
