"""Sums with noise, so that no one can tell from them whether one labelled node was among them.

What is promised is (ε, δ)-differential privacy for one labelled node: whatever is computed from a
learner that saw it, weights, predictions, the file itself, comes out with nearly the same chances
as without it. Two sets of labelled nodes are *neighbours* if one has a node more than the other;
the graph is the same for both. What that does and does not cover is said in ``docs/privacy.md``.

One node with features z, ‖z‖ ≤ 1, and class c adds z zᵀ to G, z to column c of Q and 1 to n_c.
Weigh each of the three by the root of its share of the budget (`SHARES`, which add up to 1), and
make one vector of all their numbers. A node moves it by √(a ‖z‖⁴ + b ‖z‖² + e) ≤ √(a + b + e) = 1,
since ‖z zᵀ‖ = ‖z‖² in Frobenius' norm. So Gaussian noise of scale σ on every coordinate of it is
the Gaussian mechanism with sensitivity 1. Undoing the weights afterwards costs nothing, nor does
whatever else is done with the result.

Noise is added once in each session, to that session's own sums. A node that is in one session only
has lost ε to it and nothing to the others (parallel composition). For a node in several, Gaussian
mechanisms compose exactly: noise of σ₁ … σₖ hides as much as noise of one σ with 1/σ² = Σ 1/σᵢ².
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import erfcx, ndtr, ndtri
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.hops import HopEncoder as Bank
from algnn.analytic.classes import union
from algnn.analytic.heads import balanced_system
from algnn.analytic.lifecycle.io import FLOAT, WIDEST_INPUTS, _restored_classes, _restored_features
from algnn.analytic.statistics import Statistics
from algnn.checkpoint import check_tensor
from algnn.checks import check_number, check_trained, resolve_device
from algnn.errors import CheckpointError
from algnn.graph.memo import Memo
from algnn.graph.propagate import blocks
from algnn.learner import Learner

Entropy = Callable[[int], bytes]

# The budget's shares of G, Q and n. Found on validation nodes of digits, Citeseer, PubMed and
# Computers at ε from 1 to 16: class sums want most of it, and G, of which every class has the use,
# still helps with a fifth.
SHARES = {"G": 0.2, "Q": 0.7, "n": 0.1}
# The ridge penalty: so much of the largest eigenvalue that noise alone gives G, found in the same
# trials, and where there is next to no noise so much of the trace.
OF_NOISE = 0.5
OF_TRACE = 1e-3
# What is released is rounded to this fraction of the noise, so that no lowest bit tells anything.
GRID = 2.0**-20


def attained_delta(epsilon: float, sigma: float) -> float:
    """The least δ for which Gaussian noise on a sum of sensitivity 1 is (ε, δ)-private.

    With μ = 1/σ it is Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), exactly (Balle and Wang, Improving the
    Gaussian Mechanism for Differential Privacy, ICML 2018, theorem 8).

    Parameters
    ----------
    epsilon : float
        ε ≥ 0.
    sigma : float
        σ > 0, the noise's standard deviation.

    Returns
    -------
    float

    Examples
    --------
    >>> round(attained_delta(1.0, 1.0), 6)
    0.126937
    """
    mu = 1 / sigma
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # e^ε Φ(−far) is e^(−near²/2) erfcx(far/√2) / 2, since far² − near² = 2ε: no large number times
    # a small one
    tail = 0.5 * math.exp(-near * near / 2)
    second = tail * erfcx(far / math.sqrt(2))
    if near < 0:
        return float(ndtr(-near) - second)
    return float(tail * erfcx(near / math.sqrt(2)) - second)


def attained_epsilon(delta: float, sigma: float) -> float:
    """The least ε for which Gaussian noise on a sum of sensitivity 1 is (ε, δ)-private.

    Parameters
    ----------
    delta : float
        0 < δ < 1.
    sigma : float
        σ > 0.

    Returns
    -------
    float
        From above: the δ that it attains is never more than the one asked for.

    Examples
    --------
    >>> round(attained_epsilon(1e-5, 3.7306316), 6)
    1.0
    """
    if attained_delta(0.0, sigma) <= delta:
        return 0.0
    return _least(lambda epsilon: attained_delta(epsilon, sigma) <= delta)


def noise_scale(epsilon: float, delta: float) -> float:
    """The least σ for which Gaussian noise on a sum of sensitivity 1 is (ε, δ)-private.

    Parameters
    ----------
    epsilon : float
        ε > 0.
    delta : float
        0 < δ < 1.

    Returns
    -------
    float
        From above, as `attained_epsilon`.

    Examples
    --------
    >>> round(noise_scale(1.0, 1e-5), 4)
    3.7306
    """
    return _least(lambda sigma: attained_delta(epsilon, sigma) <= delta)


def _least(enough: Callable[[float], bool]) -> float:
    """The least positive number that is enough, from above, to the last digits of a float."""
    high = 1.0
    while not enough(high):
        high *= 2
    while enough(high / 2):
        high /= 2
    low = high / 2
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def with_noise(statistics: Statistics, sigma: float, entropy: Entropy = os.urandom) -> Statistics:
    """Sums of one session as they may be shown: with noise on every number of them.

    Parameters
    ----------
    statistics : Statistics
        Of rows that are at most 1 long, each node once.
    sigma : float
        σ of `noise_scale`.
    entropy : callable
        Gives so many random bytes. The operating system's by default: noise that comes from a known
        seed can be taken off again.

    Returns
    -------
    Statistics
        G symmetric, and n not whole any more; neither needs to be positive.

    Examples
    --------
    >>> import numpy as np
    >>> exact = Statistics.empty(2).plus([torch.eye(2)], np.array([0, 1]))
    >>> shown = with_noise(exact, 1e-6)
    >>> torch.allclose(shown.G, exact.G, atol=1e-4), bool((shown.G == exact.G).any())
    (True, False)
    """

    def noisy(value: Tensor, share: float, standard: Tensor) -> Tensor:
        scale = sigma / math.sqrt(share)
        grid = 2.0 ** math.floor(math.log2(scale * GRID))
        shown = value.to(torch.float64) + scale * standard.to(value.device)
        return (shown / grid).round() * grid

    square = _standard_normal(statistics.G.shape, entropy)
    # Half of the sum with its transpose: 1 on the diagonal and 1/√2 beside it, where each number
    # stands twice. That is noise of 1 on every direction in the space of symmetric matrices.
    symmetric = (square + square.mT) / 2
    return Statistics(
        noisy(statistics.G, SHARES["G"], symmetric),
        noisy(statistics.Q, SHARES["Q"], _standard_normal(statistics.Q.shape, entropy)),
        noisy(statistics.n, SHARES["n"], _standard_normal(statistics.n.shape, entropy)),
        statistics.classes,
    )


def _standard_normal(shape: torch.Size, entropy: Entropy) -> Tensor:
    """Normal numbers from random bits, by the inverse of their distribution function."""
    bits = np.frombuffer(entropy(8 * shape.numel()), dtype=np.uint64) >> np.uint64(11)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-53
    # uniform is rounded to 1 with a chance of 2⁻⁵⁴
    normal = ndtri(np.minimum(uniform, 1 - 2.0**-53))
    return torch.from_numpy(normal.reshape(tuple(shape)))


def private_weights(shown: Statistics, variance: float) -> Tensor:
    """The balanced head's weights, from sums with noise.

    Nothing here looks at data again, so nothing is lost by it. A class counts by the length of its
    column of Q, of which noise disturbs a smaller part than of n; eigenvalues of B below 0, which
    are noise, are put to 0; and the penalty grows with the noise.

    Parameters
    ----------
    shown : Statistics
        What `with_noise` gave, added up over sessions.
    variance : float
        Σ σ² over sessions.

    Returns
    -------
    Tensor [d, C], float64

    Examples
    --------
    >>> import numpy as np
    >>> exact = Statistics.empty(2).plus([torch.eye(2)], np.array([0, 1]))
    >>> private_weights(with_noise(exact, 1e-6), 1e-12).argmax(1).tolist()
    [0, 1]
    """
    lengths = torch.linalg.vector_norm(shown.Q, dim=0).clamp_min(torch.finfo(FLOAT).tiny)
    # rows are at most 1 long, so there are at least as many as their sum is long
    nodes = max(float(shown.n.sum()), float(lengths.sum()))
    n = lengths * (nodes / lengths.sum())
    matrix, means = balanced_system(replace(shown, n=n))
    sizes, vectors = torch.linalg.eigh(matrix)
    # noise of σ has a largest eigenvalue of about √(2d) σ, and G counts in B by C / N
    largest = math.sqrt(2 * shown.G.size(0) * variance / SHARES["G"]) * n.numel() / nodes
    sizes = sizes.clamp_min(0)
    sizes = sizes + OF_NOISE * largest + OF_TRACE * float(sizes.sum())
    weights: Tensor = vectors @ ((vectors.mT @ means) / sizes[:, None])
    return weights


@dataclass(frozen=True)
class LearnedPrivately:
    """All that a `PrivateALGNN` knows, and all that it ever keeps."""

    features: Bank
    shown: Statistics
    # Σ σ² over sessions, and Σ 1/σ² over the sessions of each class
    variance: float
    spent: Tensor

    @cached_property
    def weights(self) -> Tensor:
        """W [d, C], solved when first needed."""
        return private_weights(self.shown, self.variance)

    def plus(self, session: Statistics, sigma: float) -> LearnedPrivately:
        """With the noisy sums of one more session."""
        classes = union(self.shown.classes, session.classes)
        old, new = self.shown._on(classes), session._on(classes)
        shown = Statistics(old.G + new.G, old.Q + new.Q, old.n + new.n, classes)
        spent = torch.zeros(classes.size, dtype=torch.float64)
        spent[torch.from_numpy(np.searchsorted(classes, self.shown.classes))] = self.spent
        spent[torch.from_numpy(np.searchsorted(classes, session.classes))] += sigma**-2
        return LearnedPrivately(self.features, shown, self.variance + sigma**2, spent)


class PrivateALGNN(Learner):
    """Analytic learning whose memory may be shown: (ε, δ)-differentially private sums.

    As `ALGNN` with its label-free views and its balanced head, but for what would give a node away:
    each session's sums get noise before they are kept, and nothing else of a session is kept. Views
    are projected to few columns at random, since noise grows with their number; which views, and γ,
    are not chosen by labels. It has no `forget`, which needs to know what was learned.

    It promises something for **labelled nodes**: that they were learned, with which label, and by
    what features of their own row. It promises nothing for the features and edges that a labelled
    node's *neighbours* contribute to its row, nor for which classes a session holds.

    Parameters
    ----------
    epsilon, delta : float
        The budget of each session, for one labelled node. δ should be well below one over the
        number of labelled nodes.
    width : int
        How many columns views are projected to; 0 for not at all. More of them tell classes apart
        better, and take more noise.
    seed : int
        Of the projection. Noise has no seed: it comes from the operating system, and no two
        learners are the same.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.

    Attributes
    ----------
    classes_ : array [C]
        The classes seen so far, sorted.
    weights_ : Tensor [d, C], float64
        W, a column per class.
    statistics_ : Statistics
        G, Q and n with their noise.
    spent_ : array [C]
        The ε spent, at `delta`, on a node of each class that was in every session of its class.
    n_features_in_ : int
        The width of `x` in the base session.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = PrivateALGNN(epsilon=8.0, delta=1e-4)
    >>> for session in algnn.ClassStream(graph):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> predicted = model.predict(graph, graph.test_mask)
    >>> bool((predicted == graph.y[graph.test_mask].numpy()).mean() > 0.5)
    True
    >>> model.spent_.round(6).tolist()
    [8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    >>> last = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> model.spent_[-1].round(2).tolist()
    12.46
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = 1e-6,
        width: int = 64,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.width = width
        self.seed = seed
        self.device = device

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return self._known.shown.classes

    @property
    def statistics_(self) -> Statistics:
        """G, Q and n with their noise, over all sessions."""
        return self._known.shown

    @property
    def weights_(self) -> Tensor:
        """W [d, C], float64, a column per class."""
        return self._known.weights

    @property
    def spent_(self) -> npt.NDArray[np.float64]:
        """The ε spent, at `delta`, on a node of each class that was in every session of its class.

        The largest holds for every node that kept its label. Which nodes were learned is not kept,
        so one that came back cannot be told from one that did not, and the worst is counted. For a
        node that was learned under several labels, Σ 1/σ² goes over the sessions of all of them.
        """
        sigmas = self._known.spent.rsqrt().tolist()
        return np.array([attained_epsilon(self.delta, sigma) for sigma in sigmas])

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.features.inputs

    # where noise comes from; a measurement that must be repeatable may put another source here
    _entropy: Entropy = staticmethod(os.urandom)

    @property
    def _known(self) -> LearnedPrivately:
        self._check_fitted()
        known: LearnedPrivately = self._learned
        return known

    def _check_params(self) -> None:
        super()._check_params()
        check_number("width", self.width, 0, WIDEST_INPUTS, whole=True)
        # beyond these, noise would be more or less than a float can hold
        check_number("epsilon", self.epsilon, 1e-6, 1e6)
        check_number("delta", self.delta, 1e-100, 1)

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: LearnedPrivately | None
    ) -> LearnedPrivately:
        if learned is None:
            learned = self._untaught(graph.x.size(1))
        sigma = noise_scale(self.epsilon, self.delta)
        nothing = Statistics.empty(learned.features.width, resolve_device(self.device))
        exact = nothing.plus(self._features(graph, nodes, learned), labels)
        after = learned.plus(with_noise(exact, sigma, self._entropy), sigma)
        # solve now: it is part of learning
        check_trained(after.weights)
        return after

    def _untaught(self, inputs: int) -> LearnedPrivately:
        """What is known of features, before any session."""
        projected = self.width if 0 < self.width < inputs else 0
        features = Bank("pagerank", inputs, projected=projected, seed=self.seed)
        nothing = Statistics.empty(features.width, resolve_device(self.device))
        return LearnedPrivately(features, nothing, 0.0, torch.zeros(0, dtype=torch.float64))

    def _features(self, graph: Data, nodes: Tensor, learned: LearnedPrivately) -> list[Tensor]:
        """Z of some nodes, float64, in blocks of rows that are at most 1 long."""
        features = learned.features

        def prepare() -> Tensor:
            return features.prepare(self._adjacency(graph), self._inputs(graph))

        # features are frozen, so a graph needs encoding once for as long as it stays the same
        encoded = self._encoded
        if encoded is None or encoded[0] is not features:
            self._encoded = encoded = features, Memo()
        views = encoded[1].get((graph.x, graph.edge_index), prepare)
        chosen = nodes.to(views.device)
        return [
            _clipped(features(views[chosen[block]]))
            for block in blocks(chosen.numel(), 8 * features.width, chosen.device)
        ]

    _encoded: tuple[Bank, Memo[Tensor]] | None = None

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        W = self._known.weights
        scores = [Z @ W for Z in self._features(graph, nodes, self._known)]
        return torch.cat(scores) if scores else W.new_zeros(0, W.size(1))

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        known = self._known
        tensors = {f"shown.{name}": t for name, t in known.shown.tensors().items()}
        facts = {"bank": vars(known.features).copy(), "variance": known.variance}
        return {**tensors, "spent": known.spent}, facts

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> LearnedPrivately:
        self._check_params()
        classes, device = _restored_classes(facts["classes"]), resolve_device(self.device)
        make, d = _restored_features(tensors, facts, device)
        C = classes.size
        shapes = {"shown.G": (d * (d + 1) // 2,), "shown.Q": (d, C), "shown.n": (C,), "spent": (C,)}
        G, Q, n, spent = (
            check_tensor(name, tensors[name], shape, FLOAT) for name, shape in shapes.items()
        )
        variance = facts["variance"]
        if not all(bool(part.isfinite().all()) for part in (G, Q, n)):
            raise CheckpointError("shown holds values that are not finite")
        if not isinstance(variance, float) or not 0 < variance < math.inf:
            raise CheckpointError(f"variance {variance!r} is no positive number")
        if not bool(((spent > 0) & spent.isfinite()).all()):
            raise CheckpointError("spent holds values that are no positive numbers")
        shown = Statistics.from_tensors(G.to(device), Q.to(device), n, classes)
        features = make()
        if not isinstance(features, Bank):
            raise CheckpointError("features are none that a private learner has")
        known = LearnedPrivately(features, shown, variance, spent)
        if not bool(known.weights.isfinite().all()):
            raise CheckpointError("shown holds values that no weights follow from")
        return known


def _clipped(Z: Tensor) -> Tensor:
    """Rows longer than 1 made 1 long: the proof needs it, whatever the features are."""
    lengths: Tensor = torch.linalg.vector_norm(Z, dim=1, keepdim=True)
    return Z / lengths.clamp_min(1)
