"""PI-GNN: what was learned is frozen, and each session adds units of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
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
    """A session's nodes and those of the memory, with what the frozen units make of them.

    Attributes
    ----------
    field : Field
        These n nodes and what they can see.
    codes, weight : Tensor [n]
        Their classes, and what each counts for in the loss.
    units : Tensor [n, h]
        Â ReLU(Â X W_1 + b_1) over the h units there were: what a head reads.
    logits : Tensor [n, C_old]
        What the frozen head makes of them for the classes there were.
    """

    field: Field
    codes: Tensor
    weight: Tensor
    units: Tensor
    logits: Tensor


class Block(GCN):
    """What one session adds to the network, and all that it trains.

    Parameters
    ----------
    inputs, units, classes : int
        Features, the block's own units, and classes seen so far: the block speaks for all of them.
    old_units, new_classes : int
        Units there were, which the columns of the session's new classes read as well.
    dropout : float
    generator : torch.Generator

    Examples
    --------
    >>> block = Block(4, 8, 3, 16, 1, dropout=0.5, generator=torch.Generator().manual_seed(0))
    >>> {name: tuple(p.shape) for name, p in block.named_parameters()}
    {'weight1': (4, 8), 'bias1': (8,), 'weight2': (8, 3), 'bias2': (1,), 'columns': (16, 1)}
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
        self.bias2 = nn.Parameter(torch.zeros(new_classes))
        # from 0: units that know nothing of a class say nothing about it until they are taught
        self.columns = nn.Parameter(torch.zeros(old_units, new_classes))

    def logits(self, frozen: Frozen, generator: torch.Generator) -> Tensor:
        """Logits of the session's and the memory's nodes while training.

        Parameters
        ----------
        frozen : Frozen
        generator : torch.Generator
            Draws the dropout mask of the new units; frozen ones are not dropped, since they cannot
            adapt to each other any more.

        Returns
        -------
        Tensor [n, classes]
        """
        hidden = torch.relu(torch.addmm(self.bias1, frozen.field.inputs, self.weight1))
        hidden = dropout(hidden, self.dropout, generator)
        new = torch.addmm(self.bias2, frozen.units, self.columns)
        return torch.cat([frozen.logits, new], 1) + frozen.field.mix @ (hidden @ self.weight2)


class PIGNN(GradientLearner):
    """Parameter isolation: old units are frozen bit for bit, each session brings a new block.

    After session t the network is a two-layer GCN with `hidden` + t · `block` units. Session t
    trains its own block U_t and leaves the units U before it as they are:

        logits = Â [ReLU(Â X W_1 + b_1), dropout(ReLU(Â X W_1^t + b_1^t))] [[W_2, V], [W_2^t]]
                 + [b_2, b_2^t],

    with W_1, b_1, W_2, b_2 frozen (the units there were, and their say about the classes there
    were) and W_1^t, b_1^t, W_2^t (the block, and its say about all classes), V, b_2^t (the head of
    the new classes over the old units) trained on

        L = L_t + retrain · L_memory,

    the mean cross-entropy over nodes of earlier sessions. V starts from 0: a frozen unit has no say
    about a class that came later but what that class's own session teaches it. Every block has the
    same width, however many sessions there are.

    Peiyan Zhang, Yuchen Yan, Chaozhuo Li, Senzhang Wang, Xing Xie, Guojie Song and Sunghun Kim:
    Continual Learning on Dynamic Graphs via Parameter Isolation, SIGIR 2023.

    Parameters
    ----------
    hidden, epochs, lr, dropout, weight_decay, seed, device
        As in `GradientLearner`; `hidden` is the width of the base session.
    block : int
        Units that each later session adds.
    retrain : float
        Weight of the memory's loss.
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

    A block as wide as the base was chosen on validation nodes: with 50 epochs a narrow one learns
    the new class and has no time left to make room for the old ones (Cora, 300 nodes of memory: AP
    35, 54 and 67 with 64, 128 and 256 units; digits, 200 nodes: 19, 19 and 46).

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

    selects: ClassVar[bool] = True

    def __init__(
        self,
        *,
        hidden: int = 256,
        epochs: int = 50,
        lr: float = 1e-3,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        block: int = 256,
        retrain: float = 0.1,
        budget: int = 300,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden,
            epochs=epochs,
            lr=lr,
            dropout=dropout,
            weight_decay=weight_decay,
            seed=seed,
            device=device,
        )
        self.block = block
        self.retrain = retrain
        self.budget = budget

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
        nodes, codes = _earlier(task)
        # one field for both: their neighbourhoods overlap, and one product is cheaper than two
        field = task.field_of(torch.cat([task.nodes, nodes]))
        new = torch.full_like(task.codes, 1, dtype=torch.float32) / task.codes.numel()
        old = torch.full_like(codes, self.retrain, dtype=torch.float32) / max(1, codes.numel())
        weights = task.before.weights
        units = frozen_units(field, weights)
        return Frozen(
            field,
            torch.cat([task.codes, codes]),
            torch.cat([new, old]),
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
        nodes, codes = _earlier(task)
        nodes, codes = torch.cat([nodes, task.nodes]), torch.cat([codes, task.codes])
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

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        # as in the base class, but a few units at a time: after many sessions they are many
        known = self._known
        adjacency = self._adjacency(graph)
        x = self._inputs(graph)
        weight1, bias1, weight2, bias2 = (
            known.weights[name] for name in ("weight1", "bias1", "weight2", "bias2")
        )
        head = x.new_zeros(x.size(0), bias2.numel())
        for part in blocks(bias1.numel(), x.size(0) * x.element_size()):
            head += hidden_layer(adjacency, x, weight1[:, part], bias1[part]) @ weight2[part]
        scores = spmm(take_rows(adjacency, nodes.to(adjacency.device)), head) + bias2
        return scores[:, torch.from_numpy(np.argsort(known.arrival)).to(scores.device)]


def frozen_units(field: Field, weights: Tensors) -> Tensor:
    """What the head reads of units that no longer change, without a gradient.

    Parameters
    ----------
    field : Field
        The targets and what they can see.
    weights : dict of Tensor
        Of a GCN with h units.

    Returns
    -------
    Tensor [n, h]

    Examples
    --------
    >>> from algnn.graph.propagate import normalised_adjacency, receptive_field
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> field = receptive_field(pair, torch.eye(2), torch.tensor([0]))
    >>> frozen_units(field, {"weight1": torch.eye(2), "bias1": torch.zeros(2)})
    tensor([[0.5000, 0.5000]])
    """
    inputs, mix = field.inputs, field.mix.matrix
    units = weights["bias1"].numel()
    read = inputs.new_empty(mix.size(0), units)
    # a few units at a time: a neighbourhood's rows are many more than the targets
    for part in blocks(units, inputs.size(0) * inputs.element_size()):
        hidden = torch.addmm(weights["bias1"][part], inputs, weights["weight1"][:, part]).relu_()
        read[:, part] = spmm(mix, hidden)
    return read


def joined(old: Tensors, new: Tensors) -> Tensors:
    """The network there was and a trained block as one GCN; old weights are copied bit for bit.

    Parameters
    ----------
    old : dict of Tensor
        Weights of a GCN.
    new : dict of Tensor
        Parameters of a `Block`.

    Returns
    -------
    dict of Tensor
        Weights of a GCN.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> old, new = GCN(4, 16, 2, 0.0, generator), Block(4, 8, 3, 16, 1, 0.0, generator)
    >>> whole = joined(dict(old.named_parameters()), dict(new.named_parameters()))
    >>> {name: tuple(p.shape) for name, p in whole.items()}
    {'weight1': (4, 24), 'bias1': (24,), 'weight2': (24, 3), 'bias2': (3,)}
    """
    upper = torch.cat([old["weight2"], new["columns"]], dim=1)
    return {
        "weight1": torch.cat([old["weight1"], new["weight1"]], dim=1),
        "bias1": torch.cat([old["bias1"], new["bias1"]]),
        "weight2": torch.cat([upper, new["weight2"]]),
        "bias2": torch.cat([old["bias2"], new["bias2"]]),
    }


def _earlier(task: Task) -> tuple[Tensor, Tensor]:
    """The memory's nodes and codes, without nodes that have come again in this session."""
    if not task.memory:
        return task.nodes[:0], task.codes[:0]
    nodes, codes = task.memory["nodes"], task.memory["codes"]
    others = ~torch.isin(nodes, task.nodes)
    return nodes[others], codes[others]
