"""Which nodes were learned as what, as 64-bit hashes, so that only those can be forgotten.

The sums do not tell whether a node is in them; a hash of each learned pair of node and class, eight
bytes a node, does. It serves one purpose: to refuse a request to forget what was never learned,
which would corrupt the sums without a trace. Such a request passes with a probability of the number
of learned nodes over 2^64. A hash does not reveal its node by itself, but whoever has the file can
try every id with every class, and where ids are row numbers there are few to try: treat the hashes
like a list of the labelled nodes and their classes. `ALGNN.drop_record` removes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from algnn.errors import InputError

Hashes = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Membership:
    """A multiset of learned pairs of node and class: a node learned twice can be forgotten twice.

    The `hashes` are made with `key`: learners with the same key can be merged, and hashes with
    different keys have nothing in common.
    """

    key: str
    hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @cached_property
    def ordered(self) -> Hashes:
        """The hashes, sorted, so that a file does not show which came together."""
        return np.sort(self.hashes)

    def plus(self, nodes: Tensor, labels: npt.NDArray[Any]) -> Membership:
        """With some more pairs."""
        return Membership(self.key, np.concatenate([self.hashes, self._hashes(nodes, labels)]))

    def minus(self, nodes: Tensor, labels: npt.NDArray[Any]) -> Membership:
        """Without some pairs; `InputError` where one of them was never learned."""
        wanted = self._hashes(nodes, labels)
        order = np.argsort(wanted, kind="stable")
        run = wanted[order]
        # of equal hashes, the first stands for the first, the second for the second, …
        again = np.arange(run.size) - np.searchsorted(run, run)
        held = self.ordered
        places = np.searchsorted(held, run) + again
        there = places < held.size
        there[there] = held[places[there]] == run[there]
        missing = order[~there]
        if missing.size:
            first = int(missing.min())
            raise InputError(
                f"nodes holds {int(nodes[first])}, which was not learned as {labels[first]!s}"
                f" ({missing.size} of {run.size} were not): name only nodes that were learned, each"
                " with the label it was learned with"
            )
        return Membership(self.key, np.delete(held, places))

    def merged(self, other: Membership) -> Membership:
        """The pairs of both, which have the same key."""
        return Membership(self.key, np.concatenate([self.hashes, other.hashes]))

    def times(self, nodes: Tensor, classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """How often each of some nodes was learned, as any of some classes."""
        # Most nodes were not learned, which the low bits of their hashes show: 6.8 million pairs
        # (arxiv) would take seconds to look up in full.
        low = np.zeros(2 ** max(10, 4 + self.hashes.size.bit_length()), dtype=bool)
        low[self.hashes & (low.size - 1)] = True
        found = np.zeros(nodes.numel(), dtype=np.int64)
        for label in classes.tolist():
            wanted = _hashed(nodes, *_salts(self.key, [label]))
            some = low[wanted & (low.size - 1)].nonzero()[0]
            ends = (np.searchsorted(self.ordered, wanted[some], s) for s in ("right", "left"))
            found[some] += np.subtract(*ends)
        return found

    def _hashes(self, nodes: Tensor, labels: npt.NDArray[Any]) -> Hashes:
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
    return (_mixed(ids + first) + _mixed(ids ^ second)).view(np.int64)


def _mixed(bits: Bits) -> Bits:
    """The finaliser of splitmix64, which scatters neighbouring ids; `bits` is overwritten."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
