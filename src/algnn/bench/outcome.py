"""What one learner did over one stream: counts, clocks and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from algnn.bench import metrics


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one learner did over one stream; T+1 sessions, C classes.

    `sessions` are the classes of each session, which together name the columns of `correct`
    [T+1, C] and `total` [C]: right answers about test nodes after each session, and test nodes.
    Clocks and bytes are those of each session; `selection_seconds` went into choosing nodes.
    Calibration and novelty are empty where they were not measured; `reliability` [15, 3] is that of
    the last session, as `metrics.reliability` gives it. `answers` [n] are the columns that test
    nodes were given in the end (C for none), in order of their true column and then of their id.

    Examples
    --------
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> outcome.ap, outcome.af, outcome.macro, outcome.ece
    (65.0, 10.0, 70.0, None)
    """

    sessions: tuple[tuple[int, ...], ...]
    correct: metrics.Counts
    total: metrics.Counts
    learn_seconds: tuple[float, ...]
    predict_seconds: tuple[float, ...]
    retained_bytes: tuple[int, ...]
    selection_seconds: tuple[float, ...] = ()
    calibration_errors: tuple[float, ...] = ()
    novelty_aurocs: tuple[float, ...] = ()
    reliability: metrics.Matrix | None = None
    answers: metrics.Counts | None = None

    @cached_property
    def matrix(self) -> metrics.Matrix:
        """Accuracy on session i after session t, [T+1, T+1], NaN above the diagonal."""
        return metrics.accuracy_matrix(self.correct, self.total, self.sessions)

    @property
    def ap(self) -> float:
        """Average performance: the mean of the matrix's last row."""
        return metrics.average_performance(self.matrix)

    @property
    def af(self) -> float:
        """Average forgetting: what sessions lost since they were learned."""
        return metrics.average_forgetting(self.matrix)

    @property
    def macro(self) -> float:
        """Final accuracy averaged over classes."""
        return metrics.macro(self.correct[-1], self.total)

    @property
    def micro(self) -> float:
        """Final accuracy over test nodes."""
        return metrics.micro(self.correct[-1], self.total)

    @property
    def stagewise(self) -> npt.NDArray[np.float64]:
        """Average performance after each session, [T+1]."""
        return metrics.stagewise(self.matrix)

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
