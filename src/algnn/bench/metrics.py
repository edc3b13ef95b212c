"""What one learner did over one stream, and figures of it: accuracies in %, others as shares."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from algnn.errors import InputError

Counts = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

BINS = 15


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one learner did over one stream; T+1 sessions, C classes.

    `sessions` are the classes of each session, which together name the columns of `correct`
    [T+1, C] and `total` [C]: right answers about test nodes after each session, and test nodes.
    Clocks and bytes are those of each session; `selection_seconds` went into choosing nodes.
    Calibration and novelty are empty where they were not measured; `reliability` [15, 3] is that of
    the last session. `answers` [n] are the columns that test nodes were given in the end (C for
    none), in order of their true column and then of their id.

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> outcome.ap, outcome.af, outcome.macro, outcome.ece
    (65.0, 10.0, 70.0, None)
    """

    sessions: tuple[tuple[int, ...], ...]
    correct: Counts
    total: Counts
    learn_seconds: tuple[float, ...]
    predict_seconds: tuple[float, ...]
    retained_bytes: tuple[int, ...]
    selection_seconds: tuple[float, ...] = ()
    calibration_errors: tuple[float, ...] = ()
    novelty_aurocs: tuple[float, ...] = ()
    reliability: Matrix | None = None
    answers: Counts | None = None

    @cached_property
    def matrix(self) -> Matrix:
        """M [T+1, T+1]: accuracy on session i's nodes after session t; NaN above the diagonal."""
        # and for a session without nodes, as there may be in trials: no mean counts it
        counted, total = self.correct, self.total
        sizes = [len(members) for members in self.sessions]
        shapes = (len(sizes), sum(sizes)), (sum(sizes),)
        if (counted.shape, total.shape) != shapes or 0 in sizes or not sizes:
            given = f"correct {counted.shape} and total {total.shape}"
            needs = "correct needs a row per session, both a column per class"
            raise InputError(f"{given} do not fit sessions of {sizes} classes: {needs}")
        if (counted < 0).any() or (counted > total).any():
            raise InputError("correct must lie between 0 and total for every class")
        starts = np.cumsum([0, *sizes[:-1]])
        of = np.add.reduceat(total, starts)
        if not of[0]:
            raise InputError("total counts no test node in the base session")
        found = 100.0 * np.add.reduceat(counted, starts, axis=1) / np.where(of, of, np.nan)
        found[np.triu_indices(len(sizes), k=1)] = np.nan
        return found

    @property
    def ap(self) -> float:
        """AP, average performance: mean accuracy over sessions after the last one."""
        return float(np.nanmean(self.matrix[-1]))

    @property
    def af(self) -> float:
        """AF, average forgetting: Σ_{i<T} (M[i, i] − M[T, i]) / T, positive is forgetting."""
        lost = self.matrix.diagonal()[:-1] - self.matrix[-1, :-1]
        return float(np.nanmean(lost)) if lost.size else 0.0

    @property
    def macro(self) -> float:
        """Final accuracy averaged over the classes that have test nodes."""
        there = self.total > 0
        return float(100.0 * (self.correct[-1][there] / self.total[there]).mean())

    @property
    def micro(self) -> float:
        """Final accuracy over test nodes."""
        return float(100.0 * self.correct[-1].sum() / self.total.sum())

    @property
    def stagewise(self) -> npt.NDArray[np.float64]:
        """AP after each session, [T+1]."""
        return np.asarray(np.nanmean(self.matrix, axis=1))  # of later sessions there are NaNs

    @property
    def mean_ap(self) -> float:
        """Average performance, mean over all stages of the stream."""
        return float(self.stagewise.mean())

    @property
    def ece(self) -> float | None:
        """Expected calibration error after the last session, where it was measured."""
        return self.calibration_errors[-1] if self.calibration_errors else None

    @property
    def auroc(self) -> float | None:
        """AUROC of novelty, mean over sessions, where it was measured."""
        return float(np.mean(self.novelty_aurocs)) if self.novelty_aurocs else None


def reliability(probabilities: npt.ArrayLike, columns: npt.ArrayLike) -> Matrix:
    """Of nodes whose largest probability lies in (b/15, (b+1)/15], by b, [15, 3].

    How many, the sum of that probability, and for how many its column is the true one [n].
    """
    given, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(columns)
    if given.ndim != 2 or truth.shape != given.shape[:1] or not given.shape[1]:
        both = f"probabilities {given.shape} and columns {truth.shape} do not fit"
        raise InputError(f"{both}: give a row of probabilities and one true column per node")
    if not ((given >= 0) & (given <= 1)).all() or (abs(given.sum(1) - 1) > 1e-6).any():
        raise InputError("probabilities must lie between 0 and 1 and add up to 1 for every node")
    sure, right = given.max(1), given.argmax(1) == truth
    bins = np.clip(np.ceil(sure * BINS).astype(np.int64) - 1, 0, BINS - 1)
    parts = (np.ones_like(sure), sure, right.astype(np.float64))
    return np.stack([np.bincount(bins, part, BINS) for part in parts], axis=1)


def calibration_error(bins: npt.ArrayLike) -> float:
    """Expected calibration error: the mean over nodes of |confidence − accuracy| of their bin."""
    counted = np.asarray(bins, dtype=np.float64)
    if counted.ndim != 2 or counted.shape[1] != 3 or not counted[:, 0].sum() > 0:
        raise InputError("bins must hold count, probability and right answers of at least one node")
    return float(abs(counted[:, 1] - counted[:, 2]).sum() / counted[:, 0].sum())


def auroc(high: npt.ArrayLike, low: npt.ArrayLike) -> float:
    """Area under the ROC curve of scores that should be high against some that should be low."""
    above, below = (np.asarray(values, dtype=np.float64).ravel() for values in (high, low))
    if not above.size or not below.size or np.isnan(above).any() or np.isnan(below).any():
        raise InputError("high and low must each hold at least one score, and none that is NaN")
    from scipy.stats import mannwhitneyu  # half a second, and only measuring needs it

    wins = mannwhitneyu(above, below, method="asymptotic").statistic
    return float(wins / (above.size * below.size))
