"""Quadratic penalties that hold weights near earlier values, by the importance of each weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from algnn.baselines.training import Tensors
from algnn.checkpoint import check_tensor
from algnn.errors import CheckpointError
from algnn.gcn import GCN


@dataclass(frozen=True)
class QuadraticPenalty:
    """Σ_s Σ I_s (θ − θ*_s)² over any number of sessions s, in the memory of one session.

    For each weight, quadratics add up to a quadratic:

        Σ_s I_s (θ − θ*_s)² = I (θ − a)² + constant,   I = Σ_s I_s,   a = Σ_s I_s θ*_s / I.

    The constant has no gradient and is left out, so training is the same and what is kept does not
    grow with the sessions. The sums Σ I_s θ*_s would do as well, but I θ − Σ I_s θ*_s cancels in
    float32 where θ is near θ*; θ − a does not.

    `importance` and `anchor` are I and a, by the names of the GCN's weights; without any name the
    penalty is 0. The last dimension may be shorter than that of the weights: columns of classes
    that came later are not penalised.
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
