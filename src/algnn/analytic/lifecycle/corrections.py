"""Labels that come again, and labels that were wrong."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.classes import CodedLabels
from algnn.analytic.lifecycle.operations import Lifecycle
from algnn.checks import Labels, Nodes, check_labels, check_nodes
from algnn.errors import InputError
from algnn.graph.store import node_count
from algnn.sharing import changes, undisturbed


class Corrections(Lifecycle):
    """The part of `ALGNN` that compares new labels with those that it has learned."""

    def partial_fit(
        self, graph: Data, nodes: Nodes, labels: Labels | None = None, *, repeat: str = "error"
    ) -> Self:
        """Learn one more session; the first call is the base stage.

        Parameters
        ----------
        graph, nodes, labels
            As for `fit`. The nodes may be of new classes, of known ones, or of both.
        repeat : {"error", "ignore", "count"}
            What becomes of nodes that were learned with the same label before: they are refused,
            skipped, or counted once more. ``"ignore"`` makes it safe to try a call again. A node
            that was learned with another label is refused, too (see `relabel`), unless all count.
            Nothing is known of nodes once the record of them was dropped, by `drop_record` or
            since old sessions count for less.

        Returns
        -------
        self

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> model = model.partial_fit(graph, range(150, 250), graph.y[150:250], repeat="ignore")
        >>> int(model.statistics_.n.sum())
        250
        """
        if repeat not in ("error", "ignore", "count"):
            raise InputError(f"repeat={repeat!r} is unknown: use 'error', 'ignore' or 'count'")
        return self._session(graph, nodes, labels, anew=False, repeat=repeat)

    @changes
    def relabel(self, graph: Data, nodes: Nodes, old: Labels | None, new: Labels) -> Self:
        """Correct the labels of some nodes: forget the old ones and learn the new ones in one step.

        Afterwards the learner is, to rounding, one with the same encoder that learned the new
        labels in the place of the old ones. The log has an entry for either half.

        Parameters
        ----------
        graph, nodes
            As for `forget`.
        old : Tensor, array or list [n], or None
            What these nodes were learned as; None to look it up in the record of learned nodes.
        new : Tensor, array or list [n]
            What they are.

        Returns
        -------
        self

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> model.relabel(graph, [7], [int(graph.y[7])], [9]).statistics_.n.tolist()
        [21, 19, 20, 21, 19, 20, 21, 19, 19, 21]
        """
        if old is None:
            self._check_graph(graph, self.n_features_in_)
            old = self._learned_as(check_nodes(nodes, node_count(graph), session=True))
        graph, chosen, given = self._checked_learned(graph, nodes, old, once=True)
        right = CodedLabels.of(check_labels(new, chosen.numel(), self.classes_))
        with undisturbed():
            left = self._without(graph, chosen, given, self._known)
            after = self._settled(self._with_nodes(graph, chosen, right, left))
        self._replace(after.noted("forget", given.counts()).noted("learn", right.counts()))
        return self

    def _learned_as(self, nodes: Tensor) -> npt.NDArray[Any]:
        """The labels that some nodes were learned with."""
        record, classes = self._known.membership, self.classes_
        if record is None:
            raise InputError(
                "old is missing, and there is no record of what was learned: give the old labels"
            )
        codes = record.learned_as(nodes, classes)
        if bool((codes < 0).any()):
            raise InputError(
                f"nodes holds {int(nodes[int(codes.argmin())])}, which was not learned: relabel"
                " only nodes that were, and learn the others with partial_fit"
            )
        found: npt.NDArray[Any] = classes[codes]
        return found

    def _new(self, nodes: Tensor, labels: npt.NDArray[Any], repeat: str) -> npt.NDArray[np.bool_]:
        record, classes = self._known.membership, self.classes_
        if record is None or repeat == "count":
            return super()._new(nodes, labels, repeat)
        same = record.holds(nodes, labels)
        before = np.where(same, -1, record.learned_as(nodes, classes))
        if bool((before >= 0).any()):
            first = int((before >= 0).argmax())
            raise InputError(
                f"nodes holds {int(nodes[first])}, which was learned as {classes[before[first]]!s}"
                f" and is {labels[first]!s} here ({int((before >= 0).sum())} of {labels.size} have"
                " another label now): correct these with relabel(graph, nodes, old, new), or algnn"
                " relabel"
            )
        if repeat == "error" and bool(same.any()):
            first = int(same.argmax())
            raise InputError(
                f"nodes holds {int(nodes[first])}, which was learned as {labels[first]!s} before"
                f" ({int(same.sum())} of {labels.size} were): leave these out, or skip them by"
                " repeat='ignore' (algnn learn --again); repeat='count' counts them once more"
            )
        return ~same
