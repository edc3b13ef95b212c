"""G, Q and n: the whole memory of the learner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

# A class is gone once its nodes count for less than this: after some 300 half-lives without one.
GONE = 2.0**-300
# What is left of a weight after a subtraction counts as rounding below this share of it.
ROUNDING = 1e-9
# From this many rows on, half of the Gram's arithmetic saved (a symmetric rank-n update) is worth
# the extra pass that mirrors the triangle afterwards.
SYRK_ROWS = 256


@dataclass(frozen=True)
class Statistics:
    """Sums over all labelled nodes seen so far, in float64.

    Sums commute, so they are the same for every order of sessions and every batching of one.
    float64 is not a luxury: at the paper's γ of 1e-3 the same recursion in float32 diverges.

    Attributes
    ----------
    G : Tensor [d, d]
        Σ ZᵀZ, symmetric.
    Q : Tensor [d, C]
        Σ ZᵀY, a column per class.
    n : Tensor [C], int64, or float64 where old sessions count for less
        Nodes per class; on the CPU, wherever G and Q are.
    classes : array [C]
        The classes, sorted.

    Examples
    --------
    >>> import numpy as np, torch
    >>> Z = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> statistics = Statistics.empty(2).plus([Z], np.array(["b", "a"]))
    >>> statistics.classes.tolist(), statistics.n.tolist()
    (['a', 'b'], [1, 1])
    >>> statistics.Q
    tensor([[1., 1.],
            [1., 0.]], dtype=torch.float64)
    >>> statistics.G
    tensor([[2., 1.],
            [1., 1.]], dtype=torch.float64)
    """

    G: Tensor
    Q: Tensor
    n: Tensor
    classes: npt.NDArray[Any]

    @classmethod
    def empty(cls, width: int, device: torch.device | str = "cpu") -> Statistics:
        """Sums over nothing.

        Parameters
        ----------
        width : int
            d.
        device : device

        Returns
        -------
        Statistics
        """
        G = torch.zeros(width, width, dtype=torch.float64, device=device)
        n = torch.zeros(0, dtype=torch.int64)
        return cls(G, G.new_zeros(width, 0), n, np.empty(0, dtype=np.int64))

    def plus(self, features: Iterable[Tensor], labels: npt.NDArray[Any]) -> Statistics:
        """These sums and those of one more session; nothing of `self` changes.

        Parameters
        ----------
        features : iterable of Tensor [b, d]
            Z in blocks of rows, so that it never exists whole.
        labels : array [n]
            The class of each row, all blocks together.

        Returns
        -------
        Statistics
        """
        new = self._with_classes(labels)
        places = np.searchsorted(new.classes, labels)
        codes = torch.from_numpy(places).to(new.G.device)
        columns = torch.arange(new.classes.size, device=new.G.device)
        seen = 0
        for block in features:
            Z = block.to(torch.float64)
            rows = codes[seen : seen + Z.size(0)]
            Y = (rows[:, None] == columns).to(torch.float64)
            # one-hot products rather than index_add: the same sum in the same order every time
            new.Q.addmm_(Z.mT, Y)
            _add_gram(new.G, Z, lower=labels.size >= SYRK_ROWS)
            seen += Z.size(0)
        if _uses_syrk(new.G) and labels.size >= SYRK_ROWS:
            _mirror(new.G)
        new.n.add_(torch.from_numpy(np.bincount(places, minlength=new.classes.size)))
        return new

    def padded(self, width: int) -> Statistics:
        """The same sums over features with more columns, in which these nodes had zeros.

        Parameters
        ----------
        width : int

        Returns
        -------
        Statistics
        """
        more = width - self.G.size(0)
        pad = torch.nn.functional.pad
        return Statistics(
            pad(self.G, (0, more, 0, more)), pad(self.Q, (0, 0, 0, more)), self.n, self.classes
        )

    def minus(self, other: Statistics) -> Statistics:
        """These sums without some of their terms; classes that are left without a node are gone.

        Parameters
        ----------
        other : Statistics
            Sums of nodes that these hold too.

        Returns
        -------
        Statistics
        """
        same = other._on(self.classes)
        left = Statistics(self.G - other.G, self.Q - same.Q, self.n - same.n, self.classes)
        least = self.n * ROUNDING if self.n.is_floating_point() else torch.zeros_like(self.n)
        return left.only(self.classes[(left.n > least).numpy()])

    def merged(self, other: Statistics) -> Statistics:
        """These sums and others together.

        Parameters
        ----------
        other : Statistics
            Of the same features, anywhere; the classes may be others or the same.

        Returns
        -------
        Statistics
        """
        if not (self.classes.size and other.classes.size):
            # the classes of nothing have no kind
            classes = self.classes if self.classes.size else other.classes
        else:
            classes = np.union1d(self.classes, other.classes)
        ours, theirs = self._on(classes), other._on(classes)
        G, Q = (t.to(self.G.device) for t in (theirs.G, theirs.Q))
        return Statistics(ours.G + G, ours.Q + Q, ours.n + theirs.n, classes)

    def scaled(self, factor: float) -> Statistics:
        """The same sums, with each node counting for less; classes that count for nothing are gone.

        Parameters
        ----------
        factor : float
            From 0 to 1.

        Returns
        -------
        Statistics

        Examples
        --------
        >>> import numpy as np, torch
        >>> sums = Statistics.empty(1).plus([torch.tensor([[2.0]])], np.array([7]))
        >>> sums.scaled(0.5).G.item(), sums.scaled(0.5).n.item()
        (2.0, 0.5)
        """
        n = self.n.to(torch.float64) * factor
        less = Statistics(self.G * factor, self.Q * factor, n, self.classes)
        return less.only(self.classes[(n >= GONE).numpy()])

    def turned(self, turn: Tensor) -> Statistics:
        """The same sums over other coordinates of the same nodes.

        Parameters
        ----------
        turn : Tensor [d, k]
            What takes a row of features to a row of the new ones.

        Returns
        -------
        Statistics
        """
        G = turn.mT @ self.G @ turn
        # symmetric to the last bit, as sums are
        return Statistics((G + G.mT) / 2, turn.mT @ self.Q, self.n, self.classes)

    def only(self, classes: npt.NDArray[Any]) -> Statistics:
        """The columns of some classes. G keeps the terms of all of them.

        Parameters
        ----------
        classes : array
            Some of those there are, sorted.

        Returns
        -------
        Statistics
        """
        if classes.size == self.classes.size:
            return self
        places = torch.from_numpy(np.searchsorted(self.classes, classes))
        return Statistics(self.G, self.Q[:, places.to(self.Q.device)], self.n[places], classes)

    def _on(self, classes: npt.NDArray[Any]) -> Statistics:
        """The same sums over more classes, sorted, with zeros for those that are new."""
        places = torch.from_numpy(np.searchsorted(classes, self.classes))
        n = self.n.new_zeros(classes.size)
        n[places] = self.n
        Q = self.Q.new_zeros(self.Q.size(0), classes.size)
        Q[:, places.to(Q.device)] = self.Q
        return Statistics(self.G, Q, n, classes)

    def nbytes(self) -> int:
        """Bytes of the triangle of G, of Q and of n: what `tensors` would hold.

        Returns
        -------
        int
        """
        width = self.G.size(0)
        return self.G.element_size() * width * (width + 1) // 2 + self.Q.nbytes + self.n.nbytes

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds: the lower triangle of G row by row, Q, n.

        Returns
        -------
        dict of Tensor
        """
        return {"G": self.G[_triangle(self.G)], "Q": self.Q, "n": self.n}

    @classmethod
    def from_tensors(cls, G: Tensor, Q: Tensor, n: Tensor, classes: npt.NDArray[Any]) -> Statistics:
        """The reverse of `tensors`.

        Parameters
        ----------
        G : Tensor [d (d + 1) / 2]
            The triangle.
        Q : Tensor [d, C]
        n : Tensor [C]
        classes : array [C]

        Returns
        -------
        Statistics
        """
        full = G.new_zeros(Q.size(0), Q.size(0))
        full[_triangle(full)] = G
        _mirror(full)
        return cls(full, Q, n.cpu(), classes)

    def _with_classes(self, labels: npt.NDArray[Any]) -> Statistics:
        """A copy with a zero column for each class that is new."""
        classes = np.union1d(self.classes, labels) if self.classes.size else np.unique(labels)
        wider = self._on(classes)
        return Statistics(self.G.clone(), wider.Q, wider.n, classes)


def _uses_syrk(G: Tensor) -> bool:
    return G.device.type == "cpu" and G.numel() > 0


def _add_gram(G: Tensor, Z: Tensor, *, lower: bool) -> None:
    """G += ZᵀZ; where a session is large and BLAS is at hand, only the lower triangle."""
    if lower and _uses_syrk(G):
        # Seen in Fortran's order G is its own transpose, so its "upper" triangle is our lower one.
        dsyrk(1.0, Z.numpy().T, beta=1.0, c=G.numpy().T, overwrite_c=True, lower=False)
    else:
        G.addmm_(Z.mT, Z)


def _triangle(G: Tensor) -> Tensor:
    """Mask of the lower triangle."""
    return torch.ones(G.shape, dtype=torch.bool, device=G.device).tril_()


def _mirror(G: Tensor) -> None:
    """Copy the lower triangle over the upper one."""
    for start in range(0, G.size(0), 512):
        rows = slice(start, start + 512)
        block = G[rows, : min(start + 512, G.size(0))]
        corner = block[:, start:]
        corner.copy_(corner.tril() + corner.tril(-1).mT)
        G[:start, rows] = block[:, :start].mT
