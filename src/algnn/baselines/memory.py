"""Replay: which nodes are kept within a budget, and how they enter the loss."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.graph.propagate import Field


@dataclass(frozen=True)
class Replay:
    """The session's nodes followed by the remembered ones: field, codes and shares of the loss."""

    field: Field
    codes: Tensor
    shares: Tensor


@dataclass(kw_only=True, eq=False, repr=False)
class ReplayLearner(GradientLearner):
    """A learner that trains on nodes of earlier sessions too, at most `budget` of them in all."""

    budget: int = 300
    selects_in: ClassVar[str] = "remember"
    _lowest: ClassVar = {"budget": 0}

    @abstractmethod
    def _prepare(self, task: Task) -> Replay | None:
        """What is trained on, or None for the session's nodes alone."""

    @abstractmethod
    def _order(self, task: Task, nodes: Tensor, codes: Tensor) -> Tensor:
        """Positions [n] of nodes in the order in which they are kept, the best first."""

    def _loss(self, task: Task, prepared: Replay | None) -> Tensor:
        if prepared is None:
            return task.loss()
        logits = task.gcn(prepared.field, task.masks)
        return cross_entropy(logits, prepared.codes, reduction="none") @ prepared.shares

    def _remember(self, task: Task, prepared: Replay | None) -> Tensors:
        nodes, codes = with_memory(task)
        order = self._order(task, nodes, codes)
        nodes, codes = keep_best(nodes[order], codes[order], self.budget)
        return {"nodes": nodes, "codes": codes}


def with_memory(task: Task) -> tuple[Tensor, Tensor]:
    """The session's nodes and codes, then the remembered ones that it does not bring again."""
    old = task.replayed()
    return torch.cat([task.nodes, old["nodes"]]), torch.cat([task.codes, old["codes"]])


def class_quotas(available: Tensor, budget: int) -> Tensor:
    """Nodes that each class [C] may keep: as equal as can be, and never more than the budget.

    What a small class leaves goes to the others; what cannot be shared equally goes to the classes
    that came first, so that a budget below the number of classes leaves the last ones with nothing.
    """
    if int(available.sum()) <= budget:
        return available.clone()
    # the highest level that every class may be filled to
    levels = torch.arange(budget + 1, device=available.device)
    filled = torch.minimum(available[None, :], levels[:, None]).sum(1)
    level = int((filled <= budget).sum()) - 1
    quotas = available.clamp(max=level)
    more = (available > level).nonzero().squeeze(1)[: budget - int(quotas.sum())]
    quotas[more] += 1
    return quotas


def keep_best(nodes: Tensor, codes: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """The first nodes of each class, as many as `class_quotas` allows, in the order given."""
    if nodes.numel() == 0:
        return nodes, codes
    quotas = class_quotas(torch.bincount(codes), budget)
    kept = rank_in_class(codes) < quotas[codes]
    return nodes[kept], codes[kept]


def rank_in_class(codes: Tensor) -> Tensor:
    """For each entry, the number of earlier entries of the same class."""
    order = torch.argsort(codes, stable=True)
    counts = torch.bincount(codes)
    starts = counts.cumsum(0) - counts
    ranks = torch.empty_like(codes)
    ranks[order] = torch.arange(codes.numel(), device=codes.device) - starts[codes[order]]
    return ranks
