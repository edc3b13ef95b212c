"""Ways of turning statistics into weights.

A head scores a class by an affine function of the features, Z W + b, with W [d, C] and b [C] in
float64. All of them need nothing but G, Q and n, so another head, or another γ > 0, can be chosen
later without any data.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from algnn.analytic.linalg import solve
from algnn.analytic.statistics import Statistics
from algnn.checks import onto

Affine = tuple[Tensor, Tensor]


def ridge(statistics: Statistics, gamma: float) -> Affine:
    """The paper's joint solution (Eq. joint_closed_form): W = (G + γI)⁻¹ Q, b = 0."""
    weights = solve(statistics.G.clone(), statistics.Q, gamma)
    return weights, weights.new_zeros(weights.size(1))


def ncm(statistics: Statistics, gamma: float) -> Affine:
    """Nearest class mean: the score of a class is −½‖z − μ_c‖², but for what all classes share.

    With μ_c = Q_c / n_c, W = [μ_1 … μ_C] and b_c = −½ ‖μ_c‖². γ is not used.
    """
    means = statistics.Q / statistics.n.to(statistics.Q.device)
    return means, -0.5 * means.square().sum(0)


def slda(statistics: Statistics, gamma: float) -> Affine:
    """Streaming linear discriminant analysis: nearest class mean under the shared covariance.

    With Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N, W = (Σ + (γ/N) I)⁻¹ [μ_1 … μ_C] and b_c = −½ μ_cᵀ W_c
    (Hayes and Kanan, Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis,
    CVPR Workshops 2020, with the ridge penalty in the place of its shrinkage).
    """
    n = statistics.n.to(statistics.Q.device)
    means = statistics.Q / n
    # N Σ rather than Σ: the same weights times N, and one rounding less
    scatter = statistics.G - (means * n) @ means.mT
    weights = solve(scatter, means * n.sum(), gamma)
    return weights, -0.5 * (means * weights).sum(0)


def balanced(statistics: Statistics, gamma: float) -> Affine:
    """Least squares in which every class counts the same, however many nodes it has.

    With μ_c = Q_c / n_c and Σ = (G − Σ_c n_c μ_c μ_cᵀ) / N, W = (B + γ tr(B) I)⁻¹ [μ_1 … μ_C] where
    B = Σ_c μ_c μ_cᵀ + C Σ, and b = 0. γ is in units of tr(B), so that one value suits features of
    any size.
    """
    matrix, means = balanced_system(statistics)
    trace = matrix.trace()
    # features that are all zero have weights all the same: zeros
    weights = solve(matrix, means, gamma * torch.where(trace > 0, trace, 1.0))
    return weights, weights.new_zeros(weights.size(1))


def balanced_system(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """B [d, d] and M = [μ_1 … μ_C] of the balanced head."""
    n = onto(statistics.n.to(torch.float64), statistics.Q.device)
    means = statistics.Q / n
    share = n.numel() / n.sum()
    # Σ_c (1 − C n_c / N) μ_c μ_cᵀ + (C / N) G
    matrix = (means * (1 - share * n)) @ means.mT + share * statistics.G
    return matrix, means


def penalised(head: str, statistics: Statistics, gamma: float) -> tuple[Tensor, float]:
    """The matrix that a head solves for, and what is added to its diagonal."""
    if head == "balanced":
        matrix, _ = balanced_system(statistics)
        return matrix, gamma * (float(matrix.trace()) or 1.0)
    if head == "slda":
        n = statistics.n.to(statistics.Q.device)
        return statistics.G - (statistics.Q / n) @ statistics.Q.mT, gamma
    return statistics.G, gamma


Head = Callable[[Statistics, float], Affine]
HEADS: dict[str, Head] = {"ridge": ridge, "balanced": balanced, "ncm": ncm, "slda": slda}
