"""Rivals that are closed-form too: frozen features, sums over them, and a head that is solved.

Each keeps what AL-GNN keeps, the sums G, Q and n of its own features, and nothing of any node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from algnn.analytic.classes import CodedLabels
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import Affine, ridge, slda
from algnn.analytic.lifecycle import io
from algnn.analytic.statistics import Statistics
from algnn.checks import Array, check_base, check_number, check_trained, onto
from algnn.gcn import glorot
from algnn.graph.memo import Last, Memo, inputs_of
from algnn.graph.propagate import blocks, spmm
from algnn.learner import Learner

FLOAT = torch.float64
Tensors = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Features(ABC):
    """Frozen features: `channels` blocks of columns, each [n, width] with sums of its own."""

    inputs: int
    width: int
    channels: ClassVar[int] = 1

    @abstractmethod
    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """What is computed once for the whole graph from X [N, inputs], a row per node."""

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, channels × width] of some rows of it, in float64."""
        return prepared.to(FLOAT)

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Frozen tensors and facts, beside what the learner's parameters say."""
        return {}, {"inputs": self.inputs}


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

    They differ in how a node becomes features (`_encoder`), in the penalty (`_penalty`) and in the
    head. Scores are the mean over channels of Z W + b.
    """

    width: int = 2048
    seed: int = 0
    device: str = "auto"
    _limits: ClassVar = {"width": 1}

    head: ClassVar[Any] = staticmethod(ridge)  # what is solved, of `algnn.analytic.heads`

    @abstractmethod
    def _encoder(self, graph: Data) -> Features:
        """The features that the base session decides on; no label is looked at."""

    @abstractmethod
    def _restored_encoder(self, tensors: Tensors, facts: dict[str, Any]) -> Features:
        """The features whose `state` this is."""

    @abstractmethod
    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        """γ of one channel's head, from a session's features [n, d], codes [n] and all sums."""

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Sums | None) -> Sums:
        if learned is None:
            check_base(labels)
            features = self._encoder(graph)
            nothing = Statistics.empty(features.width, self._device)
            count = features.channels
            learned = Sums(features, (nothing,) * count, (0.0,) * count, ())
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

    def _state(self) -> tuple[Tensors, dict[str, Any]]:
        known = self._known
        tensors, facts = known.features.state()
        for channel, sums in enumerate(known.statistics):
            tensors |= {f"sums{channel}.{name}": t for name, t in sums.tensors().items()}
        return tensors, {"penalties": list(known.penalties), **facts}

    def _restore(self, tensors: Tensors, facts: dict[str, Any]) -> Sums:
        self._check_params()
        io.check_values(tensors)
        classes, device = io.restored_classes(facts["classes"]), self._device
        features = self._restored_encoder(tensors, facts)
        penalties = tuple(float(gamma) for gamma in facts["penalties"])
        sums = tuple(
            io.restored_sums(tensors, f"sums{channel}", features.width, classes, device)
            for channel in range(features.channels)
        )
        solved = tuple(self.head(*pair) for pair in zip(sums, penalties, strict=True))
        return Sums(features, sums, penalties, solved)


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

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Those of the views."""
        return io.encoder_state(self.views)


@lru_cache(maxsize=4)
def _normal(device: torch.device, rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(rows, columns, generator=generator, dtype=FLOAT)
    shift = torch.rand(columns, generator=generator, dtype=FLOAT) * (2 * torch.pi)
    return weights.to(device), shift.to(device)


class OverViews(SumLearner):
    """A rival whose frozen features are random units of label-free views."""

    bandwidth: float

    def _encoder(self, graph: Data) -> RandomUnits:
        x = self._inputs(graph, sparse=True)
        return self._units(HopEncoder.of(x, 0, self.seed, sizes=False))

    def _restored_encoder(self, tensors: Tensors, facts: dict[str, Any]) -> RandomUnits:
        return self._units(io.restored_features(tensors, facts, self._device))

    def _units(self, views: Any) -> RandomUnits:
        return RandomUnits(views.inputs, self.width, views, self.seed, self.bandwidth)


@dataclass(kw_only=True, eq=False, repr=False)
class RanPAC(OverViews):
    """RanPAC: a ridge regression over random ReLU units of frozen features.

        Z = ReLU(H ω), ω ~ N(0, 1) [h, d],   G += ZᵀZ,   Q += ZᵀY,   W = (G + λI)⁻¹ Q

    Each session chooses λ from 10⁻⁸, 10⁻⁷, …, 10⁸ on its own nodes: weights from 80% of them,
    drawn at random, are held against the other 20% by squared error. (Of 5,000 nodes at most; a
    session of fewer than five keeps the last λ.) H are the label-free views of `HopEncoder`;
    docs/baselines.md says what differs from the original.

    McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning",
    NeurIPS 2023.

    `width` is d, 10,000 in the paper.
    """

    width: int = 10_000
    LAMBDAS: ClassVar[tuple[float, ...]] = tuple(10.0**k for k in range(-8, 9))
    bandwidth: ClassVar[float] = 0.0  # type: ignore[misc]

    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        if Z.size(0) < 5:
            return last or 1.0
        generator = torch.Generator().manual_seed(self.seed)
        some = torch.randperm(Z.size(0), generator=generator)[:5_000].to(Z.device)
        return chosen_penalty(Z[some], one_hot(codes).to(FLOAT)[some], self.LAMBDAS)


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
    _limits: ClassVar = {"shrinkage": (0, 1)}

    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        # ((1 − ε) Σ + εI)⁻¹ is (Σ + ε / (1 − ε) I)⁻¹ but for a factor, and slda takes γ / N
        return self.shrinkage / (1 - self.shrinkage) * float(sums.n.sum())


@dataclass(kw_only=True, eq=False, repr=False)
class KLDA(Shrunk, OverViews):
    """KLDA: linear discriminant analysis over random Fourier features of a Gaussian kernel.

        Z = √(2/d) cos(H ω + b), ω ~ N(0, 2β), b ~ U[0, 2π), so that zᵀz′ ≈ exp(−β ‖h − h′‖²)
        Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N,   Σ_ε = (1 − ε) Σ + ε I
        score of class c: zᵀ Σ_ε⁻¹ μ_c − ½ μ_cᵀ Σ_ε⁻¹ μ_c

    H are the label-free views of `HopEncoder`. Σ is shrunk as in streaming LDA, where the authors'
    code takes a pseudo-inverse: docs/baselines.md says why, and what else differs.

    Momeni et al., "Continual Learning Using a Kernel-Based Method Over Foundation Models", 2025.

    `width` is d, 5,000 in the paper; `bandwidth` is β (the views H have length 2), `shrinkage` ε.
    """

    width: int = 5_000
    bandwidth: float = 0.1
    shrinkage: float = 1e-2
    _limits: ClassVar = {"bandwidth": 1e-12}


class OverFilters(SumLearner):
    """A rival whose features are graph filters that nobody trained."""

    @abstractmethod
    def _filters(self, inputs: int) -> Features:
        """The filters of X [N, inputs]."""

    def _encoder(self, graph: Data) -> Features:
        return self._filters(graph.x.size(1))

    def _restored_encoder(self, tensors: Tensors, facts: dict[str, Any]) -> Features:
        check_number("inputs", facts["inputs"], 1, io.WIDEST_INPUTS, whole=True)
        return self._filters(facts["inputs"])


@dataclass(frozen=True, eq=False)
class UntrainedGCN(Features):
    """H_i = tanh(Â H_{i−1} Θ_i) from H_0 = X, with random Θ_i; Z = [H_1 … H_L]."""

    layers: int
    seed: int

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """Z [N, width] of every node, in float32."""
        generator = torch.Generator().manual_seed(self.seed)
        hidden, found = x.to_dense(), []
        for units in np.diff(np.arange(self.layers + 1) * self.width // self.layers).tolist():
            weights = glorot(hidden.size(1), units, generator).to(hidden.device)
            hidden = spmm(adjacency, hidden @ weights).tanh_()
            found.append(hidden)
        return torch.cat(found, dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class UGCN(Shrunk, OverFilters):
    """An untrained, wide GCN with streaming linear discriminant analysis.

        H_i = tanh(Â H_{i−1} Θ_i), H_0 = X, Θ_i Glorot-uniform and never trained;  Z = [H_1 … H_L]
        Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N,   Σ_ε = (1 − ε) Σ + ε I
        score of class c: zᵀ Σ_ε⁻¹ μ_c − ½ μ_cᵀ Σ_ε⁻¹ μ_c

    Donghi et al., "The Unreasonable Effectiveness of
    Randomized Representations in Online Continual Graph Learning", arXiv 2510.06819, 2025.
    Hayes and Kanan, "Lifelong Machine Learning with Deep Streaming LDA", CVPR Workshops 2020.

    `width` is that of Z, units of all layers together (the paper's we do not know; 4,096 is ours),
    `layers` L, and `shrinkage` ε, 10⁻⁴ in Hayes and Kanan.
    """

    width: int = 4_096
    layers: int = 2
    shrinkage: float = 1e-4

    def _check_params(self) -> None:
        super()._check_params()
        check_number("layers", self.layers, 1, self.width + 1, whole=True)

    def _filters(self, inputs: int) -> UntrainedGCN:
        return UntrainedGCN(inputs, self.width, self.layers, self.seed)


@dataclass(frozen=True, eq=False)
class FilterBank(Features):
    """Five fixed graph filters of X, a channel each: X, ÂX, Â²X, (I − Â)X and (I − Â)²X."""

    channels: ClassVar[int] = 5

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """The five of them side by side, [N, 5 × inputs], in float32."""
        X = x.to_dense()
        once = spmm(adjacency, X)
        twice = spmm(adjacency, once)
        return torch.cat([X, once, twice, X - once, X - 2 * once + twice], dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearBank(OverFilters):
    """GraphAny's bank of linear GNNs, each solved by least squares; their mean decides.

        F_1 … F_5 = X, ÂX, Â²X, (I − Â)X, (I − Â)²X
        W_i = (F_iᵀF_i + γ s_i I)⁻¹ F_iᵀY,  s_i the mean of F_iᵀF_i's diagonal
        scores = 1/5 Σ_i F_i W_i

    The paper's attention over the five is learned on another graph's labels; here all weigh the
    same, a variant that it compares with.

    Zhao et al., "Fully-inductive Node Classification on Arbitrary Graphs" (GraphAny), ICLR 2025.

    `gamma` is γ; the paper's minimum-norm solution is that of a γ next to 0.
    """

    gamma: float = 0.1
    width: ClassVar[int] = 1  # type: ignore[misc]
    _limits: ClassVar = {"gamma": 0}

    def _filters(self, inputs: int) -> FilterBank:
        return FilterBank(inputs, inputs)

    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        # features that are all zero have weights all the same: zeros
        return self.gamma * (float(sums.G.diagonal().mean()) or 1.0)
