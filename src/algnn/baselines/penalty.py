"""Penalties that hold weights near earlier values, and the importance of each weight for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from algnn.baselines.training import Tensors
from algnn.checkpoint import check_tensor
from algnn.errors import CheckpointError
from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import Field, spmm


@dataclass(frozen=True)
class QuadraticPenalty:
    """Σ_s Σ I_s (θ − θ*_s)² over any number of sessions s, in the memory of one session.

    For each weight, quadratics add up to a quadratic:

        Σ_s I_s (θ − θ*_s)² = I (θ − a)² + constant,   I = Σ_s I_s,   a = Σ_s I_s θ*_s / I.

    The constant has no gradient and is left out, so training is the same and what is kept does not
    grow with the sessions. The sums Σ I_s θ*_s would do as well, but I θ − Σ I_s θ*_s cancels in
    float32 where θ is near θ*; θ − a does not.

    `importance` and `anchor` are I and a, by the names of the GCN's weights; without any name the
    penalty is 0. Columns of the head that came later than they did are not penalised.
    """

    importance: Tensors
    anchor: Tensors

    # prefixes of the names of a memory's tensors
    PARTS: ClassVar[tuple[str, str]] = ("importance", "anchor")

    def value(self, gcn: GCN) -> Tensor:
        """Σ I (θ − a)², a scalar with a gradient for the GCN's weights."""
        if not self.importance:
            return torch.zeros((), dtype=torch.float32)
        terms = [
            (held * (value[..., : held.size(-1)] - self.anchor[name]).square()).sum()
            for name, value in gcn.named_parameters()
            for held in [self.importance[name]]
        ]
        return torch.stack(terms).sum()

    def scaled(self, factor: float) -> QuadraticPenalty:
        """The penalty times a factor."""
        scaled = {name: factor * value for name, value in self.importance.items()}
        return QuadraticPenalty(scaled, self.anchor)

    def __add__(self, other: QuadraticPenalty) -> QuadraticPenalty:
        if not self.importance:
            return other
        importance, anchor = {}, {}
        for name in self.importance:
            width = max(self.importance[name].size(-1), other.importance[name].size(-1))
            mine, mine_at, theirs, theirs_at = (
                pad(tensor, (0, width - tensor.size(-1)))
                for penalty in (self, other)
                for tensor in (penalty.importance[name], penalty.anchor[name])
            )
            importance[name] = mine + theirs
            share = torch.where(importance[name] > 0, theirs / importance[name], 1.0)
            anchor[name] = torch.lerp(mine_at, theirs_at, share)
        return QuadraticPenalty(importance, anchor)

    def as_memory(self, prefix: str = "") -> Tensors:
        """Entries of a memory: copies, since a file cannot hold an anchor that is a weight too."""
        return {
            f"{prefix}{kind}.{name}": tensor.clone()
            for kind in self.PARTS
            for name, tensor in getattr(self, kind).items()
        }

    @classmethod
    def from_memory(cls, memory: Tensors, prefix: str = "") -> QuadraticPenalty:
        """The penalty that `as_memory` wrote; 0 where the memory is empty."""
        return cls(*(entries(memory, f"{prefix}{kind}.") for kind in cls.PARTS))


def entries(memory: Tensors, prefix: str) -> Tensors:
    """The entries of a memory whose names start with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in memory.items() if k.startswith(prefix)}


def check_importances(memory: Tensors, weights: Tensors, parts: Sequence[str]) -> None:
    """Raise `CheckpointError` unless a memory holds, in each part, a number for each weight."""
    expected = {f"{part}.{name}": w for part in parts for name, w in weights.items()}
    if memory.keys() != expected.keys():
        raise CheckpointError(f"the memory does not hold {', '.join(expected)} and nothing else")
    for name, weight in expected.items():
        check_tensor(name, memory[name], tuple(weight.shape), weight.dtype)


def fisher_information(gcn: GCN, field: Field, codes: Tensor) -> Tensors:
    """The mean over nodes of (∇_θ ℓ_v)², ℓ_v the cross-entropy of node v at its label."""
    truth = one_hot(codes, gcn.bias2.numel())
    return node_importance(gcn, field, lambda logits: logits.softmax(1) - truth, torch.square)


def node_importance(
    gcn: GCN, field: Field, slope: Callable[[Tensor], Tensor], reduce: Callable[..., Tensor]
) -> Tensors:
    """The mean over nodes of |∇_θ f_v| or (∇_θ f_v)², for an f_v of node v's own logits.

    The mean of squares is not the square of the mean: the gradients of single nodes are needed.
    With S_v = Σ_m Â_vm x_m r_mᵀ over the neighbours m of v (x_m their rows of ÂX, r_m which of
    their hidden units are on), δ_v = ∂f_v/∂logits and u_v = W_2 δ_v,

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
        weight1 = torch.zeros_like(gcn.weight1)
        for nodes, neighbours, weights in _by_degree(mix, *gcn.weight1.shape):
            # S_v diag(u_v) of a few nodes of like degree at once, [b, d, h]
            units = on[neighbours] * back[nodes][:, None, :]
            sums = torch.bmm((field.inputs[neighbours] * weights[:, :, None]).mT, units)
            weight1 += reduce(sums, out=sums).sum(0)
        return {
            "weight1": weight1 / mix.size(0),
            "bias1": reduce(back * spmm(mix, on)).mean(0),
            "weight2": reduce(mixed).T @ reduce(delta) / mix.size(0),
            "bias2": reduce(delta).mean(0),
        }


def _by_degree(mix: Tensor, inputs: int, hidden: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Groups of nodes of like degree: nodes [b], neighbours and weights [b, k], padded with 0."""
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
