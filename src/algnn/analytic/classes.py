"""Labels and the classes among them, as arrays. A session mostly has one class: that is quick."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]


def distinct(labels: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """The classes among some labels, and which of them each label is.

    Parameters
    ----------
    labels : array [n]

    Returns
    -------
    classes : array [C]
        Sorted.
    codes : array [n], int64

    Examples
    --------
    >>> distinct(np.array(["b", "a", "b"]))
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    """
    if labels.size and bool((labels == labels[0]).all()):
        return labels[:1].copy(), np.zeros(labels.size, dtype=np.int64)
    small = 4 * labels.size
    if labels.dtype == np.int64 and small and 0 <= labels.min() <= labels.max() < small:
        # as labels mostly are: no sorting
        there = np.bincount(labels) > 0
        return there.nonzero()[0], (np.cumsum(there) - 1)[labels]
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, codes.astype(np.int64, copy=False)


def union(classes: Array, others: Array) -> Array:
    """All classes of two sorted arrays of them.

    Parameters
    ----------
    classes, others : array
        Sorted, each class once; of one kind, unless one of them is empty.

    Returns
    -------
    array
        Sorted.

    Examples
    --------
    >>> union(np.array([2, 5]), np.array([1, 5]))
    array([1, 2, 5])
    """
    if not (classes.size and others.size):
        # the classes of nothing have no kind
        return classes if classes.size else others
    if others[0] > classes[-1]:
        return np.concatenate([classes, others])
    places = np.searchsorted(classes, others)
    new = others[classes.take(places, mode="clip") != others]
    return np.sort(np.concatenate([classes, new])) if new.size else classes


def columns(classes: Array, labels: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """All classes there are with those of some labels, and the place of each label among them.

    Parameters
    ----------
    classes : array [C]
        Sorted.
    labels : array [n]

    Returns
    -------
    classes : array
    places : array [n], int64

    Examples
    --------
    >>> columns(np.array(["a", "c"]), np.array(["c", "b", "b"]))
    (array(['a', 'b', 'c'], dtype='<U1'), array([2, 1, 1]))
    """
    theirs, codes = distinct(labels)
    every = union(classes, theirs)
    return every, np.searchsorted(every, theirs)[codes]


def counted(labels: Array) -> dict[Any, int]:
    """How many of each class, by its label.

    Parameters
    ----------
    labels : array [n]

    Returns
    -------
    dict

    Examples
    --------
    >>> counted(np.array(["b", "a", "b"]))
    {'a': 1, 'b': 2}
    """
    classes, codes = distinct(labels)
    counts = np.bincount(codes, minlength=classes.size)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


def one_hot(labels: Array, classes: Array) -> Tensor:
    """Y: a row for each label and a column for each class.

    Parameters
    ----------
    labels : array [n]
    classes : array [C]

    Returns
    -------
    Tensor [n, C], float64

    Examples
    --------
    >>> one_hot(np.array([7, 5]), np.array([5, 6, 7]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]], dtype=torch.float64)
    """
    return torch.from_numpy((labels[:, None] == classes).astype(np.float64))
