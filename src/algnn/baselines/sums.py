"""Rivals that are closed-form too: frozen features, sums over them, and a head that is solved.

Each keeps what AL-GNN keeps, the sums G, Q and n of its own features, and nothing of any node.
They differ in how a node becomes features (`_encoder`), in how the penalty is found (`_penalty`)
and in the head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from algnn.analytic.classes import CodedLabels
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import Affine, ridge, slda
from algnn.analytic.lifecycle import io
from algnn.analytic.statistics import Statistics
from algnn.checks import Array, check_base, check_number, check_trained, onto, resolve_device
from algnn.graph.memo import Last, Memo, inputs_of
from algnn.graph.propagate import blocks
from algnn.learner import Learner

FLOAT = torch.float64
Tensors = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Features(ABC):
    """How nodes become features, decided in the base session and then frozen.

    `channels` blocks of columns, each [n, width] with sums of its own, stand side by side.
    """

    inputs: int
    width: int
    channels: ClassVar[int] = 1

    @abstractmethod
    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """What is computed once for the whole graph from X [N, inputs], a row per node."""

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, channels × width] of some rows of it, in float64."""
        return prepared.to(FLOAT)


@dataclass(frozen=True, eq=False)
class Sums:
    """All that a rival knows: its features, and for each channel sums, penalty and weights."""

    features: Features
    statistics: tuple[Statistics, ...]
    penalties: tuple[float, ...]
    solved: tuple[Affine, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class SumLearner(Learner):
    """Base class of the closed-form rivals; a subclass is a dataclass too.

    Scores are the mean over channels of Z W + b.

    Parameters
    ----------
    width : int
        Width of Z.
    seed : int
        Of the features, and of all else that is random.
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.
    """

    width: int = 2048
    seed: int = 0
    device: str = "auto"
    _lowest: ClassVar = {"width": 1}

    # -- what a method changes ----------------------------------------------------------------

    # the head that is solved, of `algnn.analytic.heads`
    head: ClassVar[Any] = staticmethod(ridge)

    @abstractmethod
    def _encoder(self, graph: Data) -> Features:
        """The features that the base session decides on; no label is looked at."""

    @abstractmethod
    def _encoder_state(self, features: Any) -> tuple[Tensors, dict[str, Any]]:
        """Frozen tensors and facts of the features, beside what the parameters say."""

    @abstractmethod
    def _restored_encoder(self, tensors: Tensors, facts: dict[str, Any]) -> Features:
        """The reverse of it."""

    @abstractmethod
    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        """γ of one channel's head, from a session's features [n, d], codes [n] and all sums."""

    # -- what they share ----------------------------------------------------------------------

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Sums | None) -> Sums:
        if learned is None:
            check_base(labels)
            features = self._encoder(graph)
            nothing = Statistics.empty(features.width, resolve_device(self.device))
            none = (nothing,) * features.channels
            learned = Sums(features, none, (0.0,) * len(none), ())
        Z = torch.cat(list(self._features(graph, nodes, learned.features)))
        coded = onto(torch.from_numpy(CodedLabels.of(labels).codes), Z.device)
        found = []
        parts = torch.split(Z, learned.features.width, dim=1)
        for part, before, last in zip(parts, learned.statistics, learned.penalties, strict=True):
            after = before.plus([part.contiguous()], labels)
            found.append((after, self._penalty(part, coded, after, last)))
        sums, penalties = zip(*found, strict=True)
        solved = tuple(self.head(one, gamma) for one, gamma in found)
        check_trained(*(tensor for affine in solved for tensor in affine))
        return replace(learned, statistics=sums, penalties=penalties, solved=solved)

    def _features(self, graph: Data, nodes: Tensor, features: Features) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""

        def build() -> Tensor:
            return features.prepare(self._adjacency(graph), self._inputs(graph, sparse=True))

        prepared = self._last_prepared.get(features, Memo).get(inputs_of(graph), build)
        rows = onto(nodes, prepared.device)
        yield features(prepared[rows[:0]])  # so that there is always a block
        for block in blocks(nodes.numel(), 8 * features.width * features.channels, rows.device):
            yield features(prepared[rows[block]])

    @cached_property
    def _last_prepared(self) -> Last[Memo[Tensor]]:
        return Last()

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._known
        weights = torch.cat([W for W, _ in known.solved]) / len(known.solved)
        bias = torch.stack([b for _, b in known.solved]).mean(0)
        blocks_of = self._features(graph, nodes, known.features)
        return torch.cat([torch.addmm(bias, Z, weights) for Z in blocks_of])

    @property
    def classes_(self) -> Array:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return self._known.statistics[0].classes

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        return self._known.features.inputs

    @property
    def _known(self) -> Sums:
        self._check_fitted()
        known: Sums = self._learned
        return known

    def retained_bytes(self) -> int:
        """Bytes of the sums."""
        known: Sums | None = self._view()._learned
        return 0 if known is None else sum(one.nbytes() for one in known.statistics)

    # -- files --------------------------------------------------------------------------------

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        known = self._known
        tensors, facts = self._encoder_state(known.features)
        for channel, sums in enumerate(known.statistics):
            tensors |= {f"sums{channel}.{name}": t for name, t in sums.tensors().items()}
        return tensors, {"penalties": list(known.penalties), **facts}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Sums:
        self._check_params()
        io.check_values(tensors)
        classes, device = io.restored_classes(facts["classes"]), resolve_device(self.device)
        features = self._restored_encoder(tensors, facts)
        penalties = tuple(float(gamma) for gamma in facts["penalties"])
        sums = tuple(
            io.restored_sums(tensors, f"sums{channel}", features.width, classes, device)
            for channel in range(features.channels)
        )
        pairs = zip(sums, penalties, strict=True)
        solved = tuple(self.head(one, gamma) for one, gamma in pairs)
        return Sums(features, sums, penalties, solved)


# -- RanPAC and KLDA: random units of label-free views --------------------------------------------


@dataclass(frozen=True, eq=False)
class RandomUnits(Features):
    """Random units of label-free views H [n, h] (those of `HopEncoder`), with ω drawn N(0, 1).

    `bandwidth` 0: Z = ReLU(H ω). Otherwise random Fourier features of the kernel
    exp(−bandwidth ‖h − h′‖²): Z = √(2/d) cos(√(2 bandwidth) H ω + b), b uniform in [0, 2π).
    """

    views: HopEncoder
    seed: int
    bandwidth: float = 0.0

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """The views [N, h] of every node."""
        return self.views.prepare(adjacency, x)

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of the views."""
        weights, shift = _normal(prepared.device, self.views.breadth, self.width, self.seed)
        projected = prepared.to(FLOAT) @ weights
        if not self.bandwidth:
            return projected.relu_()
        projected = projected.mul_((2 * self.bandwidth) ** 0.5).add_(shift)
        return projected.cos_().mul_((2 / self.width) ** 0.5)


@lru_cache(maxsize=4)
def _normal(device: torch.device, rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(rows, columns, generator=generator, dtype=FLOAT)
    shift = torch.rand(columns, generator=generator, dtype=FLOAT) * (2 * torch.pi)
    return weights.to(device), shift.to(device)


class OverViews(SumLearner):
    """A rival whose frozen features are random units of label-free views."""

    bandwidth: float

    def _units(self, views: Any) -> RandomUnits:
        return RandomUnits(views.inputs, self.width, views, self.seed, self.bandwidth)

    def _encoder(self, graph: Data) -> RandomUnits:
        return self._units(HopEncoder.of(self._inputs(graph, sparse=True), 0, self.seed))

    def _encoder_state(self, features: Any) -> tuple[Tensors, dict[str, Any]]:
        return io.encoder_state(features.views)

    def _restored_encoder(self, tensors: Tensors, facts: dict[str, Any]) -> RandomUnits:
        return self._units(io.restored_features(tensors, facts, resolve_device(self.device))[0]())


@dataclass(kw_only=True, eq=False, repr=False)
class RanPAC(OverViews):
    """RanPAC: a ridge regression over random ReLU units of frozen features.

        Z = ReLU(H ω), ω ~ N(0, 1) [h, d],   G += ZᵀZ,   Q += ZᵀY,   W = (G + λI)⁻¹ Q

    Each session chooses λ from 10⁻⁸, 10⁻⁷, …, 10⁸ on its own nodes: weights from 80% of them,
    drawn at random, are held against the other 20% by squared error.

    Parameters
    ----------
    width : int
        d, the number of random units; 10,000 in the paper.
    seed, device : as in `SumLearner`

    Notes
    -----
    The paper's H are features of a pre-trained vision transformer, adapted on the first session.
    There is no such model for any graph, so H are the label-free views of `HopEncoder`, as frozen,
    and nothing is adapted. λ is chosen on 5,000 nodes of a session at most; a session of fewer than
    five nodes keeps the last λ.

    References
    ----------
    M. D. McDonnell, D. Gong, A. Parvaneh, E. Abbasnejad and A. van den Hengel, "RanPAC: Random
    Projections and Pre-trained Models for Continual Learning", NeurIPS 2023.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = RanPAC(width=256).fit(graph, graph.train_mask, graph.y[graph.train_mask])
    >>> model.score(graph, graph.test_mask, graph.y[graph.test_mask]) > 0.9
    True
    """

    width: int = 10_000

    LAMBDAS: ClassVar[tuple[float, ...]] = tuple(10.0**k for k in range(-8, 9))
    MOST: ClassVar[int] = 5_000
    FEWEST: ClassVar[int] = 5
    bandwidth: ClassVar[float] = 0.0  # type: ignore[misc]

    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        if Z.size(0) < self.FEWEST:
            return last or 1.0
        generator = torch.Generator().manual_seed(self.seed)
        some = torch.randperm(Z.size(0), generator=generator)[: self.MOST].to(Z.device)
        Y = one_hot(codes).to(FLOAT)
        return chosen_penalty(Z[some], Y[some], self.LAMBDAS)


def chosen_penalty(Z: Tensor, Y: Tensor, penalties: tuple[float, ...]) -> float:
    """The λ whose ridge regression from the first 80% of rows has the least error on the others."""
    cut = int(0.8 * Z.size(0))
    fit, held, truth = Z[:cut], Z[cut:], Y[cut:]
    # the smaller of two systems: (ZᵀZ + λI)⁻¹ Zᵀ = Zᵀ (ZZᵀ + λI)⁻¹
    dual = cut < Z.size(1)
    gram = fit @ fit.mT if dual else fit.mT @ fit
    targets = Y[:cut] if dual else fit.mT @ Y[:cut]
    reached = held @ fit.mT if dual else held
    errors = []
    for penalty in penalties:
        system = gram.clone()
        system.diagonal().add_(penalty)
        factor, failed = torch.linalg.cholesky_ex(system)
        error = (reached @ torch.cholesky_solve(targets, factor) - truth).square().mean()
        errors.append(torch.where(failed == 0, error, torch.inf).nan_to_num(torch.inf))
    return penalties[int(torch.stack(errors).argmin())]


class Shrunk(SumLearner):
    """A rival whose head is linear discriminant analysis with a shrunk covariance."""

    head: ClassVar[Any] = staticmethod(slda)
    shrinkage: float

    def _check_params(self) -> None:
        super()._check_params()
        check_number("shrinkage", self.shrinkage, 0, 1)

    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        # ((1 − ε) Σ + εI)⁻¹ is (Σ + ε / (1 − ε) I)⁻¹ but for a factor, and slda takes γ / N
        return self.shrinkage / (1 - self.shrinkage) * float(sums.n.sum())


@dataclass(kw_only=True, eq=False, repr=False)
class KLDA(Shrunk, OverViews):
    """KLDA: linear discriminant analysis over random Fourier features of a Gaussian kernel.

        Z = √(2/d) cos(H ω + b), ω ~ N(0, 2β), b ~ U[0, 2π), so that zᵀz′ ≈ exp(−β ‖h − h′‖²)
        Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N,   Σ_ε = (1 − ε) Σ + ε I
        score of class c: zᵀ Σ_ε⁻¹ μ_c − ½ μ_cᵀ Σ_ε⁻¹ μ_c

    Parameters
    ----------
    width : int
        d, the number of Fourier features; 5,000 in the paper.
    bandwidth : float
        β, of the kernel; the views H have length 2.
    shrinkage : float
        ε.
    seed, device : as in `SumLearner`

    Notes
    -----
    The paper's H are features of a frozen language model; here the label-free views of
    `HopEncoder`. Its authors' code inverts Σ by a pseudo-inverse, which leaves out every direction
    in which no class varies; where nodes are fewer than features, that is where classes differ, so
    Σ is shrunk as in streaming LDA. Its ensemble of several such models (KLDA-E) is left out.

    References
    ----------
    S. Momeni, S. Mazumder and B. Liu, "Continual Learning Using a Kernel-Based Method Over
    Foundation Models", AAAI 2025.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = KLDA(width=256).fit(graph, graph.train_mask, graph.y[graph.train_mask])
    >>> model.score(graph, graph.test_mask, graph.y[graph.test_mask]) > 0.9
    True
    """

    width: int = 5_000
    bandwidth: float = 0.1
    shrinkage: float = 1e-2
    _lowest: ClassVar = {"bandwidth": 1e-12}
