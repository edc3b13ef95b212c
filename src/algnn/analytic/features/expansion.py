"""The fixed random feature map that follows the encoder."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from algnn.checks import check_number
from algnn.graph.propagate import spmm

EXPANSIONS = ("gcn", "plain")


@dataclass(frozen=True)
class Expansion:
    """Z = σ(H W_feg) or σ(Â H W_feg), with σ = ReLU and W_feg random and fixed.

    The paper's equation is the first (``"plain"``); its appendix makes the expansion a GCN layer
    (``"gcn"``), which adds a hop and is what its figures were made with. Both are computed as
    propagate first, expand after: `prepare` handles the whole graph at the encoder's width, and
    `__call__` widens only the rows that are asked for. It does so in float64: matrix products round
    differently for batches of different sizes, and in float32 that alone would make the weights
    depend on the batching of a session (by 1e-8).

    Attributes
    ----------
    kind : {"plain", "gcn"}
    inputs, width : int
        Of W_feg.
    seed : int
        W_feg follows from it, bit for bit on any machine, so it need not be stored.

    Examples
    --------
    >>> import torch
    >>> expansion = Expansion("plain", inputs=4, width=16, seed=0)
    >>> expansion(torch.ones(3, 4)).shape
    torch.Size([3, 16])
    """

    kind: str
    inputs: int
    width: int
    seed: int

    def __post_init__(self) -> None:
        # a damaged checkpoint may name any, and weights are made only when they are needed
        check_number("inputs", self.inputs, 1, whole=True)
        check_number("width", self.width, 1, whole=True)
        check_number("seed", self.seed, 0, 2**63, whole=True)

    def prepare(self, adjacency: Tensor, hidden: Tensor) -> Tensor:
        """What must be done once for the whole graph: H [N, inputs], or Â H."""
        return spmm(adjacency, hidden) if self.kind == "gcn" else hidden

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        weights = _weights_on(prepared.device, self.inputs, self.width, self.seed)
        return torch.mm(prepared.to(torch.float64), weights).relu_()


@lru_cache(maxsize=4)
def _weights_on(device: torch.device, rows: int, columns: int, seed: int) -> Tensor:
    """`random_weights` in float64 on a device, made once."""
    return random_weights(rows, columns, seed).to(device).to(torch.float64)


def random_weights(rows: int, columns: int, seed: int) -> Tensor:
    """Glorot-uniform weights [rows, columns] in float32, from raw random bits.

    NumPy promises that the bits of a bit generator never change, and 24 bits fit a float32 exactly,
    so these are the same on every platform and with every version: a checkpoint holds the seed
    instead of the matrix.
    """
    words = np.random.Philox(key=seed).random_raw(rows * columns) >> np.uint64(40)
    # from 0 … 2^24 to ±bound: only the product rounds
    weights = words.astype(np.float32) - np.float32(2.0**23)
    weights *= np.float32(math.sqrt(6 / (rows + columns))) * np.float32(2.0**-23)
    return torch.from_numpy(weights.reshape(rows, columns))
