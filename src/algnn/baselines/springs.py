"""Springs that hold weights where they were, stiffer where they mattered."""

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
class Springs:
    """Σ_s Σ I_s (θ − θ*_s)² over any number of sessions s, in the room of one.

    For each weight, quadratics add up to a quadratic:

        Σ_s I_s (θ − θ*_s)² = I (θ − a)² + constant,   I = Σ_s I_s,   a = Σ_s I_s θ*_s / I.

    The constant has no gradient and is left out, so training is the same and what is kept does not
    grow with the sessions. The sums Σ I_s θ*_s would do as well, but I θ − Σ I_s θ*_s cancels in
    float32 where θ is near θ*; θ − a does not.

    Attributes
    ----------
    importance, anchor : dict of Tensor
        I and a, by the names of the GCN's weights. The last dimension may be shorter than that of
        the weights: classes that came later have columns that nothing holds.

    Examples
    --------
    >>> near = Springs({"w": torch.tensor([1.0])}, {"w": torch.tensor([0.0])})
    >>> far = Springs({"w": torch.tensor([3.0])}, {"w": torch.tensor([4.0])})
    >>> near + far
    Springs(importance={'w': tensor([4.])}, anchor={'w': tensor([3.])})
    """

    importance: Tensors
    anchor: Tensors

    # what the names of a memory's tensors start with
    PARTS: ClassVar[tuple[str, str]] = ("importance", "anchor")

    def energy(self, gcn: GCN) -> Tensor:
        """Σ I (θ − a)², with a gradient for the GCN's weights.

        Parameters
        ----------
        gcn : GCN

        Returns
        -------
        Tensor [], a scalar
        """
        terms = [
            (stiff * (value[..., : stiff.size(-1)] - self.anchor[name]).square()).sum()
            for name, value in gcn.named_parameters()
            for stiff in [self.importance[name]]
        ]
        return torch.stack(terms).sum()

    def scaled(self, factor: float) -> Springs:
        """The same springs, each so many times as stiff.

        Parameters
        ----------
        factor : float

        Returns
        -------
        Springs
        """
        return Springs({name: factor * i for name, i in self.importance.items()}, self.anchor)

    def __add__(self, other: Springs) -> Springs:
        importance, anchor = {}, {}
        for name in self.importance:
            width = max(self.importance[name].size(-1), other.importance[name].size(-1))
            mine, mine_at, theirs, theirs_at = (
                pad(tensor, (0, width - tensor.size(-1)))
                for springs in (self, other)
                for tensor in (springs.importance[name], springs.anchor[name])
            )
            importance[name] = mine + theirs
            share = torch.where(importance[name] > 0, theirs / importance[name], 1.0)
            anchor[name] = torch.lerp(mine_at, theirs_at, share)
        return Springs(importance, anchor)

    def as_memory(self, prefix: str = "") -> Tensors:
        """The springs as entries of a memory.

        Parameters
        ----------
        prefix : str
            What the names start with.

        Returns
        -------
        dict of Tensor
            Copies: anchors are often the weights themselves, and a file holds no tensor twice.
        """
        return {
            f"{prefix}{kind}.{name}": tensor.clone()
            for kind in self.PARTS
            for name, tensor in getattr(self, kind).items()
        }

    @classmethod
    def from_memory(cls, memory: Tensors, prefix: str = "") -> Springs | None:
        """The springs that `as_memory` wrote; None where there are none.

        Parameters
        ----------
        memory : dict of Tensor
        prefix : str

        Returns
        -------
        Springs or None
        """
        parts: dict[str, Tensors] = {kind: {} for kind in cls.PARTS}
        for key, tensor in memory.items():
            if key.startswith(prefix):
                kind, _, name = key.removeprefix(prefix).partition(".")
                parts[kind][name] = tensor
        return cls(**parts) if parts["importance"] else None


def check_importances(memory: Tensors, weights: Tensors, parts: Sequence[str]) -> None:
    """Raise `CheckpointError` unless a memory holds, in each part, a number for each weight.

    Parameters
    ----------
    memory, weights : dict of Tensor
        What was read from a file.
    parts : sequence of str
        What the names of the memory's tensors start with.

    Examples
    --------
    >>> check_importances({}, {"w": torch.ones(2)}, ["importance"])
    Traceback (most recent call last):
        ...
    algnn.errors.CheckpointError: the memory does not hold importance.w and nothing else
    """
    expected = {f"{part}.{name}": w for part in parts for name, w in weights.items()}
    if memory.keys() != expected.keys():
        raise CheckpointError(f"the memory does not hold {', '.join(expected)} and nothing else")
    for name, weight in expected.items():
        check_tensor(name, memory[name], tuple(weight.shape), weight.dtype)
