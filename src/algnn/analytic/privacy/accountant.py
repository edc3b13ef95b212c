"""The budget that the Gaussian mechanism spends, without torch: `glance` tells it.

The guarantee is (ε, δ)-differential privacy for one labelled node; ``docs/privacy.md`` says why it
holds and what it covers. A node that is in one session only spends ε on it and nothing on the
others (parallel composition). For a node in several, Gaussian mechanisms compose exactly: noise of
σ₁ … σₖ is as private as noise of one σ with 1/σ² = Σ 1/σᵢ².
"""

import math
from collections.abc import Callable

from scipy.special import erfcx, ndtr


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
        high = math.ldexp(high, 1)  # an OverflowError where none is enough
    while enough(high / 2):
        high /= 2
    low = high / 2
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
