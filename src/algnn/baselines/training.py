"""The gradient-trained learner that every baseline is built on.

One two-layer GCN with a head that grows with the classes, trained in each session by full-batch
Adam for a fixed number of epochs; weights are carried over, the optimiser's state is not. Early
stopping on the current session would reward forgetting, so there is none.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from torch_geometric.data import Data

from algnn.analytic.lifecycle.io import restored_classes
from algnn.checkpoint import check_tensor
from algnn.checks import Array, check_base, check_kept_nodes, check_number, check_trained, onto
from algnn.errors import CheckpointError
from algnn.gcn import GCN, glorot, train
from algnn.graph.propagate import Field
from algnn.learner import Learner

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Known:
    """The state between sessions."""

    weights: Tensors
    arrival: Array  # [C]: the classes in the order of the head's columns
    sessions: int
    memory: Tensors  # what the method keeps besides weights
    trials: tuple[Any, ...] = ()  # how weights were chosen, if they were


@dataclass(frozen=True)
class Task:
    """One session, as a method sees it while it learns; tensors are on the learner's device."""

    gcn: GCN  # in training
    adjacency: Tensor
    x: Tensor
    nodes: Tensor  # [n]: the session's
    codes: Tensor  # [n]: their classes as columns of the head
    arrival: Array  # [C]: the classes in that order
    before: Known  # the state before the session; of no session, at first
    initial: torch.Generator  # draws weights, on the CPU
    masks: torch.Generator  # draws dropout, on the learner's device
    balanced: bool = False

    @property
    def memory(self) -> Tensors:
        """What the method kept of earlier sessions."""
        return self.before.memory

    def replayed(self) -> Tensors:
        """The memory of a replay method, without the nodes that this session brings again."""
        if not self.memory:
            return dict.fromkeys(("nodes", "codes", "sessions", "walks"), self.nodes[:0])
        others = ~torch.isin(self.memory["nodes"], self.nodes)
        return {name: value[others] for name, value in self.memory.items()}

    def with_memory(self) -> tuple[Tensor, Tensor]:
        """The session's nodes and codes, then the `replayed` ones."""
        old = self.replayed()
        return torch.cat([self.nodes, old["nodes"]]), torch.cat([self.codes, old["codes"]])

    @cached_property
    def field(self) -> Field:
        """The receptive field of the session's nodes."""
        return self.field_of(self.nodes)

    def field_of(self, nodes: Tensor) -> Field:
        """The receptive field of some nodes; for use before training, not in every epoch."""
        return self.gcn.field(self.adjacency, self.x, nodes)

    def loss(self) -> Tensor:
        """L_t: the mean cross-entropy of the session's nodes over the classes seen so far."""
        return self.mean_loss(self.gcn(self.field, self.masks), self.codes)

    def mean_loss(self, logits: Tensor, codes: Tensor) -> Tensor:
        """The mean cross-entropy of some nodes [n]; of classes, each the same, where balanced."""
        return cross_entropy(logits, codes, self.class_weights(codes) if self.balanced else None)

    def shares(self, codes: Tensor) -> Tensor:
        """Each node's part [n] of `mean_loss`; they add up to 1."""
        alike = torch.ones_like(codes, dtype=torch.float32)
        parts = self.class_weights(codes)[codes] if self.balanced else alike
        return parts / parts.sum()

    def class_weights(self, codes: Tensor) -> Tensor:
        """1/n_c [C]: what a node of each class weighs where all classes count the same."""
        counts = torch.bincount(codes, minlength=self.arrival.size).clamp(min=1)
        return counts.to(torch.float32).reciprocal()


def as_codes(arrival: Array, labels: Array) -> Tensor:
    """The position of each label in the order of arrival."""
    return torch.from_numpy(pd.Index(arrival).get_indexer(labels))


def clock(on: Tensor) -> float:
    """Seconds, once the device of a tensor has finished its work."""
    if on.is_cuda:
        torch.cuda.synchronize(on.device)
    return perf_counter()


@dataclass(kw_only=True, eq=False, repr=False)
class GradientLearner(Learner):
    """A GCN trained by gradient descent, session after session; base class of the baselines.

    A method adds its own loss (`_loss`), its own rule for gradients (`_adjust`) and its own memory
    (`_remember`). A subclass is a dataclass too (``@dataclass(kw_only=True, eq=False,
    repr=False)``): its fields are the constructor's parameters, after those listed here.

    Parameters
    ----------
    hidden : int
        Hidden units of the GCN.
    epochs : int
        Epochs of each session.
    lr, weight_decay : float
        Step size and weight decay of Adam.
    dropout : float
        Share of hidden units dropped while training.
    balanced : bool
        Whether every mean of cross-entropies weighs a node of class c by 1/n_c, so that each class
        counts the same; otherwise each node does.
    seed : int
        Seed of all that is random.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.

    Examples
    --------
    >>> import algnn
    >>> class Halved(GradientLearner):
    ...     def _loss(self, task, prepared):
    ...         return task.loss() / 2
    >>> session = algnn.ClassStream(algnn.load("digits"))[0]
    >>> model = Halved(hidden=16, epochs=5).fit(session.graph, session.nodes, session.labels)
    >>> model.classes_
    array([0, 1, 2, 3, 4])
    """

    hidden: int = 256
    epochs: int = 50
    lr: float = 1e-3
    dropout: float = 0.5
    weight_decay: float = 5e-4
    balanced: bool = False
    seed: int = 0
    device: str = "auto"
    _limits: ClassVar = {"hidden": 1, "epochs": 1, "lr": 0, "dropout": (0, 1), "weight_decay": 0}

    def _prepare(self, task: Task) -> Any:
        """What the loss needs and is the same in every epoch: fields of memory nodes, a teacher."""

    def _loss(self, task: Task, prepared: Any) -> Tensor:
        """The loss of one epoch."""
        return task.loss()

    def _adjust(self, task: Task, prepared: Any) -> None:
        """Change the gradients that the loss has left in ``task.gcn``, before the step."""

    def _remember(self, task: Task, prepared: Any) -> Tensors:
        """What is kept once the session is learned; it replaces what was kept before."""
        return {}

    # what the memory holds for each node in it; beside that, it may hold other things
    _per_node: ClassVar[tuple[str, ...]] = ()

    # the step that chooses nodes, if any, "prepare" or "remember": its time is reported apart
    selects_in: ClassVar[str] = ""

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Known | None) -> Known:
        task = self._task(graph, nodes, labels, learned)
        start = clock(task.x)
        prepared = self._prepare(task)
        seconds = {"prepare": clock(task.x) - start}
        loss, adjust = (partial(self._loss, task, prepared), partial(self._adjust, task, prepared))
        train(task.gcn.parameters(), loss, self.epochs, self.lr, self.weight_decay, adjust)
        start = clock(task.x)
        memory = self._remember(task, prepared)
        seconds["remember"] = clock(task.x) - start
        weights = task.gcn.weights
        check_trained(*weights.values())
        if self.selects_in:
            earlier = () if learned is None else self.selection_seconds_
            self.selection_seconds_ = (*earlier, seconds[self.selects_in])
        return Known(weights, task.arrival, task.before.sessions + 1, memory)

    def _task(self, graph: Data, nodes: Tensor, labels: Array, learned: Known | None) -> Task:
        """A session, once it is sound, with the model as it is before it."""
        before = learned or Known({}, labels[:0], 0, {})
        if learned is None:
            check_base(labels)
        for name in ("nodes", "val_nodes"):
            check_kept_nodes(before.memory.get(name), graph.x.size(0))
        arrival = np.concatenate([before.arrival, np.setdiff1d(labels, before.arrival)])
        # each session has randomness of its own, so that one resumed equals one never stopped
        draws = np.random.SeedSequence([self.seed, before.sessions])
        first, second = draws.generate_state(2).tolist()
        initial = torch.Generator().manual_seed(first)
        return Task(
            gcn=self._model(graph.x.size(1), arrival.size, before, initial).to(self._device),
            adjacency=self._adjacency(graph),
            x=self._inputs(graph),
            nodes=onto(nodes, self._device),
            codes=onto(as_codes(arrival, labels), self._device),
            arrival=arrival,
            before=before,
            initial=initial,
            masks=torch.Generator(self._device).manual_seed(second),
            balanced=self.balanced,
        )

    @property
    def _network(self) -> type[GCN]:
        return GCN

    def _model(self, inputs: int, classes: int, before: Known, draw: torch.Generator) -> GCN:
        """A new GCN, or the earlier one with a wider head."""
        if not before.sessions:
            return GCN(inputs, self.hidden, classes, self.dropout, draw)
        wider = {name: value.cpu() for name, value in before.weights.items()}
        new = classes - before.arrival.size
        columns = glorot(wider["weight2"].size(0), classes, draw)[:, classes - new :]
        wider["weight2"] = torch.cat([wider["weight2"], columns], dim=1)
        wider["bias2"] = pad(wider["bias2"], (0, new))
        return GCN.from_weights(wider, self.dropout)

    @property
    def classes_(self) -> Array:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return np.sort(self._known.arrival)

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.weights["weight1"].size(0)

    @property
    def _known(self) -> Known:
        self._check_fitted()
        return cast(Known, self._learned)

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known, x = self._known, self._inputs(graph)
        logits = self._logits(known.weights, self._adjacency(graph), x, nodes.to(x.device))
        return logits[:, torch.from_numpy(np.argsort(known.arrival)).to(x.device)]

    def _logits(self, weights: Tensors, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits [n, C] in the order of arrival."""
        return self._network.from_weights(weights).scores(adjacency, x, nodes)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        known = self._known
        tensors = {f"weights.{name}": t for name, t in known.weights.items()}
        tensors |= {f"memory.{name}": t for name, t in known.memory.items()}
        return tensors, {"arrival": known.arrival.tolist(), "sessions": known.sessions}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Known:
        arrival = restored_classes(facts["arrival"], "arrival", ordered=False)
        parts: dict[str, Tensors] = {"weights": {}, "memory": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = tensor.to(self._device)
        weights, memory = parts["weights"], parts["memory"]
        inputs, hidden = weights["weight1"].shape
        for name, shape in self._network.shapes(inputs, hidden, arrival.size).items():
            check_tensor(name, weights[name], shape, torch.float32)
        self._check_memory(memory, weights, arrival.size)
        check_number("sessions", facts["sessions"], 1, 2**63, whole=True)
        return Known(weights, arrival, facts["sessions"], memory)

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        """Raise `CheckpointError` unless nodes and codes, where there are any, belong together."""
        for name in {*self._per_node, *(memory.keys() & {"nodes", "codes", "sessions", "walks"})}:
            check_tensor(name, memory[name], (memory["codes"].numel(),), torch.int64)
        codes, nodes = memory.get("codes"), memory.get("nodes")
        if codes is not None and not bool(((codes >= 0) & (codes < classes)).all()):
            raise CheckpointError(f"codes names classes beyond the {classes} that are known")
        if nodes is not None and not bool((nodes >= 0).all()):
            raise CheckpointError("nodes holds negative ids")


class Bare(GradientLearner):
    """Plain fine-tuning: each session by its own loss, with no defence against forgetting.

    L = L_t, the mean cross-entropy on the session's nodes over the classes seen so far. It keeps
    its weights and nothing else. Its parameters are those of `GradientLearner`.
    """
