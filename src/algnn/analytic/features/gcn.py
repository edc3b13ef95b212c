"""The paper's graph encoder: trained on the base session, then frozen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algnn.analytic.features.expansion import Expansion
from algnn.gcn import GCN, hidden_layer, train
from algnn.graph.propagate import Field


@dataclass(frozen=True)
class GCNEncoder:
    """f_gcn of the paper: the first layer of a GCN, H = ReLU(Â X W_1 + b_1).

    The GCN is trained with a second layer on top, which is thrown away.

    Attributes
    ----------
    weight : Tensor [d, h]
    bias : Tensor [h]

    Examples
    --------
    >>> import torch
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> encoder = GCNEncoder(torch.eye(2), torch.zeros(2))
    >>> encoder(adjacency, torch.tensor([[2.0, -4.0], [0.0, 0.0]])).round(decimals=3)
    tensor([[1., 0.],
            [1., 0.]])
    """

    weight: Tensor
    bias: Tensor

    def __call__(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """H [N, h] of every node of a graph, from Â and X [N, d]."""
        return hidden_layer(adjacency, x, self.weight, self.bias)

    @classmethod
    def fit(
        cls,
        field: Field,
        codes: Tensor,
        *,
        hidden: int,
        epochs: int,
        lr: float,
        dropout: float,
        weight_decay: float,
        seed: int,
    ) -> GCNEncoder:
        """Train on the base session by cross-entropy, full batch, and keep the first layer.

        `codes` [n] are the classes of the field's nodes, as 0, 1, …; the rest is as in `ALGNN`.
        """
        initial = torch.Generator().manual_seed(seed)
        device = field.inputs.device
        classes = int(codes.max()) + 1
        gcn = GCN(field.inputs.size(1), hidden, classes, dropout, initial).to(device)
        masks = torch.Generator(device).manual_seed(seed)
        train(
            gcn.parameters(),
            lambda: cross_entropy(gcn(field, masks), codes),
            epochs,
            lr,
            weight_decay,
        )
        return cls(gcn.weight1.detach(), gcn.bias1.detach())


@dataclass(frozen=True)
class ExpandedGCN:
    """The paper's features: those of a trained encoder, expanded."""

    encoder: GCNEncoder
    expansion: Expansion

    @property
    def inputs(self) -> int:
        """Width of X."""
        return self.encoder.weight.size(0)

    @property
    def width(self) -> int:
        """d, of Z."""
        return self.expansion.width

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """What must be done once for the whole graph: Â H or H [N, h]."""
        return self.expansion.prepare(adjacency, self.encoder(adjacency, x))

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        return self.expansion(prepared)
