"""ContinualGNN (CGNN): replay, a Fisher penalty, and detection of changed neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from algnn.baselines.importance import node_importance
from algnn.baselines.memory import keep_best
from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.checks import check_number
from algnn.gcn import GCN
from algnn.graph.propagate import Field, take_rows


@dataclass(frozen=True)
class _Replay:
    """The session's nodes followed by the remembered ones: field, codes, and shares of the loss.

    `fisher` has the names of the weights before the session; it is empty without a penalty.
    """

    field: Field
    codes: Tensor
    shares: Tensor
    fisher: Tensors


@dataclass(kw_only=True, eq=False, repr=False)
class CGNN(GradientLearner):
    """ContinualGNN: cross-entropy on new, affected and remembered nodes, and an EWC penalty.

    L = mean of ℓ_v over new ∪ affected ∪ memory  +  λ/2 Σ F (θ − θ*)²

    ℓ_v is the cross-entropy of node v over the classes seen so far and θ* the weights before the
    session. F = mean over the remembered nodes of (∇_θ ℓ_v)² at θ*, a diagonal Fisher information
    from the gradients of single nodes. The head's new columns are free. As in the authors' code F
    is found from the memory when a session begins, so neither it nor a second copy of the weights
    must be kept.

    *Affected* are nodes whose surroundings have changed since the last session. Of old nodes a
    learner only has the labels that it remembers, so here these are remembered nodes: one that is
    affected counts twice in the mean, as new and as remembered. To find them without the old graph,
    one number is kept for each node, `two_hop_walks`: the terms of a two-layer GCN's sums at that
    node. It differs wherever an edge was gained (or lost) at the node or at a neighbour. Where the
    whole graph is visible from the start (a stream with ``edges="full"``) nothing ever changes and
    no node is affected.

    The memory is the original's "class" strategy with p = 1 and α = 0: p scales the chance that a
    newcomer is taken and α adds importance, the share of neighbours of another class; so set, every
    node of a class that was ever seen has the same chance. (α > 0 would need labels of neighbours,
    which a learner does not have.) Nodes are in a random order that depends on `seed` alone, and
    the first of each class are kept. Classes share the budget as equally as can be; the
    original shares it in proportion to their size.

    It keeps at most `budget` nodes in all, their codes, and a number for each.

    Parameters
    ----------
    budget : int
        Nodes remembered in all.
    strength : float
        λ.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device
        As in `GradientLearner`.

    References
    ----------
    J. Wang, G. Song, Y. Wu and L. Wang, "Streaming Graph Neural Networks via Continual Learning",
    CIKM 2020.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = CGNN(budget=40, hidden=16, epochs=5)
    >>> for session in stream:
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    budget: int = 300
    strength: float = 0.5
    selects: ClassVar[bool] = True

    def _check_params(self) -> None:
        super()._check_params()
        check_number("budget", self.budget, 0, whole=True)
        check_number("strength", self.strength, 0)

    def _prepare(self, task: Task) -> _Replay | None:
        if not task.memory or task.memory["nodes"].numel() == 0:
            return None
        old = task.replayed()
        nodes, codes = old["nodes"], old["codes"]
        affected = two_hop_walks(task.adjacency, nodes) != old["walks"]
        both = torch.cat([task.codes, codes])
        # one that is affected counts twice
        counted = torch.cat([both, codes[affected]])
        shares = torch.cat([torch.ones_like(task.nodes), 1 + affected.to(nodes.dtype)])
        weights = task.class_weights(counted)
        parts = shares if weights is None else shares * weights[both]
        return _Replay(
            task.field_of(torch.cat([task.nodes, nodes])),
            both,
            parts.to(torch.float32) / parts.sum(),
            self._fisher(task),
        )

    def _fisher(self, task: Task) -> Tensors:
        """F, at the weights before the session, from all that is remembered."""
        if self.strength == 0 or task.before is None:
            return {}
        old, field = GCN.from_weights(task.before.weights), task.field_of(task.memory["nodes"])
        truth = one_hot(task.memory["codes"], task.old)
        return node_importance(old, field, lambda logits: logits.softmax(1) - truth, torch.square)

    def _loss(self, task: Task, prepared: _Replay | None) -> Tensor:
        if prepared is None:
            return task.loss()
        logits = task.gcn(prepared.field, task.masks)
        return cross_entropy(logits, prepared.codes, reduction="none") @ prepared.shares

    def _adjust(self, task: Task, prepared: _Replay | None) -> None:
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

    def _remember(self, task: Task, prepared: _Replay | None) -> Tensors:
        old = task.replayed()
        nodes = torch.cat([old["nodes"], task.nodes])
        codes = torch.cat([old["codes"], task.codes])
        order = _drawn(nodes, self.seed)
        nodes, codes = keep_best(nodes[order], codes[order], self.budget)
        return {"nodes": nodes, "codes": codes, "walks": two_hop_walks(task.adjacency, nodes)}


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
