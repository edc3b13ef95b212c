"""Closed-form rivals whose features are graph filters that nobody trained."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.lifecycle import io
from algnn.analytic.statistics import Statistics
from algnn.baselines.sums import Features, Shrunk, SumLearner
from algnn.checks import check_number
from algnn.gcn import glorot
from algnn.graph.propagate import spmm


class OverFilters(SumLearner):
    """A rival whose features depend on the width of X and on its parameters alone."""

    @abstractmethod
    def _features_of(self, inputs: int) -> Features:
        """The features of X [N, inputs]."""

    def _encoder(self, graph: Data) -> Features:
        return self._features_of(graph.x.size(1))

    def _encoder_state(self, features: Features) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"inputs": features.inputs}

    def _restored_encoder(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Features:
        check_number("inputs", facts["inputs"], 1, io.WIDEST_INPUTS, whole=True)
        return self._features_of(facts["inputs"])


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

    Parameters
    ----------
    width : int
        Width of Z: units of all layers together.
    layers : int
        L.
    shrinkage : float
        ε; 10⁻⁴ in Hayes and Kanan.
    seed, device : as in `SumLearner`

    Notes
    -----
    The paper's nodes come one by one and its Σ is updated with each; sums give the covariance of
    all nodes so far, whatever their order. Its widths we do not know: 4,096 in two layers is ours.

    References
    ----------
    G. Donghi, D. Zambon, L. Pasa, C. Alippi and N. Navarin, "The Unreasonable Effectiveness of
    Randomized Representations in Online Continual Graph Learning", arXiv 2510.06819, 2025.
    T. L. Hayes and C. Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant
    Analysis", CVPR Workshops 2020.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = UGCN(width=256).fit(graph, graph.train_mask, graph.y[graph.train_mask])
    >>> model.score(graph, graph.test_mask, graph.y[graph.test_mask]) > 0.9
    True
    """

    width: int = 4_096
    layers: int = 2
    shrinkage: float = 1e-4

    def _check_params(self) -> None:
        super()._check_params()
        check_number("layers", self.layers, 1, self.width + 1, whole=True)

    def _features_of(self, inputs: int) -> UntrainedGCN:
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

    Parameters
    ----------
    gamma : float
        γ; the paper's minimum-norm solution is that of a γ next to 0.
    seed, device : as in `SumLearner`; nothing is random

    Notes
    -----
    The paper weighs the five predictions of a node by attention that is learned on the labelled
    nodes of another graph. Nothing of the kind can be learned from sums, so the weights are equal,
    which is a variant that the paper compares with.

    References
    ----------
    J. Zhao, Z. Zhu, M. Galkin, H. Mostafa, M. Bronstein and J. Tang, "Fully-inductive Node
    Classification on Arbitrary Graphs" (GraphAny), ICLR 2025.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = LinearBank().fit(graph, graph.train_mask, graph.y[graph.train_mask])
    >>> model.score(graph, graph.test_mask, graph.y[graph.test_mask]) > 0.9
    True
    """

    gamma: float = 0.1
    width: ClassVar[int] = 1  # type: ignore[misc]
    _lowest: ClassVar = {"gamma": 0}

    def _features_of(self, inputs: int) -> FilterBank:
        return FilterBank(inputs, inputs)

    def _penalty(self, Z: Tensor, codes: Tensor, sums: Statistics, last: float) -> float:
        scale = float(sums.G.diagonal().mean())
        # features that are all zero have weights all the same: zeros
        return self.gamma * (scale or 1.0)
