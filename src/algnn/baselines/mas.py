"""Memory aware synapses (MAS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from algnn.baselines.penalty import QuadraticPenalty, check_importances, entries, node_importance
from algnn.baselines.training import GradientLearner, Task, Tensors


@dataclass(kw_only=True, eq=False, repr=False)
class MAS(GradientLearner):
    """Memory aware synapses (MAS).

    At session t, with θ* the weights after session t−1,

        L = L_t + λ Σ_i Ω_i (θ_i − θ*_i)²,
        Ω = Σ_{s<t} 1/n_s Σ_v |∇_θ ‖z_v‖²|,

    where z_v are the logits of node v of session s over the classes seen by then, without dropout.
    No label enters Ω. New columns of the head have Ω = 0: nothing holds back the column of a new
    class. One that comes alone can rise above all others by its own column, whatever λ; on
    Computers and digits the result is then that of `Bare`.

    It keeps Ω; θ* are the weights that it has anyway.

    Parameters
    ----------
    strength : float
        λ.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    References
    ----------
    R. Aljundi, F. Babiloni, M. Elhoseiny, M. Rohrbach and T. Tuytelaars, "Memory aware synapses:
    learning what (not) to forget", ECCV 2018.

    Examples
    --------
    >>> import algnn
    >>> model = MAS(hidden=16, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    strength: float = 1.0
    _lowest: ClassVar = {"strength": 0}

    def _prepare(self, task: Task) -> QuadraticPenalty:
        before = {} if task.before is None else task.before.weights
        return QuadraticPenalty(entries(task.memory, "importance."), before).scaled(self.strength)

    def _loss(self, task: Task, prepared: QuadraticPenalty) -> Tensor:
        return task.loss() + prepared.value(task.gcn)

    def _remember(self, task: Task, prepared: QuadraticPenalty) -> Tensors:
        omega = node_importance(task.gcn, task.field, lambda logits: 2 * logits, torch.abs)
        for name, past in entries(task.memory, "importance.").items():
            # the session's new columns had no importance before
            omega[name] += pad(past, (0, omega[name].size(-1) - past.size(-1)))
        return {f"importance.{name}": value for name, value in omega.items()}

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        check_importances(memory, weights, ["importance"])
