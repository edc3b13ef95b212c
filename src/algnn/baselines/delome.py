"""Debiased lossless memory replay (DeLoMe)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algnn.baselines.cat import CaT, Matching, SyntheticMemory, edge_free
from algnn.baselines.training import Task


@dataclass(frozen=True)
class Adjusted(SyntheticMemory):
    """`field` is that of earlier sessions' nodes alone; `adjustment` is τ log π [C]."""

    adjustment: Tensor


@dataclass(kw_only=True, eq=False, repr=False)
class DeLoMe(CaT):
    """Debiased lossless memory replay: synthetic nodes with the gradients of real ones.

    A session's nodes V are condensed to nodes X̃ without edges, under networks that are drawn for
    one step of Adam on X̃ and thrown away, so that each class has the same gradient:

        min_X̃ E_W Σ_c r_c ‖ ∇_W mean_{v ∈ V_c} CE_v − ∇_W mean_{i ∈ X̃_c} CE_i ‖²,
        logits = ReLU(Â² X W_1) W_2 and ReLU(X̃ W_1) W_2,   r_c = |X̃_c| / max_c |X̃_c|.

    The GCN learns from the session's own nodes and from the memory of earlier ones, with logits
    that are adjusted for how often a class is seen in the two together:

        L = CE(z_t + τ log π) + CE(z_M + τ log π),   π_c = m_c / Σ m,

    where m_c counts the memory's nodes of an old class and the session's of a new one. `balanced`
    changes nothing, the adjustment stands in its place.

    Parameters
    ----------
    temperature : float
        τ; 1 in the authors' code, 0 for no adjustment.
    budget, condense_steps, condense_lr : as in `CaT`
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    Notes
    -----
    The authors' code matches under 900 networks a session (fewer here by default), takes a step for
    each class in turn, starts X̃ from rows of X, gives each class a budget of its own (60 nodes),
    adds up one memory loss per earlier session, and trains SGC for 200 epochs at 0.005. Here the
    budget is shared by the classes, as in `CaT`, X̃ starts from Â² X, the memory is one mean, and
    the GCN and its epochs are those that all baselines have.

    References
    ----------
    C. Niu, G. Pang and L. Chen, "Graph Continual Learning with Debiased Lossless Memory Replay",
    ECAI 2024.

    Examples
    --------
    >>> import algnn
    >>> model = DeLoMe(hidden=16, epochs=5, budget=20, condense_steps=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size, len(model.selection_seconds_)
    (10, 2)
    """

    temperature: float = 1.0
    condense_lr: float = 0.01
    _lowest: ClassVar = {"temperature": 0}

    def _prepare(self, task: Task) -> Adjusted:
        x, codes, old = self._condensed(task)
        seen = torch.cat([codes[:old], task.codes])
        # a class that the budget left with nothing counts for one node
        counts = torch.bincount(seen, minlength=task.arrival.size).clamp(min=1)
        adjustment = self.temperature * (counts / counts.sum()).log().to(torch.float32)
        return Adjusted(x, codes, edge_free(x[:old]), adjustment)

    def _loss(self, task: Task, prepared: SyntheticMemory) -> Tensor:
        assert isinstance(prepared, Adjusted)
        loss = cross_entropy(task.gcn(task.field, task.masks) + prepared.adjustment, task.codes)
        old = prepared.field.inputs.size(0)
        if not old:
            return loss
        logits = task.gcn(prepared.field, task.masks) + prepared.adjustment
        return loss + cross_entropy(logits, prepared.codes[:old])

    def _matching(self, task: Task, two_hops: Tensor, synthetic: Tensor) -> Matching:
        return GradientMatching(two_hops, task.codes, synthetic, task.arrival.size)


class GradientMatching(Matching):
    """Squared distance between the gradients of real nodes [n, d] and of synthetic ones."""

    def __init__(self, real: Tensor, codes: Tensor, synthetic: Tensor, classes: int) -> None:
        self._real, self._codes, self._own = real, codes, synthetic
        self.outputs = classes
        counts = torch.bincount(synthetic, minlength=classes)
        self._classes = counts.nonzero().squeeze(1).tolist()
        self._weights = (counts / counts.max().clamp(min=1)).to(torch.float32)

    def loss(self, x: Tensor, weight1: Tensor, weight2: Tensor) -> Tensor:
        """The distance under one network, with a gradient for `x` [k, d]."""
        weights = [weight.requires_grad_() for weight in (weight1, weight2)]
        apart = []
        for code in self._classes:
            found = []
            for inputs, codes, keep in ((self._real, self._codes, False), (x, self._own, True)):
                rows = codes == code
                logits = torch.relu(inputs[rows] @ weight1) @ weight2
                loss = cross_entropy(logits, codes[rows])
                found.append(torch.autograd.grad(loss, weights, create_graph=keep))
            squares = [(one - other).square().sum() for one, other in zip(*found, strict=True)]
            apart.append(self._weights[code] * torch.stack(squares).sum())
        return torch.stack(apart).sum()
