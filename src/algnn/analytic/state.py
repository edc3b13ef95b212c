"""All that an `ALGNN` knows: an immutable value that each session replaces by the next one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algnn.analytic.classes import counted
from algnn.analytic.features.expansion import ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import HEADS, Affine, penalised
from algnn.analytic.lifecycle.audit import AuditLog, Counts
from algnn.analytic.lifecycle.membership import CHANGED_FEATURES, Membership, Sketch
from algnn.analytic.linalg import MOST_ROWS_DIVISOR, Span, UpdatedFactor
from algnn.analytic.selection import half_masks, halvings
from algnn.analytic.statistics import Statistics, with_session
from algnn.analytic.uncertainty.calibration import Scores, held_out, sharpness
from algnn.analytic.uncertainty.novelty import NoveltyModel
from algnn.checks import Array
from algnn.errors import InputError
from algnn.graphs import Memo
from algnn.progress import tell

# what G loses to rounding at most, relative to its trace
GRAM_ROUNDING = 1e-12

Features = HopEncoder | ExpandedGCN


@dataclass(frozen=True)
class State:
    """All that an `ALGNN` knows."""

    features: Features
    span: Span
    statistics: Statistics  # over coordinates in the span
    half_sums: Statistics  # of the second half of the nodes, by each way of halving: γ's choice
    head: str
    gamma: float
    # which nodes were learned, where that is kept; and all that was done
    membership: Membership | None = None
    log: AuditLog = field(default_factory=AuditLog)
    # of a `JointRidge`, every node and label that it was given
    kept: tuple[Tensor, Array] = field(default_factory=lambda: (torch.arange(0), np.arange(0)))
    # What follows from the above, and is neither saved nor counted as retained: the weights, and
    # for the ridge head a factor of G + γI where the next session is likely to be small.
    solved: Affine | None = None
    factor: UpdatedFactor | None = None
    # for the last graph that was asked about: its β; and what the seen classes and the graph look
    # like, in directions that hold both
    graph_sharpness: Memo[float] = field(default_factory=Memo, init=False)
    novelty_models: Memo[tuple[Span, NoveltyModel]] = field(default_factory=Memo, init=False)

    @cached_property
    def affine(self) -> Affine:
        """W [d, C] and b [C], solved when first needed."""
        if self.solved is not None:
            return self.solved
        if not self.taught:
            nothing = self.statistics.G.new_zeros(self.span.width, 0)
            return nothing, nothing[0]
        weights, bias = HEADS[self.head](self.statistics, self.gamma)
        return self.span.lift(weights), bias

    @cached_property
    def sharpness(self) -> float:
        """β, the inverse temperature of calibrated probabilities, as far as the sums tell."""
        return sharpness(self.held_out)

    @cached_property
    def held_out(self) -> Scores:
        """Scores of nodes that the weights have not seen, from the sums."""
        # where sums are over features, and not over coordinates in a span, so are the weights
        solved = self.affine if self.span.basis is None else None
        faded = self.log.faded() if self.decays else None
        return held_out(self.head, self.gamma, self.statistics, solved, faded)

    def with_weights(self) -> State:
        """The same with its weights solved: by an updated factor where that is cheaper."""
        if self.solved is not None:
            return self
        tell("solving for weights", 1, 1)
        if not self._expects_few:
            return replace(self, solved=self.affine, factor=None)
        sums, factor = self.statistics, self.factor
        W = None if factor is None else factor.weights(sums.G, sums.Q, self.gamma)
        if factor is None or W is None:
            factor = UpdatedFactor.of(sums.G, self.gamma)
            W = factor.times(sums.Q)
        return replace(self, solved=(W, W.new_zeros(W.size(1))), factor=factor)

    @property
    def _expects_few(self) -> bool:
        """Whether the next session is likely to be small: one class like those that are known."""
        # where γ is chosen, it changes with each session, and a factor with it
        if self.head != "ridge" or self.ways or self.span.basis is not None:
            return False
        # and a GPU factorises about as quickly as it updates a factor
        if self.decays or not self.taught or not self.statistics.G.is_cpu:
            return False
        expected = int(self.statistics.n.sum()) // self.statistics.classes.size
        return MOST_ROWS_DIVISOR * expected <= self.span.width

    def determined(self) -> tuple[float | None, float | None]:
        """Condition number and effective degrees of freedom of the system that the head solves."""
        if self.head == "ncm" or not self.taught:
            return None, None
        matrix, penalty = penalised(self.head, self.statistics, self.gamma)
        values = torch.linalg.eigvalsh(matrix).clamp_min(0)
        # outside of the span there is nothing but the penalty
        lowest = penalty + (0.0 if self.span.basis is not None else float(values[0]))
        condition = (float(values[-1:].sum()) + penalty) / lowest if lowest else math.inf
        return condition, float((values / (values + penalty)).sum())

    def plus(
        self,
        features: Iterable[Tensor],
        nodes: Tensor,
        labels: Array,
        seed: int,
        elsewhere: Callable[..., tuple[Statistics, Statistics, list[Tensor]]] | None = None,
    ) -> State:
        """With the sums of some more nodes, not solved yet; `elsewhere` may be `Cluster.sums`."""
        before = self.with_room_for(nodes.numel())
        sketch = Sketch(self._key)
        features = sketch.watch(features)
        span, factor = before.span, before.factor
        factor = factor if factor is not None and factor.has_room(nodes.numel()) else None
        if span.basis is not None or factor is not None:
            # few nodes
            Z = torch.cat(list(features))
            span = span.extended(Z)
            factor = None if factor is None else factor.plus(Z)
            features = [span.coordinates(Z)]
        masks = half_masks(nodes, seed, before.ways)
        sums, half_sums = (one.padded(span.rank) for one in (before.statistics, before.half_sums))
        if span.basis is None and factor is None and elsewhere is not None:
            more, half_more, parts = elsewhere(nodes, labels, masks, self._key)
            sums, half_sums = sums.merged(more), half_sums.merged(half_more)
            sketch.parts.extend(parts)
        else:
            sums, half_sums = with_session(sums, half_sums, features, labels, masks)
        membership = self.membership
        if membership is not None:
            membership = membership.plus(nodes, labels, sketch)
        return before._with(sums, half_sums, span=span, membership=membership, factor=factor)

    def minus(self, features: Iterable[Tensor], nodes: Tensor, labels: Array, seed: int) -> State:
        """Without the sums of some nodes, not solved; `InputError` if they cannot be in them."""
        known = per_class(self.statistics)
        for label, count in counted(labels).items():
            if count > known.get(label, 0):
                raise InputError(
                    f"labels gives {count} nodes the class {label!r}, of which"
                    f" {known.get(label, 0)} were learned: name only nodes that were learned, each"
                    " with the label it was learned with"
                )
        membership, sketch = self.membership, Sketch(self._key)
        if membership is not None:
            membership.minus(nodes, labels)  # before any work, whether they were learned
        features = sketch.watch(features)
        span, before = self.span, self.statistics
        if span.basis is not None:
            Z = torch.cat(list(features))
            check_spanned(span, Z, nodes)
            features = [span.coordinates(Z)]
        nothing = Statistics.empty(span.rank, before.G.device)
        halves = Statistics.empty(span.rank, before.G.device, self.ways)
        masks = half_masks(nodes, seed, self.ways)
        gone, half_gone = with_session(nothing, halves, features, labels, masks)
        if membership is not None:
            membership = membership.minus(nodes, labels, sketch)
        sums = before.minus(gone)
        half_sums = self.half_sums.less(half_gone).on(sums.classes)
        check_left(before, gone, sums)
        if span.basis is not None:
            span, turn = span.narrowed(sums, half_sums, before)
            sums, half_sums = sums.turned(turn), half_sums.turned(turn)
        return self._with(sums, half_sums, span=span, membership=membership)

    def merged(self, other: State) -> State:
        """With all that another learner with the same features knows, not solved yet."""
        if not other.taught:
            return self
        ours = self.with_room_for(int(other.statistics.n.sum()))
        # theirs may lack halves that were given up, and ours those that both together give up
        ways = min(ours.ways, other.ways)
        span = ours.span
        sums, theirs = ([one.statistics, one.half_sums[:ways]] for one in (ours, other))
        if span.basis is None or other.span.basis is None:
            sums = [span.whole(one) for one in sums]
            theirs = [other.span.whole(one) for one in theirs]
            span = Span(span.width, None)
        else:
            basis = other.span.basis.to(span.basis.device)
            span = span.extended(basis)
            sums = [one.padded(span.rank) for one in sums]
            turn = span.coordinates(basis).to(other.span.basis.device)
            theirs = [one.turned(turn) for one in theirs]
        both = [one.merged(more) for one, more in zip(sums, theirs, strict=True)]
        membership = None
        if self.membership is not None and other.membership is not None:
            membership = self.membership.merged(other.membership)
        return self._with(*both, span=span, membership=membership)

    def decayed(self, factor: float) -> State:
        """With all nodes counting for less."""
        sums = self.statistics.scaled(factor)
        half_sums = self.half_sums.scaled(factor).on(sums.classes)
        # what counts for less cannot be subtracted again, so the record has no use any more
        return self._with(sums, half_sums, membership=None)

    def with_room_for(self, count: int) -> State:
        """The same, ready for so many more nodes: over all features once a span saves nothing."""
        nodes, width = int(self.statistics.n.sum()), self.span.width
        # nodes that count for little by now span as much as any
        room = self.span.has_room(max(nodes, self.span.rank) + count)
        outgrown = self.span.basis is not None and not room
        kept = self.half_sums[: halvings(width if outgrown else nodes + count, width)]
        if not outgrown:
            return replace(self, half_sums=kept)
        whole = self.span.whole
        return self._with(whole(self.statistics), whole(kept), span=Span(width, None))

    def asked_for(self, head: str, gamma: float) -> State:
        """With the head and γ of the parameters, which may have changed; γ = 0 keeps the last."""
        if self.head != head or (gamma and self.gamma != gamma):
            return replace(self, head=head, gamma=gamma, solved=None, factor=None)
        return self

    def noted(self, what: str, nodes: Counts, *, kept: float = 1.0, other: str = "") -> State:
        """With an entry in its log."""
        return replace(self, log=self.log.plus(what, nodes, self.head, self.gamma, kept, other))

    @property
    def _key(self) -> str:
        return "" if self.membership is None else self.membership.key

    @property
    def ways(self) -> int:
        """In how many ways nodes are halved; 0 where γ is not chosen."""
        return self.half_sums.G.size(0)

    @property
    def taught(self) -> bool:
        """Whether any class is known."""
        return self.statistics.classes.size > 0

    @property
    def decays(self) -> bool:
        """Whether some nodes count for less than others."""
        return self.statistics.n.is_floating_point()

    def _with(self, sums: Statistics, half_sums: Statistics, **changes: Any) -> State:
        """Other sums, and nothing that followed from the old ones."""
        changes |= {"statistics": sums, "half_sums": half_sums, "solved": None}
        return replace(self, **{"factor": None, **changes})


def per_class(statistics: Statistics) -> dict[Any, float]:
    """The number of nodes of each class, by its label."""
    return dict(zip(statistics.classes.tolist(), statistics.n.tolist(), strict=True))


# -- Sums do not tell which nodes they hold. But what is left of them without some nodes must still
# be sums that nodes can have: features that have changed since they were learned mostly fail here.


def check_spanned(span: Span, Z: Tensor, nodes: Tensor) -> None:
    """Raise `InputError` if features Z [n, d] stick out of the span of all that was learned."""
    assert span.basis is not None
    rest = torch.linalg.vector_norm(Z - span.coordinates(Z) @ span.basis, dim=1)
    outside = rest > CHANGED_FEATURES * torch.linalg.vector_norm(Z, dim=1)
    if bool(outside.any()):
        raise _changed(f"node {int(nodes[int(outside.int().argmax())])} has")


def check_left(before: Statistics, gone: Statistics, left: Statistics) -> None:
    """Raise `InputError` if `left` = `before` − `gone` are sums that no nodes can have."""
    # a class without nodes has no sum
    empty = torch.from_numpy(~np.isin(before.classes, left.classes)).to(before.Q.device)
    over = torch.linalg.vector_norm((before.Q - gone.on(before.classes).Q)[:, empty])
    changed = float(over) > CHANGED_FEATURES * float(torch.linalg.vector_norm(before.Q[:, empty]))
    # nor has a sum of squares a negative direction, but for rounding
    rounding = CHANGED_FEATURES * float(gone.G.trace()) + GRAM_ROUNDING * float(before.G.trace())
    matrix = left.G.clone()
    matrix.diagonal().add_(rounding or 1.0)
    if changed or int(torch.linalg.cholesky_ex(matrix).info):
        raise _changed("some nodes have")


def _changed(who: str) -> InputError:
    return InputError(
        f"{who} other features in this graph than those that were learned, and forgetting them"
        " would leave sums that no nodes can have: give the graph as it was when they were learned"
    )
