"""How a method looks, in one place: the same colour, marker, dashes and hatch in every figure.

A colour stands for a family, so that it need not tell sixteen methods apart by itself; the pair of
marker and dashes is each method's own. Colours are named, and have a value for light and for dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

from algnn.report.evidence import in_order

# light, dark: at least 3:1 against the page, and apart from each other for the colour-blind, after
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
# everything else that is drawn: text, lesser text, lines behind the data, the page itself
INKS: dict[str, tuple[str, str]] = {
    "ink": ("#1a1f27", "#e7eaee"),
    "soft": ("#56606c", "#a8b1bd"),
    "rule": ("#d9dee4", "#39424e"),
    "page": ("#fffffe", "#12161c"),
}
SOLID: tuple[float, ...] = ()
DASHED, DOTTED, DASHDOT = (6.0, 2.5), (1.3, 2.0), (7.0, 2.0, 1.5, 2.0)
LONG, DOTDOT, SHORT, MIXED = (
    (11.0, 3.0),
    (6.0, 2.0, 1.3, 2.0, 1.3, 2.0),
    (3.0, 2.0),
    (9.0, 2.0, 3.0, 2.0),
)
DASHES = (SOLID, DASHED, DOTTED, DASHDOT, LONG, DOTDOT, SHORT, MIXED)


@dataclass(frozen=True)
class Style:
    """How one method is drawn.

    Attributes
    ----------
    hue : str
        A key of `HUES`.
    marker : str
        As matplotlib names them.
    dashes : tuple of float
        On and off, in pixels; empty for a solid line.
    hatch : str
        Of its bars, of lines only: other patterns make large files.
    filled : bool
        Whether its marker is.
    width : float
        Of its lines.

    Examples
    --------
    >>> styles(["algnn-paper"])["algnn-paper"].marker
    'o'
    """

    hue: str
    marker: str
    dashes: tuple[float, ...]
    hatch: str
    filled: bool = True
    width: float = 1.4

    @property
    def colour(self) -> str:
        """Its colour on a light page."""
        return HUES[self.hue][0]


STYLES: dict[str, Style] = {
    "algnn": Style("blue", "s", SOLID, "", width=2.4),
    "algnn-paper": Style("vermilion", "o", SOLID, "", width=2.6),
    "bare": Style("grey", "X", DOTTED, "//"),
    "ewc": Style("green", "^", DASHED, "////"),
    "lwf": Style("green", "v", DOTTED, "\\\\\\\\"),
    "mas": Style("green", "<", DASHDOT, "----"),
    "twp": Style("green", ">", LONG, "||||"),
    "gem": Style("purple", "D", DASHED, "xxxx"),
    "ergnn": Style("purple", "d", SHORT, "////", filled=False),
    "cgnn": Style("purple", "P", DASHDOT, "++++"),
    "cat": Style("ochre", "*", DASHED, "xxx"),
    "pignn": Style("brown", "p", LONG, "++"),
    "ncm": Style("sky", "h", DOTTED, "\\\\"),
    "slda": Style("sky", "^", DOTDOT, "xx", filled=False),
    "joint-ridge": Style("grey", "o", MIXED, "||", filled=False),
    "joint": Style("grey", "s", LONG, "--", filled=False),
    "joint-appnp": Style("grey", "<", SHORT, "\\\\", filled=False),
    "joint-sage": Style("grey", ">", DOTDOT, "++", filled=False),
}
# a user's own methods, and those that have no row above: outlines that none of them has
SPARE = tuple(
    Style(hue, marker, dashes, hatch, filled=False, width=1.8)
    for dashes in DASHES
    for marker, hue, hatch in (
        ("P", "ochre", "+++"),
        ("v", "brown", "---"),
        ("p", "sky", "|||"),
        ("D", "blue", "///"),
        ("H", "vermilion", "\\\\\\"),
        ("8", "purple", "--"),
    )
)
# lines that are no methods, but graphs
SERIES = tuple(
    Style(hue, marker, dashes, "", width=1.8)
    for (hue, dashes), marker in zip(zip(HUES, DASHES, strict=True), "osD^vPXh", strict=True)
)


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """Each method's style.

    Parameters
    ----------
    methods : iterable of str
        All that a report knows, so that a style belongs to one of them only.

    Returns
    -------
    dict
        By method; one that is not known here gets a spare style, in the order of the names.

    Examples
    --------
    >>> found = styles(["gem", "mine:Own", "mine:Other"])
    >>> len({(style.marker, style.filled, style.dashes) for style in found.values()})
    3
    """
    names = in_order(set(methods), list(STYLES))
    spare = cycle(SPARE)
    return {name: STYLES[name] if name in STYLES else next(spare) for name in names}
