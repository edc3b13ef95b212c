"""Which differences between methods are real: paired bootstrap on one graph, ranks over many."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from algnn.bench.metrics import Matrix, Outcome
from algnn.errors import InputError

Pairs = tuple[tuple[Outcome, Outcome], ...]
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
        """``"leads"`` or ``"trails"`` where the interval leaves out 0, else ``"undecided"``."""
        return "leads" if self.low > 0 else "trails" if self.high < 0 else "undecided"


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
    draws, seed : int
        Bootstrap samples, and their seed: of units (a split with an order of classes), within each
        of seeds, and of test nodes within each session, all with replacement, the same for both
        methods. Of nodes, which are many, the samples have the normal limit: its mean and variance
        are exact.

    Returns
    -------
    Comparison
        `ours` − `theirs` ± the standard error of the samples times Student's t. Units are few, so
        percentiles would be too narrow: their variance is corrected for their number, and t has
        their degrees of freedom as far as they, and not test nodes, make the error
        (Satterthwaite). Where there is one unit, seeds take its place.
    """
    if figure not in FIGURES:
        raise InputError(f"figure={figure!r} cannot be compared: use one of {', '.join(FIGURES)}")
    parts = []
    for pairs in _paired(ours, theirs):
        sizes, lead, products = _counted(pairs)
        # what a node counts, by its session
        each = 100 / (sizes.size * sizes if figure == "ap" else np.full(sizes.size, sizes.sum()))
        # in points [seeds], and the covariance [seeds, seeds] under drawing test nodes anew
        parts.append((lead @ each, (products - lead[:, None] * lead / sizes) @ each**2))
    if not parts:
        raise InputError(
            "no two runs share graph, split, stream and seed and have kept their answers: run both"
            " methods with the same seeds"
        )
    generator = np.random.default_rng(seed)
    chosen = generator.integers(len(parts), size=(draws, len(parts)))
    drawn, noise = np.empty(chosen.shape), generator.standard_normal(chosen.shape)
    for i, (means, covariance) in enumerate(parts):
        here = chosen == i
        seeds = generator.integers(means.size, size=(here.sum(), means.size))
        drawn[here] = means[seeds].mean(1)
        spread = covariance[seeds[:, :, None], seeds[:, None, :]].mean((1, 2))
        noise[here] *= np.sqrt(spread.clip(0))
    difference = float(np.mean([means.mean() for means, _ in parts]))
    count = sum(means.size for means, _ in parts)
    few = len(parts) if len(parts) > 1 else count
    # of a sample of n the variance is (n − 1) / n of what it estimates; of one run it is unknown
    of_runs = drawn.mean(1).var() * few / (few - 1) if few > 1 else 0.0
    whole = of_runs + noise.mean(1).var()
    freedom = (few - 1) * (whole / of_runs) ** 2 if of_runs else np.inf
    half = float(stdtrit(freedom, 0.975) * whole**0.5)
    return Comparison(difference, difference - half, difference + half, len(parts), count)


@lru_cache(maxsize=32)  # one figure is asked for after the other
def _counted(pairs: Pairs) -> tuple[Matrix, Matrix, Matrix]:
    """Test nodes of each session; [seeds, sessions] by how many the first of each pair leads.

    And [seeds, seeds, sessions] sums over nodes of the products of two seeds' differences.
    """
    outcome = pairs[0][0]
    truth = np.repeat(np.arange(outcome.total.size), outcome.total)
    right = np.array([[one.answers == truth for one in pair] for pair in pairs], dtype=np.int8)
    differ = (right[:, 0] - right[:, 1]).astype(np.float32)
    # nodes of one session stand together
    ends = np.cumsum([len(classes) for classes in outcome.sessions])
    sizes = np.diff(np.cumsum(outcome.total)[ends - 1], prepend=0)
    sizes = sizes[sizes > 0]
    starts = np.cumsum(sizes) - sizes
    ahead = np.add.reduceat(differ, starts, axis=1).astype(np.float64)
    products = np.array([np.add.reduceat(differ * one, starts, axis=1) for one in differ])
    return sizes.astype(np.float64), ahead, products.astype(np.float64)


def _paired(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[Pairs]:
    """Pairs of outcomes with the same seed, for each unit."""
    found = []
    for runs in (ours, theirs):
        # with the order "random", sessions depend on the seed
        nodes = [(outcome.sessions, outcome.total.tobytes()) for outcome in runs["outcome"]]
        keys = zip(*(runs[name] for name in UNIT), nodes, runs["seed"], strict=True)
        kept = [(k, o) for k, o in zip(keys, runs["outcome"], strict=True) if o.answers is not None]
        found.append(dict(kept))
        if len(found[-1]) < len(kept):
            raise InputError(
                "runs hold several of one graph, split, stream and seed: give those of one method"
                " with one setting, such as tuning.tuned picks them"
            )
    units = groupby(sorted(found[0].keys() & found[1].keys(), key=repr), key=lambda key: key[:-1])
    return [tuple((found[0][key], found[1][key]) for key in keys) for _, keys in units]


@dataclass(frozen=True)
class Ranking:
    """Methods ranked over graphs, by `means`, a row per graph and a column per method.

    `ranks` are those of each row, 1 for the best (equal ones share the mean of theirs), `average`
    each method's, the best first. `p_value` is of Friedman's test that all methods rank alike, NaN
    for fewer than three methods or graphs; average ranks closer than Nemenyi's
    `critical_difference`, at 5%, are not told apart.
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
    # not at the top: it takes two seconds, and `compare` needs none of it
    from scipy.stats import friedmanchisquare, studentized_range

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
