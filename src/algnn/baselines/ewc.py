"""Elastic weight consolidation: weights that mattered before are held by springs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from algnn.baselines.importance import node_importance
from algnn.baselines.training import GradientLearner, Known, Task, Tensors
from algnn.checkpoint import check_tensor
from algnn.checks import check_number
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


class EWC(GradientLearner):
    """Elastic weight consolidation (EWC).

    At session t, with θ*_s the weights after session s,

        L = L_t + λ/2 Σ_{s<t} Σ_i F_{s,i} (θ_i − θ*_{s,i})²,
        F_s = 1/n_s Σ_v (∇_θ ℓ_v)²,

    where ℓ_v is the cross-entropy of node v of session s at its label, without dropout: the
    diagonal of the empirical Fisher information, a mean of squares and not the square of a mean.
    Columns of the head that came after session s are not held by its term.

    It keeps ΣF_s and the mean of the θ*_s weighted by F_s, which give the same gradients as all the
    F_s and θ*_s (see `Springs`).

    Parameters
    ----------
    strength : float
        λ.
    hidden, epochs, lr, dropout, weight_decay, seed, device
        As in `GradientLearner`.

    References
    ----------
    J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 114(13),
    2017.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = EWC(hidden=16, epochs=5)
    >>> for session in stream:
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    def __init__(
        self,
        *,
        # The usual 1e4 belongs to other Fishers; with this one it leaves Bare as it is. AP on
        # validation nodes (mean of three seeds) at λ = 1e4, 1e5, 1e6, 1e7, 1e8: Cora 25, 25, 62,
        # 64, 56, Citeseer 25, 25, 27, 52, 57; Computers 17 at all of these.
        strength: float = 1e7,
        hidden: int = 256,
        epochs: int = 50,
        lr: float = 1e-3,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden,
            epochs=epochs,
            lr=lr,
            dropout=dropout,
            weight_decay=weight_decay,
            seed=seed,
            device=device,
        )
        self.strength = strength

    def _check_params(self) -> None:
        super()._check_params()
        check_number("strength", self.strength, 0)

    def _prepare(self, task: Task) -> Springs | None:
        past = Springs.from_memory(task.memory)
        return None if past is None else past.scaled(self.strength / 2)

    def _loss(self, task: Task, prepared: Springs | None) -> Tensor:
        loss = task.loss()
        return loss if prepared is None else loss + prepared.energy(task.gcn)

    def _remember(self, task: Task, prepared: Springs | None) -> Tensors:
        truth = one_hot(task.codes, task.arrival.size)
        fisher = node_importance(
            task.gcn, task.field, lambda logits: logits.softmax(1) - truth, torch.square
        )
        now = Springs(fisher, {n: value.detach() for n, value in task.gcn.named_parameters()})
        past = Springs.from_memory(task.memory)
        return (now if past is None else past + now).as_memory()

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Known:
        known = super()._restore(tensors, facts)
        check_importances(known, Springs.PARTS)
        return known


def check_importances(known: Known, parts: Sequence[str]) -> None:
    """Raise `CheckpointError` unless a memory holds, in each part, a number for each weight.

    Parameters
    ----------
    known : Known
        What was read from a file.
    parts : sequence of str
        What the names of the memory's tensors start with.

    Examples
    --------
    >>> import numpy as np
    >>> check_importances(Known({"w": torch.ones(2)}, np.arange(2), 1, {}), ["importance"])
    Traceback (most recent call last):
        ...
    algnn.errors.CheckpointError: the memory does not hold importance.w and nothing else
    """
    expected = {f"{part}.{name}": w for part in parts for name, w in known.weights.items()}
    if known.memory.keys() != expected.keys():
        raise CheckpointError(f"the memory does not hold {', '.join(expected)} and nothing else")
    for name, weight in expected.items():
        check_tensor(name, known.memory[name], tuple(weight.shape), weight.dtype)
