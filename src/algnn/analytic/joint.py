"""Ridge regression on all labels at once, the reference that AL-GNN must equal."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.lifecycle.operations import Lifecycle
from algnn.analytic.model import ALGNN
from algnn.analytic.state import State
from algnn.checkpoint import check_tensor
from algnn.checks import Array, check_kept_nodes
from algnn.errors import CheckpointError, InputError
from algnn.graph.store import node_count


class JointRidge(ALGNN):
    """AL-GNN's features, solved at once on all labels seen so far.

    With the paper's head W = (ZᵀZ + γI)⁻¹ ZᵀY over all nodes learned so far, computed anew in each
    session from their features in the graph as it is now. It keeps the nodes and labels, which
    AL-GNN does not, and shows that nothing is lost without them: where the graph stays the same the
    two agree to rounding. A node that is learned twice counts twice, as in AL-GNN's sums.

    Parameters are those of `ALGNN`, but that `half_life` is 0.
    """

    def merge(self, other: Lifecycle, *, repeat: str = "error") -> Self:
        """Refused: nodes of two graphs cannot be kept as nodes of one."""
        raise InputError(
            "JointRidge keeps the nodes of one graph and cannot be merged: merge ALGNN learners"
        )

    def drop_record(self) -> Self:
        """Refused: what it keeps names each node and its label."""
        raise InputError(
            "JointRidge keeps nodes and labels, with or without a record of them: drop that of an"
            " ALGNN"
        )

    def _check_params(self) -> None:
        super()._check_params()
        if self.half_life:
            raise InputError(
                f"half_life={self.half_life!r} is not for JointRidge, in which each node counts for"
                " one: use half_life=0"
            )

    def _with_nodes(self, graph: Data, nodes: Tensor, labels: Array, state: State) -> State:
        """All nodes learned so far and some more, with their features in the graph as it is now."""
        if state.taught:
            kept, known = state.kept
            check_kept_nodes(kept, node_count(graph))
            nodes = torch.cat([kept, nodes])
            labels = np.concatenate([known, labels])
        after = super()._with_nodes(graph, nodes, labels, self._untaught(state.features))
        return replace(after, log=state.log, kept=(nodes, labels.copy()))

    def _without(self, graph: Data, nodes: Tensor, labels: Array, state: State) -> State:
        raise InputError(
            "JointRidge learns from the nodes it keeps and cannot forget: forget with ALGNN, or fit"
            " anew without these nodes"
        )

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = super()._state()
        nodes, labels = self._known.kept
        codes = torch.from_numpy(np.searchsorted(self.classes_, labels))
        return tensors | {"kept.nodes": nodes, "kept.codes": codes}, facts

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> State:
        known = super()._restore(tensors, facts)
        count = int(known.statistics.n.sum())
        nodes, codes = (
            check_tensor(name, tensors[name], (count,), torch.int64)
            for name in ("kept.nodes", "kept.codes")
        )
        classes = known.statistics.n.numel()
        # clamped: counting must take no more memory than there are classes
        counts = torch.bincount(codes.clamp(0, classes), minlength=classes)
        below = count and min(int(nodes.min()), int(codes.min())) < 0
        if below or not counts.equal(known.statistics.n):
            raise CheckpointError("kept.nodes and kept.codes do not fit the sums")
        return replace(known, kept=(nodes, known.statistics.classes[codes.numpy()]))
