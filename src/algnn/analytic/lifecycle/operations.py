"""Operations on a learner that has learned: correct, forget, merge, another head, a summary."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.classes import counted
from algnn.analytic.cluster import on_cluster
from algnn.analytic.features.encoding import Encoding
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.lifecycle import preconditions
from algnn.analytic.lifecycle.audit import Event
from algnn.analytic.lifecycle.glance import Summary, exposure, number, summary_of
from algnn.analytic.lifecycle.io import fingerprint
from algnn.analytic.state import Features, State, per_class
from algnn.checks import Array, Labels, Nodes, check_choice, check_labels, check_nodes
from algnn.errors import InputError, NotFittedError
from algnn.graph.store import node_count, whole
from algnn.learner import shortened
from algnn.sharing import changes, undisturbed


class Lifecycle(Encoding[State]):
    """The part of `ALGNN` that acts on what was learned, by sums alone or nearly so."""

    head: str
    gamma: float

    @property
    def events_(self) -> tuple[Event, ...]:
        """The log: all that was learned, forgotten and merged, the oldest first."""
        return self._known.log.events

    def _sessions(self) -> dict[Any, int]:
        return self._known.log.sessions()

    # the steps of learning, which `ALGNN` writes
    _untaught: Callable[[Features], State]
    _with_nodes: Callable[[Data, Tensor, Array, State], State]
    _without: Callable[[Data, Tensor, Array, State], State]
    _settled: Callable[[State], State]

    @property
    def _chooses(self) -> bool:
        """Whether γ is chosen from the sums."""
        return self.gamma == 0 and self.head in ("balanced", "ridge")

    @property
    def _taught(self) -> State:
        known = self._known
        if not known.taught:
            raise NotFittedError(
                f"this {type(self).__name__} knows no class (it is blank, or has forgotten all):"
                " teach it first, with partial_fit or algnn learn"
            )
        return known

    def partial_fit(
        self,
        graph: Data,
        nodes: Nodes,
        labels: Labels | None = None,
        *,
        repeat: str = "error",
        client: Any = None,
    ) -> Self:
        """Learn one more session; the first call is the base session.

        Parameters
        ----------
        graph, nodes, labels
            As for `fit`. The nodes may be of new classes, of known ones, or of both.
        repeat : {"error", "ignore", "count"}
            What to do with nodes that were already learned with the same label: refuse them, skip
            them (so that a call may be repeated), or count them again. A node learned with another
            label is refused (see `relabel`), except with "count". Without the record of learned
            nodes (after `drop_record`, or with a `half_life`) nothing is refused but "ignore".
        client : distributed.Client, optional
            As for `ALGNN.fit`.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> model = model.partial_fit(graph, range(150, 250), graph.y[150:250], repeat="ignore")
        >>> int(model.statistics_.n.sum())
        250
        """
        check_choice("repeat", repeat, ("error", "ignore", "count"))
        seen = graph if client is None else on_cluster(graph, client)
        return self._session(seen, nodes, labels, anew=False, repeat=repeat)

    @changes
    def set_head(self, head: str, gamma: float = 0.0) -> Self:
        """Score by another head, or another γ, from now on: it takes no data, only the sums.

        Parameters
        ----------
        head : {"balanced", "ridge", "ncm", "slda"}
            ``"balanced"``: every class counts the same; ``"ridge"``: every node does.
        gamma : float
            γ; 0 to choose it from the sums, with head "balanced" or "ridge". This needs a learner
            that has chosen γ in this way since its first session.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> model.set_head("ridge").head
        'ridge'
        """
        known, trial = self._known, self._view()
        trial.head, trial.gamma = head, gamma
        trial._check_params()  # which makes NumPy's scalars Python's own
        with undisturbed():
            if known.taught:
                after = trial._settled(known.asked_for(trial.head, trial.gamma))
            else:
                fresh = trial._untaught(known.features)
                after = replace(fresh, membership=known.membership, log=known.log)
        self._replace(after.noted("head", {}), head=trial.head, gamma=trial.gamma)
        return self

    @changes
    def forget(self, graph: Data, nodes: Nodes, labels: Labels) -> Self:
        """Forget some labels, exactly as if they had never been learned.

        Afterwards weights, predictions and `statistics_` are, to rounding, those of a learner with
        the same encoder that never saw these labels. γ is chosen again (if many nodes were learned,
        from the one way of halving them that is left). A class disappears with its last node. Nodes
        that were never learned, or were learned with other features, are refused.

        Parameters
        ----------
        graph : Data
            The graph as it was when these nodes were learned. Features of another kind of device
            differ in their last digits (float32).
        nodes : Tensor, array or list [n]
            Ids or a mask. A node that was learned twice can be forgotten twice, in two calls.
        labels : Tensor, array or list [n]
            What these nodes were learned as.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> threes = (graph.y[:200] == 3).nonzero().squeeze(1)
        >>> model.forget(graph, threes, graph.y[threes]).classes_
        array([0, 1, 2, 4, 5, 6, 7, 8, 9])
        >>> model.forget(graph, [300], [1])
        Traceback (most recent call last):
            ...
        algnn.errors.InputError: nodes holds 300, which was not learned as 1 (1 of 1 were not)...
        """
        graph, chosen, given = self._checked_learned(graph, nodes, labels, once=True)
        with undisturbed():
            left = self._without(graph, chosen, given, self._known)
            self._replace(self._settled(left).noted("forget", counted(given)))
        return self

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

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> model.relabel(graph, [7], [int(graph.y[7])], [9]).statistics_.n.tolist()
        [21, 19, 20, 21, 19, 20, 21, 19, 19, 21]
        """
        if old is None:
            self._check_graph(graph, self.n_features_in_)
            old = self._learned_as(check_nodes(nodes, node_count(graph), session=True))
        graph, chosen, given = self._checked_learned(graph, nodes, old, once=True)
        right = check_labels(new, chosen.numel(), self.classes_)
        with undisturbed():
            left = self._without(graph, chosen, given, self._known)
            after = self._settled(self._with_nodes(graph, chosen, right, left))
        self._replace(after.noted("forget", counted(given)).noted("learn", counted(right)))
        return self

    def reach(self, graph: Data, node: int) -> npt.NDArray[np.int64]:
        """The nodes whose features change when one leaves the graph.

        Parameters
        ----------
        graph : Data
        node : int

        Returns
        -------
        array [m], int64
            Sorted, `node` among them. Those that were learned are what `forget_node` must be told.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> bool((model.reach(graph, 5) == 5).any())
        True
        """
        graph = whole(self._check_graph(graph, self.n_features_in_))
        one = int(check_nodes([node], graph.x.size(0), session=True))
        return preconditions.affected(self._known.features, graph, one).numpy()

    @changes
    def forget_node(self, graph: Data, node: int, nodes: Nodes = (), labels: Labels = ()) -> Data:
        """Forget a node itself: its label if it was learned, its features and its edges.

        Its neighbours look different without it, so the learned ones within `reach` are learned
        anew; their labels are not kept and must be given again. Afterwards the learner is, to
        rounding, one with the same encoder that never saw the node. A trained encoder (``"gcn"``
        or ``"self-supervised"``) may have been trained on it; `fit` starts anew.

        Parameters
        ----------
        graph : Data
            The graph as it was when these nodes were learned.
        node : int
        nodes : Tensor, array or list [n]
            All learned nodes among ``reach(graph, node)`` and no others, the node itself included;
            one that was learned twice is named twice. Not needed where none was learned.
        labels : Tensor, array or list [n]
            What these nodes were learned as.

        Returns
        -------
        Data
            The graph to be used from now on, in which the node has features of zero and no edge;
            ids, labels and masks stay as they were.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(encoder="gcn", width=256).fit(graph, range(200), graph.y[:200])
        >>> near = [node for node in model.reach(graph, 5) if node < 200]
        >>> smaller = model.forget_node(graph, 5, near, graph.y[near])
        >>> int(model.statistics_.n.sum()), float(smaller.x[5].sum())
        (199, 0.0)
        """
        within = torch.from_numpy(self.reach(graph, node))
        gone, known = int(node), self._known
        graph, chosen, given = self._checked_learned(whole(graph), nodes, labels, once=False)
        preconditions.check_reached(known, within, chosen)
        bare = preconditions.without_node(graph, gone)
        stays = chosen != gone
        kept, forgotten = (given[some.numpy()] for some in (stays, ~stays))
        with undisturbed():
            after = self._without(graph, chosen, given, known) if chosen.numel() else known
            if bool(stays.any()):
                after = self._with_nodes(bare, chosen[stays], kept, after)
            self._replace(self._settled(after).noted("forget node", counted(forgotten)))
        return bare

    @changes
    def merge(self, other: Self, *, repeat: str = "error") -> Self:
        """Learn all that another learner has learned, exactly as if one had learned both.

        Parameters
        ----------
        other : ALGNN
            One with the same encoder, to the last bit: a `blank` of this learner, or a copy, that
            has learned elsewhere. It stays as it is. Its classes may be others or the same.
        repeat : {"error", "count"}
            Whether to refuse a learner that has learned some of the same nodes, as the same classes
            or as others, or to count these twice. Where each site numbers its own nodes, two nodes
            of one id are told apart by their features. Where one of the two has no record of its
            nodes, nothing is refused, and there is none afterwards.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> here = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> there = here.blank().partial_fit(graph, range(200, 400), graph.y[200:400])
        >>> int(here.merge(there).statistics_.n.sum())
        400
        """
        self._check_params()
        check_choice("repeat", repeat, ("error", "count"))
        if type(other) is not type(self):
            raise InputError(
                f"other is a {type(other).__name__}: give an {type(self).__name__} with the same"
                " encoder"
            )
        known, theirs = self._known.asked_for(self.head, self.gamma), other._known
        preconditions.check_mergeable(known, theirs, (self.seed, other.seed), self._chooses)
        if repeat == "error":
            preconditions.check_apart(known, theirs)
        with undisturbed():
            after = known.merged(theirs)
            # γ is chosen now; weights, if there is nothing to choose, when they are first needed
            after = self._settled(after) if self._chooses else after
        self._replace(after.noted("merge", per_class(theirs.statistics), other=theirs.log.end))
        return self

    def blank(self) -> Self:
        """A learner with the same parameters and the same frozen encoder that has learned nothing.

        Use it to share the encoder with learners to be merged later: it has no label, sum or log.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> model.blank().classes_
        array([], dtype=int64)
        """
        self._check_params()
        view = self._view()
        fresh = type(self)(**view.get_params())
        fresh._replace(fresh._untaught(view._known.features))
        return fresh

    @changes
    def drop_record(self) -> Self:
        """Drop the record of which nodes were learned, not what was learned from them.

        The record, sixteen bytes a node, lets `forget` refuse nodes that were never learned, and
        lets whoever has the file find out which were (`algnn.analytic.lifecycle.membership`).
        Without it `forget` trusts its caller as far as counts and sums allow.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> before = model.retained_bytes()
        >>> before - model.drop_record().retained_bytes()
        3200
        """
        self._replace(replace(self._known, membership=None).noted("drop record", {}))
        return self

    def summary(self) -> Summary:
        """What it has seen and when, how well its weights are determined, what it keeps.

        It takes the eigenvalues of the matrix that is solved, about 30 times the work of solving.

        Returns
        -------
        algnn.analytic.lifecycle.glance.Summary

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> print(model.summary())
        10 classes, 200 nodes; labels are ints, x has 64 columns
        ...
        """
        view = self._view()
        known = view._known
        tensors, facts = view._state()
        facts["classes"] = view.classes_.tolist()
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        found = summary_of(facts, shapes, known.statistics.n.tolist())
        condition, degrees = known.determined()
        encoder = fingerprint(known.features)
        return replace(found, condition=condition, degrees=degrees, encoder=encoder)

    def exposure(self) -> str:
        """What a file of this learner gives away, in a line; docs/privacy.md has the details."""
        return exposure(self._known.membership is not None, self._known.taught)

    def _described(self) -> dict[str, str]:
        features, nodes = self._known.features, per_class(self._known.statistics)
        name = f"hops ({features.name})" if isinstance(features, HopEncoder) else "gcn"
        return {
            "encoder": f"{name}, {features.inputs} inputs → {features.width} features",
            "head": f"{self._known.head}, γ = {self._known.gamma:.3g}",
            "nodes per class": shortened(f"{c}: {number(n)}" for c, n in nodes.items()),
            **super()._described(),
        }

    def _checked_learned(
        self, graph: Data, nodes: Nodes, labels: Labels, *, once: bool
    ) -> tuple[Data, Tensor, Array]:
        """A graph, nodes and labels that may have been learned, as far as can be told so far."""
        self._check_params()
        graph = self._check_graph(graph, self.n_features_in_)
        chosen = check_nodes(nodes, node_count(graph), session=once)
        given = check_labels(labels, chosen.numel(), self.classes_)
        if self._known.decays:
            raise InputError(
                "half_life has made old sessions count for less, and what a node still counts for"
                " is not kept: a learner can forget with half_life=0, or before its second session"
            )
        return graph, chosen, given

    def _learned_as(self, nodes: Tensor) -> npt.NDArray[Any]:
        """The labels that some nodes were learned with."""
        record, classes = self._known.membership, self.classes_
        if record is None:
            raise InputError(
                "old is missing, and there is no record of what was learned: give the old labels"
            )
        codes, times = record.known(nodes, classes)
        if bool((codes < 0).any()):
            raise InputError(
                f"nodes holds {int(nodes[int(codes.argmin())])}, which was not learned: relabel"
                " only nodes that were, and learn the others with partial_fit"
            )
        several = times > record.times(nodes, classes[codes])
        if several.any():
            raise InputError(
                f"old is missing, and node {int(nodes[int(several.argmax())])} was learned with"
                " several labels, perhaps in graphs of several sites: give the old labels"
            )
        return classes[codes]

    def _new(self, nodes: Tensor, labels: npt.NDArray[Any], repeat: str) -> npt.NDArray[np.bool_]:
        record, classes = self._known.membership, self.classes_
        if record is None and repeat == "ignore":
            raise InputError(
                "repeat='ignore' (algnn learn --again) needs the record of learned nodes, and this"
                " model keeps none: leave out what was learned before, and repeat='ignore' too"
            )
        if record is None or repeat == "count":
            return super()._new(nodes, labels, repeat)
        same = record.times(nodes, labels) > 0
        before = np.where(same, -1, record.known(nodes, classes)[0])
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
