"""A graph by blocks of rows, as the blocked encoder takes it: in memory or on disk."""

import torch
from torch import Tensor

from algnn.graph.propagate import take_rows
from algnn.graph.store import GraphStore

FLOAT = torch.float64


class MemoryRows:
    """A graph in memory, as a single block of rows of Â and X."""

    def __init__(self, adjacency: Tensor, x: Tensor) -> None:
        self._adjacency, self._x = adjacency, x
        self.parts, self.device = [slice(0, x.size(0))], x.device
        self.shape = (x.size(0), x.size(1))

    def take(self, rows: Tensor) -> Tensor:
        """Some rows of X, dense or CSR."""
        return take_rows(self._x, rows)

    def adjacency(self, part: int) -> Tensor:
        """Â, in CSR; it is the one block there is."""
        return self._adjacency


GraphRows = MemoryRows | GraphStore
