"""Which nodes were learned as what, as 64-bit hashes, so that only those can be forgotten.

The sums do not tell whether a node is in them. By a hash of each learned pair of node and class a
request to forget what was never learned, which would corrupt the sums without a trace, is refused;
one passes by chance with a probability of the number of learned nodes over 2^64. Eight more bytes
are a sketch of the features that a node was learned with: it can be forgotten only with the same
ones. Whoever has the file can try every id with every class: treat the hashes like a list of the
labelled nodes and their classes. `ALGNN.drop_record` removes them.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.classes import Array, mixed
from algnn.errors import InputError
from algnn.graph.propagate import blocks

Hashes = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Places = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
# Features that differ by a larger share are not those that were learned. The rounding of float32,
# by which those of another machine may differ, is less.
CHANGED_FEATURES = 1e-5
MOST_IDS = 2**22


class Sketch:
    """Two random projections of each row of some features, and its length, in `parts` [b, 3]."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.parts: list[Tensor] = []

    def watch(self, features: Iterable[Tensor]) -> Iterator[Tensor]:
        """The same blocks of rows, one after another."""
        for Z in features:
            rows = Z.to(torch.float64)
            # the same numbers on every machine: bits, not the generator of a library
            bits = np.arange(2 * Z.size(1), dtype=np.uint64) + _salts(self._key, ["sketch"])[0]
            numbers = (mixed(bits) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
            directions = torch.from_numpy(numbers.reshape(-1, 2)).to(Z.device)
            lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
            self.parts.append(torch.cat([rows @ directions, lengths], dim=1).cpu())
            yield Z

    @property
    def prints(self) -> Hashes:
        """The projections of all rows that have passed, eight bytes each."""
        projections = torch.cat(self.parts)[:, :2].to(torch.float32)
        return projections.contiguous().numpy().view(np.int64)[:, 0]


def no_prints(count: int) -> Hashes:
    """What stands for sketches that were not kept: those of no features at all."""
    return np.full((count, 2), np.nan, dtype=np.float32).view(np.int64)[:, 0]


@dataclass(frozen=True)
class Membership:
    """A multiset of learned pairs of node and class: a pair learned twice is forgotten twice."""

    key: str  # hashes with different keys have nothing in common
    hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    prints: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # of the features

    @cached_property
    def ordered(self) -> tuple[Hashes, Hashes]:
        """Hashes and prints, sorted, so that a file does not show which came together."""
        order = np.argsort(self.hashes, kind="stable")  # of a file they are sorted: 30 times faster
        if bool((np.diff(self.counted) == 0).any()):  # prints only matter where hashes are equal
            order = np.lexsort((self.prints, self.hashes))
        return self.hashes[order], self.prints[order]

    @cached_property
    def counted(self) -> Hashes:
        """Hashes alone, sorted, which is far quicker: counting needs no prints."""
        return np.sort(self.hashes)

    def plus(self, nodes: Tensor, labels: Array, sketch: Sketch | None = None) -> Self:
        """With some more pairs."""
        prints = no_prints(labels.size) if sketch is None else sketch.prints
        return self.merged(replace(self, hashes=self._hashes(nodes, labels), prints=prints))

    def minus(self, nodes: Tensor, labels: Array, sketch: Sketch | None = None) -> Self:
        """Without some pairs; `InputError` where one was never learned, or with other features."""
        wanted = self._hashes(nodes, labels)
        order = np.argsort(wanted, kind="stable")
        run = wanted[order]
        # of equal hashes, the first stands for the first, the second for the second, …
        again = np.arange(run.size) - np.searchsorted(run, run)
        held, prints = self.ordered
        places = np.searchsorted(held, run) + again
        missing = order[self._times(run) <= again]
        if missing.size:
            first = int(missing.min())
            raise InputError(
                f"nodes holds {int(nodes[first])}, which was not learned as {labels[first]!s}"
                f" ({missing.size} of {run.size} were not): name only nodes that were learned, each"
                " with the label it was learned with"
            )
        changed = [] if sketch is None else self._match(run, places, sketch, order)
        if len(changed):
            raise InputError(
                f"node {int(nodes[order[changed[0]]])} has other features in this graph than those"
                f" that were learned ({len(changed)} of {run.size} have), and forgetting them would"
                " be inexact: give the graph as it was when they were learned"
            )
        return replace(self, hashes=np.delete(held, places), prints=np.delete(prints, places))

    def _match(self, run: Hashes, places: Places, sketch: Sketch, order: Places) -> list[int]:
        """Which of a sorted run of hashes have no fitting print; `places` are put right."""
        held, prints = self.ordered
        parts = torch.cat(sketch.parts)[torch.from_numpy(order)]
        projections = parts[:, :2].to(torch.float32).numpy()
        rounding = CHANGED_FEATURES * parts[:, 2:].numpy()

        def fit(at: Any, one: Any) -> Any:
            kept = prints[at][:, None].view(np.float32)
            with np.errstate(invalid="ignore", over="ignore"):
                differs = np.abs(kept.astype(np.float64) - projections[one]) > rounding[one]
            return ~differs.any(axis=1)  # what is not a number was not kept

        bad: list[int] = []
        for value in np.unique(run[~fit(places, np.arange(run.size))]):
            # learned several times, perhaps from several graphs: any of them will do
            same = (run == value).nonzero()[0]
            start, end = np.searchsorted(held, value), np.searchsorted(held, value, "right")
            fitting = np.arange(start, end)[fit(np.arange(start, end), same[:1])]
            bad += same[fitting.size :].tolist()
            places[same[: fitting.size]] = fitting[: same.size]
        return bad

    def merged(self, other: Self) -> Self:
        """The pairs of both, which have the same key."""
        hashes = np.concatenate([self.hashes, other.hashes])
        return replace(self, hashes=hashes, prints=np.concatenate([self.prints, other.prints]))

    def shared(self, other: Self) -> int:
        """The number of pairs that both hold, with the same features: ids may be a site's own."""
        hashes, owner, alike = self._beside(other, by_features=False)
        both = alike & (owner[1:] != owner[:-1])
        return int((both & (hashes[1:] == hashes[:-1])).sum())

    def contradicted(self, other: Self, classes: Array) -> int:
        """The number of nodes that both hold, with the same features, as different classes."""
        # a hash does not tell its node: where features are alike, ids up to MOST_IDS are tried
        hashes, owner, alike = self._beside(other, by_features=True)
        # of nodes that are all alike, such as those without features, any may be the other's
        group = np.concatenate([[0], np.cumsum(~alike)])[: hashes.size]
        either = (np.bincount(group, owner) * np.bincount(group, ~owner) > 0)[group]
        both = (hashes[either & (owner == one)] for one in (True, False))
        ours, theirs = (replace(self, hashes=held, prints=no_prints(held.size)) for held in both)
        found, start, left = 0, 0, np.unique(ours.hashes).size
        while left > 0 and start < MOST_IDS:
            ids = torch.arange(start, start + 2**16)
            one, two = ours.known(ids, classes)[0], theirs.known(ids, classes)[0]
            found += int(((one >= 0) & (two >= 0) & (one != two)).sum())
            left, start = left - int((one >= 0).sum()), start + 2**16
        return found

    def _beside(self, other: Self, *, by_features: bool) -> tuple[Hashes, Mask, Mask]:
        """Hashes and owners (True: we), sorted; and which are like the one before."""
        both = self.merged(other)
        numbers = both.prints[:, None].view(np.float32)
        order = np.lexsort(numbers.T[::-1] if by_features else (numbers[:, 0], both.hashes))
        owner, numbers = order < self.hashes.size, numbers[order].astype(np.float64)
        one, two = numbers[1:], numbers[:-1]
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(one - two) > CHANGED_FEATURES * (np.abs(one) + np.abs(two))
        alike = ~apart.any(axis=1)
        if by_features:  # not those of which they were not kept
            alike &= np.isfinite(one[:, 0]) & np.isfinite(two[:, 0])
        return both.hashes[order], owner, alike

    def times(self, nodes: Tensor, labels: Array) -> Places:
        """How often each of some nodes was learned with its label."""
        return self._times(self._hashes(nodes, labels))

    def known(self, nodes: Tensor, classes: Array) -> tuple[Places, Places]:
        """The place in `classes` of one that each node was learned as, or -1; and how often."""
        # Most nodes were not learned, which the low bits of their hashes show: 6.8 million pairs
        # (arxiv) would take seconds to look up in full.
        low = np.zeros(2 ** max(10, 4 + self.hashes.size.bit_length()), dtype=bool)
        low[self.hashes & (low.size - 1)] = True
        first, second = _salts(self.key, classes.tolist())
        found, times = np.full(nodes.numel(), -1), np.zeros(nodes.numel(), dtype=np.intp)
        for some in blocks(classes.size, 8 * nodes.numel()):
            wanted = _hashed(nodes, first[some, None], second[some, None])
            codes, places = low[wanted & (low.size - 1)].nonzero()
            counts = self._times(wanted[codes, places])
            there = counts > 0
            found[places[there]] = codes[there] + some.start
            np.add.at(times, places, counts)
        return found, times

    def _times(self, wanted: Hashes) -> Places:
        """How often each hash is held."""
        held = self.counted
        return np.searchsorted(held, wanted, "right") - np.searchsorted(held, wanted)

    def _hashes(self, nodes: Tensor, labels: Array) -> Hashes:
        classes, codes = np.unique(labels, return_inverse=True)
        return _hashed(nodes, *(salt[codes] for salt in _salts(self.key, classes.tolist())))


def _salts(key: str, labels: list[int | str]) -> tuple[Bits, Bits]:
    """Two numbers for each class; the label 1 is not the label "1"."""
    digests = (hashlib.sha256(f"{key} {label!r}".encode()).digest() for label in labels)
    numbers = np.frombuffer(b"".join(one[:16] for one in digests), dtype="<u8").reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def _hashed(nodes: Tensor, first: Bits, second: Bits) -> Hashes:
    """Two permutations of the ids, added: not a permutation that could be inverted."""
    ids = nodes.numpy().view(np.uint64)
    return (mixed(ids + first) + mixed(ids ^ second)).view(np.int64)
