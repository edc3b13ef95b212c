"""Structural features for a graph that has none of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from algnn.graph.propagate import normalised_adjacency, spmm

# One set of parameters for every graph and method, so that results can be compared.
WIDTH = 128
HOPS = (3, 6, 9)
SEED = 0


def structural_features(
    edge_index: Tensor,
    num_nodes: int,
    width: int = WIDTH,
    hops: Sequence[int] = HOPS,
    seed: int = SEED,
) -> Tensor:
    """Â^k R for a few k, each block with rows of length one, R a seeded Gaussian matrix [N, width].

    Nodes whose k-hop neighbourhoods overlap get similar rows (Johnson–Lindenstrauss: inner products
    of rows of Â^k R estimate those of Â^k), so a linear classifier can tell communities apart.

    `hops` are the powers k, ascending; R comes from numpy's Philox, the same on every machine.
    """
    adjacency = normalised_adjacency(edge_index, num_nodes)
    draws = np.random.Generator(np.random.Philox(seed))
    # drawn on the CPU whatever the device, so that the device does not change the features
    current = torch.from_numpy(draws.standard_normal((num_nodes, width), dtype=np.float32))
    current = current.to(edge_index.device)
    features, kept = current.new_empty(num_nodes, len(hops), width), 0
    for hop in range(max(hops) + 1):
        current = spmm(adjacency, current) if hop else current
        if hop in hops:
            features[:, kept] = normalize(current)
            kept += 1
    return features.flatten(1)


def description() -> str:
    """The recipe in words, for a graph's provenance."""
    chosen = " ".join(map(str, HOPS))
    return f"structural: random projection of width {WIDTH}, hops {chosen}, seed {SEED}"
