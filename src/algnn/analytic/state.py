"""All that an `ALGNN` knows: an immutable value that each session replaces by the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.classes import CodedLabels
from algnn.analytic.features.gcn import ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import HEADS, Affine
from algnn.analytic.lifecycle.audit import AuditLog
from algnn.analytic.lifecycle.membership import Membership, Sketch
from algnn.analytic.lifecycle.removal import check_left, check_spanned
from algnn.analytic.linalg.subspace import Span
from algnn.analytic.linalg.update import MOST_ROWS_DIVISOR, UpdatedFactor
from algnn.analytic.selection import half_masks, halvings
from algnn.analytic.statistics import Statistics, with_session
from algnn.errors import InputError

Features = HopEncoder | ExpandedGCN
# nodes, labels, masks of halves and the key of sketches → both sums and the sketches' parts
SumsElsewhere = Callable[
    [Tensor, CodedLabels, npt.NDArray[np.bool_], str | None],
    tuple[Statistics, Statistics, list[Tensor]],
]


@dataclass(frozen=True)
class State:
    """All that an `ALGNN` knows.

    `statistics` are sums over coordinates in the `span`; `half_sums`, kept where γ is chosen from
    them, are those of the second half of the nodes, one for each way of halving.
    """

    features: Features
    span: Span
    statistics: Statistics
    half_sums: Statistics
    head: str
    gamma: float
    # which nodes were learned, where that is kept; and all that was done
    membership: Membership | None = None
    log: AuditLog = field(default_factory=AuditLog)
    # What follows from the above, and is neither saved nor counted as retained: the weights, and
    # for the ridge head a factor of G + γI where the next session is likely to be small.
    solved: Affine | None = None
    factor: UpdatedFactor | None = None

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

    def with_weights(self) -> State:
        """The same with its weights solved: by an updated factor where that is cheaper."""
        sums = self.statistics
        if self.solved is not None:
            return self
        if not self._expects_few:
            return replace(self, solved=self.affine, factor=None)
        factor, W = self.factor, None
        if factor is not None:
            W = factor.weights(sums.G, sums.Q, self.gamma)
        if factor is None or W is None:
            factor = UpdatedFactor.of(sums.G, self.gamma)
            W = factor.times(sums.Q)
        return replace(self, solved=(W, W.new_zeros(W.size(1))), factor=factor)

    def resolved(self) -> State:
        """The same with weights that follow from the sums alone, to the last bit."""
        plain = replace(self, solved=None, factor=None)
        return replace(plain, solved=plain.affine)

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

    def plus(
        self,
        features: Iterable[Tensor],
        nodes: Tensor,
        labels: CodedLabels,
        seed: int,
        elsewhere: SumsElsewhere | None = None,
    ) -> State:
        """With the sums of some more nodes, whose features come in blocks; not solved yet.

        Where sums over all features are needed, `elsewhere` may add them up in the place of this
        process.
        """
        before = self.with_room_for(nodes.numel())
        membership, sketch = self.membership, None
        if membership is not None:
            sketch = Sketch(membership.key)
            features = sketch.watch(features)
        span, factor = before.span, before.factor
        if factor is not None and not factor.has_room(nodes.numel()):
            factor = None
        if span.basis is not None or factor is not None:
            # few nodes
            Z = torch.cat(list(features))
            span = span.extended(Z)
            factor = None if factor is None else factor.plus(Z)
            features = [span.coordinates(Z)]
        masks = half_masks(nodes, seed, before.ways)
        sums, half_sums = (one.padded(span.rank) for one in (before.statistics, before.half_sums))
        if span.basis is None and factor is None and elsewhere is not None:
            key = None if membership is None else membership.key
            more, half_more, parts = elsewhere(nodes, labels, masks, key)
            sums = sums.merged(more)
            half_sums = half_sums.merged(half_more) if len(masks) else half_sums
            if sketch is not None:
                sketch.parts.extend(parts)
        else:
            sums, half_sums = with_session(sums, half_sums, features, labels, masks)
        if membership is not None:
            membership = membership.plus(nodes, labels.values, sketch)
        return replace(before._with(span, sums, half_sums, membership), factor=factor)

    def minus(
        self, features: Iterable[Tensor], nodes: Tensor, labels: CodedLabels, seed: int
    ) -> State:
        """Without the sums of some nodes, not solved yet; `InputError` if they cannot be in them.

        Ways of halving that were given up since many nodes were learned do not come back.
        """
        self._check_counts(labels)
        membership, sketch = self.membership, None
        if membership is not None:
            membership.minus(nodes, labels.values)  # before any work, whether they were learned
            sketch = Sketch(membership.key)
            features = sketch.watch(features)
        span, before, device = self.span, self.statistics, self.statistics.G.device
        if span.basis is not None:
            Z = torch.cat(list(features))
            check_spanned(span, Z, nodes)
            features = [span.coordinates(Z)]
        gone, half_gone = with_session(
            Statistics.empty(span.rank, device),
            Statistics.empty(span.rank, device, self.ways),
            features,
            labels,
            half_masks(nodes, seed, self.ways),
        )
        if membership is not None:
            membership = membership.minus(nodes, labels.values, sketch)
        sums = before.minus(gone)
        half_sums = self.half_sums
        half_sums = half_sums.less(half_gone).only(sums.classes) if self.ways else half_sums
        check_left(before, gone, sums)
        if span.basis is not None:
            span, turn = span.narrowed(sums, half_sums, before)
            sums, half_sums = sums.turned(turn), half_sums.turned(turn)
        return self._with(span, sums, half_sums, membership)

    def merged(self, other: State) -> State:
        """With all that another learner with the same features knows, not solved yet."""
        if not other.taught:
            return self
        ours = self.with_room_for(int(other.statistics.n.sum()))
        # theirs may lack halves that were given up, and ours those that both together give up
        ways = min(ours.ways, other.ways)
        span, sums = ours.span, [ours.statistics, ours.half_sums[:ways]]
        theirs = [other.statistics, other.half_sums[:ways]]
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
        return self._with(span, both[0], both[1], membership)

    def decayed(self, factor: float) -> State:
        """With all nodes counting for less.

        What counts for less cannot be subtracted again, so the record of it has no use any more.
        """
        sums = self.statistics.scaled(factor)
        half_sums = self.half_sums
        half_sums = half_sums.scaled(factor).only(sums.classes) if self.ways else half_sums
        return self._with(self.span, sums, half_sums, None)

    def with_room_for(self, count: int) -> State:
        """The same, ready for so many more nodes: over all features once a span saves nothing."""
        nodes = int(self.statistics.n.sum())
        kept = self.half_sums[: halvings(nodes + count, self.span.width)]
        # nodes that count for little by now span as much as any
        if self.span.basis is None or self.span.has_room(max(nodes, self.span.rank) + count):
            return replace(self, half_sums=kept)
        whole = self.span.whole
        return self._with(
            Span(self.span.width, None), whole(self.statistics), whole(kept), self.membership
        )

    def asked_for(self, head: str, gamma: float) -> State:
        """With the head and γ of the parameters, which may have changed; γ = 0 keeps the last."""
        if self.head != head or (gamma and self.gamma != gamma):
            return replace(self, head=head, gamma=gamma, solved=None, factor=None)
        return self

    def noted(
        self, what: str, nodes: Mapping[Any, float], *, kept: float = 1.0, other: str = ""
    ) -> State:
        """With an entry in its log; `nodes` has a number for each class."""
        log = self.log.plus(what, nodes, self.head, self.gamma, kept=kept, other=other)
        return replace(self, log=log)

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

    def _with(
        self,
        span: Span,
        statistics: Statistics,
        half_sums: Statistics,
        membership: Membership | None,
    ) -> State:
        """Other sums, and nothing that followed from the old ones."""
        return replace(
            self,
            span=span,
            statistics=statistics,
            half_sums=half_sums,
            membership=membership,
            solved=None,
            factor=None,
        )

    def _check_counts(self, labels: CodedLabels) -> None:
        """Raise `InputError` if fewer nodes of a class were learned than these."""
        known = per_class(self.statistics)
        for label, count in labels.counts().items():
            if count > known.get(label, 0):
                raise InputError(
                    f"labels gives {count} nodes the class {label!r}, of which"
                    f" {known.get(label, 0)} were learned: name only nodes that were learned, each"
                    " with the label it was learned with"
                )


def per_class(statistics: Statistics) -> dict[Any, float]:
    """The number of nodes of each class, by its label."""
    return dict(zip(statistics.classes.tolist(), statistics.n.tolist(), strict=True))
