"""ALGNN, the estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn import settings
from algnn.analytic import saved
from algnn.analytic.bank import BANKS, Bank, projected_width
from algnn.analytic.choice import MANY, choose_gamma
from algnn.analytic.encoder import GCNEncoder, Widened
from algnn.analytic.expansion import EXPANSIONS, Expansion
from algnn.analytic.heads import HEADS
from algnn.analytic.learned import FEW, Features, Learned
from algnn.analytic.span import Span
from algnn.analytic.statistics import Statistics
from algnn.checks import check_base, check_number, check_trained, resolve_device
from algnn.errors import InputError
from algnn.graph.memo import Memo
from algnn.graph.propagate import blocks
from algnn.learner import Learner


class ALGNN(Learner):
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

    def retained_bytes(self) -> int:
        """Bytes that must be kept between sessions beside the frozen encoder: those of the sums.

        Returns
        -------
        int
        """
        if self._learned is None:
            return 0
        known = self._known
        # a half is kept over all classes, of which it may lack some
        sums = [known.statistics, *(half._on(self.classes_) for half in known.seconds)]
        basis = 0 if known.span.basis is None else known.span.basis.nbytes
        return sum(one.nbytes() for one in sums) + basis

    @property
    def _known(self) -> Learned:
        self._check_fitted()
        known: Learned = self._learned
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
            learned = self._base(graph, nodes, labels)
        if learned.head != self.head or (self.gamma and learned.gamma != self.gamma):
            learned = replace(learned, head=self.head, gamma=self.gamma, R=None)
        if self._is_small(nodes, learned):
            first, *others = self._features(graph, nodes, learned)
            return learned.plus_few(torch.cat([first, *others]) if others else first, labels)
        return self._with_session(graph, nodes, labels, learned)

    def _with_session(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned
    ) -> Learned:
        """Add to the sums, choose γ if that is asked for, and solve."""
        after = learned.plus(
            lambda some: self._features(graph, some, learned), nodes, labels, self.seed
        )
        if self._chooses:
            if not after.seconds:
                raise InputError(
                    "gamma=0 needs the sums of two halves, which are kept only where gamma was 0"
                    " and the head balanced from the first session on: give a positive gamma"
                )
            after = replace(after, gamma=choose_gamma(after.statistics, after.seconds)[0])
        # solve now: it is part of learning, and may fail
        check_trained(*after.affine)
        return after

    @property
    def _chooses(self) -> bool:
        """Whether γ is chosen from the sums."""
        return self.gamma == 0 and self.head == "balanced"

    def _is_small(self, nodes: Tensor, learned: Learned) -> bool:
        later, G = learned.statistics.classes.size > 0, learned.statistics.G
        dense = learned.span.basis is None and not learned.seconds
        few = FEW[G.device.type] * nodes.numel() <= G.size(0)
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
        if isinstance(features, Bank):
            span, nothing = Span.empty(features.width, device), Statistics.empty(0, device)
        else:
            span, nothing = Span(features.width, None), Statistics.empty(features.width, device)
        seconds = (nothing,) * MANY if self._chooses else ()
        return Learned(features, span, nothing, seconds, self.head, self.gamma)

    def _trained(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any]) -> Widened:
        """The paper's features: a GCN trained on the base session, its first layer expanded."""
        codes = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
        x = self._inputs(graph)
        encoder = GCNEncoder.fit(
            self._adjacency(graph),
            x,
            nodes.to(x.device),
            codes.to(x.device),
            hidden=self.hidden,
            epochs=self.epochs,
            lr=self.lr,
            dropout=self.dropout,
            weight_decay=self.weight_decay,
            seed=self.seed,
        )
        check_trained(encoder.weight, encoder.bias)
        return Widened(encoder, Expansion(self.expansion, self.hidden, self.width, self.seed))

    def _bank(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any]) -> Bank:
        """The bank of views whose halves agree best on the base session."""
        inputs = graph.x.size(1)
        projected = projected_width(inputs, graph.x.size(0))
        banks = [Bank(name, inputs, projected, self.seed) for name in BANKS]

        def agreement(bank: Bank) -> float:
            views = bank.prepare(self._adjacency(graph), self._inputs(graph))
            device = views.device

            def features(some: Tensor) -> Iterator[Tensor]:
                for block in blocks(some.numel(), 8 * bank.width, device):
                    yield bank(views[some[block].to(device)])

            nothing = Statistics.empty(0, device)
            span = Span.empty(bank.width, device)
            empty = Learned(bank, span, nothing, (nothing,) * MANY, "balanced", 1.0)
            after = empty.plus(features, nodes, labels, self.seed)
            return choose_gamma(after.statistics, after.seconds)[1]

        return max(banks, key=agreement)

    def _features(self, graph: Data, nodes: Tensor, learned: Learned) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""

        def prepare() -> Tensor:
            return learned.features.prepare(self._adjacency(graph), self._inputs(graph))

        # features are frozen, so a graph needs encoding once for as long as it stays the same
        prepared = self._prepared(learned).get((graph.x, graph.edge_index), prepare)
        chosen = nodes.to(prepared.device)
        for block in blocks(chosen.numel(), 8 * learned.features.width, chosen.device):
            yield learned.features(prepared[chosen[block]])

    def _prepared(self, learned: Learned) -> Memo[Tensor]:
        """What is remembered of graphs under the features of now, and of no others."""
        if self._encoded is None or self._encoded[0] is not learned.features:
            self._encoded = learned.features, Memo()
        return self._encoded[1]

    _encoded: tuple[Features, Memo[Tensor]] | None = None

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._known
        W, b = known.affine
        scores = [torch.addmm(b, Z, W) for Z in self._features(graph, nodes, known)]
        return torch.cat(scores) if scores else W.new_zeros(0, W.size(1))

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return saved.state(self._known)

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Learned:
        self._check_params()
        return saved.restored(tensors, facts, resolve_device(self.device))
