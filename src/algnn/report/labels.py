"""Names and ticks in a figure, placed so that no text covers another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algnn.report.style import FONT, LINE, RULE, Style

LINE2D: Any = Line2D


def short(name: str, most: int = 13) -> str:
    """A name that a figure has room for; a user's learner ``module:Class`` goes by its class."""
    text = "".join(c if c.isprintable() else " " for c in name.rpartition(":")[2] or name).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def text_width(text: str) -> float:
    """The width of a text in pixels."""
    renderer, font = _ruler()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        return float(renderer.get_text_width_height_descent(text, font, False)[0])


@cache
def _ruler() -> tuple[Any, FontProperties]:
    renderer: Any = RendererAgg
    return renderer(16, 16, 72), FontProperties(family=["DejaVu Sans"], size=FONT)


def margin_for(names: Iterable[str]) -> float:
    """The room that `at_ends` needs to the right of the axes, in pixels."""
    return 40 + max(map(text_width, names))


def at_ends(axes: Any, ends: Sequence[tuple[str, Style, float]]) -> None:
    """Write names at the right ends of lines; each end is a name, a style and the last value."""
    figure = axes.figure
    width, height = figure.get_size_inches() * 72
    right = axes.get_position().x1 * width
    heights = [axes.transData.transform((1.0, value))[1] for _, _, value in ends]
    order = sorted(range(len(ends)), key=lambda i: (heights[i], -i))
    spots = spread([heights[i] for i in order], LINE, LINE / 2 + 1, height - LINE / 2 - 1)
    for i, spot in zip(order, spots, strict=True):
        name, style, _ = ends[i]
        start = min(max(heights[i], 0), height)
        x = [(right + dx) / width for dx in (7, 17, 23, 29, 34)]
        leader = {"color": RULE, "linewidth": 0.9, "solid_capstyle": "butt"}
        figure.add_artist(LINE2D(x[:2], [start / height, spot / height], **leader))
        sample = {"color": style.colour, "linewidth": style.width, "markevery": [1]}
        figure.add_artist(LINE2D(x[1:4], [spot / height] * 3, **sample, **style.marks))
        figure.text(x[4], spot / height, name, va="center_baseline", ha="left")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions nearest to those wanted (ascending), a gap apart; `high` yields before `low`."""
    # clusters (mean of what the members want, count) of labels that would touch
    clusters: list[tuple[float, int]] = []
    for value in wanted:
        mean, count = value, 1
        while clusters and mean - clusters[-1][0] < gap * (count + clusters[-1][1]) / 2 - 1e-9:
            other, more = clusters.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        clusters.append((mean, count))
    spots = [mean + gap * (i - (count - 1) / 2) for mean, count in clusters for i in range(count)]
    for i in reversed(range(len(spots))):
        spots[i] = min(spots[i], high - gap * (len(spots) - 1 - i))
    for i in range(len(spots)):
        spots[i] = max(spots[i], low + gap * i, *(s + gap for s in spots[i - 1 : i] if i))
    return [float(spot) for spot in spots]


def set_ticks(axis: Any, ticks: Sequence[float], write: Callable[[float], str]) -> None:
    """These ticks and no others, whatever the scale of the axis."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
