"""A table before it becomes HTML, Markdown, LaTeX or CSV, with typed values; a picture likewise."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from algnn.bench.runs import Summary

# every title, caption and hint
WORDS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("words.toml").read_text("utf-8"))
NOTHING = "–"
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]*")  # a name that is safe as code
NUMBERS = ("count", "points", "point", "share", "seconds", "bytes", "ratio", "setting", "both")


class Both(NamedTuple):
    """AP and micro of one method on one graph, and the mark of a verdict."""

    mean: float
    micro: float
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.mean:.1f} / {self.micro:.1f} {self.mark}".rstrip()


Value = Summary | Both | float | int | str | None


@dataclass(frozen=True)
class Column:
    """A column: its heading, the kind of its values, a hint, and whether high or low is best."""

    name: str
    kind: str = "text"
    hint: str = ""
    best: str = ""

    def write(self, value: Value) -> str:
        """A value of this column as text."""
        if value is None:
            return NOTHING
        if isinstance(value, str | Both):
            return str(value)
        amount, half = number(value), value.ci95 if isinstance(value, Summary) else None
        if self.kind == "bytes":
            return size(amount)
        if self.kind in ("ratio", "setting"):
            return f"{three(amount)}×" if self.kind == "ratio" else f"{amount:g}"
        fixed = {"count": 0, "point": 1, "points": 2, "share": 3}
        places = fixed.get(self.kind, decimals(amount))
        text = f"{amount:z,.{places}f}".replace("-", "−")
        return text if half is None else f"{text} ± {half:,.{places}f}"


COLUMNS = {name: Column(name, *parts) for name, parts in WORDS["columns"].items()}


@dataclass(frozen=True)
class Row:
    """A row: its values, the columns in which no row is better, and whether it is set apart."""

    values: tuple[Value, ...]
    best: frozenset[int] = frozenset()
    apart: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its file's name, number, heading, columns and rows, and how its runs were made."""

    key: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    commands: tuple[str, ...] = ()
    number: str = ""

    def texts(self, row: Row) -> list[str]:
        """A row's values as text."""
        return [c.write(v) for c, v in zip(self.columns, row.values, strict=True)]


@dataclass(frozen=True)
class Chart:
    """A picture before it is drawn: its file's name, number, heading, and itself in words."""

    key: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], Any]
    commands: tuple[str, ...] = ()
    number: str = ""


def ranked(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Value]],
    apart: Sequence[str] = (),
    barred: Mapping[str, Collection[str]] | None = None,
) -> tuple[Row, ...]:
    """Rows with the best of each column marked, but of names set apart or barred in a column."""
    # NaN is nothing
    given = [tuple(None if value != value else value for value in row) for row in rows]
    best: dict[int, set[Value]] = {}  # by column, of the names in the first one
    for i, column in ((i, column) for i, column in enumerate(columns) if column.best):
        out = (*apart, *(barred or {}).get(column.name, ()))
        rivals = {
            row[0]: number(row[i]) for row in given if row[i] is not None and row[0] not in out
        }
        if len(rivals) > 1:
            top = column.write((max if column.best == "high" else min)(rivals.values()))
            # as written: two rows that look the same are both best
            best[i] = {name for name, value in rivals.items() if column.write(value) == top}
    return tuple(
        Row(row, frozenset(i for i in best if row[0] in best[i]), row[0] in apart) for row in given
    )


def number(value: Any) -> float:
    """What a value is compared by."""
    return float(value.mean if isinstance(value, Summary | Both) else value)


def three(value: float) -> str:
    """A number with three significant digits, without an exponent."""
    return f"{value:,.{decimals(value)}f}"


def decimals(value: float) -> int:
    """How many decimals give a number three significant digits; four at most."""
    for places, least in ((0, 99.95), (1, 9.995), (2, 0.9995), (3, 0.09995)):
        if abs(value) >= least:
            return places
    return 4 if value else 2


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * scale:
            return f"{three(count / scale)} {unit}"
    return f"{count:.0f} B"


def listed(values: Iterable[Any]) -> str:
    """Words separated by commas, with an *and* before the last."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


def count(number: int, noun: str) -> str:
    """A number with its noun in singular or plural."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
