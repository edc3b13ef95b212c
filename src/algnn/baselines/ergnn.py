"""ER-GNN: replay of the nodes that lie clear of other classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from algnn.baselines.memory import keep_best
from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.checks import check_number
from algnn.graph.propagate import Field, blocks, spmm, take_rows


@dataclass(frozen=True)
class _Replay:
    """The session's nodes followed by the remembered ones: what they can see, and their codes."""

    field: Field
    codes: Tensor


class ERGNN(GradientLearner):
    """Experience replay with nodes chosen by coverage maximisation (CM).

    L = (1 − β) L_t + β L_memory with β = m / (m + n_t), for n_t nodes in the session and m in the
    memory; L_memory is the mean cross-entropy of the remembered nodes. So weighted, the two means
    are the mean over all n_t + m nodes, each counting once, and one pass over them all gives it.
    (The paper's β, of the same size, stands at L_t: a large memory would weigh less there than
    its nodes do.)

    CM keeps, of each class, the nodes with the fewest nodes of other classes within `distance`
    (see `coverage_order`). They are compared in the hidden layer ReLU(Â X W_1 + b_1) of the model
    as the session leaves it, each row scaled to length 1: so scaled, a distance of 0.5 is an angle
    of 29 degrees, whatever the units' scale. The session's nodes and the memory are compared with
    each other, so that a session of one class meets the classes before it; and all are ranked
    together anew after each session, so that the older classes, too, keep their best when they must
    make room.

    It keeps at most `budget` nodes in all, as equally many of each class as can be, and their
    codes.

    Parameters
    ----------
    budget : int
        Nodes remembered in all.
    distance : float
        d, within which a node of another class counts; at most 2 makes sense.
    hidden, epochs, lr, dropout, weight_decay, seed, device
        As in `GradientLearner`.

    References
    ----------
    F. Zhou and C. Cao, "Overcoming Catastrophic Forgetting in Graph Neural Networks with Experience
    Replay", AAAI 2021.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = ERGNN(budget=40, hidden=16, epochs=5)
    >>> for session in stream:
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    selects: ClassVar[bool] = True

    def __init__(
        self,
        *,
        budget: int = 300,
        distance: float = 0.5,
        hidden: int = 256,
        epochs: int = 50,
        lr: float = 1e-3,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
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
        self.budget = budget
        self.distance = distance

    def _check_params(self) -> None:
        super()._check_params()
        check_number("budget", self.budget, 0, whole=True)
        check_number("distance", self.distance, 0)

    def _prepare(self, task: Task) -> _Replay:
        nodes, codes = _with_memory(task)
        return _Replay(task.field_of(nodes), codes)

    def _loss(self, task: Task, prepared: _Replay) -> Tensor:
        return cross_entropy(task.gcn(prepared.field, task.masks), prepared.codes)

    def _remember(self, task: Task, prepared: _Replay) -> Tensors:
        nodes, codes = _with_memory(task)
        order = coverage_order(_embeddings(task, nodes), codes, self.distance)
        nodes, codes = keep_best(nodes[order], codes[order], self.budget)
        return {"nodes": nodes, "codes": codes}


def coverage_order(embeddings: Tensor, codes: Tensor, distance: float) -> Tensor:
    """Nodes in the order in which coverage maximisation wants them.

    Parameters
    ----------
    embeddings : Tensor [n, h]
    codes : Tensor [n]
        Their classes.
    distance : float
        d.

    Returns
    -------
    Tensor [n]
        Positions: first those with the fewest nodes of other classes nearer than d; of equals, the
        one nearest to its class's mean, then the one that was given first.

    Examples
    --------
    >>> points = torch.tensor([[0.0], [1.0], [0.4], [2.0]])
    >>> coverage_order(points, torch.tensor([0, 0, 1, 1]), distance=0.5)
    tensor([1, 3, 0, 2])
    """
    crowd = _others_nearby(embeddings, codes, distance)
    # sums by the product with one-hot rows: in a fixed order on any device
    members = torch.nn.functional.one_hot(codes).to(embeddings.dtype)
    means = members.T @ embeddings / members.sum(0).clamp(min=1)[:, None]
    order = torch.argsort((embeddings - means[codes]).square().sum(1), stable=True)
    return order[torch.argsort(crowd[order], stable=True)]


def _others_nearby(embeddings: Tensor, codes: Tensor, distance: float) -> Tensor:
    """How many nodes of other classes are nearer than `distance` to each node, [n]."""
    by_class = torch.argsort(codes, stable=True)
    points = embeddings[by_class]
    squares = points.square().sum(1)
    crowd = torch.zeros_like(codes)
    first = 0
    for last in torch.bincount(codes).cumsum(0).tolist():
        # a class with all those after it: each pair of nodes is looked at once
        for block in blocks(last - first, 2 * points.element_size() * (codes.numel() - last)):
            rows = slice(first + block.start, first + block.stop)
            apart = squares[rows, None] + squares[last:] - 2 * points[rows] @ points[last:].T
            near = apart.clamp_(min=0) < distance**2
            crowd[rows] += near.sum(1)
            crowd[last:] += near.sum(0)
        first = last
    counts = torch.empty_like(crowd)
    counts[by_class] = crowd
    return counts


def _with_memory(task: Task) -> tuple[Tensor, Tensor]:
    """The session's nodes and codes, then the remembered ones that it does not bring again."""
    if not task.memory:
        return task.nodes, task.codes
    nodes, codes = task.memory["nodes"], task.memory["codes"]
    still = ~torch.isin(nodes, task.nodes)
    return torch.cat([task.nodes, nodes[still]]), torch.cat([task.codes, codes[still]])


def _embeddings(task: Task, nodes: Tensor) -> Tensor:
    """Hidden units [n, h] of some nodes under the model as it is, each row of length 1."""
    with torch.no_grad():
        hidden = task.x.new_empty(nodes.numel(), task.gcn.bias1.numel())
        for block in blocks(nodes.numel(), task.x.size(1) * task.x.element_size()):
            inputs = spmm(take_rows(task.adjacency, nodes[block]), task.x)
            hidden[block] = torch.addmm(task.gcn.bias1, inputs, task.gcn.weight1).relu_()
        return normalize(hidden)
