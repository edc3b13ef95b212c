"""All that an `ALGNN` knows, and what becomes of it when nodes are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.bank import Bank
from algnn.analytic.choice import halvings, in_second_half
from algnn.analytic.encoder import Widened
from algnn.analytic.heads import HEADS, Affine, factorise
from algnn.analytic.recursion import refined, woodbury
from algnn.analytic.span import Span
from algnn.analytic.statistics import Statistics
from algnn.checks import check_trained

Features = Bank | Widened

# A session of at most d / FEW nodes is cheaper by way of R than by a factorisation of its own: the
# update of R takes about 4nd² operations and a factorisation d³/3, at a lower rate on a GPU.
FEW = {"cpu": 8, "cuda": 4}
# R itself costs one and a half to four factorisations, so it is made once so many small sessions
# have come in a row that more are likely.
PATIENCE = 4


@dataclass(frozen=True)
class Learned:
    """All that an `ALGNN` knows."""

    features: Features
    span: Span
    # sums over coordinates in the span: of all nodes, and, where γ is chosen from them, of the
    # second half for each way of halving them
    statistics: Statistics
    seconds: tuple[Statistics, ...]
    head: str
    gamma: float
    # What follows from the above, and is neither saved nor counted as retained: the weights; how
    # many small sessions came in a row; and R, which is (G + γI)⁻¹ to some digits.
    solved: Affine | None = None
    small: int = 0
    R: Tensor | None = None

    @cached_property
    def affine(self) -> Affine:
        """W [d, C] and b [C], solved when first needed."""
        if self.solved is not None:
            return self.solved
        weights, bias = HEADS[self.head](self.statistics, self.gamma)
        return self.span.lift(weights), bias

    def with_room_for(self, count: int) -> Learned:
        """The same, ready for so many more nodes: over all features once a span is not worth it."""
        nodes = int(self.statistics.n.sum()) + count
        kept = self.seconds[: halvings(nodes, self.span.width)]
        if self.span.basis is None or self.span.has_room(nodes):
            return replace(self, seconds=kept)
        whole = self.span.whole
        return replace(
            self,
            span=Span(self.span.width, None),
            statistics=whole(self.statistics),
            seconds=tuple(map(whole, kept)),
        )

    def plus(
        self,
        features: Callable[[Tensor], Iterator[Tensor]],
        nodes: Tensor,
        labels: npt.NDArray[Any],
        seed: int,
    ) -> Learned:
        """With the sums of one more session, not solved yet; `features` gives Z of some nodes."""
        room = self.with_room_for(nodes.numel())
        span, sums = room.span, room.statistics
        if span.basis is not None:
            span = span.extended(torch.cat(list(features(nodes))))
            sums = sums.padded(span.rank)
        sums = sums.plus(map(span.coordinates, features(nodes)), labels)
        seconds = []
        for halving, second in enumerate(room.seconds):
            chosen = in_second_half(nodes, seed, halving)
            more = map(span.coordinates, features(nodes[chosen]))
            seconds.append(second.padded(span.rank).plus(more, labels[chosen.numpy()]))
        return replace(
            room, span=span, statistics=sums, seconds=tuple(seconds), solved=None, small=0, R=None
        )

    def plus_few(self, Z: Tensor, labels: npt.NDArray[Any]) -> Learned:
        """With one more session of few nodes, whose features are Z [n, d]; for ``"ridge"`` only."""
        statistics = self.statistics.plus([Z], labels)
        R = W = None
        if self.R is not None:
            R = woodbury(self.R, Z)
            W = refined(R, statistics.G, statistics.Q, self.gamma)
        if W is None:
            factor = factorise(statistics.G.clone(), self.gamma)
            W = torch.cholesky_solve(statistics.Q, factor)
            check_trained(W)
            R = torch.cholesky_inverse(factor) if self.small + 1 >= PATIENCE else None
        solved = W, W.new_zeros(W.size(1))
        return replace(self, statistics=statistics, solved=solved, small=self.small + 1, R=R)
