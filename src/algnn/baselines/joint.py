"""The joint reference: training anew on all labels so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.baselines.networks import APPNP, SAGE, neighbourhood, whole_graph
from algnn.baselines.training import GradientLearner, Known, Task, Tensors, as_codes
from algnn.checkpoint import check_tensor
from algnn.checks import (
    Array,
    Labels,
    Nodes,
    check_choice,
    check_kept_nodes,
    check_labels,
    check_nodes,
    check_trained,
)
from algnn.errors import InputError
from algnn.gcn import GCN, train
from algnn.graph.propagate import Field, receptive_field

Validation = tuple[Nodes, Labels] | None

# each network, and what prepares a graph for it
NETWORKS: dict[str, tuple[type[GCN], Callable[[Tensor, Tensor, Tensor], Field]]] = {
    "gcn": (GCN, receptive_field),
    "appnp": (APPNP, whole_graph),
    "sage": (SAGE, neighbourhood),
}


class Trial(NamedTuple):
    """One training of a session: its weight decay, its best epoch (from 1), and the accuracy of
    that epoch's weights on the validation nodes, averaged over classes; None where there are none.
    """

    weight_decay: float
    epoch: int
    accuracy: float | None


@dataclass(frozen=True)
class Chosen(Known):
    """The state, and the trials of the last session that its weights were chosen from."""

    trials: tuple[Trial, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class Joint(GradientLearner):
    """A network trained from scratch in each session on the labels of all sessions so far.

    L = mean cross-entropy over every labelled node so far (each class the same where `balanced`),
    for `epochs` epochs; the weights are those of the epoch with the best accuracy on validation
    nodes of the classes seen so far, averaged over classes. Each session trains twice from the same
    initial weights, once with each weight decay, and keeps the training whose best epoch is better;
    `weight_decay` where they tie. It alone may keep old nodes and labels, training and validation,
    and it alone is offered validation nodes: `partial_fit` takes them as an argument. Without any
    there is nothing to choose by: it trains once, with `weight_decay`, and the last epoch counts.

    Parameters
    ----------
    model : {"gcn", "appnp", "sage"}
        The network: `GCN`, `APPNP` (which drops features too) or `SAGE`.
    weight_decay, other_weight_decay : float
        The two weight decays; where they are the same, there is only one training.
    check_every : int
        Epochs between two evaluations on the validation nodes.
    hidden, epochs, lr, dropout, balanced, seed, device : as in `GradientLearner`

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = Joint(hidden=16, epochs=20)
    >>> for session in stream:
    ...     validation = stream.nodes("val", session.index)
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels, validation)
    >>> model.classes_.size, [trial.weight_decay for trial in model.trials_]
    (10, [0.0005, 0.005])
    """

    model: str = "gcn"
    epochs: int = 300
    lr: float = 1e-2
    other_weight_decay: float = 5e-3
    check_every: int = 5

    uses_validation: ClassVar[bool] = True
    _lowest: ClassVar = {"other_weight_decay": 0, "check_every": 1}

    def __post_init__(self) -> None:
        # the validation nodes and labels of the session in progress
        self._offered: tuple[Tensor, Array] | None = None

    @property
    def trials_(self) -> tuple[Trial, ...]:
        """The trainings of the last session, one for each weight decay."""
        self._check_fitted()
        chosen: Chosen = self._learned
        return chosen.trials

    def fit(
        self, graph: Data, nodes: Nodes, labels: Labels | None = None, validation: Validation = None
    ) -> Self:
        """As `Learner.fit`, with nodes and labels to validate on, of the session's classes."""
        with self._offering(graph, validation):
            return super().fit(graph, nodes, labels)

    def partial_fit(
        self, graph: Data, nodes: Nodes, labels: Labels | None = None, validation: Validation = None
    ) -> Self:
        """As `Learner.partial_fit`, with nodes and labels of the same classes to validate on."""
        with self._offering(graph, validation):
            return super().partial_fit(graph, nodes, labels)

    @contextmanager
    def _offering(self, graph: Data, validation: Validation) -> Iterator[None]:
        """Validation nodes for the session that is learned inside, by one thread at a time."""
        with self._lock:
            if validation is not None:
                self._check_graph(graph, width=None)
                held = check_nodes(validation[0], graph.x.size(0))
                self._offered = (held, check_labels(validation[1], held.numel()))
            try:
                yield
            finally:
                self._offered = None

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("model", self.model, NETWORKS)

    def _check_graph(self, graph: Data, width: int | None) -> Data:
        graph = super()._check_graph(graph, width)
        weights = graph.get("edge_weight")
        if self.model == "sage" and weights is not None and bool((weights != 1).any()):
            raise InputError(
                "graph.edge_weight is not used by GraphSAGE, whose mean counts every neighbour the"
                " same: remove it (del graph.edge_weight), or use model='gcn' or 'appnp'"
            )
        return graph

    def _model(self, inputs: int, classes: int, before: Known | None, draw: torch.Generator) -> GCN:
        network, _ = NETWORKS[self.model]
        return network(inputs, self.hidden, classes, self.dropout, draw)

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Known | None) -> Chosen:
        kept: Tensors = {}
        if learned is not None:
            kept = {name: value.cpu() for name, value in learned.memory.items()}
            check_kept_nodes(kept["val_nodes"], graph.x.size(0))
            # a node that comes again counts once, by its last label
            stays = ~torch.isin(kept["nodes"], nodes)
            old = learned.arrival[kept["codes"][stays].numpy()]
            nodes = torch.cat([kept["nodes"][stays], nodes])
            labels = np.concatenate([old, labels])
        task = self._checked_task(graph, nodes, labels, learned)
        held, held_codes = self._validation_nodes(kept, task)
        weights, trials = self._best_weights(task, held, held_codes)
        memory = {"nodes": task.nodes, "codes": task.codes}
        memory |= {"val_nodes": held, "val_codes": held_codes}
        return Chosen(weights, task.arrival, task.index + 1, memory, trials)

    def _logits(self, weights: Tensors, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        network, _ = NETWORKS[self.model]
        return network.from_weights(weights).scores(adjacency, x, nodes)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, facts = super()._state()
        return tensors, {**facts, "trials": [list(trial) for trial in self.trials_]}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Chosen:
        known = super()._restore(tensors, facts)
        trials = tuple(
            Trial(float(decay), int(epoch), None if accuracy is None else float(accuracy))
            for decay, epoch, accuracy in facts["trials"]
        )
        return Chosen(known.weights, known.arrival, known.sessions, known.memory, trials)

    def _check_weights(self, weights: Tensors, classes: int) -> None:
        super()._check_weights(weights, classes)
        if self.model == "sage":
            for name, own in (("mean1", "weight1"), ("mean2", "weight2")):
                check_tensor(name, weights[name], tuple(weights[own].shape), torch.float32)

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        super()._check_memory(memory, weights, classes)
        held = {"nodes": memory["val_nodes"], "codes": memory["val_codes"]}
        super()._check_memory(held, weights, classes)

    def _validation_nodes(self, kept: Tensors, task: Task) -> tuple[Tensor, Tensor]:
        """All validation nodes so far, and their classes as columns of the head."""
        nodes = kept.get("val_nodes", torch.empty(0, dtype=torch.int64))
        codes = kept.get("val_codes", torch.empty(0, dtype=torch.int64))
        if self._offered is not None:
            unseen = np.setdiff1d(self._offered[1], task.arrival)
            if unseen.size:
                raise InputError(
                    f"validation holds class {unseen[0]!s}, which no session has revealed:"
                    " leave its nodes out"
                )
            stays = ~torch.isin(nodes, self._offered[0])
            nodes = torch.cat([nodes[stays], self._offered[0]])
            codes = torch.cat([codes[stays], as_codes(task.arrival, self._offered[1])])
        return nodes.to(task.x.device), codes.to(task.x.device)

    def _best_weights(
        self, task: Task, held: Tensor, codes: Tensor
    ) -> tuple[Tensors, tuple[Trial, ...]]:
        """The weights of the better training, and how each of them did."""
        _, see = NETWORKS[self.model]
        field = see(task.adjacency, task.x, task.nodes)
        held_field = see(task.adjacency, task.x, held) if held.numel() else None
        decays = [self.weight_decay]
        if held_field is not None and self.other_weight_decay != self.weight_decay:
            decays.append(self.other_weight_decay)
        start = _weights(task.gcn)
        found = []
        for decay in decays:
            # the same weights and the same masks: the decay is all that differs
            task.gcn.load_state_dict(start)
            task.masks.manual_seed(task.masks.initial_seed())
            found.append(self._trained(task, field, decay, held_field, codes))
        # the first of those that tie
        _, weights = max(found, key=lambda pair: pair[0].accuracy or 0.0)
        check_trained(*weights.values())
        return weights, tuple(trial for trial, _ in found)

    def _trained(
        self, task: Task, field: Field, decay: float, held: Field | None, held_codes: Tensor
    ) -> tuple[Trial, Tensors]:
        """One training, and the weights of its best epoch."""
        best, weights = Trial(decay, self.epochs, None), {}

        def loss() -> Tensor:
            return task.mean_loss(task.gcn(field, task.masks), task.codes)

        def look(epoch: int) -> None:
            nonlocal best, weights
            due = (epoch + 1) % self.check_every == 0 or epoch + 1 == self.epochs
            if held is None or not due:
                return
            accuracy = _balanced_accuracy(task.gcn, held, held_codes)
            if best.accuracy is None or accuracy > best.accuracy:
                best, weights = Trial(decay, epoch + 1, accuracy), _weights(task.gcn)

        train(task.gcn.parameters(), loss, self.epochs, self.lr, decay, after=look)
        return best, weights or _weights(task.gcn)


def _weights(gcn: GCN) -> Tensors:
    return {name: p.detach().clone() for name, p in gcn.named_parameters()}


def _balanced_accuracy(gcn: GCN, field: Field, codes: Tensor) -> float:
    """Accuracy averaged over classes, so that a large class does not choose the epoch alone."""
    with torch.no_grad():
        right = (gcn(field).argmax(1) == codes).to(torch.float64)
    count = torch.bincount(codes).clamp(min=1)
    present = torch.bincount(codes) > 0
    return float((torch.bincount(codes, weights=right) / count)[present].mean())
