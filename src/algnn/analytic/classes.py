"""Sorted arrays of classes, and what labels say of them."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# A class is gone once its nodes count for less than this: after some 300 half-lives without one.
GONE = 2.0**-300


def counted(labels: Array) -> dict[Any, int]:
    """The number of nodes of each class, by its label."""
    classes, counts = np.unique(labels, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


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
