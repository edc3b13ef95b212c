"""The fixed random feature map that follows the encoder."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.graph.propagate import spmm

EXPANSIONS = ("gcn", "plain")
# Weights that are made at a time: enough to be worth a thread, and so many that one which trains a
# network meanwhile is seldom interrupted. The generator makes four words a step, so it is a
# multiple of four.
BLOCK = 2**18


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
    _on: dict[torch.device, Tensor] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        weight = random_weights(self.inputs, self.width, self.seed)
        object.__setattr__(self, "_weight", weight)

    def weight(self, device: torch.device) -> Tensor:
        """W_feg on a device, the same tensor every time.

        Parameters
        ----------
        device : device

        Returns
        -------
        Tensor [inputs, width], float64
        """
        found = self._on.get(device)
        if found is None:
            # widened there, which moves half the bytes
            found = self._on[device] = self._weight.to(device).to(torch.float64)
        return found

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
        return torch.mm(prepared.to(torch.float64), self.weight(prepared.device)).relu_()


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
    weights = np.empty(rows * columns, dtype=np.float32)
    bound = np.float32(math.sqrt(6 / (rows + columns)))
    blocks = math.ceil(weights.size / BLOCK)
    threads = max(1, min(torch.get_num_threads(), blocks))
    share = BLOCK * math.ceil(blocks / threads)

    def fill(start: int) -> None:
        _fill(weights[start : start + share], seed, start, bound)

    if threads == 1:
        fill(0)
    else:
        # the generator is most of the work, and lets other threads run meanwhile
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, range(0, weights.size, share)))
    return torch.from_numpy(weights.reshape(rows, columns))


def _fill(weights: npt.NDArray[np.float32], seed: int, start: int, bound: np.float32) -> None:
    """Weights from the generator's words `start`, `start` + 1, …; `start` a multiple of four."""
    generator = np.random.Philox(key=seed, counter=start // 4)
    for place in range(0, weights.size, BLOCK):
        some = weights[place : place + BLOCK]
        words = generator.random_raw(some.size)
        words >>= np.uint64(40)
        some[:] = words.view(np.int64)
        # from 0 … 2^24 to ±bound: only the product rounds
        some -= np.float32(2.0**23)
        some *= bound * np.float32(2.0**-23)
