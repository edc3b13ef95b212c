"""The Gaussian mechanism on the sums of a session, and the budget that it spends.

The guarantee is (ε, δ)-differential privacy for one labelled node: whatever is computed from a
learner that saw it (weights, predictions, the file itself) comes out with nearly the same
probability as without it, on the same graph. ``docs/privacy.md`` says what that does and does not
cover.

One node with features z, ‖z‖ ≤ 1, and class c adds z zᵀ to G, z to column c of Q and 1 to n_c.
Weigh each of the three by the root of its share of the budget (`SHARES`, which sum to 1), and
concatenate all numbers to one vector. A node moves it by √(a ‖z‖⁴ + b ‖z‖² + e) ≤ √(a + b + e) = 1,
since ‖z zᵀ‖ = ‖z‖² in the Frobenius norm. So Gaussian noise of scale σ on every coordinate is the
Gaussian mechanism with sensitivity 1. Undoing the weights afterwards, and any other processing of
the result, costs nothing.

Noise is added once per session, to that session's own sums. A node that is in one session only
spends ε on it and nothing on the others (parallel composition). For a node in several, Gaussian
mechanisms compose exactly: noise of σ₁ … σₖ is as private as noise of one σ with 1/σ² = Σ 1/σᵢ².
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfcx, ndtr, ndtri

if TYPE_CHECKING:  # `glance` tells the budget without loading torch
    from torch import Size, Tensor

    from algnn.analytic.statistics import Statistics

Entropy = Callable[[int], bytes]

# The budget's shares of G, Q and n. Found on validation nodes of digits, Citeseer, PubMed and
# Computers at ε from 1 to 16: class sums want most of it, and G, which all classes use, still helps
# with a fifth.
SHARES = {"G": 0.2, "Q": 0.7, "n": 0.1}
# Released values are rounded to this fraction of the noise, so that their lowest bits tell nothing.
GRID = 2.0**-20


def attained_delta(epsilon: float, sigma: float) -> float:
    """The least δ for which Gaussian noise on a sum of sensitivity 1 is (ε, δ)-private.

    With μ = 1/σ it is Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), exactly (Balle and Wang, Improving the
    Gaussian Mechanism for Differential Privacy, ICML 2018, theorem 8).
    """
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


def with_noise(statistics: Statistics, sigma: float, entropy: Entropy = os.urandom) -> Statistics:
    """The sums of one session, over rows at most 1 long and each node once, with noise on them."""
    # from random bytes of the operating system: noise from a known seed can be subtracted again
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


def _standard_normal(shape: Size, entropy: Entropy) -> Tensor:
    """Normal numbers from random bits, by the inverse of their distribution function."""
    import torch

    bits = np.frombuffer(entropy(8 * shape.numel()), dtype=np.uint64) >> np.uint64(11)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-53
    # uniform is rounded to 1 with a probability of 2⁻⁵⁴
    normal = ndtri(np.minimum(uniform, 1 - 2.0**-53))
    return torch.from_numpy(normal.reshape(tuple(shape)))
