"""Memory aware synapses: weights that the answers depend on are held where they are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from algnn.baselines.importance import node_importance
from algnn.baselines.springs import Springs, check_importances
from algnn.baselines.training import GradientLearner, Task, Tensors
from algnn.checks import check_number


class MAS(GradientLearner):
    """Memory aware synapses (MAS).

    At session t, with θ* the weights after session t−1,

        L = L_t + λ Σ_i Ω_i (θ_i − θ*_i)²,
        Ω = Σ_{s<t} 1/n_s Σ_v |∇_θ ‖z_v‖²|,

    where z_v are the logits of node v of session s over the classes seen by then, without dropout.
    No label enters Ω. New columns of the head have Ω = 0.

    It keeps Ω; θ* are the weights that it has anyway.

    Parameters
    ----------
    strength : float
        λ.
    hidden, epochs, lr, dropout, weight_decay, seed, device
        As in `GradientLearner`.

    References
    ----------
    R. Aljundi, F. Babiloni, M. Elhoseiny, M. Rohrbach and T. Tuytelaars, "Memory aware synapses:
    learning what (not) to forget", ECCV 2018.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> model = MAS(hidden=16, epochs=5)
    >>> for session in stream:
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
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
        if task.before is None:
            return None
        return Springs(_omega(task), task.before.weights).scaled(self.strength)

    def _loss(self, task: Task, prepared: Springs | None) -> Tensor:
        loss = task.loss()
        return loss if prepared is None else loss + prepared.energy(task.gcn)

    def _remember(self, task: Task, prepared: Springs | None) -> Tensors:
        omega = node_importance(task.gcn, task.field, lambda logits: 2 * logits, torch.abs)
        for name, past in _omega(task).items():
            # columns that came in this session mattered to none before
            omega[name] += pad(past, (0, omega[name].size(-1) - past.size(-1)))
        return {f"importance.{name}": value for name, value in omega.items()}

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        check_importances(memory, weights, ["importance"])


def _omega(task: Task) -> Tensors:
    """Ω of the sessions before, by the names of the weights."""
    return {key.removeprefix("importance."): value for key, value in task.memory.items()}
