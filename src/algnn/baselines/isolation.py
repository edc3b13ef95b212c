"""Methods that freeze what earlier sessions trained: PI-GNN and TPP."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu, log_softmax, normalize
from torch_geometric.data import Data

from algnn.analytic.lifecycle.io import restored_classes
from algnn.baselines.replay import Replay, ReplayLearner
from algnn.baselines.training import Known, Task, Tensors
from algnn.checkpoint import check_tensor
from algnn.checks import Array, check_base, check_trained, onto
from algnn.gcn import GCN, Shapes, drawn, dropout, hidden_layer, train
from algnn.graph import propagate
from algnn.graph.propagate import Field, Operator, blocks, spmm, take_rows
from algnn.graphs import inputs_of
from algnn.learner import Learner


@dataclass(frozen=True)
class FrozenField(Field):
    """A field with the outputs of frozen units [n, h] and the frozen head's logits [n, C_old]."""

    units: Tensor
    logits: Tensor


class Block(GCN):
    """What one session adds and trains: units for all classes, and columns of its new classes."""

    def __init__(
        self, units: int, old: Tensors, classes: int, rate: float, draw: torch.Generator
    ) -> None:
        super().__init__(old["weight1"].size(0), units, classes, rate, draw)
        self.old = old  # the frozen weights
        earlier, known = old["weight2"].shape
        self.bias2 = nn.Parameter(torch.zeros(classes - known, dtype=torch.float32))
        # from 0: earlier units do not contribute to a new class until they are trained for it
        self.columns = nn.Parameter(torch.zeros(earlier, classes - known, dtype=torch.float32))

    @property
    def weights(self) -> Tensors:
        """Those of one GCN of all blocks; frozen ones bit for bit."""
        old, new = self.old, super().weights
        upper = torch.cat([old["weight2"], new["columns"]], dim=1)
        return {
            "weight1": torch.cat([old["weight1"], new["weight1"]], dim=1),
            "bias1": torch.cat([old["bias1"], new["bias1"]]),
            "weight2": torch.cat([upper, new["weight2"]]),
            "bias2": torch.cat([old["bias2"], new["bias2"]]),
        }

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] while training; frozen units, which cannot adapt, are not dropped."""
        assert isinstance(field, FrozenField)
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

    with W_1, b_1, W_2, b_2 frozen (earlier units and their weights for earlier classes) and W_1^t,
    b_1^t, W_2^t (the block), V, b_2^t (the new classes' head over earlier units, V = 0 at first)
    trained on L = L_t + retrain · L_memory, the latter over remembered nodes, as many of each
    class, drawn at random. What has changed in the graph, the new block learns from the memory.

    Zhang et al., "Continual Learning on Dynamic Graphs via Parameter Isolation", SIGIR 2023.

    `retrain` is 0.1 in the paper; `budget` counts nodes in memory over the whole stream.
    """

    block: int = 256
    retrain: float = 1.0  # in 50 epochs 0.1 leaves the memory too little: see settings/pignn.toml
    _limits: ClassVar = {"block": 1, "retrain": 0, "budget": 1}

    def _model(self, inputs: int, classes: int, before: Known, draw: torch.Generator) -> GCN:
        if not before.sessions:
            return super()._model(inputs, classes, before, draw)
        return Block(self.block, before.weights, classes, self.dropout, draw)

    def _prepare(self, task: Task) -> Replay | None:
        if not task.memory:
            return None
        nodes, codes = task.with_memory()
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
        return Replay(FrozenField(inputs, field.mix, units, logits), codes, shares, {})

    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        drawn = torch.randperm(nodes.numel(), generator=task.initial).to(nodes.device)
        # counted from the first remembered node
        return (drawn + task.nodes.numel()) % nodes.numel()

    def _logits(self, weights: Tensors, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        # as in the base class, but a few units at a time: after many sessions they are many
        head = x.new_zeros(x.size(0), weights["bias2"].numel())
        for part in blocks(weights["bias1"].numel(), x.size(0) * x.element_size()):
            weight1, bias1 = weights["weight1"][:, part], weights["bias1"][part]
            head += hidden_layer(adjacency, x, weight1, bias1) @ weights["weight2"][part]
        return spmm(take_rows(adjacency, nodes), head) + weights["bias2"]


Gather = Callable[[Tensor], Tensor]
# of the contrastive pre-training, as in the authors' code
CONTRAST, PRETRAIN_LR, PRETRAIN_DECAY = 0.5, 1e-3, 1e-5
DROPPED_EDGES, DROPPED_FEATURES = 0.2, 0.3
SAMPLED = 2048  # nodes that are told from each other in an epoch
ELSEWHERE = 1e3  # by how much classes of other tasks than the named one are behind


@dataclass(frozen=True)
class Tasks:
    """The frozen encoder, and of each task its classes, its prototype, prompt and head."""

    encoder: Tensors
    tasks: tuple[Array, ...]
    parts: tuple[Tensors, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class TPP(Learner):
    """Task profiling and prompting: a prototype names a node's task, which has a head of its own.

    A network f(X) = ReLU(Â² X W_1) W_2 is pre-trained without labels in the base session (GRACE)
    and frozen. A task t learns a head and, but for the first, a prompt of k vectors:

        X_t = X + softmax(X A_t + a_t) P_t,   logits = f(X_t) V_t + b_t over the task's classes,

    by the mean cross-entropy of its nodes, and keeps the mean of its training nodes' profiles,

        p_t = mean_{v ∈ V_t} h_v,   h_v = d_v^(−1/2) (Â³ X)_v.

    A test node is of the task whose prototype is nearest to its profile, and of the class that this
    task's head gives.

    The paper assumes that all test nodes of a task come together; here each node is compared by
    itself, in the graph with all its edges (see docs/baselines.md).

    C. Niu, G. Pang, L. Chen and B. Liu, "Replay-and-Forget-Free Graph Class-Incremental Learning: A
    Task Profiling and Prompting Approach", NeurIPS 2024.

    `prompts` is k, `pretrain` the epochs of the pre-training, `hidden` the units of both layers.
    """

    hidden: int = 256
    prompts: int = 3
    pretrain: int = 200
    epochs: int = 200
    lr: float = 5e-3
    weight_decay: float = 5e-4
    seed: int = 0
    device: str = "auto"
    _limits: ClassVar = {
        "hidden": 1, "prompts": 1, "epochs": 1, "pretrain": 0, "lr": 0, "weight_decay": 0
    }  # fmt: skip
    _fixed = ("hidden", "prompts")

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Tasks | None) -> Tasks:
        index = 0 if learned is None else len(learned.tasks)
        # each task has randomness of its own, so that one resumed equals one never stopped
        seed = int(np.random.SeedSequence([self.seed, index]).generate_state(1)[0])
        generator = torch.Generator().manual_seed(seed)
        if learned is None:
            check_base(labels)
            learned = Tasks(self._pretrained(graph, generator), (), ())
        encoder, adjacency, x = learned.encoder, self._adjacency(graph), self._inputs(graph)
        classes, codes = np.unique(labels, return_inverse=True)
        rows, targets = onto(nodes, x.device), onto(torch.from_numpy(codes), x.device)
        smooth, profiles = (values[rows] for values in self._smoothed(graph))
        once, twice = Operator(adjacency), Operator(take_rows(adjacency, rows))
        trained = drawn(self._shapes(index, classes.size, x.size(1)), generator, x.device)

        def loss() -> Tensor:
            logits = _logits(smooth, lambda shown: twice @ (once @ shown), x, encoder, trained)
            return cross_entropy(logits, targets)

        train(trained.values(), loss, self.epochs, self.lr, self.weight_decay)
        part = {name: value.detach() for name, value in trained.items()}
        part["prototype"] = profiles.mean(0)
        check_trained(*part.values())
        return Tasks(encoder, (*learned.tasks, classes), (*learned.parts, part))

    def _shapes(self, index: int, classes: int, inputs: int) -> Shapes:
        """Of a task's trained tensors; the first has no prompt."""
        k = self.prompts
        shapes: Shapes = {"head": (self.hidden, classes), "bias": (classes,)}
        prompt: Shapes = {"prompt": (k, inputs), "attention": (inputs, k), "shift": (k,)}
        return shapes | prompt if index else shapes

    def _pretrained(self, graph: Data, generator: torch.Generator) -> Tensors:
        """W_1 [d, h] and W_2 [h, h] after contrastive training without labels."""
        x, device, h = self._inputs(graph), self._device, self.hidden
        shapes: Shapes = {"weight1": (x.size(1), h), "weight2": (h, h)}
        shapes |= {"up": (h, 2 * h), "down": (2 * h, h)}
        part = drawn(shapes, generator, device)
        edges, weight = graph.edge_index.to(device), graph.get("edge_weight")
        smooth = self._smoothed(graph)[0]
        # apart, so that the number of edges leaves all else that is drawn as it is
        thinning = torch.Generator().manual_seed(self.seed)

        def embedded(inputs: Tensor) -> Tensor:
            found = torch.relu(inputs @ part["weight1"]) @ part["weight2"]
            return normalize(elu(found @ part["up"]) @ part["down"])

        def loss() -> Tensor:
            some = torch.randperm(x.size(0), generator=generator)[:SAMPLED].to(device)
            stays = torch.rand(edges.size(1), generator=thinning).to(device) >= DROPPED_EDGES
            shown = torch.rand(x.size(1), generator=generator).to(device) >= DROPPED_FEATURES
            kept = None if weight is None else weight.to(device)[stays]
            thinner = propagate.normalised_adjacency(edges[:, stays], x.size(0), kept)
            other = spmm(take_rows(thinner, some), spmm(thinner, x * shown))
            one, two = embedded(smooth[some]), embedded(other)
            return (_contrast(one, two) + _contrast(two, one)) / 2

        train(part.values(), loss, self.pretrain, PRETRAIN_LR, PRETRAIN_DECAY)
        frozen = {name: part[name].detach() for name in ("weight1", "weight2")}
        check_trained(*frozen.values())
        return frozen

    def _smoothed(self, graph: Data) -> tuple[Tensor, Tensor]:
        """Â² X and the profiles d^(−1/2) Â³ X of every node, made once for as long as it stays."""

        def build() -> tuple[Tensor, Tensor]:
            adjacency = self._adjacency(graph)
            twice = spmm(adjacency, spmm(adjacency, self._inputs(graph)))
            (source, target), weight = graph.edge_index.to(twice.device), graph.get("edge_weight")
            given = None if weight is None else weight.detach().to(twice.device)
            rows = propagate.looped_rows(source, target, given, slice(0, len(twice)), len(twice))
            return twice, spmm(adjacency, twice) * propagate.inverse_roots(rows)[:, None]

        return cast(tuple[Tensor, Tensor], self._memos["smoothed"].get(inputs_of(graph), build))

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known, x, adjacency = self._known, self._inputs(graph), self._adjacency(graph)
        smooth, profiles = self._smoothed(graph)
        rows = onto(nodes, x.device)
        prototypes = torch.stack([part["prototype"] for part in known.parts])
        named = torch.cdist(profiles[rows], prototypes).argmin(1)
        classes = self.classes_

        def gather(shown: Tensor) -> Tensor:
            return spmm(take_rows(adjacency, rows), spmm(adjacency, shown))

        scores = smooth.new_full((rows.numel(), classes.size), -2 * ELSEWHERE)
        for task, (members, part) in enumerate(zip(known.tasks, known.parts, strict=True)):
            logits = _logits(smooth[rows], gather, x, known.encoder, part)
            found = log_softmax(logits, dim=1) - ELSEWHERE * (named != task)[:, None]
            columns = torch.from_numpy(np.searchsorted(classes, members)).to(x.device)
            # a class that came in several tasks has the best of their scores
            scores[:, columns] = torch.maximum(scores[:, columns], found)
        return scores

    @property
    def classes_(self) -> Array:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return np.unique(np.concatenate(self._known.tasks))

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.encoder["weight1"].size(0)

    @property
    def _known(self) -> Tasks:
        self._check_fitted()
        return cast(Tasks, self._learned)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        known = self._known
        tensors = {f"encoder.{name}": value for name, value in known.encoder.items()}
        for index, part in enumerate(known.parts):
            tensors |= {f"{index}.{name}": value for name, value in part.items()}
        return tensors, {"tasks": [members.tolist() for members in known.tasks]}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Tasks:
        tasks = tuple(restored_classes(some, "tasks") for some in facts["tasks"])
        d, h = tensors["encoder.weight1"].size(0), self.hidden
        parts = []
        for index, members in enumerate(tasks):
            shapes = {**self._shapes(index, members.size, d), "prototype": (d,)}
            parts.append(self._checked(tensors, f"{index}.", shapes))
        encoder = self._checked(tensors, "encoder.", {"weight1": (d, h), "weight2": (h, h)})
        return Tasks(encoder, tasks, tuple(parts))

    def _checked(self, tensors: Tensors, prefix: str, shapes: Shapes) -> Tensors:
        found = {name: tensors[f"{prefix}{name}"] for name in shapes}
        for name, shape in shapes.items():
            check_tensor(f"{prefix}{name}", found[name], shape, torch.float32)
        return {name: tensor.to(self._device) for name, tensor in found.items()}


def _logits(
    smooth: Tensor, gather: Gather, x: Tensor, encoder: Tensors, part: Mapping[str, Tensor]
) -> Tensor:
    """Logits [n, C_t] of one task from rows of Â² X; `gather` maps what all nodes show by Â²."""
    if "prompt" in part:
        attention = torch.softmax(x @ part["attention"] + part["shift"], dim=1)
        smooth = smooth + gather(attention) @ part["prompt"]
    hidden = torch.relu(smooth @ encoder["weight1"]) @ encoder["weight2"]
    return torch.addmm(part["bias"], hidden, part["head"])


def _contrast(one: Tensor, two: Tensor) -> Tensor:
    """−log of what a node's other view makes of all that it is told from, mean over nodes."""
    within, between = ((one @ other.mT / CONTRAST).exp() for other in (one, two))
    every = within.sum(1) + between.sum(1) - within.diagonal()
    return -(between.diagonal() / every).log().mean()
