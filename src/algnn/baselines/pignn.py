"""Parameter isolation (PI-GNN)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from algnn.baselines.replay import Replay, ReplayLearner, with_memory
from algnn.baselines.training import Known, Task, Tensors
from algnn.checks import Array
from algnn.gcn import GCN, dropout, hidden_layer
from algnn.graph.propagate import Field, blocks, spmm, take_rows


@dataclass(frozen=True)
class FrozenField(Field):
    """A field with the outputs of frozen units [n, h] and the frozen head's logits [n, C_old]."""

    units: Tensor
    logits: Tensor


class Block(GCN):
    """What one session adds and trains: units for all classes, and columns of its new classes."""

    def __init__(
        self,
        inputs: int,
        units: int,
        before: Tensor,
        classes: int,
        rate: float,
        draw: torch.Generator,
    ) -> None:
        super().__init__(inputs, units, classes, rate, draw)
        new = classes - before.size(1)
        self.bias2 = nn.Parameter(torch.zeros(new, dtype=torch.float32))
        # from 0: earlier units do not contribute to a new class until they are trained for it
        self.columns = nn.Parameter(torch.zeros(before.size(0), new, dtype=torch.float32))

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] while training; frozen units, which cannot adapt, are not dropped."""
        assert isinstance(field, FrozenField)
        assert generator is not None
        hidden = torch.relu(torch.addmm(self.bias1, field.inputs, self.weight1))
        hidden = dropout(hidden, self.dropout, generator)
        new = torch.addmm(self.bias2, field.units, self.columns)
        return torch.cat([field.logits, new], 1) + field.mix @ (hidden @ self.weight2)


@dataclass(kw_only=True, eq=False, repr=False)
class PIGNN(ReplayLearner):
    """Parameter isolation: old units are frozen bit for bit, each session brings a new block.

    After session t the network is a two-layer GCN with `hidden` + t · `block` units. Session t
    trains its own block and leaves the units before it as they are:

        logits = Â [ReLU(Â X W_1 + b_1), dropout(ReLU(Â X W_1^t + b_1^t))] [[W_2, V], [W_2^t]]
                 + [b_2, b_2^t],

    with W_1, b_1, W_2, b_2 frozen (the earlier units and their weights for the earlier classes) and
    W_1^t, b_1^t, W_2^t (the block and its weights for all classes), V, b_2^t (the head of the new
    classes over the earlier units, from V = 0) trained on

        L = L_t + retrain · L_memory,

    L_memory being the mean cross-entropy over remembered nodes of earlier sessions. It keeps the
    weights of all blocks, and ids and classes of the memory's nodes: in each class as many as in
    any other, at random. The paper first rectifies knowledge that a change of the graph has made
    unstable; here frozen parts stay frozen, and the new block learns from the memory, replayed on
    the graph as it is now, what has changed.

    Zhang et al., "Continual Learning on Dynamic Graphs via Parameter Isolation", SIGIR 2023.

    Parameters
    ----------
    block : int
        Units that each later session adds; `hidden` is the width of the base session.
    retrain : float
        Weight of the memory's loss; 0.1 in the paper, with 100 epochs of minibatches.
    budget : int
        Nodes in memory, over the whole stream.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    Examples
    --------
    >>> import algnn
    >>> model = PIGNN(hidden=16, block=8, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    # chosen on validation nodes at retrain = 0.1: AP on Cora 35, 54 and 67 with 64, 128 and 256
    block: int = 256
    # in 50 epochs 0.1 leaves the memory too little: AP on Cora, Computers and corafull-graph is 67,
    # 43 and 6 with it, and 81, 86 and 39 with 1.0
    retrain: float = 1.0
    _limits: ClassVar = {"block": 1, "retrain": 0, "budget": 1}

    def _model(self, inputs: int, classes: int, before: Known | None, draw: torch.Generator) -> GCN:
        if before is None:
            return super()._model(inputs, classes, before, draw)
        return Block(inputs, self.block, before.weights["weight2"], classes, self.dropout, draw)

    def _prepare(self, task: Task) -> Replay | None:
        if task.before is None:
            return None
        nodes, codes = with_memory(task)
        # one field for both: their neighbourhoods overlap, and one product is cheaper than two
        field, weights = task.field_of(nodes), task.before.weights
        inputs, mix = field.inputs, field.mix.matrix
        units = inputs.new_empty(mix.size(0), weights["bias1"].numel())
        # a few at a time: a neighbourhood's rows are many more than the targets
        for part in blocks(units.size(1), inputs.size(0) * inputs.element_size()):
            bias1, weight1 = weights["bias1"][part], weights["weight1"][:, part]
            units[:, part] = spmm(mix, torch.addmm(bias1, inputs, weight1).relu_())
        logits = torch.addmm(weights["bias2"], units, weights["weight2"])
        memory = self.retrain * task.shares(codes[task.nodes.numel() :])
        shares = torch.cat([task.shares(task.codes), memory])
        return Replay(FrozenField(inputs, field.mix, units, logits), codes, shares)

    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        drawn = torch.randperm(nodes.numel(), generator=task.initial).to(nodes.device)
        # counted from the first remembered node
        return (drawn + task.nodes.numel()) % nodes.numel()

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Known | None) -> Known:
        known = super()._learn(graph, nodes, labels, learned)
        if learned is None:
            return known
        return replace(known, weights=joined(learned.weights, known.weights))

    def _logits(self, weights: Tensors, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        # as in the base class, but a few units at a time: after many sessions they are many
        head = x.new_zeros(x.size(0), weights["bias2"].numel())
        for part in blocks(weights["bias1"].numel(), x.size(0) * x.element_size()):
            weight1, bias1 = weights["weight1"][:, part], weights["bias1"][part]
            head += hidden_layer(adjacency, x, weight1, bias1) @ weights["weight2"][part]
        return spmm(take_rows(adjacency, nodes), head) + weights["bias2"]


def joined(old: Tensors, new: Tensors) -> Tensors:
    """A GCN's weights and a trained `Block` as the weights of one GCN; old ones bit for bit."""
    upper = torch.cat([old["weight2"], new["columns"]], dim=1)
    return {
        "weight1": torch.cat([old["weight1"], new["weight1"]], dim=1),
        "bias1": torch.cat([old["bias1"], new["bias1"]]),
        "weight2": torch.cat([upper, new["weight2"]]),
        "bias2": torch.cat([old["bias2"], new["bias2"]]),
    }
