"""The look of figures: each method's colour, marker and dashes; matplotlib's settings.

A colour stands for a family of methods; the pair of marker and dashes belongs to one method. Every
colour has a name, and a value for the light and for the dark page.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from algnn.methods import METHODS
from algnn.report.data import in_order

# light, dark: contrast of at least 3:1 with the page, and distinct for colour-blind readers, after
# the palettes of Okabe and Ito, and of Tol
HUES: dict[str, tuple[str, str]] = {
    "vermilion": ("#c2410c", "#ff8f5e"),
    "blue": ("#1f5fae", "#7fb2f5"),
    "green": ("#0b7a5c", "#45c9a0"),
    "purple": ("#93358d", "#e391db"),
    "ochre": ("#8f6b00", "#dfb83c"),
    "sky": ("#24819c", "#7bd0e8"),
    "brown": ("#7b4b2a", "#d3a17c"),
    "grey": ("#606b78", "#a5afbc"),
}
# text, lesser text, grid lines, the page itself
INKS: dict[str, tuple[str, str]] = {
    "ink": ("#1a1f27", "#e7eaee"),
    "soft": ("#56606c", "#a8b1bd"),
    "rule": ("#d9dee4", "#39424e"),
    "page": ("#fffffe", "#12161c"),
}
INK, SOFT, RULE, PAGE = (INKS[name][0] for name in ("ink", "soft", "rule", "page"))
SOLID: tuple[float, ...] = ()
DASHED, DOTTED, DASHDOT = (6.0, 2.5), (1.3, 2.0), (7.0, 2.0, 1.5, 2.0)
LONG, SHORT = (11.0, 3.0), (3.0, 2.0)
DOTDOT, MIXED = (6.0, 2.0, 1.3, 2.0, 1.3, 2.0), (9.0, 2.0, 3.0, 2.0)
DASHES = (SOLID, DASHED, DOTTED, DASHDOT, LONG, DOTDOT, SHORT, MIXED)

# A figure is laid out in pixels.
FONT = 13.0
LINE = 15.6  # height of a line of text
NARROW = 420.0
SETTINGS: Any = {
    "font.family": ["DejaVu Sans"], "font.size": FONT, "text.color": INK, "text.parse_math": False,
    "axes.edgecolor": SOFT, "axes.labelcolor": SOFT, "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "figure.facecolor": "none", "savefig.facecolor": "none", "grid.color": RULE,
    "grid.linewidth": 0.8, "xtick.color": SOFT, "ytick.color": SOFT, "xtick.labelsize": FONT,
    "ytick.labelsize": FONT, "xtick.major.size": 4.0, "ytick.major.size": 0.0,
    "xtick.major.pad": 6.5, "ytick.major.pad": 5.0,
    "lines.markersize": 5.5, "image.interpolation": "none",
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How one method is drawn: its hue, marker, dashes and line width."""

    hue: str
    marker: str
    dashes: tuple[float, ...]
    filled: bool = True
    width: float = 1.4

    @property
    def colour(self) -> str:
        """The colour on a light page."""
        return HUES[self.hue][0]

    @property
    def marks(self) -> dict[str, Any]:
        """The marker, for matplotlib's `plot`."""
        return {
            "marker": self.marker,
            "markerfacecolor": self.colour if self.filled else PAGE,
            "markeredgecolor": self.colour,
            "markeredgewidth": 0.6 if self.filled else 1.2,
            "markersize": 7.5 if self.marker in "*dPX" else 5.8,
        }

    @property
    def strokes(self) -> dict[str, Any]:
        """The line with its marker, for matplotlib's `plot`."""
        dashes = (0, tuple(d / self.width for d in self.dashes)) if self.dashes else "-"
        look = {"color": self.colour, "linestyle": dashes, "linewidth": self.width}
        return {**look, "clip_on": False, "zorder": 2 + self.width, **self.marks}


STYLES: dict[str, Style] = {
    "algnn": Style("blue", "s", SOLID, width=2.4),
    "algnn-paper": Style("vermilion", "o", SOLID, width=2.6),
    "bare": Style("grey", "X", DOTTED),
    "ewc": Style("green", "^", DASHED),
    "lwf": Style("green", "v", DOTTED),
    "mas": Style("green", "<", DASHDOT),
    "twp": Style("green", ">", LONG),
    "gem": Style("purple", "D", DASHED),
    "ergnn": Style("purple", "d", SHORT, filled=False),
    "cgnn": Style("purple", "P", DASHDOT),
    "cat": Style("ochre", "*", DASHED),
    "pignn": Style("brown", "p", LONG),
    "ncm": Style("sky", "h", DOTTED),
    "slda": Style("sky", "^", DOTDOT, filled=False),
    "joint-ridge": Style("grey", "o", MIXED, filled=False),
    "joint": Style("grey", "s", LONG, filled=False),
    "joint-appnp": Style("grey", "<", SHORT, filled=False),
    "joint-sage": Style("grey", ">", DOTDOT, filled=False),
}
# of methods without a row above
FAMILIES = {"analytic": "blue", "reference": "grey", "regularisation": "green", "replay": "purple",
            "condensation": "ochre", "isolation": "brown", "prompting": "brown",
            "closed form": "sky"}  # fmt: skip
# for a user's own methods and those without a row above: outlines that no row above has
_OUTLINES = (("P", "ochre"), ("v", "brown"), ("p", "sky"), ("D", "blue"), ("H", "vermilion"),
             ("8", "purple"))  # fmt: skip
SPARE = tuple(
    Style(hue, marker, dashes, filled=False, width=1.8)
    for dashes in DASHES
    for marker, hue in _OUTLINES
)
# for lines that stand for graphs
SERIES = tuple(
    Style(hue, marker, dashes, width=1.8)
    for hue, dashes, marker in zip(HUES, DASHES, "osD^vPXh", strict=True)
)


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """The style of each method; unknown ones get spare styles in the order of their names."""
    spare, found = cycle(SPARE), {}
    for name in in_order(set(methods), list(STYLES)):
        style = STYLES.get(name) or next(spare)
        kind = METHODS[name].kind if name in METHODS and name not in STYLES else ""
        found[name] = replace(style, hue=FAMILIES.get(kind, style.hue))
    return found


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib with the report's settings; the user's own are restored afterwards."""
    import matplotlib

    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # a name may need letters that the figures' font lacks; a browser has them
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
