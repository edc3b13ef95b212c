"""The gradient-trained learner that every baseline is built on.

One two-layer GCN with a head that grows with the classes, trained in each session by full-batch
Adam for a fixed number of epochs; weights are carried over, the optimiser's state is not. Early
stopping on the current session would reward forgetting, so there is none.

A method adds to this its own loss (`_loss`), its own rule for gradients (`_adjust`) and what it
remembers (`_remember`); `Bare` adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from algnn.checkpoint import check_tensor
from algnn.checks import (
    check_base,
    check_kept_nodes,
    check_number,
    check_trained,
    onto,
    resolve_device,
)
from algnn.errors import CheckpointError
from algnn.gcn import GCN, glorot, train
from algnn.graph.propagate import Field, receptive_field
from algnn.learner import Learner

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Known:
    """All that a gradient-trained learner keeps between sessions.

    Attributes
    ----------
    weights : dict of Tensor
        Those of the GCN, by name.
    arrival : array [C]
        The classes in the order in which they came: the columns of the head.
    sessions : int
        How many sessions were learned.
    memory : dict of Tensor
        What the method remembers besides: importances, nodes and labels, synthetic nodes.
    """

    weights: Tensors
    arrival: npt.NDArray[Any]
    sessions: int
    memory: Tensors


@dataclass(frozen=True)
class Task:
    """One session, as a method sees it while it learns.

    Attributes
    ----------
    gcn : GCN
        The model in training; its head has a column for each class seen so far.
    adjacency, x : Tensor
        The graph, on the learner's device.
    nodes, codes : Tensor [n]
        The session's nodes, and their classes as columns of the head.
    arrival : array [C]
        The classes seen so far, this session's included, in the order of the head's columns.
    before : Known or None
        What was known before; None in the base session.
    initial : torch.Generator
        For weights; draws on the CPU.
    masks : torch.Generator
        For dropout; draws on the learner's device.
    """

    gcn: GCN
    adjacency: Tensor
    x: Tensor
    nodes: Tensor
    codes: Tensor
    arrival: npt.NDArray[Any]
    before: Known | None
    initial: torch.Generator
    masks: torch.Generator

    @property
    def index(self) -> int:
        """Position of the session in the stream."""
        return 0 if self.before is None else self.before.sessions

    @property
    def old(self) -> int:
        """How many classes, the first columns of the head, were known before."""
        return 0 if self.before is None else self.before.arrival.size

    @property
    def memory(self) -> Tensors:
        """What the method remembered of earlier sessions."""
        return {} if self.before is None else self.before.memory

    def code(self, labels: npt.NDArray[Any]) -> Tensor:
        """Labels of classes seen so far as columns of the head."""
        return onto(as_codes(self.arrival, labels), self.x.device)

    @cached_property
    def field(self) -> Field:
        """The session's nodes and what they can see."""
        return self.field_of(self.nodes)

    def field_of(self, nodes: Tensor) -> Field:
        """Some nodes and what they can see; made once, before training, not in every epoch."""
        return receptive_field(self.adjacency, self.x, nodes)

    def loss(self) -> Tensor:
        """L_t: the mean cross-entropy of the session's nodes over the classes seen so far."""
        return cross_entropy(self.gcn(self.field, self.masks), self.codes)


def as_codes(arrival: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Tensor:
    """Where each label stands in the order of arrival.

    Parameters
    ----------
    arrival : array [C]
    labels : array [n]

    Returns
    -------
    Tensor [n], int64

    Examples
    --------
    >>> as_codes(np.array([5, 2, 9]), np.array([2, 9, 9]))
    tensor([1, 2, 2])
    """
    order = np.argsort(arrival)
    return torch.from_numpy(order[np.searchsorted(arrival, labels, sorter=order)])


class GradientLearner(Learner):
    """A GCN trained by gradient descent, session after session; base of the baselines.

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
    seed : int
        Of all that is random.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.
    """

    def __init__(
        self,
        *,
        hidden: int = 256,
        epochs: int = 50,
        lr: float = 1e-3,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.lr = lr
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.seed = seed
        self.device = device

    # -- what a method changes ----------------------------------------------------------------

    def _prepare(self, task: Task) -> Any:
        """What the loss needs and is the same in every epoch: fields of memory nodes, a teacher."""

    def _loss(self, task: Task, prepared: Any) -> Tensor:
        """The loss of one epoch."""
        return task.loss()

    def _adjust(self, task: Task, prepared: Any) -> None:
        """Change the gradients that the loss has left in ``task.gcn``, before the step."""

    # whether remembering is a choice of nodes, whose time is reported apart
    selects: ClassVar[bool] = False

    def _remember(self, task: Task, prepared: Any) -> Tensors:
        """What is kept once the session is learned; it replaces what was kept before."""
        return {}

    # -- the shared loop ----------------------------------------------------------------------

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Known | None
    ) -> Known:
        task = self._checked_task(graph, nodes, labels, learned)
        prepared = self._prepare(task)
        train(
            task.gcn.parameters(),
            lambda: self._loss(task, prepared),
            self.epochs,
            self.lr,
            self.weight_decay,
            adjust=lambda: self._adjust(task, prepared),
        )
        start = _clock(task.x)
        memory = self._remember(task, prepared)
        selection = _clock(task.x) - start
        weights = {name: value.detach() for name, value in task.gcn.named_parameters()}
        check_trained(*weights.values())
        if self.selects:
            earlier = () if learned is None else self.selection_seconds_
            self.selection_seconds_ = (*earlier, selection)
        return Known(weights, task.arrival, task.index + 1, memory)

    def _checked_task(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], before: Known | None
    ) -> Task:
        if before is None:
            check_base(labels)
        else:
            check_kept_nodes(before.memory.get("nodes"), graph.x.size(0))
        device = resolve_device(self.device)
        arrival = np.unique(labels)
        index = 0
        if before is not None:
            index = before.sessions
            arrival = np.concatenate([before.arrival, np.setdiff1d(arrival, before.arrival)])
        # each session has randomness of its own, so that one resumed equals one never stopped
        first, second = np.random.SeedSequence([self.seed, index]).generate_state(2).tolist()
        initial = torch.Generator().manual_seed(first)
        gcn = self._model(graph.x.size(1), arrival.size, before, initial).to(device)
        return Task(
            gcn,
            self._adjacency(graph),
            self._inputs(graph),
            onto(nodes, device),
            onto(as_codes(arrival, labels), device),
            arrival,
            before,
            initial,
            torch.Generator(device).manual_seed(second),
        )

    def _model(
        self, inputs: int, classes: int, before: Known | None, initial: torch.Generator
    ) -> GCN:
        """A new GCN, or the one there was with a wider head."""
        if before is None:
            return GCN(inputs, self.hidden, classes, self.dropout, initial)
        old = {name: value.cpu() for name, value in before.weights.items()}
        new = classes - before.arrival.size
        columns = glorot(old["weight2"].size(0), classes, initial)[:, classes - new :]
        wider = {
            "weight2": torch.cat([old["weight2"], columns], dim=1),
            "bias2": torch.cat([old["bias2"], torch.zeros(new)]),
        }
        return GCN.from_weights({**old, **wider}, self.dropout)

    # -- answers and files --------------------------------------------------------------------

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return np.sort(self._known.arrival)

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.weights["weight1"].size(0)

    @property
    def _known(self) -> Known:
        self._check_fitted()
        known: Known = self._learned
        return known

    def _check_params(self) -> None:
        super()._check_params()
        check_number("hidden", self.hidden, 1, whole=True)
        check_number("epochs", self.epochs, 1, whole=True)
        check_number("lr", self.lr, 0)
        check_number("dropout", self.dropout, 0, 1)
        check_number("weight_decay", self.weight_decay, 0)

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._known
        adjacency = self._adjacency(graph)
        x = self._inputs(graph)
        scores = GCN.from_weights(known.weights).scores(adjacency, x, nodes.to(adjacency.device))
        return scores[:, torch.from_numpy(np.argsort(known.arrival)).to(scores.device)]

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        known = self._known
        tensors = {f"weights.{name}": t for name, t in known.weights.items()}
        tensors |= {f"memory.{name}": t for name, t in known.memory.items()}
        return tensors, {"arrival": known.arrival.tolist(), "sessions": known.sessions}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Known:
        self._check_params()
        arrival = np.array(facts["arrival"])
        if arrival.ndim != 1 or arrival.size == 0 or arrival.dtype.kind not in "iU":
            raise CheckpointError("arrival is not a list of ints or of strings")
        parts: dict[str, Tensors] = {"weights": {}, "memory": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = tensor.to(resolve_device(self.device))
        self._check_weights(parts["weights"], arrival.size)
        self._check_memory(parts["memory"], parts["weights"], arrival.size)
        check_number("sessions", facts["sessions"], 1, 2**63, whole=True)
        return Known(parts["weights"], arrival, facts["sessions"], parts["memory"])

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        """Raise `CheckpointError` unless nodes and codes, where there are any, belong together."""
        for name in ("nodes", "codes", "sessions", "walks"):
            if name in memory:
                check_tensor(name, memory[name], (memory["codes"].numel(),), torch.int64)
        codes = memory.get("codes")
        if (
            codes is not None
            and codes.numel()
            and not 0 <= int(codes.min()) <= int(codes.max()) < classes
        ):
            raise CheckpointError(f"codes names classes beyond the {classes} that are known")
        nodes = memory.get("nodes")
        if nodes is not None and nodes.numel() and int(nodes.min()) < 0:
            raise CheckpointError("nodes holds negative ids")

    def _check_weights(self, weights: Tensors, classes: int) -> None:
        """Raise `CheckpointError` unless these are the weights of a GCN with so many classes."""
        inputs, hidden = weights["weight1"].shape
        shapes = {
            "weight1": (inputs, hidden),
            "bias1": (hidden,),
            "weight2": (hidden, classes),
            "bias2": (classes,),
        }
        for name, shape in shapes.items():
            check_tensor(name, weights[name], shape, torch.float32)


def _clock(on: Tensor) -> float:
    """Seconds, once the device of a tensor has done what it was asked to."""
    if on.is_cuda:
        torch.cuda.synchronize(on.device)
    return perf_counter()


class Bare(GradientLearner):
    """Plain fine-tuning: each session by its own loss, with no defence against forgetting.

    L = L_t, the mean cross-entropy on the session's nodes over the classes seen so far. It keeps
    its weights and nothing else; it is the lower end of every comparison.

    Parameters
    ----------
    hidden, epochs, lr, dropout, weight_decay, seed, device
        As in `GradientLearner`.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = Bare(hidden=16, epochs=5)
    >>> for session in stream:
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """
