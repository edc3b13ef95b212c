"""Which nodes a replay method keeps, within its budget."""

from __future__ import annotations

import torch
from torch import Tensor


def class_quotas(available: Tensor, budget: int) -> Tensor:
    """How many nodes each class may keep: as equal as can be, and never more than the budget.

    Parameters
    ----------
    available : Tensor [C], int64
        Nodes that each class has to offer.
    budget : int
        Nodes in all.

    Returns
    -------
    Tensor [C], int64
        What a small class leaves goes to the others; what cannot be shared equally goes to the
        classes that came first. A budget below the number of classes therefore leaves the last ones
        with nothing: give each class at least one node.

    Examples
    --------
    >>> class_quotas(torch.tensor([2, 9, 9]), 12)
    tensor([2, 5, 5])
    >>> class_quotas(torch.tensor([9, 9, 9]), 5)
    tensor([2, 2, 1])
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
    """The first nodes of each class, as many as `class_quotas` allows.

    Parameters
    ----------
    nodes, codes : Tensor [m], int64
        Nodes and their classes, in each class the most wanted first.
    budget : int
        Nodes in all.

    Returns
    -------
    nodes, codes : Tensor [at most budget]
        In the order in which they were given.

    Examples
    --------
    >>> keep_best(torch.tensor([5, 6, 7, 8]), torch.tensor([0, 0, 0, 1]), 3)
    (tensor([5, 6, 8]), tensor([0, 0, 1]))
    """
    if nodes.numel() == 0:
        return nodes, codes
    available = torch.bincount(codes)
    quotas = class_quotas(available, budget)
    kept = places(codes) < quotas[codes]
    return nodes[kept], codes[kept]


def places(codes: Tensor) -> Tensor:
    """How many earlier entries are of the same class.

    Parameters
    ----------
    codes : Tensor [m]

    Returns
    -------
    Tensor [m]

    Examples
    --------
    >>> places(torch.tensor([3, 0, 3, 3, 0]))
    tensor([0, 0, 1, 2, 1])
    """
    order = torch.argsort(codes, stable=True)
    counts = torch.bincount(codes)
    starts = counts.cumsum(0) - counts
    found = torch.empty_like(codes)
    found[order] = torch.arange(codes.numel(), device=codes.device) - starts[codes[order]]
    return found
