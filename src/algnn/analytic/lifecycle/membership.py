"""A compact record of which nodes were learned as what, so that only they can be forgotten.

Sums cannot tell whether a node is in them. This can: it holds a 64-bit hash of each learned pair of
node and class, eight bytes a node.

It is kept for one purpose, to refuse a request to forget what was never learned, which would spoil
the sums without a trace. The chance that such a request passes is the number of learned nodes over
2^64. A hash does not give its node away by itself, but whoever has the file can try every id with
every class, and where ids are row numbers there are few to try: treat the record like a list of the
labelled nodes and their classes. A learner does without it after `ALGNN.drop_record`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from algnn.analytic.classes import distinct
from algnn.errors import InputError

Hashes = npt.NDArray[np.int64]

# So few pairs are hashed one by one: what NumPy spends on each call would be more than that.
FEW = 20
ALL_BITS = 2**64 - 1


@dataclass(frozen=True)
class Record:
    """What was learned, as hashes: a multiset, so a node learned twice can be forgotten twice.

    Attributes
    ----------
    key : str
        What the hashes are made with: learners with the same key can be merged, and hashes from
        learners with other keys have nothing in common.
    hashes : array [m], int64
        In no order; `ordered` for a file, so that it does not show which came together.

    Examples
    --------
    >>> import torch
    >>> record = Record("key").plus(torch.tensor([3, 5]), np.array(["a", "b"]))
    >>> record.times(torch.tensor([3, 4, 5]), np.array(["a", "b"]))
    array([1, 0, 1])
    >>> record.minus(torch.tensor([3]), np.array(["a"])).hashes.size
    1
    >>> record.minus(torch.tensor([3]), np.array(["b"]))
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: nodes holds 3, which was not learned as b (1 of 1 were not): name...
    """

    key: str
    hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @cached_property
    def ordered(self) -> Hashes:
        """The hashes, sorted: only when someone asks, since learning needs no order."""
        return np.sort(self.hashes)

    def plus(self, nodes: Tensor, labels: npt.NDArray[Any]) -> Record:
        """With some more pairs.

        Parameters
        ----------
        nodes : Tensor [n], int64
        labels : array [n]

        Returns
        -------
        Record
        """
        return Record(self.key, np.concatenate([self.hashes, self._hashes(nodes, labels)]))

    def minus(self, nodes: Tensor, labels: npt.NDArray[Any]) -> Record:
        """Without some pairs; `InputError` where one of them was never learned.

        Parameters
        ----------
        nodes : Tensor [n], int64
            A node that is named twice must have been learned twice.
        labels : array [n]

        Returns
        -------
        Record
        """
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
        return Record(self.key, np.delete(held, places))

    def merged(self, other: Record) -> Record:
        """The pairs of both.

        Parameters
        ----------
        other : Record
            With the same key.

        Returns
        -------
        Record
        """
        return Record(self.key, np.concatenate([self.hashes, other.hashes]))

    def times(self, nodes: Tensor, classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """How often each of some nodes was learned, as any of some classes.

        Parameters
        ----------
        nodes : Tensor [n], int64
        classes : array [C]

        Returns
        -------
        array [n], int64
        """
        # most nodes were not learned, which the low bits of their hashes show at once
        low = np.zeros(2 ** max(10, 4 + self.hashes.size.bit_length()), dtype=bool)
        low[self.hashes & (low.size - 1)] = True
        found = np.zeros(nodes.numel(), dtype=np.int64)
        ids = nodes.numpy().view(np.uint64)
        for label in classes.tolist():
            wanted = _hashed(ids, *_salt(self.key, label)).view(np.int64)
            some = low[wanted & (low.size - 1)].nonzero()[0]
            ends = (np.searchsorted(self.ordered, wanted[some], s) for s in ("right", "left"))
            found[some] += np.subtract(*ends)
        return found

    def _hashes(self, nodes: Tensor, labels: npt.NDArray[Any]) -> Hashes:
        hashed: Any
        if labels.size <= FEW:
            pairs = zip(nodes.tolist(), labels.tolist(), strict=True)
            hashed = [_hashed(node, *_salt(self.key, label)) for node, label in pairs]
        else:
            classes, codes = distinct(labels)
            salts = np.array([_salt(self.key, c) for c in classes.tolist()], dtype=np.uint64)
            one = salts.shape[0] == 1
            hashed = _hashed(
                nodes.numpy().view(np.uint64), *(salts[0] if one else salts.T.take(codes, axis=1))
            )
        return np.asarray(hashed, dtype=np.uint64).view(np.int64)


@lru_cache(maxsize=2**12)
def _salt(key: str, label: int | str) -> tuple[int, int]:
    """Two numbers for a class; the label 1 is not the label "1"."""
    digest = hashlib.sha256(f"{key} {label!r}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")


def _hashed(ids: Any, first: Any, second: Any) -> Any:
    """Of an id, or of an array of them in uint64."""
    # two permutations of the ids, added: no longer a permutation that could be run backwards
    if isinstance(ids, int):
        return (_mixed((ids + first) & ALL_BITS) + _mixed(ids ^ second)) & ALL_BITS
    both = np.empty((2, ids.size), dtype=np.uint64)
    np.add(ids, first, out=both[0])
    np.bitwise_xor(ids, second, out=both[1])
    return np.add(*_mixed(both))


def _mixed(bits: Any) -> Any:
    """The finaliser of splitmix64: neighbouring ids land anywhere. An array is overwritten."""
    bits ^= bits >> 30
    bits *= 0xBF58476D1CE4E5B9
    bits &= ALL_BITS
    bits ^= bits >> 27
    bits *= 0x94D049BB133111EB
    bits &= ALL_BITS
    bits ^= bits >> 31
    return bits
