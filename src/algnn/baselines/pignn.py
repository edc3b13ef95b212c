"""Parameter isolation (PI-GNN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from algnn.baselines.memory import keep_best
from algnn.baselines.training import GradientLearner, Known, Task, Tensors
from algnn.checks import check_number
from algnn.gcn import GCN, dropout, hidden_layer
from algnn.graph.propagate import Field, blocks, spmm, take_rows


@dataclass(frozen=True)
class Frozen:
    """A session's nodes and those of the memory, with the outputs of the frozen units for them.

    `weight` [n] is each node's weight in the loss, `units` [n, h] are Â ReLU(Â X W_1 + b_1) over
    the h earlier units, `logits` [n, C_old] those of the frozen head.
    """

    field: Field
    codes: Tensor
    weight: Tensor
    units: Tensor
    logits: Tensor


class Block(GCN):
    """What one session adds to the network, and all that it trains.

    Its own units have weights for all classes; the columns of the session's new classes read the
    earlier units as well.
    """

    def __init__(
        self,
        inputs: int,
        units: int,
        classes: int,
        old_units: int,
        new_classes: int,
        dropout: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(inputs, units, classes, dropout, generator)
        self.bias2 = nn.Parameter(torch.zeros(new_classes, dtype=torch.float32))
        # from 0: earlier units do not contribute to a new class until they are trained for it
        self.columns = nn.Parameter(torch.zeros(old_units, new_classes, dtype=torch.float32))

    def logits(self, frozen: Frozen, generator: torch.Generator) -> Tensor:
        """Logits [n, classes] of the session's and the memory's nodes while training.

        Frozen units are not dropped, since they cannot adapt to each other any more.
        """
        hidden = torch.relu(torch.addmm(self.bias1, frozen.field.inputs, self.weight1))
        hidden = dropout(hidden, self.dropout, generator)
        new = torch.addmm(self.bias2, frozen.units, self.columns)
        return torch.cat([frozen.logits, new], 1) + frozen.field.mix @ (hidden @ self.weight2)


@dataclass(kw_only=True, eq=False, repr=False)
class PIGNN(GradientLearner):
    """Parameter isolation: old units are frozen bit for bit, each session brings a new block.

    After session t the network is a two-layer GCN with `hidden` + t · `block` units. Session t
    trains its own block U_t and leaves the units U before it as they are:

        logits = Â [ReLU(Â X W_1 + b_1), dropout(ReLU(Â X W_1^t + b_1^t))] [[W_2, V], [W_2^t]]
                 + [b_2, b_2^t],

    with W_1, b_1, W_2, b_2 frozen (the earlier units and their weights for the earlier classes) and
    W_1^t, b_1^t, W_2^t (the block and its weights for all classes), V, b_2^t (the head of the new
    classes over the earlier units) trained on

        L = L_t + retrain · L_memory,

    L_memory being the mean cross-entropy over remembered nodes of earlier sessions. V starts from
    0: a frozen unit has no weight for a later class but what that class's own session trains. Every
    block has the same width, however many sessions there are.

    Parameters
    ----------
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device
        As in `GradientLearner`; `hidden` is the width of the base session.
    block : int
        Units that each later session adds.
    retrain : float
        Weight of the memory's loss. The paper's is 0.1, with 100 epochs of minibatches and no
        weight decay; see below.
    budget : int
        Nodes in memory, over the whole stream.

    Notes
    -----
    It keeps the weights of all blocks, and ids and classes of the memory's nodes: in each class as
    many as in any other, at random.

    The paper first rectifies knowledge that a change of the graph has made unstable. Where the
    whole graph is visible from the start (``edges="full"``) nothing becomes unstable. Where it
    grows, frozen parts stay frozen here: the memory's nodes are replayed on the graph as it is now,
    and the new block learns what has changed for them.

    In the 50 epochs that all baselines have here, a weight of 0.1 leaves the memory of all earlier
    classes too little: AP on Cora, Computers and corafull-graph is 67, 43 and 6 with it, and 81, 86
    and 39 with 1.0 (on Cora 400 epochs with 0.1 do as much). A block as wide as the base was chosen
    on validation nodes at 0.1: a narrow one learns the new class and has no time left to make room
    for the old ones (Cora, 300 nodes of memory: AP 35, 54 and 67 with 64, 128 and 256 units;
    digits, 200 nodes: 19, 19 and 46).

    References
    ----------
    P. Zhang, Y. Yan, C. Li, S. Wang, X. Xie, G. Song and S. Kim, "Continual Learning on Dynamic
    Graphs via Parameter Isolation", SIGIR 2023.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = PIGNN(hidden=16, block=8, epochs=5)
    >>> for session in stream:
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    block: int = 256
    retrain: float = 1.0
    budget: int = 300
    selects: ClassVar[bool] = True

    def _check_params(self) -> None:
        super()._check_params()
        check_number("block", self.block, 1, whole=True)
        check_number("retrain", self.retrain, 0)
        check_number("budget", self.budget, 1, whole=True)

    def _model(
        self, inputs: int, classes: int, before: Known | None, initial: torch.Generator
    ) -> GCN:
        if before is None:
            return super()._model(inputs, classes, before, initial)
        units, old = before.weights["weight2"].shape
        return Block(inputs, self.block, classes, units, classes - old, self.dropout, initial)

    def _prepare(self, task: Task) -> Frozen | None:
        if task.before is None:
            return None
        old = task.replayed()
        nodes, codes = old["nodes"], old["codes"]
        # one field for both: their neighbourhoods overlap, and one product is cheaper than two
        field = task.field_of(torch.cat([task.nodes, nodes]))
        weights = task.before.weights
        units = frozen_units(field, weights)
        return Frozen(
            field,
            torch.cat([task.codes, codes]),
            torch.cat([task.shares(task.codes), self.retrain * task.shares(codes)]),
            units,
            torch.addmm(weights["bias2"], units, weights["weight2"]),
        )

    def _loss(self, task: Task, prepared: Frozen | None) -> Tensor:
        if prepared is None:
            return task.loss()
        assert isinstance(task.gcn, Block)
        logits = task.gcn.logits(prepared, task.masks)
        return prepared.weight @ cross_entropy(logits, prepared.codes, reduction="none")

    def _remember(self, task: Task, prepared: Frozen | None) -> Tensors:
        old = task.replayed()
        nodes = torch.cat([old["nodes"], task.nodes])
        codes = torch.cat([old["codes"], task.codes])
        order = torch.randperm(nodes.numel(), generator=task.initial).to(nodes.device)
        nodes, codes = keep_best(nodes[order], codes[order], self.budget)
        return {"nodes": nodes, "codes": codes}

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Known | None
    ) -> Known:
        known = super()._learn(graph, nodes, labels, learned)
        if learned is None:
            return known
        whole = joined(learned.weights, known.weights)
        return Known(whole, known.arrival, known.sessions, known.memory)

    def _logits(self, weights: Tensors, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        # as in the base class, but a few units at a time: after many sessions they are many
        head = x.new_zeros(x.size(0), weights["bias2"].numel())
        for part in blocks(weights["bias1"].numel(), x.size(0) * x.element_size()):
            weight1, bias1 = weights["weight1"][:, part], weights["bias1"][part]
            head += hidden_layer(adjacency, x, weight1, bias1) @ weights["weight2"][part]
        return spmm(take_rows(adjacency, nodes), head) + weights["bias2"]


def frozen_units(field: Field, weights: Tensors) -> Tensor:
    """Â ReLU(Â X W_1 + b_1) [n, h] of a field's targets, without a gradient."""
    inputs, mix = field.inputs, field.mix.matrix
    units = weights["bias1"].numel()
    read = inputs.new_empty(mix.size(0), units)
    # a few units at a time: a neighbourhood's rows are many more than the targets
    for part in blocks(units, inputs.size(0) * inputs.element_size()):
        hidden = torch.addmm(weights["bias1"][part], inputs, weights["weight1"][:, part]).relu_()
        read[:, part] = spmm(mix, hidden)
    return read


def joined(old: Tensors, new: Tensors) -> Tensors:
    """A GCN's weights and a trained `Block` as the weights of one GCN; old ones bit for bit."""
    upper = torch.cat([old["weight2"], new["columns"]], dim=1)
    return {
        "weight1": torch.cat([old["weight1"], new["weight1"]], dim=1),
        "bias1": torch.cat([old["bias1"], new["bias1"]]),
        "weight2": torch.cat([upper, new["weight2"]]),
        "bias2": torch.cat([old["bias2"], new["bias2"]]),
    }
