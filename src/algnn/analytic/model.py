"""ALGNN, the estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn import settings
from algnn.analytic.lifecycle import io as saved
from algnn.analytic.features.hops import Bank
from algnn.analytic.uncertainty.calibration import held_out, sharpness
from algnn.analytic.selection import MANY, choose_gamma
from algnn.analytic.classes import counted
from algnn.analytic.features.gcn import Widened
from algnn.analytic.features.encoding import Encoding
from algnn.analytic.features.expansion import EXPANSIONS
from algnn.analytic.explain import Explanation, column_of, contributions
from algnn.analytic.heads import HEADS
from algnn.analytic.lifecycle.audit import Event
from algnn.analytic.state import FEW, Features, Learned, per_class
from algnn.analytic.lifecycle.preconditions import as_usual, check_forgettable, check_mergeable, check_reached
from algnn.analytic.uncertainty.novelty import NoveltyModel, spread_out
from algnn.analytic.lifecycle.reach import affected, without_node
from algnn.analytic.lifecycle.membership import Membership
from algnn.analytic.linalg.subspace import Span
from algnn.analytic.statistics import Statistics
from algnn.analytic.lifecycle.summary import Summary, described, summarise
from algnn.analytic.tape import Tape
from algnn.checks import (
    Labels,
    Nodes,
    check_base,
    check_labels,
    check_nodes,
    check_number,
    check_trained,
    onto,
    resolve_device,
)
from algnn.errors import InputError, NotFittedError
from algnn.graph.memo import Memo


class ALGNN(Encoding):
    """Analytic learning on a graph: each session is one closed-form step, exact and without replay.

    The base session decides how nodes are encoded, and from then on the encoder is frozen. Later
    sessions only add to sums over the encoded nodes, and the weights after any sequence of sessions
    are those of one least-squares problem over all of them.

    Parameters
    ----------
    encoder : {"hops", "gcn"}
        Label-free views of each node's neighbourhood, or the paper's: a GCN trained on the base
        session, whose features a fixed random expansion widens.
    head : {"balanced", "ridge", "ncm", "slda"}
        How the sums become weights: least squares in which every class counts the same, the paper's
        ridge regression, or one of two references, the nearest class mean and streaming linear
        discriminant analysis.
    gamma : float
        γ, the ridge penalty; 0 to choose it after each session from the sums, which the balanced
        head can do.
    hidden : int
        Width h of the GCN.
    width : int
        Width d of the expanded features; what is retained grows with its square.
    expansion : {"gcn", "plain"}
        A random GCN layer, as in the paper's appendix, or random features of each node alone.
    epochs, lr, dropout, weight_decay
        Of the GCN's training on the base session (Adam, full batch).
    half_life : float
        After so many further sessions a node counts for half, so that old ones fade; 0 for never.
    seed : int
        Of all that is random.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.

    Attributes
    ----------
    classes_ : array [C]
        The classes seen so far, sorted.
    weights_ : Tensor [d, C], float64
        W, a column per class.
    statistics_ : Statistics
        G, Q and n of all sessions. What is kept is these, or as long as fewer nodes were learned
        than features are wide the same over the directions that they span; and, where γ is chosen,
        those of half of the nodes, halved in one way or in a few.
    n_features_in_ : int
        The width of `x` in the base session.
    events_ : tuple of Event
        All that was learned, forgotten and merged, with times and counts.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN()
    >>> for session in algnn.ClassStream(graph):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.classes_
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> predicted = model.predict(graph, graph.test_mask)
    >>> bool((predicted == graph.y[graph.test_mask].numpy()).mean() > 0.9)
    True
    """

    def __init__(
        self,
        *,
        encoder: str = "hops",
        head: str = "balanced",
        gamma: float = 0.0,
        hidden: int = 256,
        width: int = 2048,
        expansion: str = "gcn",
        epochs: int = 50,
        lr: float = 1e-3,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        half_life: float = 0.0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.gamma = gamma
        self.hidden = hidden
        self.width = width
        self.expansion = expansion
        self.epochs = epochs
        self.lr = lr
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.half_life = half_life
        self.seed = seed
        self.device = device

    @classmethod
    def paper(cls, dataset: str, **changes: Any) -> Self:
        """The paper's settings for one of its datasets.

        Parameters
        ----------
        dataset : str
            cora, citeseer, corafull, reddit, arxiv or computers; or corafull-graph or arxiv-graph,
            which take the settings of the graph they are without its features.
        **changes
            Parameters to set otherwise, such as `seed`.

        Returns
        -------
        ALGNN

        Examples
        --------
        >>> ALGNN.paper("arxiv").width
        8192
        """
        return cls(**{**settings.read("algnn-paper", dataset.lower(), strict=True), **changes})

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return self._known.statistics.classes

    @property
    def statistics_(self) -> Statistics:
        """G, Q and n of all sessions."""
        return self._known.span.whole(self._known.statistics)

    @property
    def weights_(self) -> Tensor:
        """W [d, C], float64, a column per class."""
        return self._known.affine[0]

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.features.inputs

    @property
    def events_(self) -> tuple[Event, ...]:
        """The log: all that was learned, forgotten and merged, the oldest first."""
        return self._known.journal.events

    def predict_proba(self, graph: Data, nodes: Nodes | None = None) -> npt.NDArray[np.float64]:
        """The probability of each class for some nodes, out of those seen so far.

        Calibrated from the sums, without a validation set: among nodes like those that were
        learned, in the proportions in which they were, answers that are sure by 0.8 are right in
        about 8 cases of 10 (see `algnn.analytic.uncertainty.calibration`). That is so over all answers. The
        balanced head decides as if all classes were equally frequent, and so do its probabilities:
        an answer that names a rare class is right less often than it is sure, one that names a
        frequent class more often. A node of a class that was never seen has its probabilities among
        the seen ones; `novelty` is what tells it.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`.

        Returns
        -------
        array [n, C]
            A column per entry of `classes_`; rows add up to 1, and the largest entry is the class
            that `predict` gives.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, graph.train_mask, graph.y[graph.train_mask])
        >>> sure = model.predict_proba(graph, graph.test_mask).max(axis=1)
        >>> right = model.predict(graph, graph.test_mask) == graph.y[graph.test_mask].numpy()
        >>> bool(abs(sure.mean() - right.mean()) < 0.02)
        True
        """
        return super().predict_proba(graph, nodes)

    def novelty(self, graph: Data, nodes: Nodes | None = None) -> npt.NDArray[np.float64]:
        """How little some nodes look like any class seen so far.

        A node is held against the seen classes, as the sums know them, and against the graph at
        large (see `algnn.analytic.uncertainty.novelty`). The graph is looked at without labels, so a class that
        nobody has named yet is told the better the more of its nodes are in the graph already.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`.

        Returns
        -------
        array [n]
            From 0 to 1: above a half where the graph at large explains a node better than any seen
            class does.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> seen = graph.train_mask & (graph.y < 9)
        >>> model = algnn.ALGNN().fit(graph, seen, graph.y[seen])
        >>> novelty = model.novelty(graph)
        >>> bool(novelty[graph.y == 9].mean() > 0.5 > novelty[graph.y < 9].mean())
        True
        """
        return super().novelty(graph, nodes)

    def retained_bytes(self) -> int:
        """Bytes that must be kept between sessions beside the frozen encoder.

        Those of the sums, and eight for each node in the record of what was learned.

        Returns
        -------
        int
        """
        if self._learned is None:
            return 0
        known = self._known
        sums = [known.statistics, known.seconds]
        basis = 0 if known.span.basis is None else known.span.basis.nbytes
        record = 0 if known.record is None else known.record.hashes.nbytes
        return sum(one.nbytes() for one in sums) + basis + record

    def explain(self, graph: Data, node: int, label: int | str | None = None) -> Explanation:
        """Which input features and which neighbours moved the score of a class for one node.

        Exact: what features contributed sums to the score, and so does what neighbours did. It
        takes the label-free encoder, ``encoder="hops"``. What the score would be without a feature
        or a neighbour is another question (see `algnn.analytic.explain`).

        Parameters
        ----------
        graph : Data
            The graph as it is now.
        node : int
        label : int or str, optional
            The class; by default the one that `predict` gives.

        Returns
        -------
        Explanation

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> why = model.explain(graph, 300)
        >>> score = model.decision_function(graph, [300])[0, why.label]
        >>> bool(abs(why.by_neighbour.sum() + why.bias - score) < 1e-5)
        True
        """
        bank = self._known.features
        if not isinstance(bank, Bank):
            raise InputError(
                f"encoder={self.encoder!r} is trained and not linear, so its scores are no sums"
                " over features and neighbours: explain takes a learner with encoder='hops'"
            )
        scores = self._checked_scores(graph, [node])
        column = int(scores.argmax()) if label is None else column_of(label, self.classes_)
        W, b = self._known.affine
        by_feature, neighbours, by_neighbour = (
            part.cpu().numpy()
            for part in contributions(
                bank, self._transposed(graph), self._inputs(graph), int(node), W[:, column]
            )
        )
        bias = float(b[column])
        score = float(by_feature.sum()) + bias
        name = self.classes_[column].item()
        return Explanation(int(node), name, score, bias, by_feature, neighbours, by_neighbour)

    def set_head(self, head: str, gamma: float = 0.0) -> Self:
        """Score by another head, or another γ, from now on: it takes no data, only the sums.

        Parameters
        ----------
        head : {"balanced", "ridge", "ncm", "slda"}
        gamma : float
            γ; 0 to choose it from the sums, which the balanced head can do where it has from the
            first session on.

        Returns
        -------
        self

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> model.set_head("ridge", gamma=0.1).head
        'ridge'
        """
        known, before = self._known, (self.head, self.gamma)
        self.head, self.gamma = head, gamma
        try:
            self._check_params()
            with as_usual():
                if known.taught:
                    after = self._settled(self._as_asked(known))
                else:
                    fresh = self._untaught(known.features)
                    after = replace(fresh, record=known.record, journal=known.journal)
                self._learned = after.noted("head", {})
        except BaseException:
            self.head, self.gamma = before
            raise
        return self

    # -- the life of a learner ----------------------------------------------------------------

    def forget(self, graph: Data, nodes: Nodes, labels: Labels) -> Self:
        """Forget some labels, exactly as if they had never been learned.

        Afterwards weights, predictions and `statistics_` are, to rounding, those of a learner with
        the same encoder that never saw these labels, γ chosen anew. A class forgotten to its last
        node disappears from `classes_`. What was never learned is refused.

        Two things stay. The encoder, once decided on in the base session, is not decided on anew,
        also where labels of that session are forgotten; `fit` starts anew. And where γ is chosen
        and so many nodes were learned that all but one way of halving them was given up, the others
        do not come back: γ is then that of the one way that is left.

        Parameters
        ----------
        graph : Data
            The graph as it was when these nodes were learned: their features in it are what is
            taken out again. Features that were learned on another kind of device differ in their
            last digits (float32), and so will the result, by as much.
        nodes : Tensor, array or list [n]
            Ids or a mask. A node that was learned twice can be forgotten twice, in two calls.
        labels : Tensor, array or list [n]
            What these nodes were learned as.

        Returns
        -------
        self

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> threes = (graph.y[:200] == 3).nonzero().squeeze(1)
        >>> model.forget(graph, threes, graph.y[threes]).classes_
        array([0, 1, 2, 4, 5, 6, 7, 8, 9])
        >>> model.forget(graph, [300], [1])
        Traceback (most recent call last):
            ...
        algnn.errors.InputError: nodes holds 300, which was not learned as 1 (1 of 1 were not)...
        """
        chosen, known = self._checked_learned(graph, nodes, labels, once=True)
        with as_usual():
            left = self._without(graph, chosen, known, self._known)
            self._learned = self._settled(left).noted("forget", counted(known))
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
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> bool((model.reach(graph, 5) == 5).any())
        True
        """
        self._check_graph(graph, self.n_features_in_)
        one = int(check_nodes([node], graph.x.size(0), session=True))
        found = affected(self._known.features, graph.edge_index, graph.x.size(0), one)
        changed: npt.NDArray[np.int64] = found.numpy()
        return changed

    def forget_node(self, graph: Data, node: int, nodes: Nodes = (), labels: Labels = ()) -> Data:
        """Forget a node itself: its label if it was learned, its features and its edges.

        Its neighbours look different without it, so the learned ones among those within `reach`
        are taken out as they were and learned as they are now. Their labels are not kept, so they
        must be given again. Afterwards the learner is, to rounding, one with the same encoder that
        never saw the node. The encoder stays: one that was trained (``encoder="gcn"``) may have
        been trained on the node; `fit` starts anew.

        Parameters
        ----------
        graph : Data
            The graph as it was when these nodes were learned.
        node : int
        nodes : Tensor, array or list [n]
            All learned nodes among ``reach(graph, node)``, the node itself included if it was
            learned; others are refused, and so is a request that leaves one of them out. One that
            was learned twice is named twice. Not needed where none was learned.
        labels : Tensor, array or list [n]
            What these nodes were learned as.

        Returns
        -------
        Data
            The graph without the node, to be used from now on. Ids stay as they were: the node is
            still there, with features of zero and without an edge. Labels and masks are untouched.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(encoder="gcn", gamma=0.1).fit(graph, range(200), graph.y[:200])
        >>> near = [node for node in model.reach(graph, 5) if node < 200]
        >>> smaller = model.forget_node(graph, 5, near, graph.y[near])
        >>> int(model.statistics_.n.sum()), float(smaller.x[5].sum())
        (199, 0.0)
        """
        within = torch.from_numpy(self.reach(graph, node))
        gone, known = int(node), self._known
        chosen, given = self._checked_learned(graph, nodes, labels, once=False)
        check_reached(known, within, chosen)
        bare = without_node(graph, gone)
        stays = chosen != gone
        with as_usual():
            after = known
            if chosen.numel():
                after = self._without(graph, chosen, given, known)
            if bool(stays.any()):
                after = self._with_nodes(bare, chosen[stays], given[stays.numpy()], after)
            deed = counted(given[~stays.numpy()])
            self._learned = self._settled(after).noted("forget node", deed)
        return bare

    def merge(self, other: ALGNN) -> Self:
        """Learn all that another learner has learned, exactly as if one had learned both.

        Parameters
        ----------
        other : ALGNN
            One with the same encoder, to the last bit: a `blank` of this learner, or a copy, that
            has learned elsewhere. It stays as it is. Its classes may be others or the same. A node
            that both have learned counts twice; where each site numbers its own nodes, two nodes
            may have the same id, and either may then be forgotten.

        Returns
        -------
        self
            With its own head and γ (chosen anew where it chooses). Where γ is given, weights are
            solved for when they are first needed.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> here = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> there = here.blank().partial_fit(graph, range(200, 400), graph.y[200:400])
        >>> int(here.merge(there).statistics_.n.sum())
        400
        """
        self._check_params()
        if type(other) is not type(self):
            raise InputError(
                f"other is a {type(other).__name__}: give an {type(self).__name__} with the same"
                " encoder"
            )
        known, theirs = self._as_asked(self._known), other._known
        check_mergeable(known, theirs, (self.seed, other.seed))
        with as_usual():
            after = known.merged(theirs)
            # γ is chosen now; weights, if there is nothing to choose, when they are first needed
            self._learned = (self._settled(after) if self._chooses else after).noted(
                "merge", per_class(theirs.statistics), other=theirs.journal.end
            )
        return self

    def blank(self) -> Self:
        """A learner with the same parameters and the same frozen encoder that has learned nothing.

        What a site starts from whose learner shall be merged with others; every site needs the same
        encoder, and this hands it over without a label, a sum or a log.

        Returns
        -------
        ALGNN

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> model.blank().classes_
        array([], dtype=int64)
        """
        self._check_params()
        fresh = type(self)(**self.get_params())
        fresh._learned = fresh._untaught(self._known.features)
        return fresh

    def drop_record(self) -> Self:
        """Forget which nodes were learned, not what was learned from them.

        The record is what lets `forget` refuse nodes that were never learned, and what would let
        someone with the file find out which nodes were, as what (see `algnn.analytic.lifecycle.membership`).
        Without it `forget` trusts its caller as far as counts and sums allow.

        Returns
        -------
        self

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> before = model.retained_bytes()
        >>> before - model.drop_record().retained_bytes()
        1600
        """
        self._learned = replace(self._known, record=None).noted("drop record", {})
        return self

    def summary(self) -> Summary:
        """What it has seen and when, how well its weights are determined, what it keeps.

        It takes the eigenvalues of the matrix that is solved, about 30 times the work of solving.

        Returns
        -------
        Summary
            Its text is a table to read; `algnn.analytic.lifecycle.summary.Summary` says what is in it.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN().fit(graph, range(200), graph.y[:200])
        >>> print(model.summary())
        10 classes, 200 nodes; labels are ints, x has 64 columns
        ...
        """
        return summarise(self._known, self.retained_bytes())

    def _described(self) -> dict[str, str]:
        return {**described(self._known), **super()._described()}

    def _checked_learned(
        self, graph: Data, nodes: Nodes, labels: Labels, *, once: bool
    ) -> tuple[Tensor, npt.NDArray[Any]]:
        """Nodes and labels that may have been learned, as far as one can tell without sums."""
        self._check_params()
        known = self._known
        self._check_graph(graph, self.n_features_in_)
        chosen = check_nodes(nodes, graph.x.size(0), session=once)
        # an empty list comes as floating point
        none = chosen.numel() == 0 and np.size(labels) == 0
        given = np.arange(0) if none else check_labels(labels, chosen.numel(), self.classes_)
        check_forgettable(known)
        return chosen, given

    @property
    def _known(self) -> Learned:
        self._check_fitted()
        known: Learned = self._learned
        return known

    @property
    def _taught(self) -> Learned:
        known = self._known
        if not known.taught:
            raise NotFittedError(
                f"this {type(self).__name__} knows no class (it is blank, or has forgotten all):"
                " call partial_fit first"
            )
        return known

    def _check_params(self) -> None:
        super()._check_params()
        for name in ("hidden", "width", "epochs"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("gamma", self.gamma, 0)
        if self.encoder not in ("hops", "gcn"):
            raise InputError(f"encoder={self.encoder!r} is unknown: use 'hops' or 'gcn'")
        check_number("lr", self.lr, 0)
        check_number("dropout", self.dropout, 0, 1)
        check_number("weight_decay", self.weight_decay, 0)
        check_number("half_life", self.half_life, 0)
        if self.expansion not in EXPANSIONS:
            raise InputError(f"expansion={self.expansion!r} is unknown: use 'gcn' or 'plain'")
        if self.head not in tuple(HEADS):
            raise InputError(f"head={self.head!r} is unknown: use one of {', '.join(HEADS)}")
        if self.gamma == 0 and self.head not in ("balanced", "ncm"):
            raise InputError(
                f"gamma=0 leaves γ to be chosen, which head={self.head!r} cannot do: give a"
                " positive gamma, or use head='balanced'"
            )

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned | None
    ) -> Learned:
        if learned is None:
            self._tape = None
            learned = self._base(graph, nodes, labels)
        learned, kept = self._as_asked(learned), 1.0
        if self.half_life and learned.taught:
            kept = 2 ** (-1 / self.half_life)
            learned = learned.decayed(kept)
        if self._is_small(nodes.numel(), learned):
            return self._with_few(graph, nodes, labels, learned, kept)
        after = self._with_nodes(graph, nodes, labels, learned)
        # while a GPU may still be adding up
        counts = counted(labels)
        return self._settled(after).noted("learn", counts, kept=kept)

    def _as_asked(self, learned: Learned) -> Learned:
        """With the head and γ that the parameters ask for by now."""
        if learned.head != self.head or (self.gamma and learned.gamma != self.gamma):
            return replace(learned, head=self.head, gamma=self.gamma, solved=None, R=None)
        return learned

    def _with_nodes(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned
    ) -> Learned:
        """With the sums of some more nodes, not solved yet."""
        features = self._session_features(graph, nodes, learned)
        return learned.plus(features, nodes, labels, self.seed)

    def _with_few(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned, kept: float
    ) -> Learned:
        """With few more nodes, solved."""
        features = learned.features
        if isinstance(features, Widened) and learned.can_replay:
            # read once: another thread may replace it meanwhile
            tape = self._tape
            if tape is None or tape.features is not features:
                self._tape = tape = Tape(features)
            prepared, _ = self._encoding(graph, nodes, features)
            try:
                return learned.replayed(tape, prepared, nodes, labels, kept)
            except torch.OutOfMemoryError:
                # it goes without those buffers
                self._tape = None
        return learned.plus_few(self._few(graph, nodes, learned), nodes, labels, kept)

    _tape: Tape | None = None

    def _without(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned
    ) -> Learned:
        """Without the sums of some nodes; mostly not solved yet."""
        # a tape holds the sums as they were
        self._tape = None
        learned, left = self._as_asked(learned), None
        if learned.R is not None and self._is_small(nodes.numel(), learned):
            left = learned.minus_few(self._few(graph, nodes, learned), nodes, labels)
        if left is None:
            features = self._session_features(graph, nodes, learned)
            left = learned.minus(features, nodes, labels, self.seed)
        if left.taught:
            return left
        # of nothing, not even the rounding stays
        return replace(self._untaught(left.features), record=left.record, journal=left.journal)

    def _settled(self, after: Learned) -> Learned:
        """With γ chosen, if that is asked for, and solved."""
        if self._chooses and after.taught:
            if not after.ways:
                raise InputError(
                    "gamma=0 needs the sums of two halves, which are kept only where gamma was 0"
                    " and the head balanced from the first session on: give a positive gamma"
                )
            chosen = choose_gamma(after.statistics, after.seconds, guess=after.gamma)
            after = after.solved_by(chosen.gamma, chosen.weights)
        # solve now: it is part of learning, and may fail
        if after.solved is None:
            if not self.half_life and self._is_small(after.expected, after):
                # the next session is likely to be small, and what is made now will help with it
                return after.factorised()
            check_trained(*after.affine)
        return replace(after, solved=after.affine)

    @property
    def _chooses(self) -> bool:
        """Whether γ is chosen from the sums."""
        return self.gamma == 0 and self.head == "balanced"

    def _few(self, graph: Data, nodes: Tensor, learned: Learned) -> Tensor:
        """Z of few nodes, float64."""
        prepared, places = self._encoding(graph, nodes, learned.features)
        if places is not None:
            prepared = prepared[onto(places, prepared.device)]
        return learned.features(prepared)

    def _is_small(self, count: int, learned: Learned) -> bool:
        """Whether so many nodes of a later session are few."""
        later, G = learned.statistics.classes.size > 0, learned.statistics.G
        dense = learned.span.basis is None and not learned.ways
        few = FEW[G.device.type] * count <= G.size(0)
        return self.head == "ridge" and later and dense and few

    def _base(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any]) -> Learned:
        """Decide on the features; no statistics yet."""
        check_base(labels)
        if self.encoder == "hops":
            return self._untaught(self._bank(graph, nodes, labels))
        # the largest piece of memory first: if there is not enough, say so before training
        nothing = Statistics.empty(self.width, resolve_device(self.device))
        trained = self._trained(graph, nodes, labels)
        return replace(self._untaught(trained), statistics=nothing)

    def _untaught(self, features: Features) -> Learned:
        """What is known once features are decided on: of the classes, nothing."""
        device = resolve_device(self.device)
        spanned = isinstance(features, Bank)
        span = Span.empty(features.width, device) if spanned else Span(features.width, None)
        nothing = Statistics.empty(span.rank, device)
        seconds = Statistics.empty(span.rank, device, ways=MANY if self._chooses else 0)
        record = Membership(saved.fingerprint(features))
        return Learned(features, span, nothing, seconds, self.head, self.gamma, record)

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._taught
        W, b = known.affine
        scores = [torch.addmm(b, Z, W) for Z in self._features(graph, nodes, known)]
        return torch.cat(scores) if scores else W.new_zeros(0, W.size(1))

    def _sharpness(self) -> float:
        known = self._taught
        sharp = self._sharp
        if sharp is None or sharp[0] is not known:
            # where sums are over features, and not over coordinates in a span, so are the weights
            solved = known.affine if known.span.basis is None else None
            found = sharpness(held_out(known.head, known.gamma, known.statistics, solved))
            self._sharp = sharp = known, found
        return sharp[1]

    _sharp: tuple[Learned, float] | None = None

    def _novelty(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._taught
        span, familiar = self._familiar(graph, known)
        coordinates = map(span.coordinates, self._features(graph, nodes, known))
        return torch.cat([*map(familiar.novelty, coordinates), familiar.centre[:0]])

    def _familiar(self, graph: Data, learned: Learned) -> tuple[Span, NoveltyModel]:
        """What the seen classes and the graph look like, in directions that hold both."""

        def build() -> tuple[Span, NoveltyModel]:
            # by what was learned, not by how its sums happen to be kept
            nodes = int(learned.statistics.n.sum())
            some = spread_out(graph.x.size(0), min(nodes, learned.span.width))
            sample = torch.cat(list(self._features(graph, some, learned)))
            span = learned.span.extended(sample)
            sums = learned.statistics.padded(span.rank)
            return span, NoveltyModel.of(sums, span.coordinates(sample))

        found = self._found
        if found is None or found[0] is not learned:
            self._found = found = learned, Memo()
        return found[1].get((graph.x, graph.edge_index), build)

    _found: tuple[Learned, Memo[tuple[Span, NoveltyModel]]] | None = None

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return saved.state(self._known)

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Learned:
        self._check_params()
        return saved.restored(tensors, facts, resolve_device(self.device))
