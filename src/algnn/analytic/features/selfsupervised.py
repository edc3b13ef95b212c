"""A graph network that is trained without labels, as one more block beside the views.

Two copies of the graph, each with some edges and some columns of X dropped at random, are embedded
by one GCN. Its weights are moved until the two embeddings of a node agree while the embedding's
columns stay uncorrelated (CCA-SSG: Zhang, Wu, Yan, Wipf and Yu, From Canonical Correlation Analysis
to Self-supervised Graph Neural Networks, NeurIPS 2021). It sees no label and is frozen before the
first one is learned, so all that is exact without it is exact with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from algnn.analytic.features.hops import HopEncoder
from algnn.gcn import glorot, train
from algnn.graph.propagate import Operator, csr, row_of, spmm
from algnn.graph.store import FLOAT

STEPS = 60
LEARNING_RATE = 1e-3
DROPPED = 0.3  # of the edges, and of the columns of X, in each copy
DECORRELATION = 1e-3  # weight of the term that keeps columns uncorrelated
SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class SelfSupervisedEncoder(HopEncoder):
    """All columns of `HopEncoder`, and H = Â ReLU(Â X W_1) W_2, its rows of length one.

    X is the first view: the node's own features, of length one.
    """

    weight1: Tensor  # [k, h], float32, where k is the width of the first view
    weight2: Tensor  # [h, h], float32

    @classmethod
    def trained(
        cls, hops: HopEncoder, adjacency: Tensor, x: Tensor, hidden: int
    ) -> SelfSupervisedEncoder:
        """Train on a graph, beside its label-free encoder, a GCN of width h."""
        own = hops.prepare(adjacency, x)[:, : hops.widths[0]].contiguous()
        initial = torch.Generator().manual_seed(hops.seed)
        shapes = ((own.size(1), hidden), (hidden, hidden))
        weights = [nn.Parameter(glorot(*shape, initial).to(x.device)) for shape in shapes]
        chance = torch.Generator(x.device).manual_seed(hops.seed)
        thinned = _thinning(Operator(adjacency), chance)
        unit = torch.eye(hidden, dtype=own.dtype, device=x.device)

        def copy() -> Tensor:
            drawn = torch.rand(own.size(1), generator=chance, dtype=own.dtype, device=x.device)
            some = thinned()
            H = torch.relu(some @ ((own * (drawn > DROPPED)) @ weights[0]))
            embedded = some @ (H @ weights[1])
            deviation = embedded.std(dim=0, correction=0) + SMALLEST_DEVIATION
            return (embedded - embedded.mean(dim=0)).div(deviation * len(own) ** 0.5)

        def loss() -> Tensor:
            one, two = copy(), copy()
            correlated = sum((each.mT @ each - unit).square().sum() for each in (one, two))
            return (one - two).square().sum() + DECORRELATION * correlated

        train(weights, loss, STEPS, LEARNING_RATE, 0.0)
        return cls.beside(hops, *(weight.detach() for weight in weights))

    @classmethod
    def beside(cls, hops: HopEncoder, weight1: Tensor, weight2: Tensor) -> SelfSupervisedEncoder:
        """An embedding with given weights beside the views and units of an encoder."""
        shared = {field.name: getattr(hops, field.name) for field in fields(HopEncoder)}
        return cls(**shared, weight1=weight1, weight2=weight2)

    @property
    def width(self) -> int:
        """d: of views, sizes, units and embedding."""
        return super().width + self.weight2.size(1)

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """Views, sizes and embedding [N, prepared_width + h] of every node in float32."""
        views = super().prepare(adjacency, x)
        # in float64, so that devices agree on what is rounded in the end
        exact, own = adjacency.to(FLOAT), views[:, : self.widths[0]].to(FLOAT)
        hidden = spmm(exact, own @ self.weight1.to(FLOAT)).relu_()
        embedding = normalize(spmm(exact, hidden @ self.weight2.to(FLOAT)))
        return torch.cat([views, embedding.to(torch.float32)], dim=1)

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        views, embedding = prepared.tensor_split([self.prepared_width], dim=1)
        return torch.cat([super().__call__(views), embedding.to(FLOAT)], dim=1)


def _thinning(adjacency: Operator, chance: torch.Generator) -> Callable[[], Operator]:
    """A function that gives Â of the graph with some of its edges dropped at random."""
    matrix, transpose = adjacency.matrix, adjacency.T.matrix
    rows, columns = row_of(matrix), matrix.col_indices()
    diagonal = columns == rows
    # with self-loops of weight 1, Â_ii = 1 / D_ii, and edges have the weight Â_ij √(D_ii D_jj)
    own = matrix.values()[diagonal]
    degrees = torch.where(own > 0, own.rsqrt(), 1.0)  # of self-loops without weight it is unknown
    weights = matrix.values() * degrees[rows] * degrees[columns]
    # entry e of the transpose is entry order[e] of the matrix
    order = torch.argsort(columns, stable=True)

    def draw() -> Operator:
        drawn = torch.rand(rows.numel(), generator=chance, dtype=torch.float32, device=rows.device)
        kept = weights * ((drawn > DROPPED) | diagonal)
        sums = spmm(_with(matrix, kept), kept.new_ones(matrix.size(0), 1))[:, 0]
        # a self-loop may have the weight 0, and be all that a node has
        roots = torch.where(sums > 0, sums.rsqrt(), 0.0)
        thin = kept * roots[rows] * roots[columns]
        return Operator(_with(matrix, thin), _with(transpose, thin[order]))

    return draw


def _with(matrix: Tensor, values: Tensor) -> Tensor:
    return csr(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)
