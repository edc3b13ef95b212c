"""The look of figures, from style.toml: each method's colour, marker and dashes."""

import tomllib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import cycle
from typing import Any

from algnn.methods import METHODS
from algnn.report.data import in_order

LOOKS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("style.toml").read_text("utf-8"))
HUES: dict[str, list[str]] = LOOKS["hues"]
INKS: dict[str, list[str]] = LOOKS["inks"]
FAMILIES: dict[str, str] = LOOKS["families"]
INK, SOFT, RULE, PAGE = (INKS[name][0] for name in ("ink", "soft", "rule", "page"))
LINE = 15.6  # height of a line of text, in pixels
NARROW = 420.0
SETTINGS: Any = {
    **LOOKS["matplotlib"],
    **{"text.color": INK, "grid.color": RULE},
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), SOFT),
}
DASHES: dict[str, tuple[float, ...]] = {name: tuple(d) for name, d in LOOKS["dashes"].items()}


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
    def strokes(self) -> dict[str, Any]:
        """The line with its marker, for matplotlib's `plot`."""
        dashes = (0, tuple(d / self.width for d in self.dashes)) if self.dashes else "-"
        line = {"color": self.colour, "linestyle": dashes, "linewidth": self.width}
        inside, edge = (self.colour, 0.6) if self.filled else (PAGE, 1.2)
        size = 7.5 if self.marker in "*dPX" else 5.8
        marker = {"marker": self.marker, "markersize": size, "markerfacecolor": inside}
        edges = {"markeredgecolor": self.colour, "markeredgewidth": edge}
        return {**line, **marker, **edges, "clip_on": False, "zorder": 2 + self.width}


STYLES = {
    name: Style(**{**look, "dashes": DASHES[look["dashes"]]})
    for name, look in LOOKS["methods"].items()
}
SPARE = tuple(
    Style(hue, marker, dashes, filled=False, width=1.8)
    for dashes in DASHES.values()
    for marker, hue in LOOKS["spare"]["outlines"]
)
# for lines that stand for graphs
SERIES = tuple(
    Style(hue, marker, dashes, width=1.8)
    for hue, dashes, marker in zip(HUES, DASHES.values(), "osD^vPXh", strict=True)
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
