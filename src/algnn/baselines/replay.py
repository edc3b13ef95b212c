"""Methods that keep nodes of earlier sessions: GEM, ER-GNN and ContinualGNN."""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot
from torch.nn.utils import vector_to_parameters

from algnn.analytic.classes import mixed
from algnn.baselines.regularisation import fisher_information
from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.checks import check_choice
from algnn.gcn import GCN
from algnn.graph.propagate import Field, blocks, spmm, take_rows


class Replay(NamedTuple):
    """The session's nodes, then the memory's; `fisher` is that of weights that are held."""

    field: Field
    codes: Tensor
    shares: Tensor
    fisher: Tensors


@dataclass(kw_only=True, eq=False, repr=False)
class ReplayLearner(GradientLearner):
    """A learner that trains on nodes of earlier sessions too, at most `budget` of them in all."""

    budget: int = 300
    selects_in: ClassVar[str] = "remember"
    _limits: ClassVar = {"budget": 0}
    _per_node: ClassVar[tuple[str, ...]] = ("nodes", "codes")

    @abstractmethod
    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        """Positions [n] of nodes in the order in which they are kept, the best first."""

    def _loss(self, task: Task, prepared: Replay | None) -> Tensor:
        if prepared is None:
            return task.loss()
        logits = task.gcn(prepared.field, task.masks)
        return cross_entropy(logits, prepared.codes, reduction="none") @ prepared.shares

    def _remember(self, task: Task, prepared: Replay | None) -> Tensors:
        nodes, codes = task.with_memory()
        order = self._order(task, nodes, codes)
        kept = order[keep_best(codes[order], self.budget)]
        return {"nodes": nodes[kept], "codes": codes[kept]}


def keep_best(codes: Tensor, budget: int) -> Tensor:
    """Places of the first entries of each class, sorted, as equally many of each as can be."""
    # what a small class leaves goes to the others, what cannot be shared equally to the first ones
    turns = np.lexsort([part.numpy(force=True) for part in (codes, rank_in_class(codes))])
    return torch.from_numpy(np.sort(turns[:budget])).to(codes.device)


def rank_in_class(codes: Tensor) -> Tensor:
    """For each entry, the number of earlier entries of the same class."""
    given = pd.Series(codes.numpy(force=True))
    return torch.tensor(given.groupby(given).cumcount().to_numpy(), device=codes.device)


# This ridge keeps the multipliers of nearly opposite gradients bounded; the authors' code adds 1e-3
# to M Mᵀ. With ε on unit rows a product ⟨g̃, g_k⟩/‖g_k‖ falls below zero by at most √ε/2·‖g‖: here
# 5e-8 ‖g‖, which float32 rounds away.
RIDGE = 1e-14


@dataclass(kw_only=True, eq=False, repr=False)
class GEM(GradientLearner):
    """Gradient episodic memory (GEM): steps along which no earlier session's loss rises.

    L_k is the mean cross-entropy, over the classes seen so far, of the nodes remembered of session
    k, and g_k its gradient. In session t the gradient g of L_t is replaced by the nearest one along
    which no L_k rises:

        g̃ = argmin ½‖g̃ − g‖²   subject to   ⟨g̃, g_k⟩ ≥ 0 for every earlier session k.

    The classes of each session share the `budget` of nodes equally, and nodes are drawn at random.
    The L_k are without dropout. g̃ goes through Adam and weight decay, where the paper takes a plain
    step.

    Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning", NeurIPS 2017.

    `margin` is the lower bound of the multipliers, the paper's memory strength γ: at least this
    multiple of every g_k is added to the gradient where it must be changed at all.
    """

    budget: int = 300
    margin: float = 0.5
    selects_in: ClassVar[str] = "remember"
    _limits: ClassVar = {"budget": 0, "margin": 0}
    _per_node: ClassVar = ("nodes", "codes", "sessions")

    def _prepare(self, task: Task) -> tuple[list[tuple[Field, Tensor]], Tensor]:
        """Fields and codes of each of K earlier sessions, and a buffer [K + 1, p] for gradients."""
        memory = task.memory or task.replayed()
        each = [memory["sessions"] == session for session in torch.unique(memory["sessions"])]
        sessions = [(task.field_of(memory["nodes"][own]), memory["codes"][own]) for own in each]
        size = sum(parameter.numel() for parameter in task.gcn.parameters())
        return sessions, task.x.new_empty(len(sessions) + 1, size)

    def _adjust(self, task: Task, prepared: tuple[list[tuple[Field, Tensor]], Tensor]) -> None:
        sessions, buffer = prepared
        if not sessions:
            return
        parameters = list(task.gcn.parameters())
        for row, (field, codes) in zip(buffer, sessions, strict=False):
            loss = task.mean_loss(task.gcn(field), codes)
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)], out=row)
        own = [p.grad for p in parameters if p.grad is not None]
        gradient = torch.cat([g.flatten() for g in own], out=buffer[-1])
        vector_to_parameters(project(gradient, buffer[:-1], self.margin), own)

    def _remember(self, task: Task, prepared: Any) -> Tensors:
        drawn = torch.randperm(task.nodes.numel(), generator=task.initial).to(task.nodes.device)
        new = {"nodes": task.nodes[drawn], "codes": task.codes[drawn]}
        new["sessions"] = torch.full_like(task.nodes, task.before.sessions)
        old = task.replayed()
        every = {name: torch.cat([old[name], value]) for name, value in new.items()}
        # shares are of a session's classes, so that one bringing more of an old class has its own
        pairs = every["sessions"] * len(task.arrival) + every["codes"]
        _, share = torch.unique(pairs, return_inverse=True)
        kept = keep_best(share, self.budget)
        return {name: value[kept] for name, value in every.items()}


def project(gradient: Tensor, memory: Tensor, margin: float = 0.0) -> Tensor:
    """The vector nearest to `gradient` [p] that has no product below 0 with rows of `memory`."""
    # With the rows g_k in a matrix M it is g̃ = g + Mᵀv, v = argmin ½‖g + Mᵀv‖² over v ≥ margin; for
    # u = v − margin that is the program of g + margin·Σ_k g_k over u ≥ 0, which nnls solves from a
    # factor of the Gram matrix with rows of length 1, since lengths differ by orders of magnitude.
    rows, size = memory.shape
    gram = torch.zeros(rows + 1, rows + 1, dtype=torch.float64, device=gradient.device)
    for block in blocks(size, 8 * (rows + 1)):
        part = torch.cat([memory[:, block], gradient[None, block]]).double()
        gram.addmm_(part, part.T)
    products = gram.cpu().numpy()
    if not (products[-1, :-1] < 0).any():
        return gradient
    shift = np.eye(rows + 1)
    shift[-1, :-1] = margin
    products = shift @ products @ shift.T
    lengths = np.sqrt(products.diagonal().clip(min=0))
    lengths[lengths == 0] = 1
    values, vectors = np.linalg.eigh(products / np.outer(lengths, lengths))
    factor = np.sqrt(values.clip(min=0))[:, None] * vectors.T
    stacked = np.concatenate([factor, np.sqrt(RIDGE) * np.eye(rows + 1)[:-1]])
    from scipy.optimize import nnls  # a second to import

    u, _ = nnls(stacked[:, :-1], -stacked[:, -1], maxiter=100 * (rows + 1))
    v = torch.from_numpy(margin + u * lengths[-1] / lengths[:-1]).to(gradient.device)
    projected = torch.empty_like(gradient)
    for block in blocks(size, 8 * rows):
        # in float64: a short row has a large multiplier
        projected[block] = gradient[block] + v @ memory[:, block].double()
    return projected


@dataclass(kw_only=True, eq=False, repr=False)
class ERGNN(ReplayLearner):
    """Experience replay with nodes chosen by coverage maximisation (CM).

    L = β L_t + (1 − β) L_memory with β = m / (m + n_t), for n_t nodes in the session and m in the
    memory; with `weighting` ``"begin"``, of the BeGin library, the mean over all n_t + m nodes.

    CM keeps, of each class, the nodes with the fewest nodes of other classes within `distance`; of
    equals, those nearest to their class's mean. Nodes are compared by their hidden units
    ReLU(Â X W_1 + b_1) at the end of the session, the paper's CM*, or by their attributes, its CM,
    scaled to length 1. Session and memory are ranked together, and classes share the budget.

    Zhou and Cao, "Overcoming Catastrophic Forgetting in Graph Neural Networks with Experience
    Replay", AAAI 2021.

    `budget` counts nodes remembered in all; `space` is what CM compares nodes by, ``"embeddings"``
    or ``"attributes"``.
    """

    distance: float = 0.5
    weighting: str = "paper"
    space: str = "embeddings"
    _limits: ClassVar = {"distance": 0}

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("weighting", self.weighting, ("paper", "begin"))
        check_choice("space", self.space, ("embeddings", "attributes"))

    def _prepare(self, task: Task) -> Replay | None:
        nodes, codes = task.with_memory()
        new = task.nodes.numel()
        if new == nodes.numel():
            return None
        beta = 1 - new / nodes.numel()
        first = beta if self.weighting == "paper" else 1 - beta
        parts = first * task.shares(task.codes), (1 - first) * task.shares(codes[new:])
        return Replay(task.field_of(nodes), codes, torch.cat(parts), {})

    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        if self.space == "attributes":
            return coverage_order(normalize(task.x[nodes]), codes, self.distance)
        with torch.no_grad():
            hidden = task.x.new_empty(nodes.numel(), task.gcn.bias1.numel())
            for block in blocks(nodes.numel(), task.x.size(1) * task.x.element_size()):
                inputs = spmm(take_rows(task.adjacency, nodes[block]), task.x)
                hidden[block] = torch.addmm(task.gcn.bias1, inputs, task.gcn.weight1).relu_()
        return coverage_order(normalize(hidden), codes, self.distance)


def coverage_order(embeddings: Tensor, codes: Tensor, distance: float) -> Tensor:
    """The order [n] of nodes by how few others are near, then by how near their class's mean is."""
    by_class = torch.argsort(codes, stable=True)
    points = embeddings[by_class]
    squares = points.square().sum(1)
    counts = torch.zeros_like(codes)
    for first, last in pairwise([0, *torch.bincount(codes).cumsum(0).tolist()]):
        # a class with all those after it: each pair of nodes is looked at once
        for block in blocks(last - first, 2 * points.element_size() * (codes.numel() - last)):
            rows = slice(first + block.start, first + block.stop)
            apart = squares[rows, None] + squares[last:] - 2 * points[rows] @ points[last:].T
            near = apart.clamp_(min=0) < distance**2
            counts[rows] += near.sum(1)
            counts[last:] += near.sum(0)
    crowd = torch.empty_like(counts)
    crowd[by_class] = counts
    # sums by the product with one-hot rows: in a fixed order on any device
    members = one_hot(codes).to(embeddings.dtype)
    means = members.T @ embeddings / members.sum(0).clamp(min=1)[:, None]
    order = torch.argsort((embeddings - means[codes]).square().sum(1), stable=True)
    return order[torch.argsort(crowd[order], stable=True)]


@dataclass(kw_only=True, eq=False, repr=False)
class CGNN(ReplayLearner):
    """ContinualGNN: cross-entropy on new, affected and remembered nodes, and an EWC penalty.

    L = mean of ℓ_v over new ∪ affected ∪ memory  +  λ/2 Σ F (θ − θ*)²

    ℓ_v is the cross-entropy of node v over the classes seen so far, θ* are the weights before the
    session and F the mean of (∇_θ ℓ_v)² over the remembered nodes at θ*. New columns are free.

    *Affected* are remembered nodes whose surroundings have changed since the last session; each
    counts twice in the mean. One number is kept for each node to find them by, `two_hop_walks`,
    which differs where the node or a neighbour has gained or lost an edge. Classes share the budget
    equally: docs/baselines.md says what differs from the original's memory.

    Wang et al., "Streaming Graph Neural Networks via Continual Learning", CIKM 2020.

    `budget` counts nodes remembered, with their codes and a number for each; `strength` is λ.
    """

    strength: float = 0.5
    _limits: ClassVar = {"strength": 0}
    _per_node: ClassVar = ("nodes", "codes", "walks")

    def _prepare(self, task: Task) -> Replay | None:
        if not task.memory or task.memory["nodes"].numel() == 0:
            return None
        old, (nodes, codes) = task.replayed(), task.with_memory()
        affected = two_hop_walks(task.adjacency, old["nodes"]) != old["walks"]
        # one that is affected counts twice
        shares = torch.cat([torch.ones_like(task.nodes), 1 + affected.to(nodes.dtype)])
        if task.balanced:
            weights = task.class_weights(torch.cat([codes, old["codes"][affected]]))
            shares = shares * weights[codes]
        shares = shares.to(torch.float32) / shares.sum()
        fisher = {}
        if self.strength > 0:
            before = GCN.from_weights(task.before.weights)
            held = task.field_of(task.memory["nodes"])
            fisher = fisher_information(before, held, task.memory["codes"])
        return Replay(task.field_of(nodes), codes, shares, fisher)

    def _adjust(self, task: Task, prepared: Replay | None) -> None:
        """Add λ F (θ − θ*), the penalty's gradient; by autograd it takes several times as long."""
        for name, fisher in (prepared.fisher if prepared else {}).items():
            weight, before = task.gcn.get_parameter(name), task.before.weights[name]
            assert weight.grad is not None
            held = slice(before.size(-1))  # the head's first columns are those it had
            moved = weight.detach()[..., held] - before
            weight.grad[..., held].addcmul_(fisher, moved, value=self.strength)

    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        # of all possible nodes, by splitmix64 (OOPSLA 2014): the first of a class are a uniform
        # sample of all its nodes that ever came
        (start,) = np.random.SeedSequence(self.seed).generate_state(1, np.uint64)
        tickets = nodes.cpu().numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
        return torch.from_numpy(np.argsort(mixed(tickets))).to(nodes.device)

    def _remember(self, task: Task, prepared: Replay | None) -> Tensors:
        kept = super()._remember(task, prepared)
        return {**kept, "walks": two_hop_walks(task.adjacency, kept["nodes"])}


def two_hop_walks(adjacency: Tensor, nodes: Tensor) -> Tensor:
    """Walks of two steps along Â to some nodes [n]: a node's degree and its neighbours' added."""
    near = take_rows(adjacency, nodes)
    degrees = adjacency.crow_indices().diff()[near.col_indices()]
    # integer sums are exact in any order
    upto = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    return upto[near.crow_indices()].diff()
