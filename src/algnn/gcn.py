"""The two-layer GCN that everyone trains, and the loop that trains it.

logits = Â dropout(ReLU(Â X W_1 + b_1)) W_2 + b_2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from algnn.graph.propagate import Field, blocks, spmm, take_rows


class GCN(nn.Module):
    """A graph convolutional network, d → hidden → classes (Kipf and Welling, 2017).

    Parameters
    ----------
    inputs, hidden, classes : int
        Widths of the input, of the hidden layer and of the output.
    dropout : float
        Share of hidden units dropped while training.
    generator : torch.Generator
        Source of the initial weights; the global random state is left alone.

    Examples
    --------
    >>> import torch
    >>> model = GCN(4, 8, 3, dropout=0.5, generator=torch.Generator().manual_seed(0))
    >>> [tuple(p.shape) for p in model.parameters()]
    [(4, 8), (8,), (8, 3), (3,)]
    """

    def __init__(
        self, inputs: int, hidden: int, classes: int, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight1 = nn.Parameter(glorot(inputs, hidden, generator))
        self.bias1 = nn.Parameter(torch.zeros(hidden))
        self.weight2 = nn.Parameter(glorot(hidden, classes, generator))
        self.bias2 = nn.Parameter(torch.zeros(classes))

    @classmethod
    def from_weights(cls, weights: dict[str, Tensor], dropout: float = 0.0) -> GCN:
        """A GCN of the shape and with the values of some weights, on their device.

        Parameters
        ----------
        weights : dict of Tensor
            By the names of the parameters.
        dropout : float

        Returns
        -------
        GCN
        """
        gcn = cls.__new__(cls)
        nn.Module.__init__(gcn)
        gcn.dropout = dropout
        for name in ("weight1", "bias1", "weight2", "bias2"):
            setattr(gcn, name, nn.Parameter(weights[name].clone()))
        return gcn

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits of the field's target nodes.

        Parameters
        ----------
        field : Field
            The targets and what they can see.
        generator : torch.Generator, optional
            Draws the dropout mask, on the field's device; without it nothing is dropped.

        Returns
        -------
        Tensor [n, classes]
        """
        hidden = torch.relu(torch.addmm(self.bias1, field.inputs, self.weight1))
        if generator is not None:
            hidden = dropout(hidden, self.dropout, generator)
        return field.mix @ (hidden @ self.weight2) + self.bias2

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
            hidden = hidden_layer(adjacency, x, self.weight1, self.bias1)
            return spmm(take_rows(adjacency, nodes), hidden @ self.weight2) + self.bias2


def hidden_layer(adjacency: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU(Â X W + b) for every node of a graph, without a gradient.

    Parameters
    ----------
    adjacency : Tensor [N, N], sparse CSR
        Â of `normalised_adjacency`.
    x : Tensor [N, d]
    weight : Tensor [d, h]
    bias : Tensor [h]

    Returns
    -------
    Tensor [N, h]

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> x = torch.tensor([[2.0, -4.0], [0.0, 0.0]])
    >>> hidden_layer(pair, x, torch.eye(2), torch.zeros(2)).round(decimals=3)
    tensor([[1., 0.],
            [1., 0.]])
    """
    with torch.no_grad():
        # X W first: h columns are fewer to propagate than d, nearly always
        projected = x.new_empty(x.size(0), weight.size(1))
        for block in blocks(x.size(0), x.size(1) * x.element_size(), x.device):
            torch.mm(x[block], weight, out=projected[block])
        return spmm(adjacency, projected).add_(bias).relu_()


def train(
    parameters: Iterable[nn.Parameter],
    loss: Callable[[], Tensor],
    epochs: int,
    lr: float,
    weight_decay: float,
    adjust: Callable[[], None] | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Full-batch Adam for a fixed number of epochs.

    Parameters
    ----------
    parameters : iterable of Parameter
        What is trained.
    loss : callable
        Gives the loss of one epoch.
    epochs : int
    lr, weight_decay : float
        Of Adam.
    adjust : callable, optional
        Changes the gradients of an epoch before the step is taken.
    after : callable, optional
        Called with the number of each epoch once its step is taken.

    Examples
    --------
    >>> weight = nn.Parameter(torch.tensor(1.0))
    >>> train([weight], lambda: weight**2, epochs=200, lr=0.1, weight_decay=0.0)
    >>> abs(weight.item()) < 0.01
    True
    """
    optimiser = torch.optim.Adam(list(parameters), lr=lr, weight_decay=weight_decay, fused=True)
    for epoch in range(epochs):
        optimiser.zero_grad(set_to_none=True)
        # torch types `backward` loosely
        loss().backward()  # type: ignore[no-untyped-call]
        if adjust is not None:
            adjust()
        optimiser.step()
        if after is not None:
            after(epoch)


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniform weights in ±√(6 / (rows + columns)), drawn on the CPU for the same values anywhere.

    Parameters
    ----------
    rows, columns : int
    generator : torch.Generator

    Returns
    -------
    Tensor [rows, columns]

    Examples
    --------
    >>> glorot(2, 4, torch.Generator().manual_seed(0)).abs().max() <= 1.0
    tensor(True)
    """
    weights = torch.rand(rows, columns, generator=generator)
    # by NumPy, in this thread: where others are at work, torch waits longer for its own than it
    # takes to scale some weights
    scaled = weights.numpy()
    scaled *= 2
    scaled -= 1
    scaled *= scaled.dtype.type(math.sqrt(6 / (rows + columns)))
    return weights


def dropout(hidden: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Drop a share of the entries and scale up the rest.

    Eight masks are cut from each random 64-bit word, so the rate is rounded to 1/256 (and the scale
    with it, so that the mean stays exact). torch's own dropout draws a word per entry, which took
    18 times as long (0.7 million entries, two CPU cores), and cannot be given a generator.

    Parameters
    ----------
    hidden : Tensor
    rate : float
        Share to drop, in [0, 1).
    generator : torch.Generator
        On the device of `hidden`.

    Returns
    -------
    Tensor
        As `hidden`.

    Examples
    --------
    >>> kept = dropout(torch.ones(1000, 8), 0.5, torch.Generator().manual_seed(0))
    >>> sorted(set(kept.flatten().tolist())), round(float(kept.mean()), 1)
    ([0.0, 2.0], 1.0)
    """
    dropped = min(255, round(rate * 256))
    if dropped == 0:
        return hidden
    words = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64, device=hidden.device)
    words.random_(-(2**63), None, generator=generator)
    mask = words.view(torch.uint8)[: hidden.numel()].view(hidden.shape) >= dropped
    return hidden * mask * (256 / (256 - dropped))
