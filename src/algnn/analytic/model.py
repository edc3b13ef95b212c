"""ALGNN, the estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn import settings
from algnn.analytic.encoder import GCNEncoder
from algnn.analytic.expansion import Expansion
from algnn.analytic.heads import HEADS, Affine, factorise
from algnn.analytic.recursion import refined, woodbury
from algnn.analytic.statistics import Statistics
from algnn.checkpoint import check_tensor
from algnn.checks import check_base, check_number, check_trained, resolve_device
from algnn.errors import CheckpointError, InputError
from algnn.graph.memo import Memo
from algnn.graph.propagate import blocks
from algnn.learner import Learner

# A session of at most d / FEW nodes is cheaper by way of R than by a factorisation of its own: the
# update of R takes about 4nd² operations and a factorisation d³/3, at a lower rate on a GPU.
FEW = {"cpu": 8, "cuda": 4}
# R itself costs two to five factorisations, so it is made once so many small sessions have come in
# a row that more are likely.
PATIENCE = 4


@dataclass(frozen=True)
class Learned:
    """All that an `ALGNN` knows."""

    encoder: GCNEncoder
    expansion: Expansion
    statistics: Statistics
    head: str
    gamma: float
    # What follows from the above, and is neither saved nor counted as retained: the weights; how
    # many small sessions came in a row; and R, which is (G + γI)⁻¹ to some digits.
    solved: Affine | None = None
    small: int = 0
    R: Tensor | None = None

    @cached_property
    def affine(self) -> Affine:
        """W [d, C] and b [C], solved when first needed."""
        return self.solved or HEADS[self.head](self.statistics, self.gamma)

    def plus_few(self, Z: Tensor, labels: npt.NDArray[Any]) -> Learned:
        """With one more session of few nodes, whose features are Z [n, d]; for ``"ridge"`` only."""
        statistics = self.statistics.plus([Z], labels)
        R = W = None
        if self.R is not None:
            R = woodbury(self.R, Z)
            W = refined(R, statistics.G, statistics.Q, self.gamma)
        if W is None:
            factor = factorise(statistics.G.clone(), self.gamma)
            W = torch.cholesky_solve(statistics.Q, factor)
            check_trained(W)
            R = torch.cholesky_inverse(factor) if self.small + 1 >= PATIENCE else None
        solved = W, W.new_zeros(W.size(1))
        return replace(self, statistics=statistics, solved=solved, small=self.small + 1, R=R)


class ALGNN(Learner):
    """Analytic learning on a graph: each session is one closed-form step, exact and without replay.

    The base session trains a GCN encoder, which is then frozen; a fixed random expansion widens its
    features; ridge regression on their sums gives the weights. Later sessions only add to the sums.
    The weights after any sequence of sessions are those of one ridge regression on all of them.

    Parameters
    ----------
    hidden : int
        Width h of the encoder.
    width : int
        Width d of the expanded features; what is retained grows with its square.
    gamma : float
        γ > 0, the ridge penalty.
    head : {"ridge", "ncm", "slda"}
        How the sums become weights: the paper's ridge regression, or one of two references, the
        nearest class mean and streaming linear discriminant analysis.
    expansion : {"gcn", "plain"}
        A random GCN layer, as in the paper's appendix, or random features of each node alone.
    epochs, lr, dropout, weight_decay
        Of the encoder's training on the base session (Adam, full batch).
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
        G, Q and n: all that is kept of the sessions.
    n_features_in_ : int
        The width of `x` in the base session.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(width=256, seed=42)
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
        hidden: int = 256,
        width: int = 2048,
        gamma: float = 0.01,
        head: str = "ridge",
        expansion: str = "gcn",
        epochs: int = 50,
        lr: float = 1e-3,
        dropout: float = 0.5,
        weight_decay: float = 5e-4,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.hidden = hidden
        self.width = width
        self.gamma = gamma
        self.head = head
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
        """G, Q and n: all that is kept of the sessions."""
        return self._known.statistics

    @property
    def weights_(self) -> Tensor:
        """W [d, C], float64, a column per class."""
        return self._known.affine[0]

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.encoder.weight.size(0)

    def retained_bytes(self) -> int:
        """Bytes that must be kept between sessions beside the frozen encoder: those of G, Q and n.

        Returns
        -------
        int
        """
        return 0 if self._learned is None else self._known.statistics.nbytes()

    @property
    def _known(self) -> Learned:
        self._check_fitted()
        known: Learned = self._learned
        return known

    def _check_params(self) -> None:
        super()._check_params()
        for name in ("hidden", "width", "epochs"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_number("gamma", self.gamma, np.finfo(float).tiny)
        check_number("lr", self.lr, 0)
        check_number("dropout", self.dropout, 0, 1)
        check_number("weight_decay", self.weight_decay, 0)
        if self.expansion not in ("gcn", "plain"):
            raise InputError(f"expansion={self.expansion!r} is unknown: use 'gcn' or 'plain'")
        if self.head not in tuple(HEADS):
            raise InputError(f"head={self.head!r} is unknown: use one of {', '.join(HEADS)}")

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Learned | None
    ) -> Learned:
        if learned is None:
            learned = self._base(graph, nodes, labels)
        if (learned.head, learned.gamma) != (self.head, self.gamma):
            learned = replace(learned, head=self.head, gamma=self.gamma, R=None)
        features = self._features(graph, nodes, learned)
        if self._is_small(nodes, learned):
            first, *others = features
            after = learned.plus_few(torch.cat([first, *others]) if others else first, labels)
        else:
            statistics = learned.statistics.plus(features, labels)
            after = replace(learned, statistics=statistics, solved=None, small=0, R=None)
            # solve now: it is part of learning, and may fail
            check_trained(*after.affine)
        return after

    def _is_small(self, nodes: Tensor, learned: Learned) -> bool:
        later, G = learned.statistics.classes.size > 0, learned.statistics.G
        return self.head == "ridge" and later and FEW[G.device.type] * nodes.numel() <= G.size(0)

    def _base(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any]) -> Learned:
        """Train and freeze the encoder; no statistics yet."""
        check_base(labels)
        codes = np.unique(labels, return_inverse=True)[1]
        device = resolve_device(self.device)
        # the largest piece of memory first: if there is not enough, say so before training
        nothing = Statistics.empty(self.width, device)
        encoder = GCNEncoder.fit(
            self._adjacency(graph),
            self._inputs(graph),
            nodes.to(device),
            torch.from_numpy(codes).to(device),
            hidden=self.hidden,
            epochs=self.epochs,
            lr=self.lr,
            dropout=self.dropout,
            weight_decay=self.weight_decay,
            seed=self.seed,
        )
        expansion = Expansion(self.expansion, self.hidden, self.width, self.seed)
        check_trained(encoder.weight, encoder.bias)
        return Learned(encoder, expansion, nothing, self.head, self.gamma)

    def _features(self, graph: Data, nodes: Tensor, learned: Learned) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""

        def prepare() -> Tensor:
            adjacency = self._adjacency(graph)
            hidden = learned.encoder(adjacency, self._inputs(graph))
            return learned.expansion.prepare(adjacency, hidden)

        # the encoder is frozen, so a graph needs encoding once for as long as it stays the same
        key = (graph.x, graph.edge_index, learned.encoder.weight)
        prepared = self._prepared.get(key, prepare)
        chosen = nodes.to(prepared.device)
        for block in blocks(chosen.numel(), 8 * learned.expansion.width, chosen.device):
            yield learned.expansion(prepared[chosen[block]])

    @cached_property
    def _prepared(self) -> Memo[Tensor]:
        return Memo()

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._known
        W, b = known.affine
        scores = [torch.addmm(b, Z, W) for Z in self._features(graph, nodes, known)]
        return torch.cat(scores) if scores else W.new_zeros(0, W.size(1))

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        known = self._known
        tensors = {"encoder.weight": known.encoder.weight, "encoder.bias": known.encoder.bias}
        tensors |= {f"statistics.{name}": t for name, t in known.statistics.tensors().items()}
        expansion = known.expansion
        return tensors, {
            "head": known.head,
            "gamma": known.gamma,
            "expansion": {
                "kind": expansion.kind,
                "inputs": expansion.inputs,
                "width": expansion.width,
                "seed": expansion.seed,
            },
        }

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Learned:
        self._check_params()
        classes = np.array(facts["classes"])
        if classes.ndim != 1 or classes.size == 0 or classes.dtype.kind not in "iU":
            raise CheckpointError("classes is not a list of ints or of strings")
        if facts["head"] not in HEADS:
            raise CheckpointError(f"head {facts['head']!r} is unknown")
        shape = facts["expansion"]
        d, h, C = shape["width"], shape["inputs"], classes.size
        shapes = {
            "encoder.weight": ((tensors["encoder.weight"].size(0), h), torch.float32),
            "encoder.bias": ((h,), torch.float32),
            "statistics.G": ((d * (d + 1) // 2,), torch.float64),
            "statistics.Q": ((d, C), torch.float64),
            "statistics.n": ((C,), torch.int64),
        }
        device = resolve_device(self.device)
        weight, bias, G, Q, n = (
            check_tensor(name, tensors[name], *expected).to(device)
            for name, expected in shapes.items()
        )
        # only now, when the file has shown that it is as large as it says
        expansion = Expansion(shape["kind"], h, d, shape["seed"])
        statistics = Statistics.from_tensors(G, Q, n, classes)
        encoder = GCNEncoder(weight, bias)
        return Learned(encoder, expansion, statistics, facts["head"], float(facts["gamma"]))
