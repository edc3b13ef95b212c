"""The Gaussian mechanism on the sums of a session, and the budget that it spends.

The guarantee is (ε, δ)-differential privacy for one labelled node; ``docs/privacy.md`` says what it
covers and why it holds. A node with features z, ‖z‖ ≤ 1, and class c adds z zᵀ to G, z to column c
of Q and 1 to n_c. Weighed by the roots of `SHARES`, which sum to 1, it moves all numbers together
by at most 1, so noise of scale σ on each of them is the mechanism with sensitivity 1. Sessions
compose exactly: noise of σ₁ … σₖ is as private as noise of one σ with 1/σ² = Σ 1/σᵢ².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfcx, ndtr, ndtri

if TYPE_CHECKING:  # `glance` tells the budget without loading torch
    from torch import Tensor

    from algnn.analytic.statistics import Statistics

Entropy = Callable[[int], bytes]

# The budget's shares of G, Q and n. Found on validation nodes of digits, Citeseer, PubMed and
# Computers at ε from 1 to 16: class sums want most of it, and G, which all classes use, still helps
# with a fifth.
SHARES = {"G": 0.2, "Q": 0.7, "n": 0.1}
# Released values are rounded to this fraction of the noise, so that their lowest bits tell nothing.
GRID = 2.0**-20


def attained_delta(epsilon: float, sigma: float) -> float:
    """The least δ for which Gaussian noise on a sum of sensitivity 1 is (ε, δ)-private."""
    # Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ = 1/σ, exactly (Balle and Wang, Improving the Gaussian
    # Mechanism for Differential Privacy, ICML 2018, theorem 8)
    mu = 1 / sigma
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # e^ε Φ(−far) is e^(−near²/2) erfcx(far/√2) / 2, since far² − near² = 2ε: no large number times
    # a small one
    tail = 0.5 * math.exp(-near * near / 2)
    first = ndtr(-near) if near < 0 else tail * erfcx(near / math.sqrt(2))
    return float(first - tail * erfcx(far / math.sqrt(2)))


def attained_epsilon(delta: float, sigma: float) -> float:
    """The least ε, from above, for which Gaussian noise of sensitivity 1 is (ε, δ)-private."""
    if attained_delta(0.0, sigma) <= delta:
        return 0.0
    return _least(lambda epsilon: attained_delta(epsilon, sigma) <= delta)


def noise_scale(epsilon: float, delta: float) -> float:
    """The least σ, from above, for which Gaussian noise of sensitivity 1 is (ε, δ)-private."""
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


def with_noise(statistics: Statistics, sigma: float, entropy: Entropy) -> Statistics:
    """The sums of one session, over rows at most 1 long and each node once, with noise on them."""
    import torch

    def noisy(name: str) -> Tensor:
        value: Tensor = getattr(statistics, name)
        # random bytes, by default the system's: noise from a known seed can be subtracted again
        bits = np.frombuffer(entropy(8 * value.numel()), dtype=np.uint64) >> np.uint64(11)
        uniform = (bits.astype(np.float64) + 0.5) * 2.0**-53
        # by the inverse of the distribution function; 1 comes with a probability of 2⁻⁵⁴
        normal = ndtri(np.minimum(uniform, 1 - 2.0**-53)).reshape(tuple(value.shape))
        standard = torch.from_numpy(normal)
        if name == "G":
            # 1 on the diagonal and 1/√2 beside it, where each number stands twice. That is noise of
            # 1 on every direction in the space of symmetric matrices.
            standard = (standard + standard.mT) / 2
        scale = sigma / math.sqrt(SHARES[name])
        grid = 2.0 ** math.floor(math.log2(scale * GRID))
        shown = value.double() + scale * standard.to(value.device)
        return (shown / grid).round() * grid

    G, Q, n = map(noisy, SHARES)
    return replace(statistics, G=G, Q=Q, n=n)
