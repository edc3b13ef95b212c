"""ALGNN, the estimator."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from algnn import settings
from algnn.analytic.classes import counted
from algnn.analytic.cluster import on_cluster
from algnn.analytic.explain import Explanation, contributions
from algnn.analytic.features.expansion import EXPANSIONS, ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.features.selfsupervised import SelfSupervisedEncoder
from algnn.analytic.heads import HEADS
from algnn.analytic.lifecycle import io
from algnn.analytic.lifecycle.membership import Membership
from algnn.analytic.lifecycle.operations import Lifecycle
from algnn.analytic.linalg import Span
from algnn.analytic.selection import MOST_HALVINGS, choose_gamma
from algnn.analytic.state import Features, State
from algnn.analytic.statistics import Statistics
from algnn.analytic.uncertainty.calibration import SAMPLE, adjusted_sharpness, probabilities
from algnn.analytic.uncertainty.novelty import NoveltyModel, sample_size, spread_out
from algnn.checks import Array, Labels, Nodes, check_base, check_choice, check_trained, onto
from algnn.errors import InputError
from algnn.gcn import GCN, train
from algnn.graph.propagate import Operator, receptive_field
from algnn.graph.store import FLOAT, GraphStore, node_count, whole
from algnn.graphs import inputs_of
from algnn.learner import shortened

ENCODERS = ("hops", "self-supervised", "gcn")


@dataclass(kw_only=True, eq=False, repr=False)
class ALGNN(Lifecycle):
    """Analytic learning on a graph: each session is one closed-form step, exact and without replay.

    The base session decides how nodes are encoded, and from then on the encoder is frozen. Later
    sessions only add to sums over the encoded nodes, and the weights after any sequence of sessions
    are those of one least-squares problem over all of them.

    Parameters
    ----------
    encoder : {"hops", "self-supervised", "gcn"}
        ``"hops"``: label-free views of each node's neighbourhood. ``"self-supervised"``: these and
        the embedding of a GCN trained on the graph without labels, which helps most where labels
        are few. ``"gcn"``: the paper's, a GCN trained on the base session, whose features are
        widened by a fixed random expansion.
    head : {"balanced", "ridge", "ncm", "slda"}
        What is counted. ``"balanced"``: every class counts the same, however many nodes it has,
        which is right where the mean accuracy over classes matters. ``"ridge"``: every node counts
        the same, which is right where the share of nodes that are right matters; it is the paper's
        head. `set_head` changes it at any time, from the same sums. ``"ncm"`` and ``"slda"`` are
        two references, the nearest class mean and streaming linear discriminant analysis.
    gamma : float
        γ, the ridge penalty; 0 to choose it after each session from the sums, which the balanced
        and the ridge head can do.
    hidden : int
        Width h of the GCN, where there is one.
    width : int
        Number of features d: random units are added to the views up to this number. Memory grows
        with its square.
    expansion : {"gcn", "plain"}
        A random GCN layer, as in the paper's appendix, or random features of each node alone.
    epochs : int
        Of the GCN's training on the base session (Adam, full batch).
    lr, dropout, weight_decay : float
        Its step size, dropout and weight decay.
    half_life : float
        Number of later sessions after which a node's weight is halved, so that old nodes fade; 0
        for no fading.
    seed : int
        Of all that is random.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.

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

    encoder: str = "hops"
    head: str = "balanced"
    gamma: float = 0.0
    hidden: int = 256
    width: int = 3072
    expansion: str = "gcn"
    epochs: int = 50
    lr: float = 1e-3
    dropout: float = 0.5
    weight_decay: float = 5e-4
    half_life: float = 0.0
    seed: int = 0
    device: str = "auto"

    _limits: ClassVar = {
        "epochs": 1,
        # what a file may hold: random weights are drawn from a seed, as large as it says
        **{"hidden": (1, io.MOST_HIDDEN), "width": (1, io.MOST_UNITS)},
        **dict.fromkeys(("gamma", "lr", "weight_decay", "half_life"), 0),
        "dropout": (0, 1),
    }
    _fixed = ("encoder", "hidden", "width", "expansion", "seed")

    @classmethod
    def paper(cls, dataset: str, **changes: Any) -> Self:
        """The paper's settings for one of its datasets.

        Parameters
        ----------
        dataset : str
            cora, citeseer, corafull, reddit, arxiv or computers; or corafull-graph or arxiv-graph,
            which take the settings of the graph that they are derived from.
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
    def classes_(self) -> Array:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return self._known.statistics.classes

    @property
    def statistics_(self) -> Statistics:
        """G, Q and n of all sessions.

        While few nodes were learned, the learner stores them in the subspace that these nodes span,
        and this property expands them. Where γ is chosen, it also stores the sums of one half of
        the nodes, for one or several ways of halving them.
        """
        return self._known.span.whole(self._known.statistics)

    @property
    def weights_(self) -> Tensor:
        """W [d, C], float64, a column per class."""
        return self._known.affine[0]

    def fit(
        self, graph: Data, nodes: Nodes, labels: Labels | None = None, *, client: Any = None
    ) -> Self:
        """Forget everything and learn a first session.

        Parameters
        ----------
        graph, nodes, labels
            As for `Learner.fit`: a `Data`, or a graph on disk that `algnn.open_graph` gives.
        client : distributed.Client, optional
            A Dask cluster that works on a graph on disk; for other calls, give them the graph as
            `algnn.on_cluster` returns it.
        """
        return super().fit(graph if client is None else on_cluster(graph, client), nodes, labels)

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
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> why = model.explain(graph, 300)
        >>> score = model.decision_function(graph, [300])[0, why.label]
        >>> bool(abs(why.by_neighbour.sum() + why.bias - score) < 1e-5)
        True
        """
        view = self._view()
        encoder = view._known.features
        if type(encoder) is not HopEncoder:
            raise InputError(
                f"encoder={self.encoder!r} is trained and not linear, so its scores are no sums"
                " over features and neighbours: explain takes a learner with encoder='hops'"
            )
        scores = view._checked_scores(graph, [node])
        graph = whole(view._check_graph(graph, None))
        known = view.classes_.tolist()
        if label is not None and (np.ndim(label) or label not in known):
            words = f"use one of {shortened(map(repr, known))}"
            raise InputError(f"label={label!r} is none of the classes learned: {words}")
        column = int(scores.argmax()) if label is None else known.index(label)
        W, b = view._known.affine
        x = view._inputs(graph, sparse=True)
        transposed = view._memos["transposed"].get(
            inputs_of(graph), lambda: Operator(view._adjacency(graph)).T.matrix.to(FLOAT)
        )
        parts = contributions(encoder, transposed, x, int(node), W[:, column])
        by_feature, neighbours, by_neighbour = (part.cpu().numpy() for part in parts)
        bias = float(b[column])
        score, name = float(by_feature.sum()) + bias, known[column]
        return Explanation(int(node), name, score, bias, by_feature, neighbours, by_neighbour)

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("encoder", self.encoder, ENCODERS)
        check_choice("expansion", self.expansion, EXPANSIONS)
        check_choice("head", self.head, HEADS)
        if self.gamma == 0 and self.head == "slda":
            raise InputError(
                "gamma=0 leaves γ to be chosen, which head='slda' cannot do: give a positive gamma,"
                " or use head='balanced' or 'ridge'"
            )

    # -- learning: labels → features → statistics → γ → weights -------------------------------

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: State | None) -> State:
        kept = 1.0
        if learned is None:
            check_base(labels)
            if self.encoder == "gcn":
                learned = self._untaught(self._trained_encoder(graph, nodes, labels))
            else:
                learned = self._untaught(self._hop_encoder(graph))
        state = learned.asked_for(self.head, self.gamma)
        if self.half_life and state.taught:
            kept = 2 ** (-1 / self.half_life)
            state = state.decayed(kept)
        after = self._settled(self._with_nodes(graph, nodes, labels, state))
        return after.noted("learn", counted(labels), kept=kept)

    def _trained_encoder(self, graph: Data, nodes: Tensor, labels: Array) -> ExpandedGCN:
        """The paper's features: a GCN trained on the base session, its first layer expanded."""
        graph = whole(graph)
        x = self._inputs(graph)
        field = receptive_field(self._adjacency(graph), x, onto(nodes, x.device))
        classes, places = np.unique(labels, return_inverse=True)
        codes = onto(torch.from_numpy(places), x.device)
        initial = torch.Generator().manual_seed(self.seed)
        masks = torch.Generator(x.device).manual_seed(self.seed)
        gcn = GCN(x.size(1), self.hidden, classes.size, self.dropout, initial).to(x.device)
        adam = self.epochs, self.lr, self.weight_decay
        train(gcn.parameters(), lambda: cross_entropy(gcn(field, masks), codes), *adam)
        weight, bias = gcn.weight1.detach(), gcn.bias1.detach()
        check_trained(weight, bias)
        return ExpandedGCN(weight, bias, self.expansion, self.width, self.seed)

    def _hop_encoder(self, graph: Data) -> HopEncoder:
        """The label-free encoder of a graph."""
        hops = HopEncoder.of(self._rows(graph), self.width, self.seed)
        if self.encoder == "hops":
            return hops
        here = whole(graph)
        inputs = self._inputs(here, sparse=True)
        return SelfSupervisedEncoder.trained(hops, self._adjacency(here), inputs, self.hidden)

    def _untaught(self, features: Features) -> State:
        device, spanned = self._device, isinstance(features, HopEncoder)
        span = Span.empty(features.width, device) if spanned else Span(features.width, None)
        nothing = Statistics.empty(span.rank, device)
        half_sums = Statistics.empty(span.rank, device, MOST_HALVINGS if self._chooses else 0)
        record = Membership(io.fingerprint(features))
        return State(features, span, nothing, half_sums, self.head, self.gamma, record)

    def _with_nodes(self, graph: Data, nodes: Tensor, labels: Array, state: State) -> State:
        elsewhere, features = None, state.features
        if isinstance(graph, GraphStore) and graph.runner and type(features) is HopEncoder:
            self._prepared(graph, features)  # views first: the sums are over them
            elsewhere = partial(graph.runner.sums, features)
        Z = self._features(graph, nodes, features)
        return state.plus(Z, nodes, labels, self.seed, elsewhere)

    def _without(self, graph: Data, nodes: Tensor, labels: Array, state: State) -> State:
        state = state.asked_for(self.head, self.gamma)
        left = state.minus(self._features(graph, nodes, state.features), nodes, labels, self.seed)
        if left.taught:
            return left
        # of nothing, not even the rounding stays
        return replace(self._untaught(left.features), membership=left.membership, log=left.log)

    def _settled(self, state: State) -> State:
        if self._chooses and state.taught:
            if not state.ways:
                raise InputError(
                    "gamma=0 needs the sums of two halves, which are kept only where gamma was 0"
                    " and the head balanced or ridge from the first session on: give a positive"
                    " gamma"
                )
            gamma, _ = choose_gamma(state.statistics, state.half_sums, state.head)
            state = replace(state, gamma=gamma, solved=None)
        # solve now: it is part of learning, and may fail
        state = state.with_weights()
        check_trained(*state.affine)
        return state

    # -- answering ----------------------------------------------------------------------------

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._taught
        (W, b), encoder = known.affine, known.features
        if isinstance(graph, GraphStore) and graph.runner and type(encoder) is HopEncoder:
            self._prepared(graph, encoder)
            return cast(Tensor, graph.runner.scores(encoder, nodes, W, b))
        scores = (torch.addmm(b, Z, W) for Z in self._features(graph, nodes, encoder))
        return torch.cat([W[:0], *scores])

    def _probabilities(self, graph: Data, scores: Tensor) -> Tensor:
        known, graph = self._taught, self._check_graph(graph, self.n_features_in_)

        def beta() -> float:
            sample = self._checked_scores(graph, spread_out(node_count(graph), SAMPLE))
            return adjusted_sharpness(known.sharpness, known.held_out, sample)

        return probabilities(scores, known.graph_sharpness.get(inputs_of(graph), beta))

    def _novelty(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._taught

        def build() -> tuple[Span, NoveltyModel]:
            # by what was learned, not by how its sums happen to be kept
            count, span, sums = int(known.statistics.n.sum()), known.span, known.statistics
            some = spread_out(node_count(graph), sample_size(min(count, span.width)))
            sample = torch.cat(list(self._features(graph, some, known.features)))
            if not span.has_room(count + some.numel()):
                span, sums = Span(span.width, None), span.whole(sums)
            span = span.extended(sample)
            return span, NoveltyModel.of(sums.padded(span.rank), span.coordinates(sample))

        span, model = known.novelty_models.get(inputs_of(graph), build)
        coordinates = map(span.coordinates, self._features(graph, nodes, known.features))
        return torch.cat([*map(model.novelty, coordinates), model.centre[:0]])

    def _settle(self) -> None:
        known: State | None = self._learned
        if known is None or known.factor is None:
            return
        # weights by way of an updated factor differ in their last bits from those that are solved
        plain = replace(known, solved=None, factor=None)
        solved = replace(plain, solved=plain.affine)
        if self._lock.acquire(blocking=False):  # else another state is about to replace this one
            try:
                if self._learned is known:
                    self._learned = solved  # its parameters stay those of `fit`
            finally:
                self._lock.release()

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return io.state(self._known)

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> State:
        return io.restored(tensors, facts, self._device)
