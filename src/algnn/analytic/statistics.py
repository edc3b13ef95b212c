"""G, Q and n: the whole memory of the learner.

Several sums over the same classes can stand side by side, in a leading dimension that all three
have: those of one half of the nodes, for each way of halving them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg.blas import dsyrk
from torch import Tensor

from algnn.analytic.classes import columns, distinct, one_hot, union
from algnn.checks import onto
from algnn.graph.propagate import blocks

# A class is gone once its nodes count for less than this: after some 300 half-lives without one.
GONE = 2.0**-300
# What is left of a weight after a subtraction counts as rounding below this share of it.
ROUNDING = 1e-9
# From this many rows on, half of the Gram's arithmetic saved (a symmetric rank-n update) is worth
# the extra pass that mirrors the triangle afterwards; on a GPU, whose products are quick, only
# where features are wide, and by blocks of so many columns.
SYRK_ROWS = 256
SYRK_WIDTH = {"cpu": 1, "cuda": 4096}
SYRK_COLUMNS = 1024


@dataclass(frozen=True)
class Statistics:
    """Sums over all labelled nodes seen so far, in float64.

    Sums commute, so they are the same for every order of sessions and every batching of one.
    float64 is not a luxury: at the paper's γ of 1e-3 the same recursion in float32 diverges.

    Attributes
    ----------
    G : Tensor [d, d] or [k, d, d]
        Σ ZᵀZ, symmetric.
    Q : Tensor [d, C] or [k, d, C]
        Σ ZᵀY, a column per class.
    n : Tensor [C] or [k, C], int64, or float64 where old sessions count for less
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
    def empty(
        cls, width: int, device: torch.device | str = "cpu", ways: int | None = None
    ) -> Statistics:
        """Sums over nothing.

        Parameters
        ----------
        width : int
            d.
        device : device
        ways : int, optional
            k, for so many side by side.

        Returns
        -------
        Statistics
        """
        G = torch.zeros(width, width, dtype=torch.float64, device=device)
        Q, n, classes = G.new_zeros(width, 0), torch.zeros(0, dtype=torch.int64), np.arange(0)
        if ways is None:
            return cls(G, Q, n, classes)
        # the same zeros for all of them, as long as nothing is added
        return cls(G.expand(ways, -1, -1), Q.expand(ways, -1, -1), n.expand(ways, -1), classes)

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
        new, places = self._with_classes(labels)
        wide = new.G.size(0) >= SYRK_WIDTH[new.G.device.type]
        lower = wide and labels.size >= SYRK_ROWS
        for Z, Y, _ in _with_targets(features, places, new):
            # one-hot products rather than index_add: the same sum in the same order every time
            new.Q.addmm_(Z.mT, Y)
            _add_gram(new.G, Z, lower=lower)
        if lower:
            _mirror(new.G)
        new.n.add_(torch.from_numpy(np.bincount(places, minlength=new.classes.size)))
        return new

    def plus_chosen(
        self, features: Iterable[Tensor], labels: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]
    ) -> Statistics:
        """The same for several sums side by side, to each of which belong some of the nodes.

        Parameters
        ----------
        features, labels
            As for `plus`.
        chosen : array [k, n], bool

        Returns
        -------
        Statistics

        Examples
        --------
        >>> import numpy as np, torch
        >>> Z, labels = torch.tensor([[1.0], [2.0]]), np.array([0, 0])
        >>> chosen = np.array([[True, False], [True, True]])
        >>> Statistics.empty(1, ways=2).plus_chosen([Z], labels, chosen).G.flatten()
        tensor([1., 5.], dtype=torch.float64)
        """
        new, places = self._with_classes(labels)
        mask = onto(torch.from_numpy(chosen.astype(np.float64)), new.G.device)
        for Z, Y, rows in _with_targets(features, places, new):
            theirs = Z.mT * mask[:, None, rows]
            new.Q.baddbmm_(theirs, Y.expand(mask.size(0), *Y.shape))
            new.G.baddbmm_(theirs, Z.expand(mask.size(0), *Z.shape))
        ways, count = mask.size(0), new.classes.size
        cells = (np.arange(ways)[:, None] * count + places)[chosen]
        counts = np.bincount(cells, minlength=ways * count).reshape(ways, count)
        new.n.add_(torch.from_numpy(counts))
        return new

    def moved(
        self, Z: Tensor, labels: npt.NDArray[Any], sign: int = 1
    ) -> tuple[Statistics, Tensor]:
        """With few rows more, all at once, or without them; and Y of these rows.

        Parameters
        ----------
        Z : Tensor [n, d], float64
        labels : array [n]
        sign : {1, -1}
            −1 to take rows out again; classes that are left without a node stay, with none.

        Returns
        -------
        Statistics
        Y : Tensor [n, C], float64
            Over all classes that there are then.

        Examples
        --------
        >>> import numpy as np, torch
        >>> Z, labels = torch.tensor([[2.0]]).double(), np.array([7])
        >>> more, Y = Statistics.empty(1).moved(Z, labels)
        >>> more.G, Y, more.moved(Z, labels, sign=-1)[0].n
        (tensor([[4.]], dtype=torch.float64), tensor([[1.]], dtype=torch.float64), tensor([0]))
        """
        sums = self._on(union(self.classes, distinct(labels)[0]))
        Y = one_hot(labels, sums.classes)
        more = torch.from_numpy(Y.numpy().sum(0).astype(sums.n.numpy().dtype))
        n, Y, across = torch.add(sums.n, more, alpha=sign), onto(Y, Z.device), Z.mT
        G = torch.addmm(sums.G, across, Z, alpha=sign)
        return Statistics(G, torch.addmm(sums.Q, across, Y, alpha=sign), n, sums.classes), Y

    def __getitem__(self, which: int | slice) -> Statistics:
        """One of sums side by side, or some; over all classes, also those of which it has none."""
        return Statistics(self.G[which], self.Q[which], self.n[which], self.classes)

    def after(self, first: Statistics) -> Statistics:
        """Sums side by side, and one before them.

        Parameters
        ----------
        first : Statistics
            Of the same classes.

        Returns
        -------
        Statistics
        """
        G, Q, n = (
            torch.cat([one[None], others])
            for one, others in ((first.G, self.G), (first.Q, self.Q), (first.n, self.n))
        )
        return Statistics(G, Q, n, self.classes)

    def alone(self) -> Statistics:
        """The same sums as the only ones of a stack.

        Returns
        -------
        Statistics
        """
        return Statistics(self.G[None], self.Q[None], self.n[None], self.classes)

    def padded(self, width: int) -> Statistics:
        """The same sums over features with more columns, in which these nodes had zeros.

        Parameters
        ----------
        width : int

        Returns
        -------
        Statistics
        """
        more = width - self.G.size(-1)
        if not more:
            return self
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
        left = self.less(other)
        least = self.n * ROUNDING if self.n.is_floating_point() else torch.zeros_like(self.n)
        return left.only(self.classes[(left.n > least).numpy()])

    def less(self, other: Statistics) -> Statistics:
        """The same, with all classes as they are.

        Parameters
        ----------
        other : Statistics

        Returns
        -------
        Statistics
        """
        same = other._on(self.classes)
        n = self.n - same.n
        # of a class without nodes nothing is left, not even rounding
        there = onto(n != 0, self.Q.device)[..., None, :]
        return Statistics(self.G - other.G, (self.Q - same.Q) * there, n, self.classes)

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
        classes = union(self.classes, other.classes)
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
        return less.only(self.classes[(n >= GONE).numpy()]) if n.ndim == 1 else less

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
        Q = self.Q[..., places.to(self.Q.device)]
        return Statistics(self.G, Q, self.n[..., places], classes)

    def _on(self, classes: npt.NDArray[Any]) -> Statistics:
        """The same sums over more classes, sorted, with zeros for those that are new."""
        more = classes.size - self.classes.size
        if not more:
            return self
        places = np.searchsorted(classes, self.classes)
        if not places.size or places[-1] == places.size - 1:
            # mostly the new ones come last
            n = torch.cat([self.n, self.n.new_zeros(*self.n.shape[:-1], more)], dim=-1)
            return Statistics(self.G, torch.nn.functional.pad(self.Q, (0, more)), n, classes)
        there = torch.from_numpy(places)
        n = self.n.new_zeros(*self.n.shape[:-1], classes.size)
        n[..., there] = self.n
        Q = self.Q.new_zeros(*self.Q.shape[:-1], classes.size)
        Q[..., there.to(Q.device)] = self.Q
        return Statistics(self.G, Q, n, classes)

    def nbytes(self) -> int:
        """Bytes of the triangle of G, of Q and of n: what `tensors` would hold.

        Returns
        -------
        int
        """
        width, ways = self.G.size(-1), 1 if self.G.ndim == 2 else self.G.size(0)
        triangle = self.G.element_size() * width * (width + 1) // 2
        return ways * triangle + self.Q.nbytes + self.n.nbytes

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

    def _with_classes(self, labels: npt.NDArray[Any]) -> tuple[Statistics, npt.NDArray[np.int64]]:
        """A copy with a zero column for each class that is new, and the column of each label."""
        classes, places = columns(self.classes, labels)
        wider = self._on(classes)
        if wider is self:
            wider = Statistics(self.G, self.Q.clone(), self.n.clone(), classes)
        return Statistics(self.G.clone(), wider.Q, wider.n, classes), places


def _with_targets(
    features: Iterable[Tensor], places: npt.NDArray[np.int64], sums: Statistics
) -> Iterator[tuple[Tensor, Tensor, slice]]:
    """Blocks of Z in float64, with Y of their rows, and which rows they are."""
    of_rows = _targets(places, sums.classes.size, sums.G.device)
    # sums side by side take as many times the room
    row_bytes, seen = 8 * sums.Q.shape[:-1].numel(), 0
    for given in features:
        for part in blocks(given.size(0), row_bytes, given.device):
            Z = given[part].to(torch.float64)
            rows = slice(seen + part.start, seen + part.stop)
            yield Z, of_rows(rows), rows
        seen += given.size(0)


def _targets(
    places: npt.NDArray[np.int64], count: int, device: torch.device
) -> Callable[[slice], Tensor]:
    """What gives Y of some rows: that of few nodes is sent over whole, of many only their codes."""
    if places.size < SYRK_ROWS:
        return onto(one_hot(places, np.arange(count)), device).__getitem__
    codes, columns = onto(torch.from_numpy(places), device), torch.arange(count, device=device)
    return lambda rows: (codes[rows, None] == columns).to(torch.float64)


def _add_gram(G: Tensor, Z: Tensor, *, lower: bool) -> None:
    """G += ZᵀZ, all of it or the lower triangle at least."""
    if not lower:
        G.addmm_(Z.mT, Z)
    elif G.device.type == "cpu":
        # Seen in Fortran's order G is its own transpose, so its "upper" triangle is our lower one.
        dsyrk(1.0, Z.numpy().T, beta=1.0, c=G.numpy().T, overwrite_c=True, lower=False)
    else:
        for start in range(0, G.size(0), SYRK_COLUMNS):
            rows, left = slice(start, start + SYRK_COLUMNS), slice(0, start + SYRK_COLUMNS)
            G[rows, left].addmm_(Z[:, rows].mT, Z[:, left])


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
