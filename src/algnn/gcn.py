"""The two-layer GCN that all trained methods share, and its training loop.

logits = Â dropout(ReLU(Â X W_1 + b_1)) W_2 + b_2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from algnn.graph.propagate import Field, blocks, receptive_field, spmm, take_rows

Shapes = dict[str, tuple[int] | tuple[int, int]]


class GCN(nn.Module):
    """A graph convolutional network, d → hidden → classes (Kipf and Welling, 2017)."""

    weight1: nn.Parameter
    bias1: nn.Parameter
    weight2: nn.Parameter
    bias2: nn.Parameter

    def __init__(
        self, inputs: int, hidden: int, classes: int, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.dropout = dropout
        for name, value in drawn(self.shapes(inputs, hidden, classes), generator).items():
            setattr(self, name, value)

    @classmethod
    def shapes(cls, inputs: int, hidden: int, classes: int) -> Shapes:
        """The shapes of the weights by name, in the order in which they are drawn."""
        first: Shapes = {"weight1": (inputs, hidden), "bias1": (hidden,)}
        return first | {"weight2": (hidden, classes), "bias2": (classes,)}

    @classmethod
    def from_weights(cls, weights: dict[str, Tensor], dropout: float = 0.0) -> GCN:
        """A network of the shape and with the values of some weights, on their device."""
        gcn = cls(1, 1, 1, dropout, torch.Generator())
        for name in cls.shapes(0, 0, 0):
            setattr(gcn, name, nn.Parameter(weights[name].clone()))
        return gcn

    @property
    def weights(self) -> dict[str, Tensor]:
        """All that is learned, as it is now, without a gradient."""
        return {name: value.detach() for name, value in self.named_parameters()}

    @staticmethod
    def field(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Field:
        """All that the logits of some nodes of a graph depend on."""
        return receptive_field(adjacency, x, nodes)

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] of the field's target nodes; a generator draws the dropout."""
        hidden = torch.relu(torch.addmm(self.bias1, field.inputs, self.weight1))
        hidden = dropout(hidden, self.dropout, generator)
        return field.mix @ (hidden @ self.weight2) + self.bias2

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits [n, classes] of some nodes of a graph, without dropout and without a gradient."""
        with torch.no_grad():
            hidden = hidden_layer(adjacency, x, self.weight1, self.bias1)
            return spmm(take_rows(adjacency, nodes), hidden @ self.weight2) + self.bias2


def hidden_layer(adjacency: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU(Â X W + b) for every node of a graph, without a gradient."""
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
    adjust: Callable[[], object] = lambda: None,
    after: Callable[[int], object] = lambda epoch: None,
) -> None:
    """Full-batch Adam; `adjust` may change gradients before a step, `after` gets the epoch then."""
    optimiser = torch.optim.Adam(list(parameters), lr=lr, weight_decay=weight_decay, fused=True)
    for epoch in range(epochs):
        optimiser.zero_grad(set_to_none=True)
        # torch types `backward` loosely
        loss().backward()  # type: ignore[no-untyped-call]
        adjust()
        optimiser.step()
        after(epoch)


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniform weights in ±√(6 / (rows + columns)), drawn on the CPU: the same on every device."""
    weights = torch.rand(rows, columns, generator=generator, dtype=torch.float32)
    return weights.mul_(2).sub_(1).mul_(math.sqrt(6 / (rows + columns)))


def drawn(
    shapes: Shapes, generator: torch.Generator, device: torch.device | None = None
) -> dict[str, nn.Parameter]:
    """Parameters to train, by name: `glorot` matrices, and vectors of 0."""
    found = {}
    for name, shape in shapes.items():
        value = glorot(*shape, generator) if len(shape) == 2 else torch.zeros(shape)
        found[name] = nn.Parameter(value.to(device, torch.float32))
    return found


def dropout(hidden: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Drop a share of the entries, rounded to 1/256, and scale up the rest; none if not drawn."""
    # torch's own draws a word per entry, eight of which have room in one (18 times as long for 0.7
    # million entries on two CPU cores), and takes no generator
    dropped = min(255, round(rate * 256))
    if dropped == 0 or generator is None:
        return hidden
    words = torch.empty(-(-hidden.numel() // 8), dtype=torch.int64, device=hidden.device)
    words.random_(-(2**63), None, generator=generator)
    mask = words.view(torch.uint8)[: hidden.numel()].view(hidden.shape) >= dropped
    return hidden * mask * (256 / (256 - dropped))
