"""Labels as a sorted array of classes and an integer code per node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# A class is gone once its nodes count for less than this: after some 300 half-lives without one.
GONE = 2.0**-300


@dataclass(frozen=True, eq=False)
class CodedLabels:
    """The labels of some nodes, checked and coded once per call, then handed on."""

    classes: Array  # the distinct labels, sorted
    codes: npt.NDArray[np.int64]  # [n]: which of them each label is

    @classmethod
    def of(cls, labels: Array) -> CodedLabels:
        """Code an array of ints or of strings."""
        classes, codes = np.unique(labels, return_inverse=True)
        return cls(classes, codes.astype(np.int64, copy=False))

    @property
    def values(self) -> Array:
        """The labels as they were given."""
        return self.classes[self.codes]

    def counts(self) -> dict[Any, int]:
        """The number of nodes of each class, by its label."""
        counts = np.bincount(self.codes, minlength=self.classes.size)
        return dict(zip(self.classes.tolist(), counts.tolist(), strict=True))


def mixed(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64, which scatters neighbouring ids; `bits` is overwritten."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def union(classes: Array, others: Array) -> Array:
    """All classes of two sorted arrays; an empty array, of whatever type, adds nothing."""
    if not (classes.size and others.size):
        return classes if classes.size else others
    return np.union1d(classes, others)
