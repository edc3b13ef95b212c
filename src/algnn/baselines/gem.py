"""Gradient episodic memory (GEM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from algnn.baselines.memory import keep_best
from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.graph.propagate import Field, blocks

# This ridge keeps the multipliers of nearly opposite gradients bounded; the authors' code adds 1e-3
# to M Mᵀ. With ε on unit rows a product ⟨g̃, g_k⟩/‖g_k‖ falls below zero by at most √ε/2·‖g‖: here
# 5e-8 ‖g‖, which float32 rounds away.
RIDGE = 1e-14


@dataclass(frozen=True)
class _Past:
    """Fields and codes of remembered nodes of K sessions; `gradients` [K + 1, p] is a buffer."""

    sessions: list[tuple[Field, Tensor]]
    gradients: Tensor


@dataclass(kw_only=True, eq=False, repr=False)
class GEM(GradientLearner):
    """Gradient episodic memory (GEM): steps along which no earlier session's loss rises.

    After session s some of its nodes are remembered; L_k is the mean cross-entropy, over the
    classes seen so far, of those remembered of session k, and g_k its gradient. In session t the
    gradient g of L_t is replaced by the nearest one along which no L_k rises:

        g̃ = argmin ½‖g̃ − g‖²   subject to   ⟨g̃, g_k⟩ ≥ 0 for every earlier session k.

    It keeps at most `budget` nodes in all, with their codes and the session each came with. The
    budget is shared as equally as can be by the classes of the sessions, within which nodes are
    drawn at random; older ones make room for newer.

    Parameters
    ----------
    budget : int
        Nodes remembered in all.
    margin : float
        Lower bound of the multipliers, the paper's memory strength γ: where the gradient must be
        changed at all, at least this multiple of every g_k is added to it.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    Notes
    -----
    The L_k are computed without dropout: the loss that must not rise is that of the model as it
    predicts. The constraints bind the gradient; Adam, which everyone here uses, scales it by
    coordinate and adds weight decay before it steps, where the paper takes a plain step.

    References
    ----------
    D. Lopez-Paz and M. Ranzato, "Gradient Episodic Memory for Continual Learning", NeurIPS 2017.

    Examples
    --------
    >>> import algnn
    >>> model = GEM(budget=40, hidden=16, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    budget: int = 300
    margin: float = 0.5
    selects_in: ClassVar[str] = "remember"
    _lowest: ClassVar = {"budget": 0, "margin": 0}

    def _prepare(self, task: Task) -> _Past:
        memory = task.memory or task.replayed()
        sessions = [
            (task.field_of(memory["nodes"][own]), memory["codes"][own])
            for session in torch.unique(memory["sessions"])
            for own in [memory["sessions"] == session]
        ]
        size = sum(parameter.numel() for parameter in task.gcn.parameters())
        return _Past(sessions, task.x.new_empty(len(sessions) + 1, size))

    def _adjust(self, task: Task, prepared: _Past) -> None:
        if not prepared.sessions:
            return
        parameters = list(task.gcn.parameters())
        for row, (field, codes) in zip(prepared.gradients, prepared.sessions, strict=False):
            loss = task.mean_loss(task.gcn(field), codes)
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)], out=row)
        own = [p.grad for p in parameters if p.grad is not None]
        gradient = torch.cat([g.flatten() for g in own], out=prepared.gradients[-1])
        projected = project(gradient, prepared.gradients[:-1], self.margin)
        if projected is not gradient:
            vector_to_parameters(projected, own)

    def _remember(self, task: Task, prepared: _Past) -> Tensors:
        drawn = torch.randperm(task.nodes.numel(), generator=task.initial).to(task.nodes.device)
        new = {
            "nodes": task.nodes[drawn],
            "codes": task.codes[drawn],
            "sessions": torch.full_like(task.nodes, task.index),
        }
        old = task.replayed()
        every = {name: torch.cat([old[name], value]) for name, value in new.items()}
        # shares are of a session's classes, so that one bringing more of an old class has its own
        pairs = every["sessions"] * len(task.arrival) + every["codes"]
        _, share = torch.unique(pairs, return_inverse=True)
        kept, _ = keep_best(torch.arange(share.numel(), device=share.device), share, self.budget)
        return {name: value[kept] for name, value in every.items()}


def project(gradient: Tensor, memory: Tensor, margin: float = 0.0) -> Tensor:
    """The vector nearest to `gradient` [p] with no negative product with a row of `memory` [K, p].

    With the rows g_k of `memory` in a matrix M, the dual of that quadratic program is

        min ½‖g + Mᵀv‖²  over  v ≥ 0,   and   g̃ = g + Mᵀv,

    whose optimality conditions say M g̃ ≥ 0. As in the authors' code the bound is v ≥ `margin`: with
    v = u + margin it is the same program for g + margin·Σ_k g_k in the place of g.

    Only products matter, so SciPy's `nnls` finds u in float64 from a factor of the Gram matrix of
    the K rows and g. Rows, which may be zero or multiples of each other, are scaled to length 1:
    their lengths differ by many orders of magnitude. `gradient` itself is returned where it
    violates nothing.
    """
    rows, size = memory.shape
    gram = torch.zeros(rows + 1, rows + 1, dtype=torch.float64, device=gradient.device)
    for block in blocks(size, 8 * (rows + 1)):
        part = torch.cat([memory[:, block], gradient[None, block]]).double()
        gram.addmm_(part, part.T)
    products = gram.cpu().numpy()
    if not (products[-1, :-1] < 0).any():
        return gradient
    v = torch.from_numpy(_multipliers(products, margin)).to(gradient.device)
    projected = torch.empty_like(gradient)
    for block in blocks(size, 8 * rows):
        # in float64: a short row has a large multiplier
        projected[block] = gradient[block] + v @ memory[:, block].double()
    return projected


def _multipliers(gram: npt.NDArray[np.float64], margin: float) -> npt.NDArray[np.float64]:
    """The v [K] of `project`, from the products [K + 1, K + 1] of g_1 … g_K and g."""
    shift = np.eye(len(gram))
    shift[-1, :-1] = margin
    gram = shift @ gram @ shift.T
    lengths = np.sqrt(gram.diagonal().clip(min=0))
    lengths[lengths == 0] = 1
    values, vectors = np.linalg.eigh(gram / np.outer(lengths, lengths))
    factor = np.sqrt(values.clip(min=0))[:, None] * vectors.T
    ridge = np.sqrt(RIDGE) * np.eye(len(gram))[:-1]
    stacked = np.concatenate([factor, ridge])
    from scipy.optimize import nnls  # a second to import

    u, _ = nnls(stacked[:, :-1], -stacked[:, -1], maxiter=100 * len(gram))
    multipliers: npt.NDArray[np.float64] = margin + u * lengths[-1] / lengths[:-1]
    return multipliers
