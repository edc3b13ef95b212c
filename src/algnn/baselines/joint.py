"""The reference that every replay-free method chases: training anew on all labels so far."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.baselines.training import GradientLearner, Known, Task, Tensors
from algnn.checks import (
    Labels,
    Nodes,
    check_kept_nodes,
    check_labels,
    check_nodes,
    check_number,
)
from algnn.errors import InputError
from algnn.gcn import GCN, train
from algnn.graph.propagate import Field

Validation = tuple[Nodes, Labels]


class Joint(GradientLearner):
    """A GCN trained from scratch in each session on the labels of all sessions so far.

    L = mean cross-entropy over every labelled node so far, for `epochs` epochs; the weights are
    those of the epoch with the best accuracy on validation nodes of the classes seen so far,
    averaged over classes. It alone may keep old nodes and labels, training and validation, and it
    alone is offered validation nodes: `partial_fit` takes them as an argument. Without any, the
    last epoch counts.

    Parameters
    ----------
    hidden : int
        Hidden units of the GCN.
    epochs : int
        Epochs of each session.
    lr, weight_decay : float
        Of Adam.
    dropout : float
        Share of hidden units dropped while training.
    check_every : int
        Epochs between two looks at the validation nodes.
    seed : int
        Of all that is random.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = Joint(hidden=16, epochs=20)
    >>> for session in stream:
    ...     validation = stream.nodes("val", session.index)
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels, validation)
    >>> model.classes_.size
    10
    """

    uses_validation: ClassVar[bool] = True
    _offered: tuple[Tensor, npt.NDArray[Any]] | None = None

    def __init__(
        self,
        *,
        hidden: int = 256,
        epochs: int = 300,
        lr: float = 1e-2,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        check_every: int = 5,
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
        self.check_every = check_every

    def fit(
        self, graph: Data, nodes: Nodes, labels: Labels, validation: Validation | None = None
    ) -> Self:
        """Forget everything and learn a first session.

        Parameters
        ----------
        graph, nodes, labels
            As in `Learner.fit`.
        validation : pair of nodes and labels, optional
            Validation nodes of the session's classes.

        Returns
        -------
        self
        """
        return self._with_validation(graph, nodes, labels, validation, anew=True)

    def partial_fit(
        self, graph: Data, nodes: Nodes, labels: Labels, validation: Validation | None = None
    ) -> Self:
        """Learn one more session; the first call is the base stage.

        Parameters
        ----------
        graph, nodes, labels
            As in `Learner.partial_fit`.
        validation : pair of nodes and labels, optional
            Validation nodes of the session's classes.

        Returns
        -------
        self
        """
        return self._with_validation(graph, nodes, labels, validation, anew=False)

    def _with_validation(
        self, graph: Data, nodes: Nodes, labels: Labels, validation: Validation | None, anew: bool
    ) -> Self:
        if validation is None:
            return self._session(graph, nodes, labels, anew=anew)
        self._check_graph(graph, width=None)
        held = check_nodes(validation[0], graph.x.size(0))
        held_labels = check_labels(validation[1], held.numel())
        self._offered = (held, held_labels)
        try:
            return self._session(graph, nodes, labels, anew=anew)
        finally:
            self._offered = None

    def _check_params(self) -> None:
        super()._check_params()
        check_number("check_every", self.check_every, 1, whole=True)

    def _model(
        self, inputs: int, classes: int, before: Known | None, initial: torch.Generator
    ) -> GCN:
        return GCN(inputs, self.hidden, classes, self.dropout, initial)

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Known | None
    ) -> Known:
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
        weights = self._best_weights(task, held, held_codes)
        memory = {
            "nodes": task.nodes,
            "codes": task.codes,
            "val_nodes": held,
            "val_codes": held_codes,
        }
        return Known(weights, task.arrival, task.index + 1, memory)

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
            codes = torch.cat([codes[stays], task.code(self._offered[1]).cpu()])
        return nodes.to(task.x.device), codes.to(task.x.device)

    def _best_weights(self, task: Task, held: Tensor, codes: Tensor) -> Tensors:
        field = task.field_of(held) if held.numel() else None
        best: dict[str, Any] = {"accuracy": -1.0}

        def look(epoch: int) -> None:
            due = (epoch + 1) % self.check_every == 0 or epoch + 1 == self.epochs
            if field is None or not due:
                return
            accuracy = _balanced_accuracy(task.gcn, field, codes)
            if accuracy > best["accuracy"]:
                weights = {name: p.detach().clone() for name, p in task.gcn.named_parameters()}
                best.update(accuracy=accuracy, weights=weights)

        train(
            task.gcn.parameters(),
            task.loss,
            self.epochs,
            self.lr,
            self.weight_decay,
            after=look,
        )
        last = {name: p.detach() for name, p in task.gcn.named_parameters()}
        chosen: Tensors = best.get("weights", last)
        return chosen


def _balanced_accuracy(gcn: GCN, field: Field, codes: Tensor) -> float:
    """Accuracy averaged over classes, so that a large class does not choose the epoch alone."""
    with torch.no_grad():
        right = (gcn(field).argmax(1) == codes).to(torch.float64)
    count = torch.bincount(codes).clamp(min=1)
    present = torch.bincount(codes) > 0
    return float((torch.bincount(codes, weights=right) / count)[present].mean())
