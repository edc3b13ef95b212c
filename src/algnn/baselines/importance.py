"""Importance of weights: gradients of single nodes, without a loop over nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import Field, spmm


def node_importance(
    gcn: GCN, field: Field, slope: Callable[[Tensor], Tensor], reduce: Callable[..., Tensor]
) -> dict[str, Tensor]:
    """The mean over nodes of |∇_θ f_v| or (∇_θ f_v)², for an f_v of node v's own logits.

    The mean of squares is not the square of the mean: the gradients of single nodes are needed, not
    the gradient of their mean. With S_v = Σ_m Â_vm x_m r_mᵀ over the neighbours m of v (x_m their
    rows of ÂX, r_m which of their hidden units are on), δ_v = ∂f_v/∂logits and u_v = W_2 δ_v,

        ∇_{W_1} f_v = S_v diag(u_v),   ∇_{W_2} f_v = (Σ_m Â_vm h_m) δ_vᵀ,

    where `reduce` (`torch.abs` or `torch.square`) of a product is the product of both reduced.
    `slope` maps the logits [n, C], without dropout, to δ [n, C].
    """
    with torch.no_grad():
        mix = field.mix.matrix
        hidden = torch.relu(torch.addmm(gcn.bias1, field.inputs, gcn.weight1))
        on = (hidden > 0).to(hidden.dtype)
        mixed = spmm(mix, hidden)
        delta = slope(mixed @ gcn.weight2 + gcn.bias2)
        back = delta @ gcn.weight2.T
        count = mix.size(0)
        weight1 = torch.zeros_like(gcn.weight1)
        for nodes, neighbours, weights in _by_degree(mix, *gcn.weight1.shape):
            # S_v diag(u_v) of a few nodes of like degree at once, [b, d, h]
            units = on[neighbours] * back[nodes][:, None, :]
            sums = torch.bmm((field.inputs[neighbours] * weights[:, :, None]).mT, units)
            weight1 += reduce(sums, out=sums).sum(0)
        return {
            "weight1": weight1 / count,
            "bias1": reduce(back * spmm(mix, on)).mean(0),
            "weight2": reduce(mixed).T @ reduce(delta) / count,
            "bias2": reduce(delta).mean(0),
        }


def _by_degree(mix: Tensor, inputs: int, hidden: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Groups of nodes of like degree: nodes [b], neighbours and weights [b, k], padded with 0.

    k is the group's largest degree; a group takes about one block of memory.
    """
    starts = mix.crow_indices()
    degrees = starts.diff()
    ranked, order = torch.sort(degrees)
    # a node needs S_v, and a row of inputs and one of units for each neighbour
    floats = inputs * hidden + ranked * (inputs + hidden)
    # a quarter of a block: S_v is written and read at once, and should not leave the cache
    room = propagate.BLOCK_BYTES // 16
    first = 0
    while first < order.numel():
        ahead = floats[first : first + max(1, room // (inputs * hidden))]
        fitting = torch.arange(1, ahead.numel() + 1, device=ahead.device) * ahead <= room
        last = first + max(1, int(fitting.sum()))
        nodes = order[first:last]
        steps = torch.arange(max(1, int(ranked[last - 1])), device=starts.device)
        inside = steps < degrees[nodes][:, None]
        entries = torch.where(inside, starts[nodes][:, None] + steps, 0)
        neighbours = mix.col_indices()[entries]
        yield nodes, neighbours, torch.where(inside, mix.values()[entries], 0.0)
        first = last
