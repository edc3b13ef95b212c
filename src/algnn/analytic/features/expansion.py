"""The paper's features: a GCN trained on the base session, frozen, and a random expansion of it."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from algnn.checks import check_number
from algnn.gcn import hidden_layer
from algnn.graph.propagate import spmm

EXPANSIONS = ("gcn", "plain")


@dataclass(frozen=True)
class ExpandedGCN:
    """Z = σ(H W_feg) or σ(Â H W_feg), where H = f_gcn(X, A) = ReLU(Â X W_1 + b_1) and σ = ReLU.

    W_1 and b_1, `weight` [inputs, h] and `bias` [h], are the first layer of a trained GCN. W_feg
    [h, width] is random and fixed: it follows from `seed`, bit for bit on any machine, and need not
    be stored. The paper's equation is the first (kind ``"plain"``); its appendix makes the
    expansion a GCN layer (``"gcn"``), which adds a hop and is what its figures were made with.
    """

    weight: Tensor
    bias: Tensor
    kind: str
    width: int
    seed: int

    def __post_init__(self) -> None:
        # a damaged checkpoint may name any, and weights are made only when they are needed
        check_number("width", self.width, 1, whole=True)
        check_number("seed", self.seed, 0, 2**63, whole=True)

    @property
    def inputs(self) -> int:
        """Width of X."""
        return self.weight.size(0)

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """What must be done once for the whole graph, at the encoder's width: H [N, h], or Â H."""
        hidden = hidden_layer(adjacency, x, self.weight, self.bias)
        return spmm(adjacency, hidden) if self.kind == "gcn" else hidden

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        # matrix products round differently for batches of different sizes, and in float32 that
        # alone would make the weights depend on the batching of a session (by 1e-8)
        weights = unit_weights(prepared.device, prepared.size(1), self.width, self.seed)
        return torch.mm(prepared.to(torch.float64), weights).relu_()


@lru_cache(maxsize=4)
def unit_weights(
    device: torch.device,
    rows: int,
    columns: int,
    seed: int,
    apart: int = 0,
    seen: int = 1,
    views: int = 1,
) -> Tensor:
    """`random_weights` in float64; the last `apart` columns are 0 but for the last `seen` rows."""
    weights = random_weights(rows, columns, seed)
    second = weights[:, columns - apart :]
    second[: rows - seen] = 0
    # as long as the others are, over rows of length one in each view
    second *= views**0.5
    return weights.to(device, torch.float64)


def random_weights(rows: int, columns: int, seed: int) -> Tensor:
    """Glorot-uniform weights [rows, columns] in float32, the same on every platform and version."""
    # NumPy promises that the bits of a bit generator never change, and 24 bits fit a float32
    # exactly: a checkpoint holds the seed in the place of the matrix
    words = np.random.Philox(key=seed).random_raw(rows * columns) >> np.uint64(40)
    # from 0 … 2^24 to ±bound: only the product rounds
    weights = words.astype(np.float32) - np.float32(2.0**23)
    weights *= np.float32(math.sqrt(6 / (rows + columns))) * np.float32(2.0**-23)
    return torch.from_numpy(weights.reshape(rows, columns))
