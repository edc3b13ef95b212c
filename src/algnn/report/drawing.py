"""From a matplotlib figure to SVG that follows the page's colours, and to PNG in light ones.

A figure is laid out in pixels: one unit of length is one pixel of the SVG at its natural width.
Text is set in `FONT` pixels, so that it has 11 on a phone, where a figure of `NARROW` pixels is
shown at 358.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import ceil, cos, floor, log10, pi, sin
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import ArrayLike
from PIL import Image

from algnn.report.styles import INKS, Style
from algnn.report.svg import inline

FONT = 13.0
LINE = 15.6  # from one line of text to the next, in every font that a browser may choose
NARROW, WIDE = 420.0, 900.0
INK, SOFT, RULE, PAGE = (INKS[name][0] for name in ("ink", "soft", "rule", "page"))
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "algnn",
    "font.family": ["DejaVu Sans"],
    "font.size": FONT,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "xtick.major.size": 4.0,
    "ytick.major.size": 0.0,
    "xtick.major.pad": 6.5,
    "ytick.major.pad": 5.0,
    "hatch.linewidth": 0.9,
    "lines.markersize": 5.5,
    "image.interpolation": "none",
}

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Chart:
    """A figure of a report.

    Attributes
    ----------
    key : str
        Its files' name, unique in a report.
    number, title, caption : str
        As for a table.
    alt : str
        What it shows, for those who cannot see it.
    draw : callable
        Gives the figure, `NARROW` pixels wide.
    draw_wide : callable, optional
        Gives the figure for a wide page, `WIDE` pixels wide, where it needs another layout.
    commands : tuple of str
        What made the runs behind it.

    Examples
    --------
    >>> Chart("a", "1", "A", "A figure.", "Nothing.", lambda: canvas(100, 100)[0]).key
    'a'
    """

    key: str
    number: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    draw_wide: Callable[[], Figure] | None = None
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """A chart as files and as parts of a page.

    Attributes
    ----------
    inline : tuple of str
        SVG elements for the page: for every width, or for narrow pages and for wide ones.
    svg, png : bytes
        Files.

    Examples
    --------
    >>> render(Chart("a", "1", "A", "A figure.", "Nothing.", lambda: canvas(100, 100)[0])).svg[:5]
    b'<?xml'
    """

    inline: tuple[str, ...]
    svg: bytes
    png: bytes


def render(chart: Chart) -> Drawn:
    """Draw a chart in all its forms.

    Parameters
    ----------
    chart : Chart

    Returns
    -------
    Drawn
        The same bytes for the same chart.

    Examples
    --------
    >>> drawn = render(Chart("a", "1", "A", "A figure.", "Nothing.", lambda: canvas(100, 100)[0]))
    >>> drawn.inline[0][:28], drawn.png[1:4]
    ('<svg viewBox="0 0 100 100" c', b'PNG')
    """
    with drawing():
        figures = [draw() for draw in (chart.draw, chart.draw_wide) if draw is not None]
        texts = [_svg(figure) for figure in figures]
        names = ["every"] if len(figures) == 1 else ["narrow", "wide"]
        elements = [
            inline(text, f"{chart.key}-{name}", name)
            for text, name in zip(texts, names, strict=True)
        ]
        return Drawn(tuple(elements), texts[-1].encode(), _png(figures[-1]))


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib as figures of a report need it; outside, it is as it was.

    Examples
    --------
    >>> with drawing():
    ...     matplotlib.rcParams["svg.fonttype"]
    'none'
    """
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # a name may be written in letters that the figures' font lacks; a browser has them
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def canvas(
    width: float,
    height: float,
    left: float = 36,
    right: float = 10,
    top: float = 26,
    bottom: float = 47,
) -> tuple[Figure, Any]:
    """An empty figure with one pair of axes.

    Parameters
    ----------
    width, height : float
        Of the figure, in pixels.
    left, right, top, bottom : float
        What is left free around the axes.

    Returns
    -------
    Figure, Axes

    Examples
    --------
    >>> canvas(200, 100)[0].get_size_inches() * 72
    array([200., 100.])
    """
    # a Figure of its own: pyplot and the user's choice of backend are not touched
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    box = (left / width, bottom / height, (width - left - right) / width)
    return figure, figure.add_axes((*box, (height - top - bottom) / height))


def name_axes(axes: Any, x: str, y: str) -> None:
    """Name the axes in level text: y above the axes, x below them.

    Parameters
    ----------
    axes : Axes
    x, y : str

    Examples
    --------
    >>> name_axes(canvas(200, 100)[1], "session", "AP (%)")
    """
    axes.set_xlabel(x, labelpad=3)
    figure = axes.figure
    width, height = figure.get_size_inches() * 72
    figure.text(4 / width, 1 - 4 / height, y, va="top", ha="left", color=SOFT)


def line(axes: Any, x: ArrayLike, y: ArrayLike, style: Style, **more: Any) -> None:
    """A line in a method's style.

    Parameters
    ----------
    axes : Axes
    x, y : array [n]
    style : Style
    **more
        For matplotlib's `plot`.

    Examples
    --------
    >>> from algnn.report.styles import STYLES
    >>> line(canvas(200, 100)[1], [0, 1], [3, 4], STYLES["gem"])
    """
    dashes = "-" if not style.dashes else (0, tuple(d / style.width for d in style.dashes))
    axes.plot(
        x,
        y,
        color=style.colour,
        linestyle=dashes,
        linewidth=style.width,
        clip_on=False,
        zorder=2 + style.width,
        **marker(style),
        **more,
    )


def marker(style: Style) -> dict[str, Any]:
    """A method's marker, for matplotlib's `plot`.

    Parameters
    ----------
    style : Style

    Returns
    -------
    dict

    Examples
    --------
    >>> from algnn.report.styles import STYLES
    >>> marker(STYLES["joint"])["markerfacecolor"] == PAGE
    True
    """
    return {
        "marker": style.marker,
        "markerfacecolor": style.colour if style.filled else PAGE,
        "markeredgecolor": style.colour,
        "markeredgewidth": 1.2 if not style.filled else 0.6,
        "markersize": 7.5 if style.marker in "*dPX" else 5.8,
    }


def margin_for(names: Sequence[str]) -> float:
    """How much room `label_ends` needs to the right of the axes.

    Parameters
    ----------
    names : sequence of str

    Returns
    -------
    float
        In pixels.

    Examples
    --------
    >>> margin_for(["gem", "algnn-paper"]) > margin_for(["gem"]) > 34
    True
    """
    return 40 + max(text_width(name) for name in names)


def label_ends(axes: Any, ends: Sequence[tuple[str, Style, float]]) -> None:
    """Name lines at their right ends, moved apart where they would touch.

    Parameters
    ----------
    axes : Axes
        With its final limits and scales.
    ends : sequence of (str, Style, float)
        Each line's name, style and last value.

    Examples
    --------
    >>> from algnn.report.styles import STYLES
    >>> axes = canvas(300, 200, right=100)[1]
    >>> label_ends(axes, [("gem", STYLES["gem"], 0.5), ("cat", STYLES["cat"], 0.51)])
    >>> low, high = (text.get_position()[1] for text in axes.figure.texts)
    >>> bool((high - low) * 200 > 15)
    True
    """
    figure = axes.figure
    width, height = figure.get_size_inches() * 72
    box = axes.get_position()
    right = box.x1 * width
    heights = [axes.transData.transform((1.0, value))[1] for _, _, value in ends]
    order = sorted(range(len(ends)), key=lambda i: (heights[i], -i))
    places = spread([heights[i] for i in order], LINE, LINE / 2 + 1, height - LINE / 2 - 1)
    for i, place in zip(order, places, strict=True):
        name, style, _ = ends[i]
        start = min(max(heights[i], 0), height)
        x = [(right + dx) / width for dx in (7, 17)]
        figure.add_artist(_stroke(x, [start / height, place / height], RULE))
        x = [(right + dx) / width for dx in (17, 23, 29)]
        figure.add_artist(_stroke(x, [place / height] * 3, style.colour, style))
        figure.text((right + 34) / width, place / height, name, va="center_baseline", ha="left")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near as can be to those wanted, at least a gap apart, between two bounds.

    Parameters
    ----------
    wanted : sequence of float
        Ascending.
    gap, low, high : float

    Returns
    -------
    list of float
        Ascending. Where the bounds leave too little room, the upper one is passed.

    Examples
    --------
    >>> spread([0, 1, 50], 10, 0, 100)
    [0.0, 10.0, 50.0]
    >>> spread([98, 99], 10, 0, 100)
    [90.0, 100.0]
    """
    # clusters of touching labels, each around the mean of what its members want
    clusters: list[list[float]] = []
    for value in wanted:
        clusters.append([value, 1])
        while len(clusters) > 1 and _touch(clusters[-2], clusters[-1], gap):
            (mean, count), (other, more) = clusters[-2:]
            total = count + more
            clusters[-2:] = [[(mean * count + other * more) / total, total]]
    places = [
        mean + gap * (i - (count - 1) / 2) for mean, count in clusters for i in range(int(count))
    ]
    for i in reversed(range(len(places))):
        places[i] = min(places[i], high - gap * (len(places) - 1 - i))
    for i in range(len(places)):
        places[i] = max(places[i], low + gap * i)
        if i:
            places[i] = max(places[i], places[i - 1] + gap)
    return [float(place) for place in places]


def label_points(axes: Any, points: Sequence[tuple[str, float, float]]) -> None:
    """Name points where there is room beside them; a thin line leads to a name further off.

    Parameters
    ----------
    axes : Axes
        With its final limits and scales.
    points : sequence of (str, float, float)
        Name, x and y.

    Notes
    -----
    A name for which no room is found at all is left out.

    Examples
    --------
    >>> axes = canvas(300, 200)[1]
    >>> label_points(axes, [("gem", 0.5, 0.5), ("cat", 0.5, 0.5)])
    >>> len(axes.figure.texts)
    2
    """
    figure = axes.figure
    width, height = figure.get_size_inches() * 72
    box = axes.get_position()
    # names may stand beside the axes, but not on their ticks
    bounds = (box.x0 * width + 3, box.y0 * height + 3, width - 3, height - 26)
    at = [tuple(axes.transData.transform((x, y))) for _, x, y in points]
    taken: list[Box] = []
    for i, ((name, _, _), (x, y)) in enumerate(zip(points, at, strict=True)):
        others = [point for j, point in enumerate(at) if j != i]
        found = _room((x, y), others, (text_width(name) + 2, LINE), bounds, taken)
        if found is None:
            continue
        (left, low, right, high), leader = found
        taken += [(left, low, right, high), *leader[1:-1]]
        if leader:
            xs, ys = ([(p[i] + p[i + 2]) / 2 for p in leader] for i in (0, 1))
            ends = [xs[0] / width, xs[-1] / width], [ys[0] / height, ys[-1] / height]
            figure.add_artist(_stroke(*ends, SOFT, width=0.6))
        figure.text(
            (left + 1) / width, (low + high) / 2 / height, name, va="center_baseline", ha="left"
        )


def log_axis(axis: Any, low: float, high: float, write: Callable[[float], str]) -> None:
    """Few round ticks on a logarithmic axis.

    Parameters
    ----------
    axis : Axis
    low, high : float
        What is to be shown.
    write : callable
        Gives the text of a tick.

    Examples
    --------
    >>> axes = canvas(200, 100)[1]
    >>> axes.set_xscale("log")
    >>> axes.set_xlim(0.2, 300)
    (0.2, 300)
    >>> log_axis(axes.xaxis, 0.2, 300, lambda value: f"{value:g}")
    >>> [text.get_text() for text in axes.get_xticklabels()]
    ['1', '10', '100']
    """
    ticks = round_ticks(low, high)
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two bounds, evenly on a logarithmic scale.

    Parameters
    ----------
    low, high : float
    most : int
        No more than so many.

    Returns
    -------
    list of float
        At least one; the lower bound itself where no round number lies between them.

    Examples
    --------
    >>> round_ticks(0.3, 9), round_ticks(0.2, 300), round_ticks(1, 1e9)
    ([0.5, 1.0, 2.0, 5.0], [1.0, 10.0, 100.0], [1.0, 100.0, 10000.0, 1000000.0, 100000000.0])
    """
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for parts in ((1, 2, 5), (1, 3), (1,)):
        # by way of text: 2 * 10.0**-1 is not 0.2
        ticks = [float(f"{part}e{power}") for power in powers for part in parts]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            return ticks or [low]
    return ticks[:: ceil(len(ticks) / most)]


def text_width(text: str) -> float:
    """How wide a text is drawn, in pixels.

    Parameters
    ----------
    text : str

    Returns
    -------
    float

    Examples
    --------
    >>> 15 < text_width("gem") < 40
    True
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        return float(_ruler().get_text_width_height_descent(text, _font(), False)[0])


def short(name: str, most: int = 13) -> str:
    """A name that a figure has room for.

    Parameters
    ----------
    name : str
        A user's own learner, ``module:Class``, goes by its class.
    most : int
        Letters.

    Returns
    -------
    str

    Examples
    --------
    >>> short("algnn-paper"), short("mypackage.mymethod:MyOwnGraphLearner")
    ('algnn-paper', 'MyOwnGraphLe…')
    """
    text = "".join(c if c.isprintable() else " " for c in name.rpartition(":")[2] or name).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


@cache
def _ruler() -> Any:
    renderer: Any = RendererAgg
    return renderer(16, 16, 72)


@cache
def _font() -> FontProperties:
    return FontProperties(family=["DejaVu Sans"], size=FONT)


def _stroke(
    x: Sequence[float],
    y: Sequence[float],
    colour: str,
    style: Style | None = None,
    width: float = 0.9,
) -> Any:
    """A line in figure coordinates; in a method's style, with its marker in the middle."""
    from matplotlib.lines import Line2D

    if style is None:
        return Line2D(x, y, color=colour, linewidth=width, solid_capstyle="butt")
    return Line2D(x, y, color=colour, linewidth=style.width, markevery=[1], **marker(style))


def _touch(below: Sequence[float], above: Sequence[float], gap: float) -> bool:
    reach = gap * (below[1] + above[1]) / 2
    return above[0] - below[0] < reach - 1e-9


@cache
def _offsets() -> list[tuple[float, float, float]]:
    """Directions to try, near before far; right and left before the others."""
    turns = sorted(range(16), key=lambda i: (i % 8 != 0, i % 4 != 0, i % 2 != 0, i))
    ways = [(cos(pi * i / 8), sin(pi * i / 8)) for i in turns]
    radii = (9, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120, 140, 165)
    return [(dx, dy, radius) for radius in radii for dx, dy in ways]


def _room(
    point: tuple[float, float],
    others: Sequence[tuple[float, float]],
    size: tuple[float, float],
    bounds: Box,
    taken: Sequence[Box],
) -> tuple[Box, list[Box]] | None:
    """Where a name of this size can stand, and the line that leads to it if it is far off."""
    for dx, dy, radius in _offsets():
        box = _beside(*point, dx, dy, radius, size)
        # a name that is not at its own point must not look like another's
        near = 6 if radius < 12 else 12
        full = [*taken, _around(point, 6), *(_around(other, near) for other in others)]
        if not _within(box, bounds) or any(_overlap(box, other) for other in full):
            continue
        leader = _leader(*point, box) if radius > 12 else []
        names = [other for other in taken if other[2] - other[0] > 2]
        if not any(_overlap(dot, other) for dot in leader for other in names):
            return box, leader
    return None


def _around(point: tuple[float, float], reach: float) -> Box:
    return point[0] - reach, point[1] - reach, point[0] + reach, point[1] + reach


def _leader(x: float, y: float, box: Box) -> list[Box]:
    """The way from a point to the nearest place of a box, as dots."""
    to_x, to_y = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
    shares = [i / 12 for i in range(13)]
    dots = [(x + s * (to_x - x), y + s * (to_y - y)) for s in shares]
    return [(a - 0.5, b - 0.5, a + 0.5, b + 0.5) for a, b in dots]


def _beside(
    x: float, y: float, dx: float, dy: float, radius: float, size: tuple[float, float]
) -> Box:
    width, height = size
    # the side that faces the point, or the corner, lies at the radius
    cx = x + dx * radius + max(-1, min(1, 1.6 * dx)) * width / 2
    cy = y + dy * radius + max(-1, min(1, 1.6 * dy)) * height / 2
    return cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2


def _within(box: Sequence[float], bounds: Sequence[float]) -> bool:
    return (
        box[0] >= bounds[0] and box[1] >= bounds[1] and box[2] <= bounds[2] and box[3] <= bounds[3]
    )


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _svg(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue().decode()


def _png(figure: Figure) -> bytes:
    """A small file: few colours are in a figure, and a palette holds them."""
    width = figure.get_size_inches()[0] * 72
    figure.set_dpi(72 * (900 if width < 600 else 1260) / width)
    figure.set_facecolor("white")
    surface: Any = FigureCanvasAgg(figure)
    surface.draw()
    picture = Image.fromarray(np.asarray(surface.buffer_rgba())).convert("RGB")
    file = io.BytesIO()
    method = Image.Quantize.FASTOCTREE
    picture.quantize(256, method, dither=Image.Dither.NONE).save(file, "png", compress_level=9)
    return file.getvalue()
