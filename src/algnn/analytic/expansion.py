"""The fixed random feature map that follows the encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

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

    _weight: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        weight = random_weights(self.inputs, self.width, self.seed).to(torch.float64)
        object.__setattr__(self, "_weight", weight)

    def prepare(self, adjacency: Tensor, hidden: Tensor) -> Tensor:
        """What must be done once for the whole graph.

        Parameters
        ----------
        adjacency : Tensor [N, N], sparse CSR
        hidden : Tensor [N, inputs]
            H of the encoder.

        Returns
        -------
        Tensor [N, inputs]
            H, or Â H.
        """
        return spmm(adjacency, hidden) if self.kind == "gcn" else hidden

    def __call__(self, prepared: Tensor) -> Tensor:
        """Widen some rows of what `prepare` gave.

        Parameters
        ----------
        prepared : Tensor [n, inputs]

        Returns
        -------
        Tensor [n, width], float64
        """
        weight = self._weight
        if weight.device != prepared.device:
            # moved once, not once for each block of rows
            weight = weight.to(prepared.device)
            object.__setattr__(self, "_weight", weight)
        return torch.mm(prepared.to(torch.float64), weight).relu_()


def random_weights(rows: int, columns: int, seed: int) -> Tensor:
    """Glorot-uniform weights from raw random bits.

    NumPy promises that the bits of a bit generator never change, and 24 bits fit a float32 exactly,
    so these are the same on every platform and with every version: a checkpoint holds the seed
    instead of the matrix.

    Parameters
    ----------
    rows, columns, seed : int

    Returns
    -------
    Tensor [rows, columns], float32

    Examples
    --------
    >>> random_weights(1, 3, seed=0)
    tensor([[...]])
    >>> bool((random_weights(9, 9, 1) == random_weights(9, 9, 1)).all())
    True
    """
    bits = np.random.Philox(key=seed).random_raw(rows * columns) >> np.uint64(40)
    unit = bits.astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
    bound = np.float32(math.sqrt(6 / (rows + columns)))
    return torch.from_numpy((unit * bound).reshape(rows, columns))
