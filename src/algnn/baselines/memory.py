"""Which nodes a replay method keeps within its budget."""

from __future__ import annotations

import torch
from torch import Tensor


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
