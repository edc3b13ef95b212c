"""Names and ticks in a figure, placed so that no text covers another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import ceil, cos, floor, log10, pi, sin
from typing import Any

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algnn.report.style import FONT, LINE, RULE, SOFT, Style

Box = tuple[float, float, float, float]
Point = tuple[float, float]
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


def at_points(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Write names beside points, far ones with a thin line, as long as there is room."""
    figure = axes.figure
    width, height = figure.get_size_inches() * 72
    frame = axes.get_position()
    # names may stand right of the axes, but not on their ticks
    bounds = (frame.x0 * width + 3, frame.y0 * height + 3, width - 3, height - 26)
    at = [tuple(axes.transData.transform((x, y))) for _, x, y in points]
    names: list[Box] = []
    leaders: list[Box] = []
    for i, (name, _, _) in enumerate(points):
        others = [point for j, point in enumerate(at) if j != i]
        size = (text_width(name) + 2, LINE)
        found = _room(at[i], others, size, bounds, names, leaders)
        if found is None:
            continue
        box, dots = found
        names.append(box)
        leaders += dots[1:-1]
        if dots:
            ends = [((a + c) / 2, (b + d) / 2) for a, b, c, d in (dots[0], dots[-1])]
            x, y = [end[0] / width for end in ends], [end[1] / height for end in ends]
            figure.add_artist(LINE2D(x, y, color=SOFT, linewidth=0.6))
        middle = (box[1] + box[3]) / 2 / height
        figure.text((box[0] + 1) / width, middle, name, va="center_baseline", ha="left")


def _room(
    point: Point,
    others: Sequence[Point],
    size: tuple[float, float],
    bounds: Box,
    names: Sequence[Box],
    leaders: Sequence[Box],
) -> tuple[Box, list[Box]] | None:
    """A free box of this size near a point, and the dots of the line that leads to it."""
    for dx, dy, radius in _offsets():
        # the side or the corner that faces the point lies at the radius
        x = point[0] + dx * radius + max(-1, min(1, 1.6 * dx)) * size[0] / 2
        y = point[1] + dy * radius + max(-1, min(1, 1.6 * dy)) * size[1] / 2
        box = (x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)
        if box[0] < bounds[0] or box[1] < bounds[1] or box[2] > bounds[2] or box[3] > bounds[3]:
            continue
        # a name that is not at its own point must not look like another's
        near = 6 if radius < 12 else 12
        full = [*names, *leaders, _around(point, 6), *(_around(other, near) for other in others)]
        if any(_overlap(box, other) for other in full):
            continue
        dots = _leader(point, box) if radius > 12 else []
        if not any(_overlap(dot, name) for dot in dots for name in names):
            return box, dots
    return None


@cache
def _offsets() -> list[tuple[float, float, float]]:
    """Directions to try, near before far; right and left before the others."""
    turns = sorted(range(16), key=lambda i: (i % 8 != 0, i % 4 != 0, i % 2 != 0, i))
    ways = [(cos(pi * i / 8), sin(pi * i / 8)) for i in turns]
    radii = (9, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120, 140, 165)
    return [(dx, dy, radius) for radius in radii for dx, dy in ways]


def _leader(point: Point, box: Box) -> list[Box]:
    """The way from a point to the nearest spot of a box, as dots."""
    (x, y), to = point, (min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3]))
    steps = [i / 12 for i in range(13)]
    return [_around((x + s * (to[0] - x), y + s * (to[1] - y)), 0.5) for s in steps]


def _around(point: Point, reach: float) -> Box:
    return point[0] - reach, point[1] - reach, point[0] + reach, point[1] + reach


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def set_ticks(axis: Any, ticks: Sequence[float], write: Callable[[float], str]) -> None:
    """These ticks and no others, whatever the scale of the axis."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """A few round numbers between two bounds, evenly spaced on a logarithmic scale.

    The lower bound itself where there is no round number between them.
    """
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for parts in ((1, 2, 5), (1, 3), (1,)):
        # by way of text: 2 * 10.0**-1 is not 0.2
        ticks = [float(f"{part}e{power}") for power in powers for part in parts]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            return ticks or [low]
    return ticks[:: ceil(len(ticks) / most)]
