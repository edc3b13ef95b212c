"""Which differences between methods are real: a paired test on one graph, ranks over many."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from algnn.bench.metrics import Matrix, Outcome
from algnn.bench.tuning import settings_keys
from algnn.errors import InputError

Pairs = tuple[tuple[Outcome, Outcome], ...]
FIGURES = ("ap", "micro")
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


def compare(ours: pd.DataFrame, theirs: pd.DataFrame, figure: str = "ap") -> Comparison:
    """A paired test of the difference of two methods, over splits, orders, seeds and test nodes.

    Parameters
    ----------
    ours, theirs : DataFrame
        Runs of one method on one dataset and stream (base, step and edges) each, with answers, as
        `read_runs` gives them. Those that share graph, split and seed are compared.
    figure : {"ap", "micro"}
        AP, in which sessions count the same, or accuracy, in which nodes do.

    Returns
    -------
    Comparison
        `ours` − `theirs` ± its standard error times Student's t. The squared error is s²/k + c: s²
        is the variance over k units (a split with an order of classes; where there is one, its
        seeds), and c the mean covariance between two units when test nodes are drawn anew, 0
        for units of different splits. Of one pair of runs, or where units lead by the same, it is
        the variance under drawing nodes alone. This is the limit of a bootstrap; t has the units'
        degrees of freedom (Satterthwaite).
    """
    if figure not in FIGURES:
        raise InputError(f"figure={figure!r} cannot be compared: use one of {', '.join(FIGURES)}")
    found = [(key[:5], *_ahead(pairs, figure)) for key, pairs in _paired(ours, theirs)]
    if not found:
        lack = "no two runs share graph, split, stream and seed and have kept their answers"
        raise InputError(f"{lack}: run both methods with the same seeds")
    if len({(key[0], *key[2:]) for key, *_ in found}) > 1:
        raise InputError("runs hold several graphs, base, step or edges: compare those of one")
    if len(found) == 1:
        ((split, leads, nodes),) = found
        units = [(split, *one) for one in zip(leads, nodes, strict=True)]
    else:
        units = [(split, leads.mean(), nodes.mean(0)) for split, leads, nodes in found]
    count = len(units)
    shared = 0.0
    for _, of_split in groupby(units, key=lambda unit: unit[0]):
        nodes = np.array([one for _, _, one in of_split])
        own = np.square(nodes).sum() if count > 1 else 0.0
        shared += float(np.square(nodes.sum(0)).sum() - own)
    shared = max(shared, 0.0) / max(count * (count - 1), 1)
    leads = np.array([lead for _, lead, _ in units])
    of_units = float(leads.var(ddof=1)) / count if count > 1 else 0.0
    if count > 1 and of_units < 1e-12:  # leads that happen to be equal, but for rounding
        own = np.mean([np.square(one).sum() for _, _, one in units])
        of_units = max(float(own) - shared, 0.0) / count
    whole = of_units + shared
    freedom = (count - 1) * (whole / of_units) ** 2 if of_units else np.inf
    half, difference = float(stdtrit(freedom, 0.975) * whole**0.5), float(leads.mean())
    pairs = sum(leads.size for _, leads, _ in found)
    return Comparison(difference, difference - half, difference + half, len(found), pairs)


def _ahead(pairs: Pairs, figure: str) -> tuple[Matrix, Matrix]:
    """[seeds] by how many points the first of each pair leads, and [seeds, nodes] each node's part.

    A part is less the mean of its session, or with micro of all nodes, and what is left when nodes
    are drawn anew. Nodes stand class by class, sorted by name: the same in any order of classes.
    """
    outcome = pairs[0][0]
    truth = np.repeat(np.arange(outcome.total.size), outcome.total)
    classes = [(str(name), i) for i, names in enumerate(outcome.sessions) for name in names]
    names, session = (np.array(one)[truth] for one in zip(*classes, strict=True))
    group = session if figure == "ap" else np.zeros_like(session)
    sizes = np.bincount(group)
    share = 100 / np.count_nonzero(sizes)
    right = np.array([[one.answers == truth for one in pair] for pair in pairs], dtype=np.int8)
    ahead = right[:, 0] - right[:, 1]
    means = np.array([np.bincount(group, row) for row in ahead]) / np.maximum(sizes, 1)
    parts = share * (ahead - means[:, group]) / sizes[group]
    return share * means.sum(1), parts[:, np.argsort(names, kind="stable")]


def _paired(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[tuple[tuple[object, ...], Pairs]]:
    """Pairs of outcomes with the same seed, for each unit."""
    found = []
    for runs in (ours, theirs):
        # with the order "random", sessions depend on the seed
        nodes = [(outcome.sessions, outcome.total.tobytes()) for outcome in runs["outcome"]]
        keys = zip(*(runs[name] for name in UNIT), nodes, runs["seed"], strict=True)
        kept = [(k, o) for k, o in zip(keys, runs["outcome"], strict=True) if o.answers is not None]
        found.append(dict(kept))
        if len(found[-1]) < len(kept):
            remedy = "give those of one method with one setting, such as tuning.tuned picks them"
            raise InputError(f"runs hold several of one graph, split, stream and seed: {remedy}")
    units = groupby(sorted(found[0].keys() & found[1].keys(), key=repr), key=lambda key: key[:-1])
    return [(k, tuple((found[0][one], found[1][one]) for one in keys)) for k, keys in units]


@dataclass(frozen=True)
class Ranking:
    """Methods ranked over graphs, by `means`, a row per graph and a column per method.

    `ranks` are those of each row, 1 for the best (equal ones share the mean of theirs), `average`
    each method's, the best first. `p_value` is of Friedman's test that all methods rank alike, NaN
    for fewer than three methods or graphs, or nothing but ties; average ranks closer than Nemenyi's
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

    Examples
    --------
    >>> runs = pd.DataFrame({"dataset": list("aabb"), "method": ["x", "y"] * 2, "ap": [1, 2, 3, 5]})
    >>> rank(runs).average.to_dict()
    {'y': 1.0, 'x': 2.0}
    """
    # not at the top: it takes two seconds, and `compare` needs none of it
    from scipy.stats import friedmanchisquare, studentized_range

    if "settings" in runs:
        cell = ["dataset", "method"]
        kinds = runs.assign(key=settings_keys(runs))
        kinds = kinds.drop_duplicates([*cell, "base", "step", "edges", "key"])
        for graph, method in kinds.loc[kinds.duplicated(cell), cell].itertuples(index=False):
            how = "give those of one, such as runs[(runs.step == 1) & (runs.edges == 'full')]"
            raise InputError(f"runs of {method} on {graph} have several settings or streams: {how}")
    means = runs.pivot_table(index="dataset", columns="method", values=figure, sort=False)
    means = means.reindex(columns=None if methods is None else list(methods)).dropna()
    graphs, count = means.shape
    if count < 2 or not graphs:
        raise InputError("runs hold no graph on which two methods were run: there are no ranks")
    ranks = means.rank(axis=1, ascending=False)
    enough = count > 2 and graphs > 2 and bool((ranks.nunique(axis=1) > 1).any())
    p_value = friedmanchisquare(*means.to_numpy().T).pvalue if enough else np.nan
    quantile = studentized_range.ppf(0.95, count, np.inf) / 2**0.5
    critical = quantile * (count * (count + 1) / (6 * graphs)) ** 0.5
    average = ranks.mean().sort_values(kind="stable")
    return Ranking(means, ranks, average, float(p_value), float(critical))
