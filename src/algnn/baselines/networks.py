"""Two other networks for the joint reference: APPNP and GraphSAGE.

Both are two layers of weights under the names that `GCN` gives them, so that a learner trains,
saves and checks them alike. Each reads what a function prepares of a graph before training, not in
every epoch: `whole_graph` for APPNP and `neighbourhood` for GraphSAGE, as `receptive_field` does
for the GCN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from algnn.gcn import GCN, dropout, glorot
from algnn.graph.propagate import Field, Operator, receptive_field, spmm, take_rows

# APPNP's α and K
RESTART = 0.1
STEPS = 10
# A product that skips the zeros took a tenth of the time where 1% are none (Cora, Citeseer), as
# long at 10% (Pubmed), twice as long at 35% (Computers); one CPU core, forward and back.
SPARSE_BELOW = 0.05


@dataclass(frozen=True)
class Sight(Field):
    """A field that knows where its targets stand among its rows.

    Attributes
    ----------
    inputs : Tensor [m, d], dense or sparse CSR
        What the first layer reads.
    mix : Operator
        What gathers neighbours.
    targets : Tensor [n]
        The rows of `inputs` that are the targets' own.

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> whole_graph(pair, torch.ones(2, 4), torch.tensor([1])).targets
    tensor([1])
    """

    targets: Tensor


class APPNP(GCN):
    """Predict, then propagate: a perceptron whose answers take a walk (Gasteiger et al., 2019).

    H = dropout(ReLU(dropout(X) W_1 + b_1)) W_2 + b_2 for every node, then personalised PageRank,

        Z_0 = H,   Z_{k+1} = (1 − α) Â Z_k + α H,   logits = Z_K,   α = 0.1, K = 10.

    The paper drops entries of Â as well, in each step; that is left out.

    Johannes Gasteiger, Aleksandar Bojchevski and Stephan Günnemann: Predict then Propagate: Graph
    Neural Networks meet Personalized PageRank, ICLR 2019.

    Parameters
    ----------
    inputs, hidden, classes, dropout, generator
        As in `GCN`; features are dropped as well as hidden units.

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> model = APPNP(4, 8, 3, dropout=0.5, generator=torch.Generator().manual_seed(0))
    >>> model(whole_graph(pair, torch.ones(2, 4), torch.tensor([1]))).shape
    torch.Size([1, 3])
    """

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits of the targets.

        Parameters
        ----------
        field : Field
            What `whole_graph` gave.
        generator : torch.Generator, optional
            Draws the dropout masks, on the field's device; without it nothing is dropped.

        Returns
        -------
        Tensor [n, classes]
        """
        assert isinstance(field, Sight)
        first = project(field.inputs, self.weight1, self.dropout, generator)
        hidden = torch.relu(first + self.bias1)
        if generator is not None:
            hidden = dropout(hidden, self.dropout, generator)
        start = torch.addmm(self.bias2, hidden, self.weight2)
        return walk(lambda reached: field.mix @ reached, start)[field.targets]

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits of some nodes of a graph, without dropout and without a gradient.

        Parameters
        ----------
        adjacency : Tensor [N, N], sparse CSR
        x : Tensor [N, d]
        nodes : Tensor [n]

        Returns
        -------
        Tensor [n, classes]
        """
        with torch.no_grad():
            hidden = torch.addmm(self.bias1, x, self.weight1).relu_()
            start = torch.addmm(self.bias2, hidden, self.weight2)
            return walk(lambda reached: spmm(adjacency, reached), start)[nodes]


class SAGE(GCN):
    """GraphSAGE with the mean aggregator, full batch (Hamilton et al., 2017).

    With M the mean over a node's neighbours, itself left out,

        logits = H V_0 + M H V_1 + b_2,   H = dropout(ReLU(X W_0 + M X W_1 + b_1)):

    a node's own weights (W_0, V_0: `weight1`, `weight2`) are apart from those of its neighbours'
    mean (W_1, V_1: `mean1`, `mean2`). Every neighbour counts, where the paper samples some, and
    hidden units are not scaled to length 1.

    William L. Hamilton, Rex Ying and Jure Leskovec: Inductive Representation Learning on Large
    Graphs, NeurIPS 2017.

    Parameters
    ----------
    inputs, hidden, classes, dropout, generator
        As in `GCN`.

    Examples
    --------
    >>> model = SAGE(4, 8, 3, dropout=0.5, generator=torch.Generator().manual_seed(0))
    >>> {name: tuple(p.shape) for name, p in model.named_parameters()}
    {'weight1': (4, 8), 'bias1': (8,), 'weight2': (8, 3), 'bias2': (3,), 'mean1': (4, 8),
     'mean2': (8, 3)}
    """

    def __init__(
        self, inputs: int, hidden: int, classes: int, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__(inputs, hidden, classes, dropout, generator)
        self.mean1 = nn.Parameter(glorot(inputs, hidden, generator))
        self.mean2 = nn.Parameter(glorot(hidden, classes, generator))

    @classmethod
    def from_weights(cls, weights: dict[str, Tensor], dropout: float = 0.0) -> GCN:
        """A network of the shape and with the values of some weights, on their device.

        Parameters
        ----------
        weights : dict of Tensor
            By the names of the parameters.
        dropout : float

        Returns
        -------
        SAGE
        """
        sage = super().from_weights(weights, dropout)
        for name in ("mean1", "mean2"):
            setattr(sage, name, nn.Parameter(weights[name].clone()))
        return sage

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits of the targets.

        Parameters
        ----------
        field : Field
            What `neighbourhood` gave.
        generator : torch.Generator, optional
            Draws the dropout mask, on the field's device; without it nothing is dropped.

        Returns
        -------
        Tensor [n, classes]
        """
        assert isinstance(field, Sight)
        first = torch.cat([self.weight1, self.mean1])
        hidden = torch.relu(project(field.inputs, first) + self.bias1)
        if generator is not None:
            hidden = dropout(hidden, self.dropout, generator)
        own = torch.addmm(self.bias2, hidden[field.targets], self.weight2)
        return own + field.mix @ (hidden @ self.mean2)

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits of some nodes of a graph, without dropout and without a gradient.

        Parameters
        ----------
        adjacency : Tensor [N, N], sparse CSR
        x : Tensor [N, d]
        nodes : Tensor [n]

        Returns
        -------
        Tensor [n, classes]
        """
        with torch.no_grad():
            mean = neighbour_mean(adjacency)
            hidden = torch.addmm(self.bias1, x, self.weight1)
            hidden = hidden.add_(spmm(mean, x @ self.mean1)).relu_()
            own = torch.addmm(self.bias2, hidden[nodes], self.weight2)
            return own.add_(spmm(take_rows(mean, nodes), hidden @ self.mean2))


def whole_graph(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Sight:
    """What APPNP needs of a graph in order to be trained on `nodes`: ten hops, so all of it.

    Parameters
    ----------
    adjacency : Tensor [N, N], sparse CSR
    x : Tensor [N, d]
    nodes : Tensor [n]
        The targets.

    Returns
    -------
    Sight
        X, Â and where the targets stand.

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> path = normalised_adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    >>> whole_graph(path, torch.ones(3, 2), torch.tensor([0])).inputs.shape
    torch.Size([3, 2])
    """
    return Sight(thinned(x), Operator(adjacency), nodes)


def neighbourhood(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Sight:
    """What GraphSAGE needs of a graph in order to be trained on `nodes`.

    Parameters
    ----------
    adjacency : Tensor [N, N], sparse CSR
    x : Tensor [N, d]
    nodes : Tensor [n]
        The targets.

    Returns
    -------
    Sight
        Rows of [X, M X] for the m nodes that are among the targets or one hop away, and the
        targets' rows of M over them.

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> path = normalised_adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    >>> sight = neighbourhood(path, torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0]))
    >>> sight.inputs, sight.targets
    (tensor([[1., 2.], [2., 2.]]), tensor([0]))
    """
    mean = neighbour_mean(adjacency)
    field = receptive_field(mean, x, nodes)
    # a target is among them: its own entry in M is a 0 that is written down
    reached = torch.unique(take_rows(mean, nodes).col_indices())
    inputs = torch.cat([x[reached], field.inputs], dim=1)
    return Sight(thinned(inputs), field.mix, torch.searchsorted(reached, nodes))


def neighbour_mean(adjacency: Tensor) -> Tensor:
    """M: the mean over a node's neighbours, itself left out; 0 for a node that has none.

    Parameters
    ----------
    adjacency : Tensor [N, N], sparse CSR
        Â of `normalised_adjacency`: each row holds a self-loop and an entry for each neighbour.

    Returns
    -------
    Tensor [N, N], sparse CSR
        With an entry wherever Â has one; those of self-loops are 0.

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> path = normalised_adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    >>> neighbour_mean(path).to_dense()
    tensor([[0.0000, 1.0000, 0.0000],
            [0.5000, 0.0000, 0.5000],
            [0.0000, 1.0000, 0.0000]])
    """
    starts, columns = adjacency.crow_indices(), adjacency.col_indices()
    counts = starts.diff()
    row_of = torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)
    share = 1 / (counts - 1).clamp(min=1).to(torch.float32)
    values = torch.where(row_of == columns, 0, share[row_of])
    return torch.sparse_csr_tensor(starts, columns, values, adjacency.shape, check_invariants=False)


def walk(step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Personalised PageRank from what each node says itself: K steps of (1 − α) Â Z + α H.

    Parameters
    ----------
    step : callable
        Gives Â Z of a Tensor Z [N, C].
    start : Tensor [N, C]
        H.

    Returns
    -------
    Tensor [N, C]

    Examples
    --------
    >>> walk(lambda reached: reached.flip(0), torch.tensor([[1.0], [0.0]])).round(decimals=2)
    tensor([[0.6900],
            [0.3100]])
    """
    reached = start
    for _ in range(STEPS):
        reached = torch.lerp(step(reached), start, RESTART)
    return reached


def thinned(x: Tensor) -> Tensor:
    """Features as a sparse matrix where nearly all of them are 0, as they are elsewhere.

    Parameters
    ----------
    x : Tensor [m, d]

    Returns
    -------
    Tensor [m, d], sparse CSR or dense

    Examples
    --------
    >>> thinned(torch.eye(100)).layout, thinned(torch.ones(3, 2)).layout
    (torch.sparse_csr, torch.strided)
    """
    return x.to_sparse_csr() if int(x.count_nonzero()) < SPARSE_BELOW * x.numel() else x


def project(
    inputs: Tensor, weight: Tensor, rate: float = 0.0, generator: torch.Generator | None = None
) -> Tensor:
    """Features that `thinned` gave times weights, with a gradient for the weights.

    Parameters
    ----------
    inputs : Tensor [m, d], dense or sparse CSR
    weight : Tensor [d, h]
    rate : float
        Share of the features to drop.
    generator : torch.Generator, optional
        Draws what is dropped, on the device of `inputs`; without it nothing is.

    Returns
    -------
    Tensor [m, h]

    Examples
    --------
    >>> project(thinned(torch.eye(100)), torch.ones(100, 2)).sum()
    tensor(200.)
    """
    sparse = inputs.layout is torch.sparse_csr
    # there is no need to drop a 0
    values = inputs.values() if sparse else inputs
    if generator is not None:
        values = dropout(values, rate, generator)
    if not sparse:
        return values @ weight
    # a row is a bag of the features it has: the gradient needs no transpose of what was dropped
    return embedding_bag(
        inputs.col_indices(),
        weight,
        inputs.crow_indices(),
        mode="sum",
        per_sample_weights=values,
        include_last_offset=True,
    )
