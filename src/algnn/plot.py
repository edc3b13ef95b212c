"""Pictures of one's own model: what it confuses, remembers and finds new, and why.

Each function returns a matplotlib `Figure` of its own, which a notebook shows; `save` writes it.
"""

import io
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch_geometric.data import Data

from algnn.analytic.model import ALGNN
from algnn.checks import Labels, Nodes, check_labels, check_number
from algnn.errors import InputError
from algnn.files import picture_path, write_atomically
from algnn.learner import Learner

NUMBERED = 15  # up to so many classes a cell of a confusion matrix has room for its number
TICKS = 30  # more names than this along an axis would touch
LONGEST = 32  # letters of a name; of longer ones both ends are shown
KNOWN, NEW, SOFT = "#1f5fae", "#c2410c", "#8a93a0"


def confusion(model: Learner, graph: Data, nodes: Nodes | None, labels: Labels) -> Figure:
    """Confusion matrix: of the nodes of each class, the share that is given each answer.

    Parameters
    ----------
    model : Learner
        Fitted.
    graph, nodes, labels
        As for `Learner.evaluate`.

    Returns
    -------
    Figure
        A row for each class of `labels`, a column for each class learned, both in the order of
        learning; rows of classes never learned come last.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> train, test = graph.train_mask, graph.test_mask
    >>> model = algnn.ALGNN(device="cpu", width=256).fit(graph, train, graph.y[train])
    >>> algnn.plot.confusion(model, graph, test, graph.y[test]).axes[0].get_xlabel()
    'predicted'
    """
    table = model.evaluate(graph, nodes, labels)
    predicted = model.predict(graph, nodes)
    true = check_labels(labels, predicted.size)
    rows, known = table.index.to_list(), model.classes_.tolist()
    columns = [c for c in rows if c in known] + [c for c in known if c not in rows]
    counts = pd.crosstab(true, predicted, normalize="index")
    shares = 100 * counts.reindex(index=rows, columns=columns, fill_value=0).to_numpy()
    size = min(11.0, 3.2 + 0.42 * len(columns))
    figure = Figure(figsize=(size + 1.2, size), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    figure.colorbar(image, ax=axes, label="nodes of the class (%)", shrink=0.8)
    _names(axes.xaxis, columns)
    _names(axes.yaxis, rows)
    axes.set(xlabel="predicted", ylabel="true class")
    figure.suptitle(_total(table), fontsize="medium")
    if max(shares.shape) <= NUMBERED:
        for (i, j), value in np.ndenumerate(shares):
            if value >= 0.5:
                ink = "white" if value > 55 else "black"
                axes.text(j, i, f"{value:.0f}", ha="center", va="center", color=ink, fontsize=8)
    return figure


def accuracy(model: Learner, graph: Data, nodes: Nodes | None, labels: Labels) -> Figure:
    """Accuracy of each class, and of each session: whether what is older is remembered less.

    Parameters
    ----------
    model, graph, nodes, labels
        As for `confusion`.

    Returns
    -------
    Figure
        Left, a bar for each class in the order of learning, and a mark at its mean confidence.
        Right, where the model knows its sessions, the mean accuracy of the classes of each.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(device="cpu", width=256)
    >>> for session in algnn.ClassStream(graph):
    ...     _ = model.partial_fit(session.graph, session.nodes, session.labels)
    >>> figure = algnn.plot.accuracy(model, graph, graph.test_mask, graph.y[graph.test_mask])
    >>> len(figure.axes), len(figure.axes[0].patches)
    (2, 10)
    """
    table = model.evaluate(graph, nodes, labels)
    sessions = table.groupby("session").accuracy.mean()  # of classes that have one
    aged = len(sessions) > 1
    figure = Figure(figsize=(12 if aged else 8, 4.6), layout="constrained")
    panels = figure.subplots(1, 1 + aged, squeeze=False, width_ratios=[2, 1][: 1 + aged])[0]
    bars = panels[0]
    last = int(max(sessions.index, default=0)) or 1
    shade = colormaps["viridis"]
    shades = [SOFT if pd.isna(s) else shade(0.2 + 0.75 * s / last) for s in table.session]
    places = range(len(table))
    bars.bar(places, 100 * table.accuracy, color=shades)
    bars.plot(places, 100 * table.confidence, "kD", mec="white", ms=6, label="mean confidence")
    _names(bars.xaxis, table.index.to_list())
    order = "class, in the order of learning" if aged else "class"
    bars.set(xlabel=order, title=_total(table))
    if aged:
        ages = panels[1]
        ages.plot(sessions.index.astype(int), 100 * sessions, "o-", color=KNOWN)
        ages.set_xticks(range(0, last + 1, last // 12 + 1))
        below = "session in which a class was learned"
        ages.set(xlabel=below, title="mean over the classes of a session")
    for axes in panels:
        axes.set(ylim=(0, 102), ylabel="accuracy (%)")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.legend(loc="outside lower left", frameon=False)
    return figure


def novelty(
    model: Learner,
    graph: Data,
    nodes: Nodes | None = None,
    labels: Labels | None = None,
    *,
    threshold: float | None = None,
    times: npt.ArrayLike | None = None,
) -> Figure:
    """Novelty over time: the out-of-distribution score of nodes in the order in which they came.

    Parameters
    ----------
    model : Learner
        Fitted.
    graph : Data
    nodes : Tensor, array or list [n], optional
        Ids in the order in which they came, or a mask; every node by default.
    labels : Tensor, array or list [n], optional
        Their classes, if known: nodes of classes that the model has not learned stand out.
    threshold : float, optional
        From 0 to 1: drawn as a line, above which nodes are counted.
    times : array [n], optional
        When each node came; by default its place in `nodes`.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> first = algnn.ClassStream(graph)[0]
    >>> model = algnn.ALGNN(device="cpu", width=256).fit(first.graph, first.nodes, first.labels)
    >>> figure = algnn.plot.novelty(model, graph, range(300), graph.y[:300], threshold=0.3)
    >>> figure.axes[0].get_title()
    '... of 300 nodes above 0.3'
    """
    if threshold is not None:
        check_number("threshold", threshold, 0, math.nextafter(1, 2))
    found = model.novelty(graph, nodes)
    x = np.arange(found.size) if times is None else np.asarray(times)
    if x.shape != found.shape:
        raise InputError(f"times has shape {list(x.shape)} for {found.size} nodes: give one each")
    new = np.zeros(found.size, dtype=bool)
    if labels is not None:
        new = ~np.isin(check_labels(labels, found.size, model.classes_), model.classes_)
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    axes = figure.subplots()
    known = "nodes" if labels is None else "known class"
    for mask, colour, name in ((~new, KNOWN, known), (new, NEW, "class not learned yet")):
        if mask.any():
            axes.plot(x[mask], found[mask], ".", color=colour, alpha=0.5, ms=5, label=name)
    width = max(found.size // 20, 5)
    order = np.argsort(x, kind="stable")
    middle = pd.Series(found[order]).rolling(width, center=True, min_periods=1).median()
    axes.plot(x[order], middle, color="black", linewidth=1.4, label=f"median of {width}")
    title = f"novelty of {found.size:,} nodes"
    if threshold is not None:
        axes.axhline(threshold, color=SOFT, linestyle="--", linewidth=1)
        title = f"{int((found > threshold).sum()):,} of {found.size:,} nodes above {threshold:g}"
    when = "nodes as they came" if times is None else "time"
    axes.set(xlabel=when, ylabel="novelty", title=title)
    axes.legend(loc="upper right", framealpha=0.9)
    return figure


def explanation(
    model: Learner, graph: Data, node: int, label: int | str | None = None, *, count: int = 10
) -> Figure:
    """The features and the neighbours that moved one node's score the most, up or down.

    Parameters
    ----------
    model : ALGNN
        Fitted, with the label-free encoder.
    graph, node, label
        As for `ALGNN.explain`.
    count : int
        How many features and neighbours are shown; the sum of the others is the last bar.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(device="cpu", width=256).fit(graph, range(200), graph.y[:200])
    >>> [axes.get_title() for axes in algnn.plot.explanation(model, graph, 0).axes]
    ['features', 'neighbours']
    """
    check_number("count", count, 1, 100, whole=True)
    if not isinstance(model, ALGNN):
        raise InputError(f"model is a {type(model).__name__}: only an ALGNN explains its scores")
    why = model.explain(graph, node, label)
    figure = Figure(figsize=(11, 1.6 + 0.28 * (count + 1)), layout="constrained")
    figure.suptitle(f"node {why.node} scores {why.score:+.3f} for class {_plain(why.label)}")
    both = zip(figure.subplots(1, 2), why._ranked(count), strict=True)
    for axes, (kind, top, others, rest) in both:
        bars = top | ({f"{others:,} others": rest} if others else {})
        colours = [KNOWN if value >= 0 else NEW for value in bars.values()]
        axes.barh(range(len(bars)), bars.values(), color=colours)
        axes.set_yticks(range(len(bars)), bars)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set(ylim=(count + 0.6, -0.6), title=f"{kind}s", xlabel="contribution to the score")
    return figure


def class_map(model: Learner, graph: Data, nodes: Nodes | None, labels: Labels) -> Figure:
    """A map of classes: each node lies between the classes that it may be.

    The classes learned stand on a circle, those that are confused side by side. A node lies at the
    mean of their places, weighted by its probabilities: at a class when that is certain, between
    two in doubt, in the middle when it could be anything.

    Parameters
    ----------
    model, graph, nodes, labels
        As for `confusion`.

    Returns
    -------
    Figure
        A colour for each class of `labels`; crosses are nodes of classes never learned.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> train, test = graph.train_mask, graph.test_mask
    >>> model = algnn.ALGNN(device="cpu", width=256).fit(graph, train, graph.y[train])
    >>> figure = algnn.plot.class_map(model, graph, test, graph.y[test])
    >>> sorted(text.get_text() for text in figure.axes[0].texts)[:3]
    ['0', '1', '2']
    """
    sure = model.predict_proba(graph, nodes)
    if not len(sure):
        raise InputError("nodes is empty: a map needs at least one labelled node")
    true = check_labels(labels, len(sure), model.classes_)
    known = model.classes_.tolist()
    corners = _around(sure)
    flat = sure @ corners
    figure = Figure(figsize=(8, 8), layout="constrained")
    axes = figure.subplots()
    turn = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(turn), np.sin(turn), color=SOFT, linewidth=0.7, alpha=0.5)
    names = sorted({*known, *true.tolist()})
    for i, name in enumerate(names):
        colour = colormaps["turbo"](0.05 + 0.9 * i / max(len(names) - 1, 1))
        x, y = flat[true == name].T
        if name not in known:
            label = f"never learned: {_plain(name)}"
            axes.plot(x, y, "x", color="black", alpha=0.6, ms=5, label=label)
            continue
        axes.plot(x, y, ".", color=colour, alpha=0.5, ms=6)
        box = {"boxstyle": "round,pad=0.25", "fc": "white", "ec": colour, "lw": 1.5}
        across, up = 1.09 * corners[known.index(name)]
        axes.text(across, up, _plain(name), ha="center", va="center", bbox=box, fontsize=9)
    axes.set_axis_off()
    title = f"{len(true):,} nodes between the {len(known):,} classes that they may be"
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), title=title)
    if len(names) > len(known):
        axes.legend(loc="lower left", frameon=False)
    return figure


def _around(sure: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Places [C, 2] on a circle, so that classes with like probabilities are neighbours."""
    shared = sure.T @ sure
    order = [0]
    while len(order) < len(shared):
        shared[:, order[-1]] = -1  # it has its place
        order.append(int(shared[order[-1]].argmax()))
    angles = np.empty(len(order))
    angles[order] = np.pi / 2 - 2 * np.pi * np.arange(len(order)) / len(order)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as ``.png``, ``.svg`` or ``.pdf``, in a single step; returns the path."""
    target, drawn = picture_path(path), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # which the picture shows
        figure.savefig(drawn, format=target.suffix[1:], dpi=130)
    write_atomically(target, drawn.getvalue())
    return target


def _plain(name: Any) -> str:
    """A class's name, not too long, and no formula where it holds dollar signs."""
    text = str(name)
    short = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"
    return short.replace("$", r"\$")


def _names(axis: Any, names: list[Any]) -> None:
    """Names of classes along an axis, as many as fit; upright where they would touch."""
    every = -(-len(names) // TICKS)
    shown = [_plain(name) for name in names[::every]]
    upright = axis.axis_name == "x" and max(map(len, shown)) > 3
    axis.set_ticks(range(0, len(names), every), shown, rotation=90 if upright else 0)


def _total(table: pd.DataFrame) -> str:
    words = "accuracy {accuracy:.1%} over {n:,} nodes, {macro:.1%} over {classes:,} classes"
    return words.format(**table.attrs, classes=len(table))
