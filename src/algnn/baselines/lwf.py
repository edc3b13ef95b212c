"""Learning without forgetting (LwF)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from algnn.baselines.training import GradientLearner, Task
from algnn.errors import InputError
from algnn.gcn import GCN


@dataclass(kw_only=True, eq=False, repr=False)
class LwF(GradientLearner):
    """Learning without forgetting (LwF).

    At session t, with z_v the logits of node v and z*_v those that the model before the session,
    the teacher, gives it,

        L = L_t + λ T² 1/n_t Σ_v KL(softmax(z*_v / T) ‖ softmax(z_v / T)),

    over the session's own nodes and the classes that the teacher knows. T² keeps the gradients of
    this term at the scale of those of L_t. The teacher's logits are computed once a session,
    without dropout. It keeps its weights and nothing else: they are the next session's teacher.

    With one new class a session it comes out as `Bare` does, and that is no defect: the term
    compares the old columns with each other and never with the new one, which L_t, all of whose
    nodes are of the new class, raises above them unopposed.

    Parameters
    ----------
    strength : float
        λ.
    temperature : float
        T, above 0: the higher, the more the teacher's small probabilities count.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    References
    ----------
    Z. Li and D. Hoiem, "Learning without forgetting", ECCV 2016; IEEE TPAMI 40(12), 2018.

    Examples
    --------
    >>> import algnn
    >>> model = LwF(hidden=16, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    strength: float = 1.0
    temperature: float = 2.0
    _lowest: ClassVar = {"strength": 0, "temperature": 0}

    def _check_params(self) -> None:
        super()._check_params()
        if self.temperature == 0:
            raise InputError("temperature=0 must be above 0")

    def _prepare(self, task: Task) -> Tensor | None:
        if task.before is None:
            return None
        with torch.no_grad():
            teacher: Tensor = GCN.from_weights(task.before.weights)(task.field)
        return teacher

    def _loss(self, task: Task, prepared: Tensor | None) -> Tensor:
        if prepared is None:
            return task.loss()
        logits = task.gcn(task.field, task.masks)
        kept = distillation(logits[:, : task.old], prepared, self.temperature)
        return task.mean_loss(logits, task.codes) + self.strength * kept


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)), the mean over nodes."""
    answers = log_softmax(student / temperature, dim=1)
    wanted = log_softmax(teacher / temperature, dim=1)
    divergence = kl_div(answers, wanted, reduction="batchmean", log_target=True)
    return temperature**2 * divergence
