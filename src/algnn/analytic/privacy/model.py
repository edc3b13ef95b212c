"""Analytic learning with differentially private sums.

One node with features z, ‖z‖ ≤ 1, and class c adds z zᵀ to G, z to column c of Q and 1 to n_c.
Weighed by the roots of their shares a, b and e of the budget (`SHARES`, a + b + e = 1), all numbers
of the three are one vector, which a node moves by √(a ‖z‖⁴ + b ‖z‖² + e) ≤ 1. Two sets of labelled
nodes are neighbours if one has a node more, in the same graph. So noise of scale σ on every
coordinate, once per session on its own sums, is the Gaussian mechanism with sensitivity 1. Undoing
the weights afterwards, and any other processing of the result, costs nothing.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.encoding import Encoding
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import balanced_system
from algnn.analytic.lifecycle import io
from algnn.analytic.lifecycle.glance import private_exposure
from algnn.analytic.lifecycle.io import WIDEST_INPUTS
from algnn.analytic.privacy.accountant import attained_epsilon, noise_scale
from algnn.analytic.state import Features, per_class
from algnn.analytic.statistics import Statistics
from algnn.checkpoint import check_tensor
from algnn.checks import check_number, check_trained
from algnn.errors import CheckpointError
from algnn.graph.store import FLOAT
from algnn.learner import shortened

# The budget's shares of G, Q and n. Found on validation nodes of digits, Citeseer, PubMed and
# Computers at ε from 1 to 16: class sums want most of it, and G still helps with a fifth.
SHARES = {"G": 0.2, "Q": 0.7, "n": 0.1}
# Released values are rounded to this fraction of the noise, so that their lowest bits tell nothing.
GRID = 2.0**-20
# The ridge penalty as a share of the largest eigenvalue that noise alone gives G, found in the same
# trials as `SHARES`; and, where there is next to no noise, as a share of the trace.
OF_NOISE, OF_TRACE = 0.5, 1e-3


@dataclass(frozen=True)
class PrivateState:
    """The whole state of a `PrivateALGNN`: noisy sums, and the budget spent on each class."""

    features: HopEncoder
    shown: Statistics
    # Σ σ² over sessions, and Σ 1/σ² over the sessions of each class
    variance: float
    spent: Tensor

    @cached_property
    def weights(self) -> Tensor:
        """W [d, C] of the balanced head, solved when first needed; it spends no budget."""
        shown = self.shown
        # a class counts by its column of Q, of which noise disturbs a smaller part than of n
        lengths = torch.linalg.vector_norm(shown.Q, dim=0).clamp_min(torch.finfo(FLOAT).tiny)
        # rows are at most 1 long, so there are at least as many as their sum is long
        nodes = max(float(shown.n.sum()), float(lengths.sum()))
        n = lengths * (nodes / lengths.sum())
        matrix, means = balanced_system(replace(shown, n=n))
        sizes, vectors = torch.linalg.eigh(matrix)
        # noise of σ has a largest eigenvalue of about √(2d) σ, and G counts in B by C / N
        largest = math.sqrt(2 * shown.G.size(0) * self.variance / SHARES["G"]) * n.numel() / nodes
        sizes = sizes.clamp_min(0)  # below 0 they are noise
        sizes = sizes + OF_NOISE * largest + OF_TRACE * float(sizes.sum())
        return cast(Tensor, vectors @ ((vectors.mT @ means) / sizes[:, None]))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateALGNN(Encoding[PrivateState]):
    """Analytic learning with (ε, δ)-differentially private sums.

    `ALGNN` with one view, personalised PageRank, and its balanced head, except that each session's
    sums get noise before they are kept, and nothing else of a session is kept. The view is
    projected to few columns at random, since noise grows with their number; γ follows from the
    size of the noise. It has no `forget`, which would need to know what was learned. Columns of X
    are neither scaled nor centred: bring them to about 1, by constants that are public.

    The guarantee is for **labelled nodes**: it hides that they were learned, their labels and the
    features of their own rows. It does not cover the features and edges that a labelled node's
    *neighbours* contribute to its row, nor which classes a session holds.

    Parameters
    ----------
    epsilon : float
        ε, the budget of each session for one labelled node.
    delta : float
        Its δ, which should be well below one over the number of labelled nodes.
    width : int
        The number of columns that views are projected to; 0 for no projection. More columns tell
        classes apart better, and take more noise.
    seed : int
        The seed of the projection. Noise has none: it comes from the operating system.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.

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

    epsilon: float
    delta: float = 1e-6
    width: int = 64
    seed: int = 0
    device: str = "auto"

    _fixed = ("width", "seed")
    # beyond these, noise would be more or less than a float can hold
    _limits: ClassVar = {"epsilon": (1e-6, 1e6), "delta": (1e-100, 1), "width": (0, WIDEST_INPUTS)}
    # noise from a known seed can be subtracted again; a measurement to be repeated may set another
    _entropy = staticmethod(os.urandom)

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

        The largest entry bounds the ε of every node that kept its label. For a node that was
        learned under several labels, Σ 1/σ² goes over the sessions of all of them.
        """
        self._check_params()
        sigmas = self._known.spent.rsqrt().tolist()
        return np.array([attained_epsilon(self.delta, sigma) for sigma in sigmas])

    def exposure(self) -> str:
        """What a file of this learner gives away, in a line; docs/privacy.md has the details."""
        return private_exposure(float(self.spent_.max()), self.delta)

    def _learn(
        self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: PrivateState | None
    ) -> PrivateState:
        if learned is None:
            inputs = self._rows(graph).shape[1]
            # a file beyond this would not be read again, and ε is spent by then
            check_number("the width of graph.x", inputs, 1, WIDEST_INPUTS, whole=True)
            projected = self.width if 0 < self.width < inputs else 0
            features = HopEncoder("pagerank", inputs, projected=projected, seed=self.seed)
            nothing = Statistics.empty(features.width, self._device)
            learned = PrivateState(features, nothing, 0.0, torch.zeros(0, dtype=FLOAT))
        sigma, features = noise_scale(self.epsilon, self.delta), learned.features
        nothing = Statistics.empty(features.width, self._device)
        exact = nothing.plus(self._features(graph, nodes, features), labels)
        session = with_noise(exact, sigma, self._entropy)
        shown = learned.shown.merged(session)
        spent = torch.zeros(shown.classes.size, dtype=FLOAT)
        spent[torch.from_numpy(np.isin(shown.classes, learned.shown.classes))] = learned.spent
        spent[torch.from_numpy(np.isin(shown.classes, session.classes))] += sigma**-2
        after = PrivateState(features, shown, learned.variance + sigma**2, spent)
        check_trained(after.weights)  # solved now: it is part of learning
        return after

    def _features(self, graph: Data, nodes: Tensor, features: Features) -> Iterator[Tensor]:
        """Z of some nodes in blocks, its rows at most 1 long, as the guarantee needs."""
        for Z in super()._features(graph, nodes, features):
            yield Z / torch.linalg.vector_norm(Z, dim=1, keepdim=True).clamp_min(1)

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._known
        scores = [Z @ known.weights for Z in self._features(graph, nodes, known.features)]
        return torch.cat([known.weights[:0], *scores])

    def _described(self) -> dict[str, str]:
        features, nodes = self._known.features, per_class(self._known.shown)
        return {
            "encoder": f"hops ({features.name}), {features.inputs} inputs → {features.width}",
            "nodes per class, noisy": shortened(f"{c}: {n:.0f}" for c, n in nodes.items()),
            "ε spent, at most": f"{self.spent_.max():.3g} at δ = {self.delta:g}",
            **super()._described(),
        }

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        known = self._known
        tensors = {f"shown.{name}": t for name, t in known.shown.tensors().items()}
        _, facts = io.encoder_state(known.features)
        return {**tensors, "spent": known.spent}, {**facts, "variance": known.variance}

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> PrivateState:
        classes, device = io.restored_classes(facts["classes"]), self._device
        io.check_values(tensors)
        features = io.restored_features(tensors, facts, device)
        if type(features) is not HopEncoder:
            raise CheckpointError("features are none that a private learner has")
        shown = io.restored_sums(tensors, "shown", features.width, classes, device)
        spent = check_tensor("spent", tensors["spent"], (classes.size,), FLOAT)
        if not shown.n.is_floating_point() or not bool((spent > 0).all()):
            raise CheckpointError("shown.n or spent holds values that no private learner has")
        check_number("variance", facts["variance"], torch.finfo(FLOAT).tiny)
        known = PrivateState(features, shown, facts["variance"], spent)
        if not bool(known.weights.isfinite().all()):
            raise CheckpointError("shown holds values that no weights follow from")
        return known


def with_noise(statistics: Statistics, sigma: float, entropy: Callable[[int], bytes]) -> Statistics:
    """The sums of one session, over rows at most 1 long and each node once, with noise on them."""
    shown = {}
    for name, share in SHARES.items():
        exact = getattr(statistics, name)
        standard = _standard_normal(exact.shape, entropy)
        if name == "G":
            # Half of the sum with its transpose: 1 on the diagonal and 1/√2 beside it, where each
            # number stands twice. That is noise of 1 on every direction of symmetric matrices.
            standard = (standard + standard.mT) / 2
        scale = sigma / math.sqrt(share)
        grid = 2.0 ** math.floor(math.log2(scale * GRID))
        noisy = exact.double() + scale * standard.to(exact.device)
        shown[name] = (noisy / grid).round() * grid
    return replace(statistics, **shown)


def _standard_normal(shape: torch.Size, entropy: Callable[[int], bytes]) -> Tensor:
    """Normal numbers from random bits, by the inverse of their distribution function."""
    bits = np.frombuffer(entropy(8 * shape.numel()), dtype=np.uint64) >> np.uint64(11)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-53
    # uniform is rounded to 1 with a probability of 2⁻⁵⁴
    normal = ndtri(np.minimum(uniform, 1 - 2.0**-53))
    return torch.from_numpy(normal.reshape(tuple(shape)))
