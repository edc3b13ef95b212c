"""All that an `ALGNN` knows, and what becomes of it as nodes come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.features.hops import Bank
from algnn.analytic.selection import halvings, second_halves
from algnn.analytic.linalg.cholesky import TOGETHER, begun, check_definite, substituted
from algnn.analytic.classes import columns, counted
from algnn.analytic.lifecycle.removal import check_left, check_spanned, is_doubtful
from algnn.analytic.features.gcn import Widened
from algnn.analytic.heads import HEADS, Affine
from algnn.analytic.lifecycle.audit import AuditLog
from algnn.analytic.lifecycle.membership import Membership
from algnn.analytic.linalg.recursion import Inverse, refined
from algnn.analytic.linalg.subspace import Span
from algnn.analytic.statistics import SYRK_ROWS, Statistics
from algnn.analytic.tape import WIDEST, Tape
from algnn.checks import check_trained, onto
from algnn.errors import InputError

Features = Bank | Widened
# gives Z of a session's nodes, all of them or those at some places, in blocks of rows
Encode = Callable[[Tensor | None], Iterator[Tensor]]

# A session of at most d / FEW nodes is cheaper by way of R than by a factorisation of its own: that
# takes d³/3 operations, at a lower rate on a GPU, and R about nd² for n nodes.
FEW = {"cpu": 8, "cuda": 4}
# R is kept for sessions to come. On the CPU that is the factor, which is there anyway. On a GPU it
# is one inverse, some factorisations' worth: only where the next session is likely to have at most
# d / LIKELY nodes, so that many fit into d, and not where classes are large, as 2,000 nodes at a
# width of 8,192.
LIKELY = 16


@dataclass(frozen=True)
class Learned:
    """All that an `ALGNN` knows."""

    features: Features
    span: Span
    # sums over coordinates in the span: of all nodes, and, where γ is chosen from them, of the
    # second half for each way of halving them, side by side over the same classes (else none)
    statistics: Statistics
    seconds: Statistics
    head: str
    gamma: float
    # which nodes were learned, where that is kept; and all that was done
    record: Membership | None = None
    journal: AuditLog = field(default_factory=AuditLog)
    # What follows from the above, and is neither saved nor counted as retained: the weights, and
    # R = (G + γI)⁻¹ to some digits, where few nodes are likely to come next.
    solved: Affine | None = None
    R: Inverse | None = None

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

    def with_room_for(self, count: int) -> Learned:
        """The same, ready for so many more nodes: over all features once a span is not worth it."""
        nodes = int(self.statistics.n.sum())
        kept = self.seconds[: halvings(nodes + count, self.span.width)]
        # nodes that count for little by now span as much as any
        if self.span.basis is None or self.span.has_room(max(nodes, self.span.rank) + count):
            return replace(self, seconds=kept)
        whole = self.span.whole
        return replace(
            self,
            span=Span(self.span.width, None),
            statistics=whole(self.statistics),
            seconds=whole(kept),
        )

    def plus(
        self,
        features: Encode,
        nodes: Tensor,
        labels: npt.NDArray[Any],
        seed: int,
    ) -> Learned:
        """With the sums of one more session, not solved yet."""
        room = self.with_room_for(nodes.numel())
        span, sums, seconds = room.span, room.statistics, room.seconds
        if span.basis is not None:
            # of few nodes, as long as there is a basis: once for all sums
            Z = _whole(features)
            span = span.extended(Z)
            features = _always(span.coordinates(Z))
        sums, seconds = _summed(sums, seconds, span.rank, features, nodes, labels, seed)
        record = None if room.record is None else room.record.plus(nodes, labels)
        return room._with(span, sums, seconds, record)

    def solved_by(self, gamma: float, weights: Tensor | None) -> Learned:
        """With another γ, and solved if weights over coordinates are at hand."""
        if weights is None:
            return replace(self, gamma=gamma, solved=None)
        # a copy where nothing is lifted: what was solved along with them is not kept alive
        W = weights.clone() if self.span.basis is None else self.span.lift(weights)
        return replace(self, gamma=gamma, solved=(W, W.new_zeros(W.size(1))))

    def factorised(self) -> Learned:
        """Solved, and ready for few nodes; for ``"ridge"`` only."""
        sums = self.statistics
        factor, failed = begun(sums.G.clone(), self.gamma)
        pays = not factor.is_cuda or LIKELY * self.expected <= factor.size(0)
        # sums that fade are others before the next session
        R = Inverse.of(factor) if pays and not self.decays else None
        W = None
        if R is not None and R.whole:
            # with R at hand a product is quicker than a substitution
            W = refined(R.times(sums.Q), R, sums.G, sums.Q, self.gamma)
            # an R that is too far off would be of no use later either
            R = R if W is not None else None
        # only now, so that a GPU has had something to do all the while
        check_definite(failed, self.gamma)
        if W is None:
            W = substituted(factor, sums.Q)
            check_trained(W)
        return self._solved(W, R)

    def plus_few(self, Z: Tensor, nodes: Tensor, labels: npt.NDArray[Any], kept: float) -> Learned:
        """With one more session of few nodes, whose features are Z [n, d]; for ``"ridge"`` only.

        It is in the log; `kept` is what all before it counts for by now.
        """
        sums, Y = self.statistics.moved(Z, labels)
        after = self._with_few(sums, nodes, labels, kept)
        return self._recursed(after, Z, Y) or after.factorised()

    @property
    def can_replay(self) -> bool:
        """Whether few nodes can be learned by a tape."""
        return self.R is not None and self.R.whole and self.statistics.G.size(0) <= WIDEST

    def replayed(
        self, tape: Tape, prepared: Tensor, nodes: Tensor, labels: npt.NDArray[Any], kept: float
    ) -> Learned:
        """The same as `plus_few` by a tape, from what the features of all nodes are made of."""
        before, R = self.statistics, self.R
        assert R is not None
        classes, codes = columns(before.classes, labels)
        # mostly the new ones come last, and stand where the tape has spare columns
        last = classes[before.classes.size - 1] == before.classes[-1]
        with tape.lock:
            if not (last and tape.holds(before, R, classes.size)):
                W = _columns(self.affine[0], before.classes, classes)
                tape.take(before._on(classes), R, W, self.gamma)
            tape.learn(prepared, nodes, codes)
            G, Q, root, W = tape.copies(classes.size)
            # what needs no GPU, while it is at work
            n = np.bincount(codes, minlength=classes.size)
            n[np.searchsorted(classes, before.classes)] += before.n.numpy()
            sums, R = Statistics(G, Q, torch.from_numpy(n), classes), replace(R, root=root)
            solved = W, tape.zeros(classes.size)
            after = self._with_few(sums, nodes, labels, kept, solved, R)
            if tape.is_settled():
                tape.keep(sums, R)
                return after
        found = refined(W, R, G, Q, self.gamma)
        return after.factorised() if found is None else after._solved(found, R)

    def _with_few(
        self,
        sums: Statistics,
        nodes: Tensor,
        labels: npt.NDArray[Any],
        kept: float,
        solved: Affine | None = None,
        R: Inverse | None = None,
    ) -> Learned:
        """With the sums of few nodes more, which are also in the record and the log."""
        record = None if self.record is None else self.record.plus(nodes, labels)
        journal = self._log("learn", counted(labels), kept=kept)
        return replace(self, statistics=sums, record=record, journal=journal, solved=solved, R=R)

    def _solved(self, W: Tensor, R: Inverse | None) -> Learned:
        """With the weights of its sums."""
        return replace(self, solved=(W, W.new_zeros(W.size(1))), R=R)

    def minus_few(self, Z: Tensor, nodes: Tensor, labels: npt.NDArray[Any]) -> Learned | None:
        """Without few nodes, whose features are Z [n, d]; for ``"ridge"`` only.

        None where it is not clear that the sums hold them, or R is of no help: `minus` tells.
        """
        self._check_counts(labels)
        record = None if self.record is None else self.record.minus(nodes, labels)
        before = self.statistics
        if self.R is None or not self.R.has_room(labels.size):
            return None
        if labels.size >= int(before.n.sum()):
            return None
        left, Y = before.moved(Z, labels, sign=-1)
        doubtful, some = is_doubtful(before, Z, left), left.n > 0
        sums = left.only(before.classes[some.numpy()])
        after = replace(self, statistics=sums, record=record)
        # of classes that are gone nothing is asked any more
        Y = Y if bool(some.all()) else Y[:, onto(some, Y.device)]
        return self._recursed(after, Z, Y, sign=-1, unless=doubtful)

    def _recursed(
        self,
        after: Learned,
        Z: Tensor,
        Y: Tensor,
        sign: int = 1,
        unless: Tensor | None = None,
    ) -> Learned | None:
        """Other sums solved by way of R, if that can be."""
        if self.R is None or not self.R.has_room(Y.size(0)):
            return None
        sums, (W, _) = after.statistics, self.affine
        start = _columns(W, self.statistics.classes, sums.classes)
        R, proposed = self.R.updated(Z, Y, start, sign=sign, unless=unless)
        found = refined(proposed, R, sums.G, sums.Q, self.gamma)
        return None if found is None else after._solved(found, R)

    def minus(
        self, features: Encode, nodes: Tensor, labels: npt.NDArray[Any], seed: int
    ) -> Learned:
        """Without the sums of some nodes, not solved yet; `InputError` if they cannot be in them.

        Ways of halving that were given up since many nodes were learned do not come back.
        """
        self._check_counts(labels)
        record = None if self.record is None else self.record.minus(nodes, labels)
        check_spanned(self.span, features(None), nodes)
        span, before = self.span, self.statistics
        if span.basis is not None:
            features = _always(span.coordinates(_whole(features)))
        nothing, no_halves = (
            Statistics.empty(span.rank, before.G.device, ways) for ways in (None, self.ways)
        )
        gone, halves = _summed(nothing, no_halves, span.rank, features, nodes, labels, seed)
        sums, seconds = before.minus(gone), self.seconds
        if self.ways:
            seconds = seconds.less(halves).only(sums.classes)
        check_left(before, gone, sums)
        if span.basis is not None:
            span, turn = span.narrowed(sums, seconds, before)
            sums, seconds = sums.turned(turn), seconds.turned(turn)
        return self._with(span, sums, seconds, record)

    def merged(self, other: Learned) -> Learned:
        """With all that another learner with the same features knows, not solved yet."""
        if not other.taught:
            return self
        ours = self.with_room_for(int(other.statistics.n.sum()))
        # theirs may lack halves that were given up, and ours those that both together give up
        ways = min(ours.ways, other.ways)
        span, sums = ours.span, [ours.statistics, ours.seconds[:ways]]
        theirs = [other.statistics, other.seconds[:ways]]
        if span.basis is None or other.span.basis is None:
            span, whole = Span(span.width, None), ours.span.whole
            sums = [whole(one) for one in sums]
            theirs = [other.span.whole(one) for one in theirs]
        else:
            basis = other.span.basis.to(span.basis.device)
            span = span.extended(basis)
            sums = [one.padded(span.rank) for one in sums]
            turn = span.coordinates(basis).to(other.span.basis.device)
            theirs = [one.turned(turn) for one in theirs]
        both = [one.merged(more) for one, more in zip(sums, theirs, strict=True)]
        record = None
        if self.record is not None and other.record is not None:
            record = self.record.merged(other.record)
        return self._with(span, both[0], both[1], record)

    def decayed(self, factor: float) -> Learned:
        """With all that is known counting for less.

        What counts for less cannot be taken out again, so the record of it has no use any more.
        """
        sums = self.statistics.scaled(factor)
        seconds = self.seconds.scaled(factor).only(sums.classes) if self.ways else self.seconds
        return self._with(self.span, sums, seconds, None)

    def noted(
        self, what: str, nodes: Mapping[Any, float], *, kept: float = 1.0, other: str = ""
    ) -> Learned:
        """With what was done written into its log; `nodes` has a number for each class."""
        return replace(self, journal=self._log(what, nodes, kept=kept, other=other))

    def _log(
        self, what: str, nodes: Mapping[Any, float], *, kept: float = 1.0, other: str = ""
    ) -> AuditLog:
        return self.journal.plus(what, nodes, self.head, self.gamma, kept=kept, other=other)

    @property
    def ways(self) -> int:
        """In how many ways nodes are halved; 0 where γ is not chosen."""
        return self.seconds.G.size(0)

    @property
    def expected(self) -> int:
        """The best guess at the nodes of the next session: it brings one class like the others."""
        return int(self.statistics.n.sum()) // max(1, self.statistics.classes.size)

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
        seconds: Statistics,
        record: Membership | None,
    ) -> Learned:
        """Other sums, and nothing that followed from the old ones."""
        return replace(
            self,
            span=span,
            statistics=statistics,
            seconds=seconds,
            record=record,
            solved=None,
            R=None,
        )

    def _check_counts(self, labels: npt.NDArray[Any]) -> None:
        """Raise `InputError` if there are fewer nodes of a class than these."""
        known = per_class(self.statistics)
        for label, count in counted(labels).items():
            if count > known.get(label, 0):
                raise InputError(
                    f"labels gives {count} nodes the class {label!r}, of which"
                    f" {known.get(label, 0)} were learned: name only nodes that were learned, each"
                    " with the label it was learned with"
                )


def _columns(W: Tensor, before: npt.NDArray[Any], now: npt.NDArray[Any]) -> Tensor:
    """W for other classes: those that are new start from zeros, those that are gone have none."""
    if np.array_equal(before, now[: before.size]):
        return torch.nn.functional.pad(W, (0, now.size - before.size))
    old, new = np.intersect1d(before, now, assume_unique=True, return_indices=True)[1:]
    start = W.new_zeros(W.size(0), now.size)
    start[:, torch.from_numpy(new).to(W.device)] = W[:, torch.from_numpy(old).to(W.device)]
    return start


def _whole(features: Encode) -> Tensor:
    """Z of few nodes, float64."""
    first, *others = features(None)
    return (torch.cat([first, *others]) if others else first).to(torch.float64)


def _always(Z: Tensor) -> Encode:
    """Features that are there already."""

    def of(places: Tensor | None) -> Iterator[Tensor]:
        yield Z if places is None else Z[onto(places, Z.device)]

    return of


def _summed(
    sums: Statistics,
    seconds: Statistics,
    rank: int,
    features: Encode,
    nodes: Tensor,
    labels: npt.NDArray[Any],
    seed: int,
) -> tuple[Statistics, Statistics]:
    """The sums of all nodes and of second halves, with those of some more of this rank."""
    ways = seconds.G.size(0)
    chosen = second_halves(nodes, seed, ways)
    if ways > 1 and rank <= TOGETHER:
        # all nodes are one more choice of some of them
        every = np.ones((1, labels.size), dtype=bool)
        both = (
            seconds.after(sums)
            .padded(rank)
            .plus_chosen(features(None), labels, np.concatenate([every, chosen]))
        )
        return both[0], both[1:]
    sums, seconds = sums.padded(rank), seconds.padded(rank)
    if ways > 1:
        sums = sums.plus(features(None), labels)
        return sums, seconds.plus_chosen(features(None), labels, chosen)
    # of one half, only its own rows
    places = chosen[0].nonzero()[0] if ways else None
    if labels.size < SYRK_ROWS:
        # too few for the symmetric route, and so few that they are encoded once for both sums
        Z = _whole(features)
        sums, _ = sums.moved(Z, labels)
        if places is None:
            return sums, seconds
        second, _ = seconds[0].moved(Z[onto(torch.from_numpy(places), Z.device)], labels[places])
    else:
        sums = sums.plus(features(None), labels)
        if places is None:
            return sums, seconds
        second = seconds[0].plus(features(torch.from_numpy(places)), labels[places])
    return sums, second._on(sums.classes).alone()


def per_class(statistics: Statistics) -> dict[Any, float]:
    """The nodes of each class, by its label.

    Parameters
    ----------
    statistics : Statistics

    Returns
    -------
    dict

    Examples
    --------
    >>> per_class(Statistics.empty(1).plus([torch.ones(2, 1)], np.array([7, 7])))
    {7: 2}
    """
    return dict(zip(statistics.classes.tolist(), statistics.n.tolist(), strict=True))
