"""Rivals that are closed-form too: frozen features, sums over them, and a head that is solved.

Each keeps what AL-GNN keeps, the sums G, Q and n of its own features, and nothing of any node.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import methodcaller
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.encoding import Encoding
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import Affine, balanced_system, ridge, slda
from algnn.analytic.lifecycle import io
from algnn.analytic.linalg import solve
from algnn.analytic.statistics import Statistics
from algnn.checks import Array, check_base, check_number, check_trained
from algnn.gcn import glorot
from algnn.graph.propagate import spmm
from algnn.graph.store import FLOAT


@dataclass(frozen=True, eq=False)
class Features:
    """Frozen features: `channels` blocks of columns, equally wide, each with sums of its own."""

    inputs: int
    width: int  # of all channels together
    prepare: Callable[[Tensor, Tensor], Tensor]  # a row for each node, once, from Â and X
    # Z [n, width], in float64, from some of these rows
    expand: Callable[[Tensor], Tensor] = methodcaller("to", FLOAT)
    channels: int = 1
    views: HopEncoder | None = None  # what they are over, if not X

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z of some rows of what `prepare` gave."""
        return self.expand(prepared)


@dataclass(frozen=True, eq=False)
class Sums:
    """All that a rival knows: its features, and for each channel sums, penalty and weights."""

    features: Features
    statistics: tuple[Statistics, ...]
    penalties: tuple[float, ...]
    solved: tuple[Affine, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class SumLearner(Encoding[Sums]):
    """Base class of the closed-form rivals, whose scores are the mean over channels of Z W + b."""

    width: int = 2048
    seed: int = 0
    device: str = "auto"
    _limits: ClassVar = {"width": 1}
    _fixed: ClassVar[tuple[str, ...]] = ("width", "seed")
    _takes_stores = False

    over_views: ClassVar[bool] = False  # whether features are made from label-free views, or from X

    @abstractmethod
    def _frozen(self, inputs: int, views: Any) -> Features:
        """The features over X [N, inputs], or over the views that the base session decides on."""

    @abstractmethod
    def _penalty(self, Z: Tensor, labels: Array, sums: Statistics, last: float) -> float:
        """γ of one channel's head, from a session's features [n, d], labels [n] and all sums."""

    def _head(self, sums: Statistics, gamma: float) -> Affine:
        """What is solved for one channel."""
        return ridge(sums, gamma)

    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Sums | None) -> Sums:
        if learned is None:
            check_base(labels)
            x = self._inputs(graph, sparse=True)
            views = HopEncoder.of(x, 0, self.seed, sizes=False) if self.over_views else None
            features = self._frozen(x.size(1), views)
            count = features.channels
            nothing = Statistics.empty(features.width // count, self._device)
            learned = Sums(features, (nothing,) * count, (0.0,) * count, ())
        Z = torch.cat(list(self._features(graph, nodes, learned.features)))
        found = []
        parts = Z.chunk(learned.features.channels, dim=1)
        for part, before, last in zip(parts, learned.statistics, learned.penalties, strict=True):
            sums = before.plus([part.contiguous()], labels)
            gamma = self._penalty(part, labels, sums, last)
            found.append((sums, gamma, self._head(sums, gamma)))
        known = Sums(learned.features, *zip(*found, strict=True))
        check_trained(*(tensor for affine in known.solved for tensor in affine))
        return known

    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        known = self._known
        weights = torch.cat([W for W, _ in known.solved]) / len(known.solved)
        bias = torch.stack([b for _, b in known.solved]).mean(0)
        features = self._features(graph, nodes, known.features)
        return torch.cat([weights[:0], *(torch.addmm(bias, Z, weights) for Z in features)])

    @property
    def classes_(self) -> Array:
        """The classes seen so far, sorted; ints or strings, as they were given."""
        return self._known.statistics[0].classes

    def _state(self) -> tuple[io.Tensors, dict[str, Any]]:
        known = self._known
        views, facts = known.features.views, {"inputs": known.features.inputs}
        tensors, facts = ({}, facts) if views is None else io.encoder_state(views)
        for channel, sums in enumerate(known.statistics):
            tensors |= {f"sums{channel}.{name}": t for name, t in sums.tensors().items()}
        return tensors, {"penalties": list(known.penalties), **facts}

    def _restore(self, tensors: io.Tensors, facts: dict[str, Any]) -> Sums:
        io.check_values(tensors)
        classes, device = io.restored_classes(facts["classes"]), self._device
        if self.over_views:
            views: Any = io.restored_features(tensors, facts, device)
            features = self._frozen(views.inputs, views)
        else:
            check_number("inputs", facts["inputs"], 1, io.WIDEST_INPUTS, whole=True)
            features = self._frozen(facts["inputs"], None)
        width = features.width // features.channels
        names = [f"sums{channel}" for channel in range(features.channels)]
        penalties = tuple(map(float, facts["penalties"]))
        sums = tuple(io.restored_sums(tensors, name, width, classes, device) for name in names)
        solved = tuple(self._head(*pair) for pair in zip(sums, penalties, strict=True))
        return Sums(features, sums, penalties, solved)


def random_units(H: Tensor, width: int, seed: int, bandwidth: float = 0.0) -> Tensor:
    """Z [n, width], random units of label-free views H [n, h]: ReLU(H ω), with ω drawn N(0, 1)."""
    # where there is a bandwidth, random Fourier features of the kernel exp(−bandwidth ‖h − h′‖²):
    # Z = √(2/d) cos(√(2 bandwidth) H ω + b), b uniform in [0, 2π)
    weights, shift = _normal(H.device, H.size(1), width, seed)
    projected = H.to(FLOAT) @ weights
    if not bandwidth:
        return projected.relu_()
    return projected.mul_((2 * bandwidth) ** 0.5).add_(shift).cos_().mul_((2 / width) ** 0.5)


@lru_cache(maxsize=4)
def _normal(device: torch.device, rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(rows, columns, generator=generator, dtype=FLOAT)
    shift = torch.rand(columns, generator=generator, dtype=FLOAT) * (2 * torch.pi)
    return weights.to(device), shift.to(device)


@dataclass(kw_only=True, eq=False, repr=False)
class RanPAC(SumLearner):
    """RanPAC: a ridge regression over random ReLU units of frozen features.

        Z = ReLU(H ω), ω ~ N(0, 1) [h, d],   G += ZᵀZ,   Q += ZᵀY,   W = (G + λI)⁻¹ Q

    Each session chooses λ from 10⁻⁸, 10⁻⁷, …, 10⁸ on its own nodes: weights from 80% of them,
    drawn at random, are held against the other 20% by squared error. (Of 5,000 nodes at most; a
    session of fewer than five, or of one class, keeps the last λ: with one class the regression
    has a constant target, and says nothing of telling classes apart.) H are the label-free views
    of `HopEncoder`; docs/baselines.md says what differs from the original.

    McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning",
    NeurIPS 2023.

    With `balanced`, which is ours, every class counts the same: W = (B + λ C/N I)⁻¹ [μ_1 … μ_C],
    with B of the balanced head (`algnn.analytic.heads`), in which ZᵀZ has the factor C/N.

    `width` is d, 10,000 in the paper.
    """

    width: int = 10_000
    balanced: bool = False
    over_views: ClassVar[bool] = True
    _fixed = ("width", "seed", "balanced")
    LAMBDAS: ClassVar[tuple[float, ...]] = tuple(10.0**k for k in range(-8, 9))

    def _frozen(self, inputs: int, views: Any) -> Features:
        units = partial(random_units, width=self.width, seed=self.seed)
        return Features(inputs, self.width, views.prepare, units, views=views)

    def _head(self, sums: Statistics, gamma: float) -> Affine:
        if not self.balanced:
            return ridge(sums, gamma)
        matrix, means = balanced_system(sums)
        weights = solve(matrix, means, gamma * sums.n.numel() / float(sums.n.sum()))
        return weights, weights.new_zeros(weights.size(1))

    def _penalty(self, Z: Tensor, labels: Array, sums: Statistics, last: float) -> float:
        if Z.size(0) < 5 or np.unique(labels).size < 2:
            return last or 1.0
        generator = torch.Generator().manual_seed(self.seed)
        some = torch.randperm(Z.size(0), generator=generator)[:5_000]
        Y = torch.from_numpy(labels[some.numpy(), None] == np.unique(labels))
        return chosen_penalty(Z[some.to(Z.device)], Y.to(Z.device, FLOAT), self.LAMBDAS)


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

    shrinkage: float
    _limits: ClassVar = {"shrinkage": (0, 1)}

    def _head(self, sums: Statistics, gamma: float) -> Affine:
        return slda(sums, gamma)

    def _penalty(self, Z: Tensor, labels: Array, sums: Statistics, last: float) -> float:
        # ((1 − ε) Σ + εI)⁻¹ is (Σ + ε / (1 − ε) I)⁻¹ but for a factor, and slda takes γ / N
        return self.shrinkage / (1 - self.shrinkage) * float(sums.n.sum())


@dataclass(kw_only=True, eq=False, repr=False)
class KLDA(Shrunk):
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
    over_views: ClassVar[bool] = True
    _limits: ClassVar = {"bandwidth": 1e-12}
    _fixed = ("width", "seed", "bandwidth")

    def _frozen(self, inputs: int, views: Any) -> Features:
        units = partial(random_units, width=self.width, seed=self.seed, bandwidth=self.bandwidth)
        return Features(inputs, self.width, views.prepare, units, views=views)


def untrained_gcn(adjacency: Tensor, x: Tensor, width: int, layers: int, seed: int) -> Tensor:
    """[H_1 … H_L] [N, width] of every node: H_i = tanh(Â H_{i−1} Θ_i), H_0 = X, random Θ_i."""
    generator = torch.Generator().manual_seed(seed)
    hidden, found = x.to_dense(), []
    for units in np.diff(np.arange(layers + 1) * width // layers).tolist():
        weights = glorot(hidden.size(1), units, generator).to(hidden.device)
        hidden = spmm(adjacency, hidden @ weights).tanh_()
        found.append(hidden)
    return torch.cat(found, dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class UGCN(Shrunk):
    """An untrained, wide GCN with streaming linear discriminant analysis.

        H_i = tanh(Â H_{i−1} Θ_i), H_0 = X, Θ_i Glorot-uniform and never trained;  Z = [H_1 … H_L]
        Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N,   Σ_ε = (1 − ε) Σ + ε I
        score of class c: zᵀ Σ_ε⁻¹ μ_c − ½ μ_cᵀ Σ_ε⁻¹ μ_c

    Donghi et al., "The Unreasonable Effectiveness of Randomized Representations in Online Continual
    Graph Learning", arXiv 2510.06819, 2025.
    Hayes and Kanan, "Lifelong Machine Learning with Deep Streaming LDA", CVPR Workshops 2020.

    `width` is that of Z, units of all layers together (the paper's we do not know; 4,096 is ours),
    `layers` L, and `shrinkage` ε, 10⁻⁴ in Hayes and Kanan.
    """

    width: int = 4_096
    layers: int = 2
    shrinkage: float = 1e-4
    _fixed = ("width", "seed", "layers")

    def _check_params(self) -> None:
        super()._check_params()
        check_number("layers", self.layers, 1, self.width + 1, whole=True)

    def _frozen(self, inputs: int, views: Any) -> Features:
        stack = partial(untrained_gcn, width=self.width, layers=self.layers, seed=self.seed)
        return Features(inputs, self.width, stack)


def filter_bank(adjacency: Tensor, x: Tensor) -> Tensor:
    """X, ÂX, Â²X, (I − Â)X and (I − Â)²X side by side, [N, 5 × inputs]."""
    X = x.to_dense()
    once = spmm(adjacency, X)
    twice = spmm(adjacency, once)
    return torch.cat([X, once, twice, X - once, X - 2 * once + twice], dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearBank(SumLearner):
    """GraphAny's bank of linear GNNs, each solved by least squares; their mean decides.

        F_1 … F_5 = X, ÂX, Â²X, (I − Â)X, (I − Â)²X
        W_i = (F_iᵀF_i + γ s_i I)⁻¹ F_iᵀY,  s_i the mean of F_iᵀF_i's diagonal
        scores = 1/5 Σ_i F_i W_i

    The paper's attention over the five is left out: here all weigh the same.

    Zhao et al., "Fully-inductive Node Classification on Arbitrary Graphs" (GraphAny), ICLR 2025.

    `gamma` is γ; the paper's minimum-norm solution is that of a γ next to 0.
    """

    gamma: float = 0.1
    width: ClassVar[int] = 1  # type: ignore[misc]
    _limits: ClassVar = {"gamma": 0}

    def _frozen(self, inputs: int, views: Any) -> Features:
        return Features(inputs, 5 * inputs, filter_bank, channels=5)

    def _penalty(self, Z: Tensor, labels: Array, sums: Statistics, last: float) -> float:
        # features that are all zero have weights all the same: zeros
        return self.gamma * (float(sums.G.diagonal().mean()) or 1.0)
