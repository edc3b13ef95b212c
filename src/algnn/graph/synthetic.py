"""Graphs made from a seed: planted communities of any size, for measuring time and memory.

Everything follows from the raw bits of NumPy's Philox, which never change, through whole numbers
and single float32 roundings, so a seed gives the same graph on every machine, bit for bit.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Data

from algnn.errors import InputError
from algnn.graph.npz import MASKS
from algnn.graph.propagate import blocks

IMBALANCE = 40  # the largest class has about this many times the nodes of the smallest
SMALLEST = 10  # nodes of a class, so that each part of the split has one of them
TRAIN, VAL = 66, 10  # per cent of each class, as in Reddit's own split
SIGNAL = 2.0  # how far class means lie apart; noise has a range of -1 to 1 in each feature

# One independent sequence of bits for each purpose; the 0th is that of the expansion's weights.
ORDER, RANKING, STRANGERS, SPLIT, MEANS, FEATURES, EDGES = range(1, 8)

Ints = npt.NDArray[np.int64]
LOW = np.uint64(2**32 - 1)
HALF = np.uint64(32)


def communities(
    nodes: int, edges: int, features: int, classes: int, seed: int = 0, *,
    inside: float = 0.9, strangers: float = 0.1,
) -> Data:  # fmt: skip
    """A graph of planted communities that a learner can learn in part.

    Sizes of communities are a geometric series. A share `inside` of the `edges`, undirected and all
    different, lies inside a community; what does not fit into a small one goes between two. Within
    one the node of rank r is an end of an edge with probability ∝ r^(-1/2): degrees have a heavy
    tail, the share above k falls as k^(-2). Features are the community's mean plus uniform noise.
    A share of nodes, the `strangers`, have swapped labels, which nothing reveals. There are fewer
    than 2^31 nodes (a pair of them is one int64), and ten or more for each class.
    """
    # rounded, so that the last bit of a power, which differs between machines, cannot matter
    series = [round(2**20 * IMBALANCE ** (-c / (classes - 1))) for c in range(classes)]
    # ten of each first, or the smallest might have no node for the validation
    sizes = SMALLEST + _apportion(nodes - SMALLEST * classes, np.array(series, np.int64))
    sizes = sizes[_shuffle(classes, seed, RANKING)]
    counts = _edge_counts(sizes, edges, inside)
    # a node's position in this order gives its community and its rank there
    order = _shuffle(nodes, seed, ORDER)
    community = np.empty(nodes, np.int64)
    community[order] = np.repeat(np.arange(classes), sizes)
    chosen = _shuffle(nodes, seed, STRANGERS)[: round(strangers * nodes)]
    y = community.copy()
    y[chosen] = community[np.roll(chosen, 1)]  # handed on in a circle: classes keep their sizes
    # edges first: their temporary memory is free again before the features are made
    edge_index = _edges(counts, sizes, order, community, seed)
    x = _features(community, features, classes, seed)
    arrays = {"x": x, "edge_index": edge_index, "y": y, **_split(y, sizes, seed)}
    return Data(**{key: torch.from_numpy(array) for key, array in arrays.items()})


def _bits(seed: int, purpose: int) -> np.random.Philox:
    return np.random.Philox(key=seed + (purpose << 64))


def _shuffle(count: int, seed: int, purpose: int) -> Ints:
    return np.argsort(_bits(seed, purpose).random_raw(count), kind="stable")


def _apportion(total: int, weights: Ints) -> Ints:
    """Whole parts of a total in proportion to some weights; the first ones get what is left."""
    parts = np.array([total * w // int(weights.sum()) for w in weights.tolist()], np.int64)
    parts[: total - int(parts.sum())] += 1
    return parts


def _edge_counts(sizes: Ints, edges: int, inside: float) -> Ints:
    """How many edges lie inside each community and, last, between two [C + 1]."""
    nodes, room = int(sizes.sum()), sizes * (sizes - 1) // 4
    within = np.minimum(_apportion(round(inside * edges), sizes), room)
    between = edges - int(within.sum())
    limit = (nodes * (nodes - 1) // 2 - int((sizes * (sizes - 1) // 2).sum())) // 2
    if between > limit:
        raise InputError(
            f"edges={edges} is too many for nodes={nodes}: {between} of them would lie between"
            f" communities, where {limit} fit; give fewer edges or more nodes"
        )
    return np.append(within, between)


def _split(y: Ints, sizes: Ints, seed: int) -> dict[str, npt.NDArray[np.bool_]]:
    chance = _shuffle(y.size, seed, SPLIT)
    by_class = chance[np.argsort(y[chance], kind="stable")]
    rank = np.empty(y.size, np.int64)
    rank[by_class] = np.arange(y.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    train = 100 * rank < TRAIN * sizes[y]
    test = 100 * rank >= (TRAIN + VAL) * sizes[y]
    return dict(zip(MASKS, (train, ~train & ~test, test), strict=True))


def _features(community: Ints, features: int, classes: int, seed: int) -> npt.NDArray[np.float32]:
    # by the square root, so that two classes are as far apart whatever the number of features
    means = _uniform(_bits(seed, MEANS), classes, features) * np.float32(SIGNAL / features**0.5)
    noise = _bits(seed, FEATURES)
    x = np.empty((community.size, features), np.float32)
    for block in blocks(community.size, 4 * x[:1].nbytes):  # a block is there in four forms
        x[block] = _uniform(noise, *x[block].shape)
        x[block] += means[community[block]]
    return x


def _uniform(bits: np.random.Philox, rows: int, columns: int) -> npt.NDArray[np.float32]:
    """The next rows × columns numbers in [-1, 1), of 24 bits each: a float32 holds them exactly."""
    # a row takes whole words of 64 bits, so that it does not matter in which blocks rows are drawn
    words = bits.random_raw(rows * -(-columns // 2)).astype("<u8", copy=False)
    numbers = words.view("<u4").reshape(rows, -1)[:, :columns] >> np.uint32(8)
    unit = numbers.astype(np.float32)
    unit *= np.float32(2.0**-23)
    unit -= np.float32(1.0)
    return unit


def _edges(counts: Ints, sizes: Ints, order: Ints, community: Ints, seed: int) -> Ints:
    """All edges in both directions, sorted [2, 2 · edges]; while drawn, an edge is one number."""
    # drawn with repetition; duplicates are drawn again, as edges of the same kind, until there are
    # none: no kind is more than half full, so this ends
    nodes, edges = order.size, int(counts.sum())
    edge_index = np.empty((2, 2 * edges), np.int64)
    # the first row holds what is being made, so that sorting it needs no other memory
    keys, bits = edge_index[0, :edges], _bits(seed, EDGES)
    again = np.arange(edges, dtype=np.int64)
    kinds = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
    while again.size:
        for block in blocks(again.size, 128):
            keys[again[block]] = _draw(bits, kinds[block], sizes, order)
        keys.sort()
        again = np.flatnonzero(keys[1:] == keys[:-1])
        low, high = np.divmod(keys[again], nodes)
        same = community[low] == community[high]
        kinds = np.where(same, community[low], counts.size - 1).astype(np.int32)
    for block in blocks(edges, 32):
        low, high = np.divmod(keys[block], nodes)
        edge_index[0, edges:][block] = high * nodes + low
    edge_index[0].sort()
    np.remainder(edge_index[0], nodes, out=edge_index[1])
    np.floor_divide(edge_index[0], nodes, out=edge_index[0])
    return edge_index


def _draw(bits: np.random.Philox, kinds: npt.NDArray[np.int32], sizes: Ints, order: Ints) -> Ints:
    """One edge of each kind (a community, or C: between two) as low · N + high."""
    nodes, starts = order.size, np.cumsum(sizes) - sizes
    # four numbers of 32 bits for each edge, whatever the blocks they are drawn in
    words = bits.random_raw(2 * kinds.size).reshape(-1, 2).T
    u, v, u_rank, v_rank = (part for word in words for part in (word >> HALF, word & LOW))
    within = kinds < sizes.size
    # communities by their size, the second one among all others
    here = np.searchsorted(starts, _scaled(u, nodes), side="right") - 1
    here = np.where(within, kinds, here)
    position = _scaled(v, nodes - sizes[here])
    position += np.where(position >= starts[here], sizes[here], 0)
    there = np.where(within, kinds, np.searchsorted(starts, position, side="right") - 1)
    # low ranks more often, as the square of a uniform u has a density ∝ u^(-1/2); the second one
    # among all others, too
    one = _scaled(u_rank * u_rank >> HALF, sizes[here])
    two = _scaled(v_rank * v_rank >> HALF, sizes[there] - within)
    two += within & (two >= one)
    one, two = order[starts[here] + one], order[starts[there] + two]
    keys: Ints = np.minimum(one, two) * nodes + np.maximum(one, two)
    return keys


def _scaled(fraction: npt.NDArray[np.uint64], count: int | Ints) -> Ints:
    """A whole number below `count` for each fraction of 2³²."""
    return ((fraction * np.asarray(count).astype(np.uint64)) >> HALF).astype(np.int64)
