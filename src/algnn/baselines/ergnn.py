"""Experience replay with coverage maximisation (ER-GNN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from algnn.baselines.memory import Replay, ReplayLearner, with_memory
from algnn.baselines.training import Task
from algnn.checks import check_choice
from algnn.graph.propagate import blocks, spmm, take_rows


@dataclass(kw_only=True, eq=False, repr=False)
class ERGNN(ReplayLearner):
    """Experience replay with nodes chosen by coverage maximisation (CM).

    L = β L_t + (1 − β) L_memory with β = m / (m + n_t), for n_t nodes in the session and m in the
    memory; L_memory is the mean cross-entropy of the remembered nodes. The smaller the memory, the
    more it weighs, in the paper and in its authors' code. `weighting` ``"begin"`` is that of the
    BeGin library, L = (1 − β) L_t + β L_memory: the mean over all n_t + m nodes.

    CM keeps, of each class, the nodes with the fewest nodes of other classes within `distance`; of
    equals, those nearest to their class's mean. Nodes are compared in the hidden layer
    ReLU(Â X W_1 + b_1) at the end of the session, the paper's CM*, or by their attributes, its CM;
    rows are scaled to length 1, so that a distance of 0.5 is an angle of 29 degrees. Hardly two
    nodes with sparse attributes are as near as that. Session and memory are ranked together anew
    after each session, and as equally many nodes of each class are kept as can be.

    Parameters
    ----------
    budget : int
        Nodes remembered in all.
    distance : float
        d, within which a node of another class counts; at most 2 makes sense.
    weighting : {"paper", "begin"}
        β at L_t, as in the paper, or at L_memory.
    space : {"embeddings", "attributes"}
        What CM compares nodes by.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    References
    ----------
    F. Zhou and C. Cao, "Overcoming Catastrophic Forgetting in Graph Neural Networks with Experience
    Replay", AAAI 2021.

    Examples
    --------
    >>> import algnn
    >>> model = ERGNN(budget=40, hidden=16, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    distance: float = 0.5
    weighting: str = "paper"
    space: str = "embeddings"
    _lowest: ClassVar = {"distance": 0}

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("weighting", self.weighting, ("paper", "begin"))
        check_choice("space", self.space, ("embeddings", "attributes"))

    def _prepare(self, task: Task) -> Replay | None:
        nodes, codes = with_memory(task)
        new = task.nodes.numel()
        if new == nodes.numel():
            return None
        beta = 1 - new / nodes.numel()
        first = beta if self.weighting == "paper" else 1 - beta
        parts = first * task.shares(task.codes), (1 - first) * task.shares(codes[new:])
        return Replay(task.field_of(nodes), codes, torch.cat(parts))

    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        attributes = self.space == "attributes"
        points = normalize(task.x[nodes]) if attributes else _embeddings(task, nodes)
        return coverage_order(points, codes, self.distance)


def coverage_order(embeddings: Tensor, codes: Tensor, distance: float) -> Tensor:
    """The order [n] in which coverage maximisation prefers nodes, by embeddings [n, h].

    First those with the fewest nodes of other classes nearer than `distance`; of equals, the one
    nearest to its class's mean, then the one that was given first.
    """
    crowd = _others_nearby(embeddings, codes, distance)
    # sums by the product with one-hot rows: in a fixed order on any device
    members = one_hot(codes).to(embeddings.dtype)
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


def _embeddings(task: Task, nodes: Tensor) -> Tensor:
    """Hidden units [n, h] of some nodes under the model as it is, each row of length 1."""
    with torch.no_grad():
        hidden = task.x.new_empty(nodes.numel(), task.gcn.bias1.numel())
        for block in blocks(nodes.numel(), task.x.size(1) * task.x.element_size()):
            inputs = spmm(take_rows(task.adjacency, nodes[block]), task.x)
            hidden[block] = torch.addmm(task.gcn.bias1, inputs, task.gcn.weight1).relu_()
        return normalize(hidden)
