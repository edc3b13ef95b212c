"""A session of few nodes as one piece of work for a GPU, recorded once and then replayed.

By way of R such a session is some forty small calls, and most of its time a GPU waits for the next
one. Over buffers that stay where they are, all of them can be recorded (as a CUDA graph) and handed
over at once. A recording needs sizes that never change: nodes come some at a time, with rows of
zeros where there are fewer, and classes have spare columns.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.linalg.recursion import Inverse, corrected, is_settled
from algnn.analytic.statistics import Statistics

# Nodes at a time: on an H200 half as many take four fifths of the time, twice as many half as long
# again.
ROWS = 128
# Columns for classes: a multiple of this.
COLUMNS = 128
# Where features are wider, what is calculated takes longer than the calls do, and the buffers are
# large: twice d² numbers.
WIDEST = 4096


class Tape:
    """R, W and the sums of a learner in buffers, and the recursion over them.

    With S = [G | Q], A = [R | W] and few rows [Z | Y], Eq. (Rt_woodbury) and (Wt_recursive) are one
    formula: A − (Z R)ᵀ (I + Z R Zᵀ)⁻¹ (Z A − [0 | Y]). One correction by the sums follows, as
    in `refined`.

    Parameters
    ----------
    features : callable
        Gives Z [n, d], float64, of some rows of what is prepared for a graph.

    Attributes
    ----------
    features : callable
    lock : Lock
        To be held from `holds` to `keep`.

    Examples
    --------
    >>> import numpy as np, torch
    >>> one = torch.ones(1, 1).double()
    >>> sums = Statistics.empty(1).plus([one], np.array([7]))
    >>> R = Inverse.of(2**0.5 * one, whole=True)
    >>> tape = Tape(lambda rows: rows)
    >>> tape.take(sums, R, R.times(sums.Q), gamma=1.0)
    >>> tape.learn(one, torch.tensor([0]), np.array([0]))
    >>> G, Q, R, W = tape.copies(1)
    >>> tape.is_settled(), W
    (True, tensor([[0.6667]], dtype=torch.float64))
    """

    def __init__(self, features: Callable[[Tensor], Tensor]) -> None:
        self.features = features
        self.lock = Lock()
        self._buffers: _Buffers | None = None
        # whose sums and R are in the buffers, as long as these live; None where nobody's are
        self._held: tuple[weakref.ref[Statistics], weakref.ref[Inverse]] | None = None

    def holds(self, sums: Statistics, R: Inverse, classes: int) -> bool:
        """Whether these are in the buffers, with columns for so many classes.

        Parameters
        ----------
        sums : Statistics
        R : Inverse
        classes : int

        Returns
        -------
        bool
        """
        if self._held is None or self._held[0]() is not sums or self._held[1]() is not R:
            return False
        return self._buffers is not None and classes <= self._buffers.classes

    def take(self, sums: Statistics, R: Inverse, W: Tensor, gamma: float) -> None:
        """Copy what a learner knows into the buffers.

        Parameters
        ----------
        sums : Statistics
        R : Inverse
            As a matrix.
        W : Tensor [d, C], float64
        gamma : float
        """
        (d, C), device = sums.Q.shape, sums.Q.device
        self._held, buffers = None, self._buffers
        if buffers is None or not buffers.has_room(d, C, device):
            # the old ones go before the new ones come
            self._buffers = buffers = None
            self._buffers = buffers = _Buffers(self.features, d, C, device)
        buffers.G.copy_(sums.G)
        buffers.R.copy_(R.root)
        for part, given in zip(buffers.QW, (sums.Q, W), strict=True):
            part[:, :C] = given
            part[:, C:] = 0
        buffers.gamma.fill_(gamma)

    def learn(self, prepared: Tensor, places: Tensor, codes: npt.NDArray[np.int64]) -> None:
        """Learn some more nodes. Nothing is waited for.

        Parameters
        ----------
        prepared : Tensor [m, h]
            What features are made of.
        places : Tensor [n], int64
            Where these nodes are in it.
        codes : array [n], int64
            The column of each node's class.
        """
        assert self._buffers is not None
        # until `keep`, they are nobody's
        self._held = None
        count, times = codes.size, -(-codes.size // ROWS)
        of_nodes = np.empty((2, times * ROWS), dtype=np.int64)
        of_nodes[0, :count], of_nodes[1, :count] = places.numpy(), codes
        # where there are no more nodes, one of them again, of no class: its row becomes zeros
        of_nodes[0, count:], of_nodes[1, count:] = of_nodes[0, 0], -1
        for some in of_nodes.reshape(2, times, ROWS).swapaxes(0, 1):
            self._buffers.fill(prepared, np.ascontiguousarray(some))
            self._buffers.run()

    def copies(self, classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is known now. Nothing is waited for.

        Parameters
        ----------
        classes : int
            C.

        Returns
        -------
        G, Q, R, W : Tensor [d, d], [d, C], [d, d], [d, C]
        """
        assert self._buffers is not None
        # what is small together, and each large one by itself: nothing large lives on for a view
        Q, W = self._buffers.QW[:, :, :classes].clone()
        return self._buffers.G.clone(), Q, self._buffers.R.clone(), W

    def zeros(self, classes: int) -> Tensor:
        """A bias of nothing, which nobody may change.

        Parameters
        ----------
        classes : int

        Returns
        -------
        Tensor [C], float64
        """
        assert self._buffers is not None
        return self._buffers.zeros[:classes]

    def is_settled(self) -> bool:
        """Whether the last weights are right to rounding; this waits until they are there.

        Returns
        -------
        bool
        """
        assert self._buffers is not None
        return is_settled(self._buffers.norms)

    def keep(self, sums: Statistics, R: Inverse) -> None:
        """What is in the buffers is in these, too.

        Parameters
        ----------
        sums : Statistics
        R : Inverse
        """
        self._held = weakref.ref(sums), weakref.ref(R)

    # what is recorded is of this process and of these buffers: a copy starts anew

    def __deepcopy__(self, memo: dict[int, Any]) -> Tape:
        return Tape(copy.deepcopy(self.features, memo))

    def __reduce__(self) -> tuple[type[Tape], tuple[Any]]:
        return (Tape, (self.features,))


class _Buffers:
    """What a recording reads and writes, and the recording itself."""

    def __init__(
        self,
        features: Callable[[Tensor], Tensor],
        width: int,
        classes: int,
        device: torch.device,
    ) -> None:
        self.width = width
        # some to spare from the start: the next class is what all this is for
        self.classes = COLUMNS * (classes // COLUMNS + 1)
        self._features = features
        # S and A, and their parts
        shape = (2, width, width + self.classes)
        self.known = torch.zeros(shape, dtype=torch.float64, device=device)
        (self.G, self.R), self.QW = self.known[:, :, :width], self.known[:, :, width:]
        self.gamma, self.norms = self.known.new_zeros(()), self.known.new_zeros(4)
        self.zeros = self.known.new_zeros(self.classes)
        # [Z | Y]; here and not made anew, so that what is done beside needs no memory of its own
        self._both = self.known.new_zeros(ROWS, width + self.classes)
        self._one = torch.eye(ROWS, dtype=torch.float64, device=device)
        self._columns = torch.arange(self.classes, device=device)
        # where nodes are in what is prepared, and the columns of their classes, or −1 for none
        self._of_nodes = torch.zeros(2, ROWS, dtype=torch.int64, device=device)
        self._places, self._codes = self._of_nodes[0], self._of_nodes[1, :, None]
        self._rows: Tensor | None = None
        self._graph: Any = None
        self._recordable = device.type == "cuda"

    def has_room(self, width: int, classes: int, device: torch.device) -> bool:
        """Whether they have room for so much."""
        return self.width == width and self.classes >= classes and self.known.device == device

    def fill(self, prepared: Tensor, of_nodes: npt.NDArray[np.int64]) -> None:
        """Take in some nodes."""
        self._of_nodes.copy_(torch.from_numpy(of_nodes), non_blocking=True)
        if self._rows is None or self._rows.dtype != prepared.dtype:
            self._rows = prepared.new_empty(ROWS, prepared.size(1))
            self._graph = None
        torch.index_select(prepared, 0, self._places, out=self._rows)

    def run(self) -> None:
        """Learn the nodes that were taken in."""
        if self._graph is None and self._recordable:
            self._graph = self._recorded()
            self._recordable = self._graph is not None
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def _recorded(self) -> Any:
        """The recording; None if there can be none, and it has to go call by call."""
        here: Any = torch.cuda.current_stream(self.known.device)
        graph = torch.cuda.CUDAGraph()
        self._prepare()
        with _one_at_a_time:
            there, beside = _streams(self.known.device)
            there.wait_stream(here)
            try:
                self._capture(graph, there, beside)
            except RuntimeError:
                # a library that cannot be recorded, or no memory for it; the allocator may still
                # refer to what was begun
                _begun.append(graph)
                return None
        here.wait_stream(there)
        return graph

    def _prepare(self) -> None:
        """Have libraries make ready what cannot be recorded, in this thread."""
        assert self._rows is not None
        self._features(self._rows)
        torch.linalg.solve_triangular(torch.linalg.cholesky_ex(self._one).L, self._one, upper=False)

    def _capture(self, graph: Any, there: Any, beside: Any) -> None:
        with torch.cuda.stream(there):
            # other threads may go on with theirs
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._step(beside)
            except BaseException:
                # it must end in any case, and what went wrong is what to tell
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()

    def _step(self, beside: Any = None) -> None:
        """The recursion, with another stream for what need not wait."""
        d, (S, A), codes = self.width, self.known, self._codes
        assert self._rows is not None
        Z, Y = self._both[:, :d], self._both[:, d:]
        torch.mul(self._features(self._rows), codes >= 0, out=Z)
        torch.eq(codes, self._columns, out=Y)
        seen = Z @ A
        inner = torch.addmm(self._one, seen[:, :d], Z.mT)
        # a factorisation of so few rows leaves most of a GPU idle: the sums meanwhile
        if beside is not None:
            beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            S.addmm_(Z.mT, self._both)
        # not checked: a factor that is wrong makes weights that are not settled
        factor, _ = torch.linalg.cholesky_ex(inner)
        seen[:, d:].sub_(Y)
        half = torch.linalg.solve_triangular(factor, seen, upper=False)
        A.addmm_(half[:, :d].mT, half, alpha=-1)
        if beside is not None:
            torch.cuda.current_stream().wait_stream(beside)
        Q, W = self.QW
        better, norms = corrected(W, self.R.matmul, self.G, Q, self.gamma)
        W.copy_(better)
        self.norms.copy_(norms)


# One recording at a time, in streams in which nothing else is done here: what others did there
# would be in it. The same streams for all, since libraries keep memory for each.
_one_at_a_time = Lock()
_begun: list[Any] = []
_all_streams: dict[torch.device, tuple[Any, Any]] = {}


def _streams(device: torch.device) -> tuple[Any, Any]:
    if device not in _all_streams:
        one: Any = torch.cuda.Stream
        _all_streams[device] = one(device), one(device)
    return _all_streams[device]
