"""Elastic weight consolidation (EWC)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from algnn.baselines.penalty import QuadraticPenalty, check_importances, fisher_information
from algnn.baselines.training import GradientLearner, Task, Tensors


@dataclass(kw_only=True, eq=False, repr=False)
class EWC(GradientLearner):
    """Elastic weight consolidation (EWC).

    At session t, with θ*_s the weights after session s,

        L = L_t + λ/2 Σ_{s<t} Σ_i F_{s,i} (θ_i − θ*_{s,i})²,
        F_s = 1/n_s Σ_v (∇_θ ℓ_v)²,

    where ℓ_v is the cross-entropy of node v of session s at its label, without dropout: the
    diagonal of the empirical Fisher information, a mean of squares. The square of a mean, which
    public code often keeps, is smaller by Jensen's inequality: this F was 60 to 274 times as large
    as BeGin's. Columns of the head that came after session s have no part in its term.

    It keeps ΣF_s and the mean of the θ*_s weighted by F_s, which give the same gradients as all the
    F_s and θ*_s (see `QuadraticPenalty`).

    Parameters
    ----------
    strength : float
        λ.
    hidden, epochs, lr, dropout, weight_decay, balanced, seed, device : as in `GradientLearner`

    References
    ----------
    J. Kirkpatrick et al., "Overcoming catastrophic forgetting in neural networks", PNAS 114(13),
    2017.

    Examples
    --------
    >>> import algnn
    >>> model = EWC(hidden=16, epochs=5)
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_.size
    10
    """

    # A thousand times the usual 1e4, and that with a Fisher that is larger than the usual ones:
    # at 1e4 it leaves Bare as it is. AP on validation nodes (mean of three seeds) at λ = 1e4, 1e5,
    # 1e6, 1e7, 1e8: Cora 25, 25, 62, 64, 56, Citeseer 25, 25, 27, 52, 57; Computers 17 at all of
    # these.
    strength: float = 1e7
    _lowest: ClassVar = {"strength": 0}

    def _prepare(self, task: Task) -> QuadraticPenalty:
        return QuadraticPenalty.from_memory(task.memory).scaled(self.strength / 2)

    def _loss(self, task: Task, prepared: QuadraticPenalty) -> Tensor:
        return task.loss() + prepared.value(task.gcn)

    def _remember(self, task: Task, prepared: QuadraticPenalty) -> Tensors:
        fisher = fisher_information(task.gcn, task.field, task.codes)
        past = QuadraticPenalty.from_memory(task.memory)
        return (past + QuadraticPenalty(fisher, task.weights)).as_memory()

    def _check_memory(self, memory: Tensors, weights: Tensors, classes: int) -> None:
        check_importances(memory, weights, QuadraticPenalty.PARTS)
