"""γ from sums alone.

A hash bit of its id puts each node in one of two halves. Weights from the sums of one half are held
against the sums of the other, and the other way round. Where nodes are few, one way of halving them
may mislead, so several are kept, each with sums of its own.

What counts is the order of a node's scores, so scores are compared with the true classes by their
agreement, which neither a common shift of a node's scores nor a common scale changes. (Squared
error is not like that: it punishes weights for being small, and in trials on Cora, Citeseer and
PubMed, with few nodes a session, it chose too small a γ.)
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.classes import mixed
from algnn.analytic.linalg import LARGEST_SHARE
from algnn.analytic.statistics import Statistics
from algnn.checks import onto
from algnn.progress import tell

# The γ that halves are tried with: half decades, relative to the trace of the matrix
GAMMAS: tuple[float, ...] = tuple(10.0 ** (k / 2) for k in range(-14, 0))
# The places in GAMMAS from which the search starts: all over the grid or, where sums are wide and a
# try is costly, at one over the number of nodes. So many nodes have one maximum only.
COARSE_START: tuple[int, ...] = (1, 4, 7, 10, 13)
SMOOTH_WIDTH = 512
# The ways of halving that are kept while sums have at most so many coordinates: they are cheap.
MOST_HALVINGS = 8
SMALL_SUMS = 256
# From so many nodes on, weights of one half against the other tell as much as both directions do.
ONE_DIRECTION_NODES = 512
# A small γ amplifies the rounding of sums up to about 1e-9, and two γ so near are equally good.
AGREEMENT_DIGITS = 7
# What a half of the nodes wants of γ is twice what all of them want: relative to the trace, the
# best penalty falls as one over the number of nodes.
OF_ALL_NODES = 0.5
# Relative size below which a squared length is rounding, and a count next to nothing.
NEGLIGIBLE = 1e-12


def halvings(nodes: int, width: int) -> int:
    """The number of ways in which nodes are halved: several, as long as the sums are small."""
    # of all nodes learned, this session's too: how they were divided into sessions is no matter
    coordinates = nodes if nodes <= LARGEST_SHARE * width else width
    return MOST_HALVINGS if coordinates <= SMALL_SUMS else 1


def half_masks(nodes: Tensor, seed: int, ways: int) -> npt.NDArray[np.bool_]:
    """The second half of some nodes, a mask [ways, n]: a hash bit of (id, seed) for each way."""
    # it depends on nothing else, so sessions may come in any order and batches
    bits = np.arange(63, 63 - ways, -1, dtype=np.uint64)[:, None]
    start = np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    hashes = mixed(nodes.numpy().astype(np.uint64) + start)
    return np.asarray(hashes >> bits & np.uint64(1), dtype=np.bool_)


def choose_gamma(
    everything: Statistics, half_sums: Statistics, head: str = "balanced"
) -> tuple[float, float]:
    """The γ of a head: half of that with which weights of either half agree best with the other.

    `half_sums` [k] are of the second half, by each way of halving. Not every γ is tried: the best
    of a few is the start of a search uphill. Of equally good ones the largest is taken. γ is
    relative to the trace; the ridge head's is absolute. Beside it stands the agreement, at most 1.
    """
    nodes, smooth = int(everything.n.sum()), everything.G.size(0) > SMOOTH_WIDTH
    both = nodes <= ONE_DIRECTION_NODES
    agreement = _agreement(everything, half_sums, both=both, balanced=head == "balanced")
    tried: dict[int, float] = {}
    # the one nearest to 1 / nodes, by their ratio
    near = int(np.abs(np.log(np.multiply(GAMMAS, max(nodes, 1)))).argmin())
    wanted = (near,) if smooth else COARSE_START
    while wanted:
        known = len(tried) + len(wanted)
        for place in wanted:
            tell("choosing γ", len(tried), known)
            tried[place] = agreement(GAMMAS[place])
        best = max(tried, key=lambda place: (tried[place], place))
        beside = (place for place in (best - 1, best + 1) if 0 <= place < len(GAMMAS))
        wanted = tuple(place for place in beside if place not in tried)
        # where there is one maximum, a better γ on one side leaves nothing to find on the other
        wanted = wanted[:1] if smooth else wanted
    trace = float(everything.G.trace()) if head == "ridge" else 1.0
    # features that are all zero have a trace of zero, and weights all the same
    return OF_ALL_NODES * GAMMAS[best] * (trace or 1.0), tried[best]


def _agreement(
    everything: Statistics, half_sums: Statistics, *, both: bool, balanced: bool = True
) -> Callable[[float], float]:
    """The mean squared cosine between scores and truth over the other half, as a function of γ.

    Systems of both halves, for k ways of halving, are one batch: B and class means where every
    class counts the same (balanced), or else G and Q. With both=False only first halves are solved.
    """
    sides, pairs = 2 if both else 1, half_sums.G.size(0)
    # first halves, then second halves
    G, Q, n = (
        torch.cat([getattr(everything, name) - second, second])
        for name, second in (("G", half_sums.G), ("Q", half_sums.Q), ("n", half_sums.n))
    )
    counts = n.to(torch.float64)
    there = (counts > 0).to(torch.float64)
    nodes, classes = counts.sum(1), there.sum(1)
    matrices, means, weight = G, Q, nodes
    if balanced:
        # B = (C / N) (G + Σ_c (N / C − n_c) μ_c μ_cᵀ); its factor changes no direction
        per_class = nodes / classes.clamp_min(1)
        means = Q * onto(there / counts.clamp_min(NEGLIGIBLE), G.device)[:, None]
        weigh = onto(per_class[:, None] - counts, G.device)[:, None]
        matrices = G.baddbmm_(means * weigh, means.mT)
        weight = classes / per_class.clamp_min(NEGLIGIBLE)
    traces = matrices.diagonal(dim1=1, dim2=2).sum(1)
    # Weights are centred over the classes that their half knows, since of the others it says
    # nothing; what they are solved from may be centred as well.
    share = onto(1 / classes.clamp_min(1), G.device)[:, None, None]
    targets = (means - means.sum(-1, keepdim=True) * share) * onto(there, G.device)[:, None]
    fitted = slice(0, sides * pairs)

    def other(t: Tensor) -> Tensor:
        return torch.cat([t[pairs:], t[:pairs]]) if both else t[pairs:]

    spread, truth, scale = other(matrices), other(means), other(traces)
    # a perfect classifier's centred scores: 1 − 1/C for the true class, −1/C for the others
    perfect = onto(other(weight) * (1 - 1 / classes[fitted].clamp_min(2)), G.device)
    # where one half has no nodes, neither says anything, nor counts
    told = (nodes[:pairs] > 0) & (nodes[pairs:] > 0)
    directions = sides * max(1, int(told.sum()))

    def agreement(gamma: float) -> float:
        penalised = matrices[fitted].clone()
        penalised.diagonal(dim1=1, dim2=2).add_((gamma * traces[fitted])[:, None])
        factors, failed = torch.linalg.cholesky_ex(penalised)
        W = torch.cholesky_solve(targets[fitted], factors)
        hit = (W * truth).sum((1, 2))
        size = (W * (spread @ W)).sum((1, 2))
        # Scores that are nothing but rounding agree with nothing: halves that share no direction,
        # and what may be left of a half that has lost all its nodes.
        least = NEGLIGIBLE * scale * W.square().sum((1, 2))
        fine = (failed == 0) & (size > least) & (perfect > 0)
        cosines = torch.where(fine, hit * hit.abs() / (size * perfect), 0.0)
        return round(float(cosines.sum()) / directions, AGREEMENT_DIGITS)

    return agreement
