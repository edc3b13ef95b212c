"""Which differences between methods are real: paired bootstrap on one graph, ranks over many.

Two methods are compared on the same test nodes, from the answers that their records keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import friedmanchisquare, studentized_range

from algnn.bench.protocol import Outcome
from algnn.errors import InputError

FIGURES = ("ap", "micro")
DRAWS = 2000
# what two runs share that are compared: the graph with its split, and the stream
UNIT = ("dataset", "sha256", "base", "step", "edges", "order")


@dataclass(frozen=True)
class Comparison:
    """How far one method is ahead of another on a graph, in points, with a 95% interval.

    `units` counts different splits and orders of classes, `pairs` the runs that were compared.
    """

    difference: float
    low: float
    high: float
    units: int
    pairs: int

    @property
    def verdict(self) -> str:
        """``"leads"`` or ``"trails"`` if the interval says so, else ``"undecided"``."""
        if self.low > 0:
            return "leads"
        return "trails" if self.high < 0 else "undecided"


def compare(
    ours: pd.DataFrame, theirs: pd.DataFrame, figure: str = "ap", draws: int = DRAWS, seed: int = 0
) -> Comparison:
    """A paired bootstrap over splits, seeds and test nodes of the difference of two methods.

    Parameters
    ----------
    ours, theirs : DataFrame
        Runs of one method on one dataset each, as `algnn.bench.runs.read_runs` gives them, with
        answers. Those with the same graph, split, stream and seed are compared, the others left
        out.
    figure : {"ap", "micro"}
        AP, in which sessions count the same, or accuracy, in which nodes do.
    draws : int
        Bootstrap samples: of units (a split with an order of classes), within each of seeds, and of
        test nodes within each session, all with replacement. Both methods have the same ones.
    seed : int
        Of the samples.

    Returns
    -------
    Comparison
        `ours` − `theirs`, and the 2.5th and 97.5th percentile of the samples.
    """
    if figure not in FIGURES:
        raise InputError(f"figure={figure!r} cannot be compared: use one of {', '.join(FIGURES)}")
    parts = [_Unit(pairs, figure) for pairs in _paired(ours, theirs)]
    if not parts:
        raise InputError(
            "no two runs share graph, split, stream and seed and have kept their answers: run both"
            " methods with the same seeds"
        )
    generator = np.random.default_rng(seed)
    samples = []
    for _ in range(draws):
        chosen = generator.integers(len(parts), size=len(parts))
        samples.append(np.mean([parts[i].sample(generator) for i in chosen]))
    low, high = np.percentile(samples, [2.5, 97.5])
    difference = float(np.mean([part.difference for part in parts]))
    pairs = sum(len(part.ahead) for part in parts)
    return Comparison(difference, float(low), float(high), len(parts), pairs)


class _Unit:
    """Runs on one split and order: for each seed and node, by how much the first is ahead."""

    def __init__(self, pairs: Sequence[tuple[Outcome, Outcome]], figure: str) -> None:
        outcome = pairs[0][0]
        truth = np.repeat(np.arange(outcome.total.size), outcome.total)
        session_of = np.repeat(np.arange(len(outcome.sessions)), list(map(len, outcome.sessions)))
        counts = np.bincount(session_of[truth])
        # nodes of one session stand together: their columns are in order of appearance
        self.sizes = np.repeat(counts, counts)
        self.starts = np.repeat(np.cumsum(counts) - counts, counts)
        right = np.array([[one.answers == truth for one in pair] for pair in pairs], dtype=float)
        # [seeds, nodes]: a node's part of the figure in points, positive, zero or negative
        part = 100 / (counts.size * self.sizes if figure == "ap" else truth.size)
        self.ahead = (right[:, 0] - right[:, 1]) * part

    @property
    def difference(self) -> float:
        return float(self.ahead.mean(0).sum())

    def sample(self, generator: np.random.Generator) -> float:
        """The difference over seeds and nodes drawn with replacement."""
        seeds = generator.integers(len(self.ahead), size=len(self.ahead))
        mean = self.ahead[seeds].mean(0)
        nodes = self.starts + (generator.random(self.sizes.size) * self.sizes).astype(np.int64)
        return float(mean[nodes].sum())


def _paired(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[list[tuple[Outcome, Outcome]]]:
    """Pairs of outcomes with the same seed, for each unit."""
    found = []
    for runs in (ours, theirs):
        kept = runs[[outcome.answers is not None for outcome in runs["outcome"]]]
        if kept.duplicated([*UNIT, "seed"]).any():
            raise InputError(
                "runs hold several of one graph, split, stream and seed: give those of one method"
                " with one setting, such as tuning.tuned picks them"
            )
        found.append(kept[[*UNIT, "seed", "outcome"]])
    units = found[0].merge(found[1], on=[*UNIT, "seed"]).groupby(list(UNIT))
    return [list(zip(unit["outcome_x"], unit["outcome_y"], strict=True)) for _, unit in units]


@dataclass(frozen=True)
class Ranking:
    """Methods ranked over graphs.

    `means` has the mean figure, a row per graph and a column per method, and `ranks` the ranks of
    each row, 1 for the best; `average` is the average rank of each method, the best first. The
    `p_value` is that of Friedman's test that all methods rank alike, NaN for fewer than three
    methods or graphs; average ranks closer than `critical_difference`, Nemenyi's at 5%, are not
    told apart.
    """

    means: pd.DataFrame
    ranks: pd.DataFrame
    average: pd.Series
    p_value: float
    critical_difference: float

    def cliques(self) -> list[list[str]]:
        """The largest groups of methods, next to each other, that are not told apart."""
        names, values = list(self.average.index), self.average.to_numpy()
        groups: list[list[str]] = []
        for start in range(len(names)):
            end = int((values <= values[start] + self.critical_difference).sum())
            if end - start > 1 and (not groups or names[end - 1] not in groups[-1]):
                groups.append(names[start:end])
        return groups


def rank(runs: pd.DataFrame, figure: str = "ap", methods: Sequence[str] | None = None) -> Ranking:
    """Average ranks of methods over graphs, with Friedman's test and Nemenyi's difference.

    Parameters
    ----------
    runs : DataFrame
        As `algnn.bench.runs.read_runs` gives them, of one setting per method and of one stream.
    figure : str
        A column of it of which more is better.
    methods : sequence of str, optional
        Those to rank; all by default. Graphs that one of them has no run on are left out.

    Returns
    -------
    Ranking

    Examples
    --------
    >>> runs = pd.DataFrame({"dataset": list("aabb"), "method": ["x", "y"] * 2, "ap": [1, 2, 3, 5]})
    >>> rank(runs).average.to_dict()
    {'y': 1.0, 'x': 2.0}
    """
    means = runs.pivot_table(index="dataset", columns="method", values=figure, sort=False)
    if methods is not None:
        means = means.reindex(columns=list(methods))
    means = means.dropna()
    graphs, count = means.shape
    if count < 2 or not graphs:
        raise InputError("runs hold no graph on which two methods were run: there are no ranks")
    ranks = means.rank(axis=1, ascending=False)
    enough = count > 2 and graphs > 2
    p_value = friedmanchisquare(*means.to_numpy().T).pvalue if enough else np.nan
    quantile = studentized_range.ppf(0.95, count, np.inf) / 2**0.5
    critical = quantile * (count * (count + 1) / (6 * graphs)) ** 0.5
    average = ranks.mean().sort_values(kind="stable")
    return Ranking(means, ranks, average, float(p_value), float(critical))
