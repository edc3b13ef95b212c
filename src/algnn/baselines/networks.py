"""Two other networks for the joint reference: APPNP and GraphSAGE.

Their weights have the names that `GCN` gives them, so that a learner trains, saves and checks them
alike. Each reads a field that is prepared once, before training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from algnn.gcn import GCN, dropout, glorot
from algnn.graph.propagate import Field, Operator, csr, receptive_field, spmm, take_rows

# APPNP's α and K
RESTART = 0.1
STEPS = 10
# A sparse product took a tenth of the time of a dense one where 1% of the features are non-zero
# (Cora, Citeseer), as long at 10% (Pubmed), twice as long at 35% (Computers); one CPU core, forward
# and back.
SPARSE_BELOW = 0.05


@dataclass(frozen=True)
class TargetField(Field):
    """A field with the rows [n] of its inputs, dense or sparse CSR, that are the targets' own."""

    targets: Tensor


class APPNP(GCN):
    """Predict, then propagate (APPNP): a perceptron followed by personalised PageRank.

    H = dropout(ReLU(dropout(X) W_1 + b_1)) W_2 + b_2 for every node, then

        Z_0 = H,   Z_{k+1} = (1 − α) Â Z_k + α H,   logits = Z_K,   α = 0.1, K = 10.

    The paper drops entries of Â as well, in each step; that is left out.

    J. Gasteiger, A. Bojchevski and S. Günnemann, "Predict then Propagate: Graph Neural Networks
    meet Personalized PageRank", ICLR 2019.
    """

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] of the targets; without a generator nothing is dropped."""
        assert isinstance(field, TargetField)
        first = project(field.inputs, self.weight1, self.dropout, generator)
        hidden = torch.relu(first + self.bias1)
        if generator is not None:
            hidden = dropout(hidden, self.dropout, generator)
        start = torch.addmm(self.bias2, hidden, self.weight2)
        return pagerank(lambda reached: field.mix @ reached, start)[field.targets]

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits [n, classes] of some nodes of a graph, without dropout and without a gradient."""
        with torch.no_grad():
            hidden = torch.addmm(self.bias1, x, self.weight1).relu_()
            start = torch.addmm(self.bias2, hidden, self.weight2)
            return pagerank(lambda reached: spmm(adjacency, reached), start)[nodes]


class SAGE(GCN):
    """GraphSAGE with the mean aggregator, full batch.

    With M the mean over a node's neighbours, itself left out,

        logits = H V_0 + M H V_1 + b_2,   H = dropout(ReLU(X W_0 + M X W_1 + b_1)):

    a node's own weights (W_0, V_0: `weight1`, `weight2`) are apart from those of its neighbours'
    mean (W_1, V_1: `mean1`, `mean2`). All neighbours are used, where the paper samples some,
    and hidden units are not scaled to length 1.

    W. L. Hamilton, R. Ying and J. Leskovec, "Inductive Representation Learning on Large Graphs",
    NeurIPS 2017.
    """

    def __init__(
        self, inputs: int, hidden: int, classes: int, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__(inputs, hidden, classes, dropout, generator)
        self.mean1 = nn.Parameter(glorot(inputs, hidden, generator))
        self.mean2 = nn.Parameter(glorot(hidden, classes, generator))

    @classmethod
    def from_weights(cls, weights: dict[str, Tensor], dropout: float = 0.0) -> GCN:
        """A network of the shape and with the values of some weights, on their device."""
        sage = super().from_weights(weights, dropout)
        for name in ("mean1", "mean2"):
            setattr(sage, name, nn.Parameter(weights[name].clone()))
        return sage

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] of the targets; without a generator nothing is dropped."""
        assert isinstance(field, TargetField)
        first = torch.cat([self.weight1, self.mean1])
        hidden = torch.relu(project(field.inputs, first) + self.bias1)
        if generator is not None:
            hidden = dropout(hidden, self.dropout, generator)
        own = torch.addmm(self.bias2, hidden[field.targets], self.weight2)
        return own + field.mix @ (hidden @ self.mean2)

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits [n, classes] of some nodes of a graph, without dropout and without a gradient."""
        with torch.no_grad():
            mean = neighbour_mean(adjacency)
            hidden = torch.addmm(self.bias1, x, self.weight1)
            hidden = hidden.add_(spmm(mean, x @ self.mean1)).relu_()
            own = torch.addmm(self.bias2, hidden[nodes], self.weight2)
            return own.add_(spmm(take_rows(mean, nodes), hidden @ self.mean2))


def whole_graph(adjacency: Tensor, x: Tensor, nodes: Tensor) -> TargetField:
    """The field that APPNP is trained on: ten hops, so the whole graph."""
    return TargetField(thinned(x), Operator(adjacency), nodes)


def neighbourhood(adjacency: Tensor, x: Tensor, nodes: Tensor) -> TargetField:
    """The field that GraphSAGE is trained on: rows of [X, M X] of targets and neighbours, and M."""
    mean = neighbour_mean(adjacency)
    field = receptive_field(mean, x, nodes)
    # a target is among them: its own entry in M is an explicit 0
    reached = torch.unique(take_rows(mean, nodes).col_indices())
    inputs = torch.cat([x[reached], field.inputs], dim=1)
    return TargetField(thinned(inputs), field.mix, torch.searchsorted(reached, nodes))


def neighbour_mean(adjacency: Tensor) -> Tensor:
    """M: the mean over a node's neighbours, itself left out (an entry of 0); 0 without any."""
    starts, columns = adjacency.crow_indices(), adjacency.col_indices()
    counts = starts.diff()
    row_of = torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)
    share = 1 / (counts - 1).clamp(min=1).to(torch.float32)
    values = torch.where(row_of == columns, 0, share[row_of])
    return csr(starts, columns, values, (counts.numel(), counts.numel()))


def pagerank(step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Personalised PageRank: K steps of Z ← (1 − α) Â Z + α H from H, where `step` gives Â Z."""
    reached = start
    for _ in range(STEPS):
        reached = torch.lerp(step(reached), start, RESTART)
    return reached


def thinned(x: Tensor) -> Tensor:
    """Features as a sparse CSR matrix where nearly all of them are 0, as they are elsewhere."""
    return x.to_sparse_csr() if int(x.count_nonzero()) < SPARSE_BELOW * x.numel() else x


def project(
    inputs: Tensor, weight: Tensor, rate: float = 0.0, generator: torch.Generator | None = None
) -> Tensor:
    """Features from `thinned`, with dropout, times weights; gradients flow to the weights."""
    sparse = inputs.layout is torch.sparse_csr
    values = inputs.values() if sparse else inputs
    if generator is not None:
        values = dropout(values, rate, generator)
    if not sparse:
        return values @ weight
    # a row as a bag of its non-zero features: the gradient needs no transpose after dropout
    return embedding_bag(
        inputs.col_indices(),
        weight,
        inputs.crow_indices(),
        mode="sum",
        per_sample_weights=values,
        include_last_offset=True,
    )
