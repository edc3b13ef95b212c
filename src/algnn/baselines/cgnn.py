"""ContinualGNN (CGNN): replay, a Fisher penalty, and detection of changed neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from algnn.baselines.memory import Replay, ReplayLearner, with_memory
from algnn.baselines.penalty import fisher_information
from algnn.baselines.training import Task, Tensors
from algnn.gcn import GCN
from algnn.graph.propagate import take_rows


@dataclass(frozen=True)
class _Penalised(Replay):
    """`fisher` has the names of the weights before the session; it is empty without a penalty."""

    fisher: Tensors


@dataclass(kw_only=True, eq=False, repr=False)
class CGNN(ReplayLearner):
    """ContinualGNN: cross-entropy on new, affected and remembered nodes, and an EWC penalty.

    L = mean of ℓ_v over new ∪ affected ∪ memory  +  λ/2 Σ F (θ − θ*)²

    ℓ_v is the cross-entropy of node v over the classes seen so far, θ* are the weights before the
    session and F the mean of (∇_θ ℓ_v)² over the remembered nodes at θ*. The head's new columns are
    free. As in the authors' code F is found from the memory when a session begins, so neither it
    nor a second copy of the weights must be kept.

    *Affected* are remembered nodes (of others the labels are gone) whose surroundings have changed
    since the last session; one that is affected counts twice in the mean. To find them without the
    old graph, one number is kept for each node, `two_hop_walks`, which differs wherever an edge was
    gained or lost at the node or at a neighbour. Where the whole graph is visible from the start (a
    stream with ``edges="full"``) no node is affected.

    The memory is the original's "class" strategy with p = 1 and α = 0 (α > 0 would need labels of
    neighbours): every node of a class that was ever seen has the same chance. Classes share the
    budget as equally as can be; the original shares it in proportion to their size.

    Parameters
    ----------
    budget : int
        Nodes remembered in all, with their codes and a number for each.
    strength : float
        λ.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    References
    ----------
    J. Wang, G. Song, Y. Wu and L. Wang, "Streaming Graph Neural Networks via Continual Learning",
    CIKM 2020.

    Examples
    --------
    >>> import algnn
    >>> model = CGNN(budget=40, hidden=16, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    strength: float = 0.5
    _lowest: ClassVar = {"strength": 0}

    def _prepare(self, task: Task) -> _Penalised | None:
        if task.before is None or not task.memory or task.memory["nodes"].numel() == 0:
            return None
        old, (nodes, codes) = task.replayed(), with_memory(task)
        affected = two_hop_walks(task.adjacency, old["nodes"]) != old["walks"]
        # one that is affected counts twice
        weights = task.class_weights(torch.cat([codes, old["codes"][affected]]))
        shares = torch.cat([torch.ones_like(task.nodes), 1 + affected.to(nodes.dtype)])
        parts = shares if weights is None else shares * weights[codes]
        shares = parts.to(torch.float32) / parts.sum()
        fisher = {}
        if self.strength > 0:
            before, field = (
                GCN.from_weights(task.before.weights),
                task.field_of(task.memory["nodes"]),
            )
            fisher = fisher_information(before, field, task.memory["codes"])
        return _Penalised(task.field_of(nodes), codes, shares, fisher)

    def _adjust(self, task: Task, prepared: _Penalised | None) -> None:
        """Add λ F (θ − θ*), the penalty's gradient; by autograd it takes several times as long."""
        if prepared is None or task.before is None:
            return
        for name, fisher in prepared.fisher.items():
            weight, before = task.gcn.get_parameter(name), task.before.weights[name]
            if weight.grad is not None:
                # the head's first columns are those it had
                held = slice(before.size(-1))
                moved = weight.detach()[..., held] - before
                weight.grad[..., held].addcmul_(fisher, moved, value=self.strength)

    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        return _drawn(nodes, self.seed)

    def _remember(self, task: Task, prepared: Replay | None) -> Tensors:
        kept = super()._remember(task, prepared)
        return {**kept, "walks": two_hop_walks(task.adjacency, kept["nodes"])}


def two_hop_walks(adjacency: Tensor, nodes: Tensor) -> Tensor:
    """Walks of two steps, along edges or self-loops of Â, that end in each of some nodes [n].

    They are the degrees of a node and of its neighbours, added up.
    """
    near = take_rows(adjacency, nodes)
    degrees = adjacency.crow_indices().diff()[near.col_indices()]
    # integer sums are exact in any order
    upto = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    return upto[near.crow_indices()].diff()


def _drawn(nodes: Tensor, seed: int) -> Tensor:
    """The nodes' positions [n] in a random order of all possible nodes, the same in each session.

    The first of a class in this order are a uniform sample of all its nodes that ever came, of
    which only the sample must be known. The order is that of splitmix64 (Steele, Lea and Flood,
    "Fast splittable pseudorandom number generators", OOPSLA 2014).
    """
    (start,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    tickets = nodes.cpu().numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    tickets = (tickets ^ (tickets >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    tickets = (tickets ^ (tickets >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    tickets ^= tickets >> np.uint64(31)
    return torch.from_numpy(np.argsort(tickets)).to(nodes.device)
