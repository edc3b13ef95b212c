"""Columns of X as users have them: what rows drawn from all over a graph tell of them.

Step 1 of ``docs/default.md``: whether columns are scaled or rows centred, and by how much.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from algnn.analytic.classes import mixed
from algnn.graph.propagate import take_rows
from algnn.graph.store import FLOAT, GraphRows

SAMPLED_ROWS = 512  # that show what kind of values X holds
# Columns are scaled where more than this share of them have entries so many times smaller than
# those that make up the length of rows.
SMALL_SHARE, TIMES_SMALLER = 0.25, 16
# What is left where neighbours cancel is longer than the 1e-12 that counts as zero if entries are
# much larger than this; and what is beyond 2^64 has no square in float32.
FAR_FROM_ONE = 2**10
FULL_SHARE = 0.9  # of entries that are not zero, above which rows may be centred
COMMON_SHARE = 1 / 20  # of the squared length of rows: above this, their mean hides differences
ALIKE = 1e-10  # of the squared length of rows: what tells them apart is rounding below this
CENTRE_ROWS = 4096  # whose mean is the centre
OVERLONG = 4  # times the median length of rows: few such rows must not move the centre


def column_squares(some: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of squares, and number, of the entries other than zero in each column: [d], float64."""
    if some.layout == torch.strided:
        return some.to(FLOAT).square().sum(0), some.count_nonzero(0).to(FLOAT)
    squares = some.values().to(FLOAT).square()
    both = squares.new_zeros(2, some.size(1))
    both.index_add_(1, some.col_indices(), torch.stack([squares, some.values().ne(0).to(FLOAT)]))
    return both[0], both[1]


def units_apart(units: Tensor, counts: Tensor) -> bool:
    """Whether many columns have small entries beside those that make up the length of rows."""
    weights = counts * units.square()
    large = ((weights * units.square()).sum() / weights.sum().clamp_min(1e-300)).sqrt()
    small = (units < large / TIMES_SMALLER)[counts > 0]
    return int(small.sum()) > SMALL_SHARE * small.numel()


def scales_of(units: Tensor) -> Tensor:
    """Powers of two, float32, by which columns with these units [d] come to about 1."""
    # the same on every device, and they round nothing; of a column of zeros nothing is known
    usual = units[units > 0].median()
    powers = -torch.where(units > 0, units, usual).log2().round()
    return powers.clamp(-100, 100).exp2().to(torch.float32)


def common_scale(values: Tensor, inputs: int) -> Tensor | None:
    """One power of two for all columns [d], float32, if entries are usually far from 1."""
    sizes = values[values != 0].abs()
    if not sizes.numel():
        return None
    # not a mean: a few rows far longer than others must not make these vanish, nor become longer
    usual = sizes.median()
    usual = usual if usual > 1 else torch.maximum(usual, sizes.max() / FAR_FROM_ONE).clamp_max(1)
    far = usual > FAR_FROM_ONE or usual < 1 / FAR_FROM_ONE
    return scales_of(usual.expand(inputs)) if bool(far) else None


def much_alike(dense: Tensor) -> bool:
    """Whether the mean of some rows [n, d], of any length, hides what tells them apart."""
    apart = (dense - dense.mean(0)).square().sum() > ALIKE * dense.square().sum()
    common = len(dense) * float(normalize(dense).mean(0).square().sum())
    # of n rows without anything in common it is 1; of equal ones nothing would be left
    return bool(apart) and common - 1 > COMMON_SHARE * (len(dense) - 1)


def centre_of(dense: Tensor) -> Tensor:
    """Means [d] of the columns of some rows [n, d], without overlong rows, in float32."""
    lengths = torch.linalg.vector_norm(dense, dim=1)
    kept = dense[lengths <= OVERLONG * lengths.median()]
    means, deviations = kept.mean(0), kept.std(0, correction=0)
    # rounded to about 1/256 of a column's deviation, so that devices agree
    sizes = torch.maximum(deviations, 1e-6 * means.abs()).clamp_min(1e-38)
    steps = torch.exp2(sizes.log2().round() - 8)
    return (torch.round(means / steps) * steps).to(torch.float32)


def sample(x: Tensor | GraphRows, most: int) -> Tensor:
    """At most so many rows of X, one of each stretch of equal length, at a random place in it."""
    stretch = -(-x.shape[0] // most)
    starts = np.arange(0, x.shape[0], stretch)
    places = starts + (mixed(starts.astype(np.uint64)) % np.uint64(stretch)).astype(np.int64)
    rows = torch.from_numpy(places.clip(max=x.shape[0] - 1)).to(x.device)
    return take_rows(x, rows) if isinstance(x, Tensor) else x.take(rows)
