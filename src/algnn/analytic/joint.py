"""The reference that AL-GNN must equal: ridge regression on all labels at once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.learned import Learned
from algnn.analytic.model import ALGNN
from algnn.checkpoint import check_tensor
from algnn.checks import check_kept_nodes
from algnn.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class LearnedJointly(Learned):
    """What `JointRidge` knows: as `Learned`, and every node and label it was ever given."""

    nodes: Tensor
    labels: npt.NDArray[Any]


class JointRidge(ALGNN):
    """AL-GNN's own features, solved at once on all labels seen so far.

    With the paper's head W = (ZᵀZ + γI)⁻¹ ZᵀY over all nodes learned so far, computed anew in each
    session from their features in the graph as it is now. It keeps the nodes and labels, which
    AL-GNN does not, and exists to show that nothing is lost by not keeping them: where the graph
    stays the same the two agree to rounding. As in AL-GNN's sums, a node that is learned twice
    counts twice.

    Parameters
    ----------
    encoder, head, gamma, hidden, width, expansion, epochs, lr, dropout, weight_decay, seed, device
        As in `ALGNN`.

    Examples
    --------
    >>> import algnn
    >>> models = algnn.ALGNN(), JointRidge()
    >>> for session in algnn.ClassStream(algnn.load("digits"), step=5):
    ...     for model in models:
    ...         _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> torch.allclose(models[0].weights_, models[1].weights_, rtol=1e-6)
    True
    """

    def retained_bytes(self) -> int:
        """Bytes kept between sessions beside the frozen encoder: sums, and nodes with labels.

        Returns
        -------
        int
        """
        if self._learned is None:
            return 0
        nodes: Tensor = self._learned.nodes
        return super().retained_bytes() + 2 * nodes.nbytes

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned | None
    ) -> Learned:
        base = self._base(graph, nodes, labels) if learned is None else learned
        if isinstance(learned, LearnedJointly):
            check_kept_nodes(learned.nodes, graph.x.size(0))
            nodes = torch.cat([learned.nodes, nodes])
            labels = np.concatenate([learned.labels, labels])
        after = self._with_session(graph, nodes, labels, self._untaught(base.features))
        solved = replace(after, solved=after.affine)
        return LearnedJointly(**_fields(solved), nodes=nodes, labels=labels)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = super()._state()
        codes = np.searchsorted(self.classes_, self._learned.labels)
        tensors |= {"kept.nodes": self._learned.nodes, "kept.codes": torch.from_numpy(codes)}
        return tensors, facts

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Learned:
        known = super()._restore(tensors, facts)
        count = int(known.statistics.n.sum())
        nodes, codes = (
            check_tensor(name, tensors[name], (count,), torch.int64)
            for name in ("kept.nodes", "kept.codes")
        )
        counts = torch.bincount(codes.clamp_min(0), minlength=known.statistics.n.numel())
        if int(nodes.min()) < 0 or int(codes.min()) < 0 or not counts.equal(known.statistics.n):
            raise CheckpointError("kept.nodes and kept.codes do not fit the sums")
        labels = known.statistics.classes[codes.numpy()]
        return LearnedJointly(**_fields(known), nodes=nodes, labels=labels)


def _fields(known: Learned) -> dict[str, Any]:
    return {field.name: getattr(known, field.name) for field in fields(Learned)}
