"""The joint reference: a GCN, APPNP or GraphSAGE, trained anew on all labels so far."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag
from torch_geometric.data import Data

from algnn import checks
from algnn.baselines.training import GradientLearner, Known, Task, Tensors, as_codes
from algnn.checks import Array, Labels, Nodes, onto
from algnn.errors import InputError
from algnn.gcn import GCN, Shapes, dropout, train
from algnn.graph.propagate import Field, Operator, csr, receptive_field, row_of, spmm, take_rows

RESTART, STEPS = 0.1, 10  # APPNP's α and K
# a sparse product takes a tenth of the time of a dense one at 1% of non-zeros, as long at 10%
SPARSE_BELOW = 0.05


@dataclass(frozen=True)
class TargetField(Field):
    """A field with the rows [n] of its inputs, dense or sparse CSR, that are the targets' own."""

    targets: Tensor


class APPNP(GCN):
    """Predict, then propagate (APPNP): a perceptron followed by personalised PageRank.

        H = dropout(ReLU(dropout(X) W_1 + b_1)) W_2 + b_2,
        Z_0 = H,   Z_{k+1} = (1 − α) Â Z_k + α H,   logits = Z_K,   α = 0.1, K = 10.

    The paper (J. Gasteiger, A. Bojchevski and S. Günnemann, "Predict then Propagate: Graph Neural
    Networks meet Personalized PageRank", ICLR 2019) drops entries of Â as well.
    """

    @staticmethod
    def field(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Field:
        """What it is trained on: ten hops, so the whole graph."""
        return TargetField(thinned(x), Operator(adjacency), nodes)

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] of the targets; without a generator nothing is dropped."""
        assert isinstance(field, TargetField)
        first = project(field.inputs, self.weight1, self.dropout, generator)
        hidden = dropout(torch.relu(first + self.bias1), self.dropout, generator)
        start = torch.addmm(self.bias2, hidden, self.weight2)
        return pagerank(lambda reached: field.mix @ reached, start)[field.targets]

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits [n, classes] of some nodes of a graph, without dropout and without a gradient."""
        with torch.no_grad():
            hidden = torch.addmm(self.bias1, x, self.weight1).relu_()
            start = torch.addmm(self.bias2, hidden, self.weight2)
            return pagerank(lambda reached: spmm(adjacency, reached), start)[nodes]


class SAGE(GCN):
    """GraphSAGE with the mean aggregator M over all of a node's neighbours, full batch.

        logits = H V_0 + M H V_1 + b_2,   H = dropout(ReLU(X W_0 + M X W_1 + b_1)),

    W_0, V_0 being `weight1`, `weight2` and W_1, V_1 `mean1`, `mean2`. The paper (W. L. Hamilton,
    R. Ying and J. Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017)
    samples neighbours and scales hidden units to length 1.
    """

    mean1: nn.Parameter
    mean2: nn.Parameter

    @classmethod
    def shapes(cls, inputs: int, hidden: int, classes: int) -> Shapes:
        """The shapes of the weights by name, in the order in which they are drawn."""
        means: Shapes = {"mean1": (inputs, hidden), "mean2": (hidden, classes)}
        return super().shapes(inputs, hidden, classes) | means

    @staticmethod
    def field(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Field:
        """What it is trained on: rows of [X, M X] of targets and neighbours, and M."""
        mean = neighbour_mean(adjacency)
        field = receptive_field(mean, x, nodes)
        # a target is among them: its own entry in M is an explicit 0
        reached = torch.unique(take_rows(mean, nodes).col_indices())
        inputs = torch.cat([x[reached], field.inputs], dim=1)
        return TargetField(thinned(inputs), field.mix, torch.searchsorted(reached, nodes))

    def forward(self, field: Field, generator: torch.Generator | None = None) -> Tensor:
        """Logits [n, classes] of the targets; without a generator nothing is dropped."""
        assert isinstance(field, TargetField)
        first = torch.cat([self.weight1, self.mean1])
        hidden = torch.relu(project(field.inputs, first) + self.bias1)
        hidden = dropout(hidden, self.dropout, generator)
        own = torch.addmm(self.bias2, hidden[field.targets], self.weight2)
        return own + field.mix @ (hidden @ self.mean2)

    def scores(self, adjacency: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Logits [n, classes] of some nodes of a graph, without dropout and without a gradient."""
        with torch.no_grad():
            mean = neighbour_mean(adjacency)
            hidden = torch.addmm(self.bias1, x, self.weight1)
            hidden = hidden.add_(spmm(mean, x @ self.mean1)).relu_()
            own = torch.addmm(self.bias2, hidden[nodes], self.weight2)
            return own.add_(spmm(take_rows(mean, nodes), hidden @ self.mean2))


def neighbour_mean(adjacency: Tensor) -> Tensor:
    """M: the mean over a node's neighbours, itself left out (an entry of 0); 0 without any."""
    starts, columns = adjacency.crow_indices(), adjacency.col_indices()
    row = row_of(adjacency)
    share = 1 / (starts.diff() - 1).clamp(min=1).to(torch.float32)
    return csr(starts, columns, torch.where(row == columns, 0, share[row]), adjacency.shape)


def pagerank(step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Personalised PageRank: K steps of Z ← (1 − α) Â Z + α H from H, where `step` gives Â Z."""
    reached = start
    for _ in range(STEPS):
        reached = torch.lerp(step(reached), start, RESTART)
    return reached


def thinned(x: Tensor) -> Tensor:
    """Features as a sparse CSR matrix where nearly all of them are 0, as they are elsewhere."""
    return x.to_sparse_csr() if int(x.count_nonzero()) < SPARSE_BELOW * x.numel() else x


def project(
    inputs: Tensor, weight: Tensor, rate: float = 0.0, generator: torch.Generator | None = None
) -> Tensor:
    """Features from `thinned`, with dropout, times weights; gradients flow to the weights."""
    sparse = inputs.layout is torch.sparse_csr
    values = dropout(inputs.values() if sparse else inputs, rate, generator)
    if not sparse:
        return values @ weight
    # a row as a bag of its non-zero features: the gradient needs no transpose after dropout
    columns, starts = inputs.col_indices(), inputs.crow_indices()
    return embedding_bag(
        columns, weight, starts, mode="sum", per_sample_weights=values, include_last_offset=True
    )


Validation = tuple[Nodes, Labels] | None
Labelled = tuple[Tensor, Array]  # nodes [n] and their labels [n], checked
NETWORKS: dict[str, type[GCN]] = {"gcn": GCN, "appnp": APPNP, "sage": SAGE}


class Trial(NamedTuple):
    """One training: its best epoch (from 1), and that one's mean accuracy over classes, if any."""

    weight_decay: float
    epoch: int
    accuracy: float | None


@dataclass(kw_only=True, eq=False, repr=False)
class Joint(GradientLearner):
    """A network trained from scratch in each session on the labels of all sessions so far.

    L = mean cross-entropy over every labelled node so far (each class the same where `balanced`),
    for `epochs` epochs; the weights are those of the epoch with the best accuracy on validation
    nodes of the classes seen so far, averaged over classes. Each session trains from the same
    initial weights with each weight decay, if they differ, and keeps the better, the first where
    they tie. It alone keeps old nodes and labels, and takes validation nodes as an argument of
    `partial_fit`; without any it trains once, and the last epoch counts.

    `model` is ``"gcn"``, ``"appnp"`` (which drops features too) or ``"sage"``. `check_every` counts
    epochs between two evaluations on the validation nodes.
    """

    model: str = "gcn"
    epochs: int = 300
    lr: float = 1e-2
    other_weight_decay: float = 5e-3
    check_every: int = 5
    uses_validation: ClassVar[bool] = True
    _limits: ClassVar = {"other_weight_decay": 0, "check_every": 1}
    _fixed = ("model",)
    _per_node: ClassVar = ("nodes", "codes")

    def __post_init__(self) -> None:
        # the validation nodes and labels of the session in progress
        self._offered: Labelled | None = None

    @property
    def trials_(self) -> tuple[Trial, ...]:
        """The trainings of the last session, one for each weight decay."""
        return self._known.trials

    def fit(
        self, graph: Data, nodes: Nodes, labels: Labels | None = None, validation: Validation = None
    ) -> Self:
        """As `Learner.fit`, with nodes and labels to validate on, of the session's classes."""
        return self._validated(validation, graph, nodes, labels, anew=True)

    def partial_fit(
        self, graph: Data, nodes: Nodes, labels: Labels | None = None, validation: Validation = None
    ) -> Self:
        """As `Learner.partial_fit`, with nodes and labels of the same classes to validate on."""
        return self._validated(validation, graph, nodes, labels, anew=False)

    def _validated(self, validation: Validation, graph: Data, *session: Any, anew: bool) -> Self:
        """A session with validation nodes, of one thread at a time."""
        with self._lock:
            if validation is not None:
                graph = self._check_graph(graph, width=None)
                held = checks.check_nodes(validation[0], graph.x.size(0))
                self._offered = (held, checks.check_labels(validation[1], held.numel()))
            try:
                return self._session(graph, *session, anew=anew)
            finally:
                self._offered = None

    def _check_params(self) -> None:
        super()._check_params()
        checks.check_choice("model", self.model, NETWORKS)

    def _check_graph(self, graph: Data, width: int | None) -> Data:
        graph = super()._check_graph(graph, width)
        weights = graph.get("edge_weight")
        if self.model == "sage" and weights is not None and bool((weights != 1).any()):
            raise InputError(
                "graph.edge_weight is not used by GraphSAGE, whose mean counts every neighbour the"
                " same: remove it (del graph.edge_weight), or use model='gcn' or 'appnp'"
            )
        return graph

    @property
    def _network(self) -> type[GCN]:
        return NETWORKS[self.model]

    def _model(self, inputs: int, classes: int, before: Known, draw: torch.Generator) -> GCN:
        return self._network(inputs, self.hidden, classes, self.dropout, draw)

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Known | None) -> Known:
        session, offered = (nodes, labels), self._offered or (nodes[:0], labels[:0])
        task = self._task(graph, *_all_so_far(learned, "", session), learned)
        unseen = np.setdiff1d(offered[1], task.arrival)
        if unseen.size:
            what = f"class {unseen[0]!s}, which no session has revealed"
            raise InputError(f"validation holds {what}: leave its nodes out")
        nodes, labels = _all_so_far(learned, "val_", offered)
        held = onto(nodes, task.x.device)
        held_codes = onto(as_codes(task.arrival, labels), task.x.device)
        field, decays = None, [self.weight_decay]
        if held.numel():  # something to choose by
            field = task.field_of(held)
            decays.append(self.other_weight_decay)
        start, found = deepcopy(task.gcn.state_dict()), []
        for decay in dict.fromkeys(decays):
            # the same weights and the same masks: the decay is all that differs
            task.gcn.load_state_dict(start)
            task.masks.manual_seed(task.masks.initial_seed())
            found.append(self._trained(task, decay, field, held_codes))
        # the first of those that tie
        _, weights = max(found, key=lambda pair: pair[0].accuracy or 0.0)
        checks.check_trained(*weights.values())
        memory = {"nodes": task.nodes, "codes": task.codes}
        memory |= {"val_nodes": held, "val_codes": held_codes}
        trials, _ = zip(*found, strict=True)
        return Known(weights, task.arrival, task.before.sessions + 1, memory, trials)

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, facts = super()._state()
        return tensors, {**facts, "trials": [list(trial) for trial in self.trials_]}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Known:
        known = super()._restore(tensors, facts)
        trials = tuple(
            Trial(float(decay), int(epoch), None if accuracy is None else float(accuracy))
            for decay, epoch, accuracy in facts["trials"]
        )
        return replace(known, trials=trials)

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        super()._check_memory(memory, weights, classes)
        held = {"nodes": memory["val_nodes"], "codes": memory["val_codes"]}
        super()._check_memory(held, weights, classes)

    def _trained(
        self, task: Task, decay: float, held: Field | None, held_codes: Tensor
    ) -> tuple[Trial, Tensors]:
        """One training, and the weights of its best epoch."""
        best, weights = Trial(decay, self.epochs, None), {}

        def look(epoch: int) -> None:
            nonlocal best, weights
            due = (epoch + 1) % self.check_every == 0 or epoch + 1 == self.epochs
            if held is None or not due:
                return
            with torch.no_grad():
                right = (task.gcn(held).argmax(1) == held_codes).to(torch.float64)
            # averaged over classes, so that a large one does not choose the epoch alone
            counts = torch.bincount(held_codes)
            shares = torch.bincount(held_codes, weights=right) / counts
            accuracy = float(shares[counts > 0].mean())
            if best.accuracy is None or accuracy > best.accuracy:
                best, weights = Trial(decay, epoch + 1, accuracy), deepcopy(task.gcn.state_dict())

        train(task.gcn.parameters(), task.loss, self.epochs, self.lr, decay, after=look)
        return best, weights or task.gcn.state_dict()


def _all_so_far(learned: Known | None, kind: str, new: Labelled) -> Labelled:
    """Kept nodes and labels, then new ones; a node that comes again counts by its last label."""
    if learned is None:
        return new
    nodes, codes = (learned.memory[f"{kind}{name}"].cpu() for name in ("nodes", "codes"))
    stays = ~torch.isin(nodes, new[0])
    labels = learned.arrival[codes[stays].numpy()]
    return torch.cat([nodes[stays], new[0]]), np.concatenate([labels, new[1]])
