"""A graph by blocks of rows, as the blocked encoder takes it: in memory or on disk."""

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from algnn.graph.propagate import take_rows

FLOAT = torch.float64


class GraphRows(Protocol):
    """A graph by blocks of rows, in memory or on disk."""

    parts: list[slice]
    device: torch.device

    @property
    def shape(self) -> tuple[int, int]:
        """Of X."""

    def take(self, rows: Tensor) -> Tensor:
        """Some rows of X, dense or CSR."""

    def adjacency(self, part: int) -> Tensor:
        """A block of rows of Â, in CSR."""


class MemoryRows:
    """A graph in memory, as a single block of rows of Â and X."""

    def __init__(self, adjacency: Tensor, x: Tensor) -> None:
        self._given, self._x = adjacency, x
        self.parts, self.device = [slice(0, x.size(0))], x.device
        self.shape = (x.size(0), x.size(1))

    def take(self, rows: Tensor) -> Tensor:
        """Some rows of X."""
        return take_rows(self._x, rows)

    def adjacency(self, part: int) -> Tensor:
        """Â, in float64."""
        return self._exact

    @cached_property
    def _exact(self) -> Tensor:
        return self._given.to(FLOAT)
