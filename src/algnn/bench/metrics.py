"""Figures of a run as pure functions of what was counted.

Accuracies are percentages from 0 to 100; calibration error and AUROC are shares from 0 to 1.

What is counted after session t is, for each class c, how many of its ``total[c]`` test nodes were
classified correctly: ``correct[t, c]``. Columns are classes in their order of appearance.
Everything else follows from these whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit
from scipy.stats import rankdata

from algnn.errors import InputError

Counts = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

BINS = 15


def accuracy_matrix(
    correct: npt.ArrayLike, total: npt.ArrayLike, sessions: Sequence[Sequence[Any]]
) -> Matrix:
    """The matrix M: accuracy on session i's test nodes after session t.

    Parameters
    ----------
    correct : array of int [T+1, C]
        Correctly classified test nodes of each class after each session.
    total : array of int [C]
        Test nodes of each class.
    sessions : T+1 sequences
        The classes of each session; together they name the columns, in order.

    Returns
    -------
    array [T+1, T+1]
        Lower triangular, NaN above the diagonal: classes that were still to come.

    Examples
    --------
    >>> accuracy_matrix([[8, 5, 0], [6, 5, 3]], [10, 10, 4], [(0, 1), (2,)])
    array([[65., nan],
           [55., 75.]])
    """
    counted, of = _checked(correct, total, sessions)
    starts = np.cumsum([0, *(len(members) for members in sessions[:-1])])
    matrix = 100.0 * np.add.reduceat(counted, starts, axis=1) / np.add.reduceat(of, starts)
    matrix[np.triu_indices(len(sessions), k=1)] = np.nan
    return matrix


def average_performance(matrix: Matrix) -> float:
    """AP: the mean accuracy over sessions after the last one; higher is better.

    Parameters
    ----------
    matrix : array [T+1, T+1]
        As `accuracy_matrix` gives it.

    Returns
    -------
    float
        Every session counts once, however many classes or nodes it has.

    Examples
    --------
    >>> average_performance(np.array([[90.0, np.nan], [70.0, 60.0]]))
    65.0
    """
    return float(matrix[-1].mean())


def average_forgetting(matrix: Matrix) -> float:
    """AF: the mean loss of accuracy since a session was learned; lower is better.

    Parameters
    ----------
    matrix : array [T+1, T+1]
        As `accuracy_matrix` gives it.

    Returns
    -------
    float
        Σ_{i<T} (M[i, i] − M[T, i]) / T; positive is forgetting, and 0 for a single session.

    Examples
    --------
    >>> average_forgetting(np.array([[90.0, np.nan], [70.0, 60.0]]))
    20.0
    """
    if len(matrix) == 1:
        return 0.0
    return float((matrix.diagonal()[:-1] - matrix[-1, :-1]).mean())


def stagewise(matrix: Matrix) -> npt.NDArray[np.float64]:
    """AP after each session.

    Parameters
    ----------
    matrix : array [T+1, T+1]
        As `accuracy_matrix` gives it.

    Returns
    -------
    array [T+1]
        The last entry is `average_performance`.

    Examples
    --------
    >>> stagewise(np.array([[90.0, np.nan], [70.0, 60.0]]))
    array([90., 65.])
    """
    return np.array([matrix[t, : t + 1].mean() for t in range(len(matrix))])


def macro(correct_last: npt.ArrayLike, total: npt.ArrayLike) -> float:
    """Accuracy averaged over classes: every class counts once.

    Parameters
    ----------
    correct_last : array of int [C]
        Correctly classified test nodes of each class after the last session.
    total : array of int [C]
        Test nodes of each class; a class without any is left out.

    Returns
    -------
    float

    Examples
    --------
    >>> macro([9, 1], [10, 2])
    70.0
    """
    correct, of = _checked_last(correct_last, total)
    return float(100.0 * (correct[of > 0] / of[of > 0]).mean())


def micro(correct_last: npt.ArrayLike, total: npt.ArrayLike) -> float:
    """Accuracy over nodes: every test node counts once.

    Parameters
    ----------
    correct_last, total : array of int [C]
        As for `macro`.

    Returns
    -------
    float

    Examples
    --------
    >>> micro([9, 0], [10, 2])
    75.0
    """
    correct, of = _checked_last(correct_last, total)
    return float(100.0 * correct.sum() / of.sum())


def reliability(probabilities: npt.ArrayLike, columns: npt.ArrayLike) -> Matrix:
    """How sure and how right answers are, in bins of equal width by how sure they are.

    Parameters
    ----------
    probabilities : array [n, C]
        Rows add up to 1.
    columns : array of int [n]
        The column of each node's true class.

    Returns
    -------
    array [15, 3]
        Of the nodes whose largest probability lies in (b/15, (b+1)/15]: how many, the sum of that
        probability, and for how many the most probable class is the true one.

    Examples
    --------
    >>> bins = reliability([[0.9, 0.1], [0.08, 0.92]], [0, 0])
    >>> bins[13]
    array([2.  , 1.82, 1.  ])
    """
    given, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(columns)
    if given.ndim != 2 or truth.shape != given.shape[:1] or not given.shape[1]:
        raise InputError(
            f"probabilities {given.shape} and columns {truth.shape} do not fit: give a row of"
            " probabilities and one true column per node"
        )
    if not ((given >= 0) & (given <= 1)).all() or (abs(given.sum(1) - 1) > 1e-6).any():
        raise InputError("probabilities must lie between 0 and 1 and add up to 1 for every node")
    sure, right = given.max(1), given.argmax(1) == truth
    bins = np.clip(np.ceil(sure * BINS).astype(np.int64) - 1, 0, BINS - 1)
    parts = (np.ones_like(sure), sure, right.astype(np.float64))
    return np.stack([np.bincount(bins, part, BINS) for part in parts], axis=1)


def calibration_error(bins: npt.ArrayLike) -> float:
    """Expected calibration error: by how much answers are surer than right, or less sure.

    Parameters
    ----------
    bins : array [b, 3]
        As `reliability` gives them, of at least one node.

    Returns
    -------
    float
        From 0 to 1, lower is better: over nodes, the mean of
        |mean probability − accuracy| in the node's bin.

    Examples
    --------
    >>> round(calibration_error(reliability([[0.9, 0.1], [0.08, 0.92]], [0, 0])), 9)
    0.41
    """
    counted = np.asarray(bins, dtype=np.float64)
    if counted.ndim != 2 or counted.shape[1] != 3 or not counted[:, 0].sum() > 0:
        raise InputError("bins must hold count, probability and right answers of at least one node")
    return float(abs(counted[:, 1] - counted[:, 2]).sum() / counted[:, 0].sum())


def auroc(high: npt.ArrayLike, low: npt.ArrayLike) -> float:
    """How well a score tells two kinds apart: the area under the ROC curve.

    Parameters
    ----------
    high, low : array [n], array [m]
        Scores of the kind that should score high, and of the other; at least one each.

    Returns
    -------
    float
        From 0 to 1, higher is better: how often one of `high` scores above one of `low`, equal
        scores counting half; 0.5 is chance.

    Examples
    --------
    >>> auroc([3.0, 2.0], [1.0, 2.0])
    0.875
    """
    above, below = (np.asarray(values, dtype=np.float64).ravel() for values in (high, low))
    if not above.size or not below.size or np.isnan(above).any() or np.isnan(below).any():
        raise InputError("high and low must each hold at least one score, and none that is NaN")
    ranks = rankdata(np.concatenate([above, below]))[: above.size].sum()
    wins = ranks - above.size * (above.size + 1) / 2
    return float(wins / (above.size * below.size))


@dataclass(frozen=True)
class Summary:
    """One figure over several seeds.

    Attributes
    ----------
    mean : float
        Over the seeds.
    std : float or None
        Sample standard deviation; None for a single seed, which says nothing about it.
    ci95 : float or None
        Half the width of the 95% interval of the mean by Student's t; None for a single seed.

    Examples
    --------
    >>> print(Summary(mean=76.7, std=0.4, ci95=0.99))
    76.70 ± 0.99
    >>> print(Summary(mean=76.7, std=None, ci95=None))
    76.70
    """

    mean: float
    std: float | None
    ci95: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.ci95 is None else f"{self.mean:.2f} ± {self.ci95:.2f}"


def summarise(values: Iterable[float]) -> Summary:
    """Mean, sample standard deviation and 95% interval of one figure over seeds.

    Parameters
    ----------
    values : iterable of float
        One per seed, at least one.

    Returns
    -------
    Summary

    Examples
    --------
    >>> summarise([74.0, 76.0, 78.0])
    Summary(mean=76.0, std=2.0, ci95=4.968...)
    >>> summarise([76.0])
    Summary(mean=76.0, std=None, ci95=None)
    """
    given = np.asarray(list(values), dtype=np.float64)
    if given.size == 0:
        raise InputError("values is empty: a summary needs the figure of at least one run")
    mean = float(given.mean())
    if given.size == 1:
        return Summary(mean, None, None)
    std = float(given.std(ddof=1))
    return Summary(mean, std, float(stdtrit(given.size - 1, 0.975)) * std / given.size**0.5)


def _checked(
    correct: npt.ArrayLike, total: npt.ArrayLike, sessions: Sequence[Sequence[Any]]
) -> tuple[Counts, Counts]:
    counted, of = np.asarray(correct, dtype=np.int64), np.asarray(total, dtype=np.int64)
    sizes = [len(members) for members in sessions]
    if counted.shape != (len(sizes), sum(sizes)) or of.shape != (sum(sizes),) or 0 in sizes:
        raise InputError(
            f"correct {counted.shape} and total {of.shape} do not fit sessions of {sizes} classes:"
            " correct needs a row per session, both a column per class"
        )
    if (counted < 0).any() or (counted > of).any():
        raise InputError("correct must lie between 0 and total for every class")
    ends = np.cumsum([0, *sizes])
    empty = [i for i, (a, b) in enumerate(pairwise(ends)) if not of[a:b].any()]
    if empty:
        raise InputError(f"total counts no test node in session {empty[0]}: it has no accuracy")
    return counted, of


def _checked_last(correct: npt.ArrayLike, total: npt.ArrayLike) -> tuple[Counts, Counts]:
    last = np.asarray(correct)
    if last.ndim != 1:
        raise InputError(f"correct_last has shape {last.shape}: give one count per class")
    counted, of = _checked(last[None], total, [range(last.size)])
    return counted[0], of
