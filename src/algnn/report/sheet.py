"""A table before it is written: values first, and how each kind is written in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from algnn.bench.metrics import Summary

NOTHING = "–"
Value = Summary | float | int | str | None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
        Its heading.
    kind : str
        How its values are written: ``name`` and ``text`` as they are, ``formula`` with subscripts,
        ``count`` as a whole number, ``points`` with two decimals and ± an interval, ``share`` with
        three, ``point`` with one decimal, ``seconds``, ``bytes`` and ``ratio`` with three digits,
        ``setting`` as short as can be.
    hint : str
        What it holds, in a sentence.

    Examples
    --------
    >>> Column("AP", "points").write(Summary(77.123, 0.5, 1.25))
    '77.12 ± 1.25'
    >>> Column("kept", "bytes").write(16_900_152), Column("time", "ratio").write(2.3456)
    ('16.9 MB', '2.35×')
    """

    name: str
    kind: str = "text"
    hint: str = ""

    def write(self, value: Value) -> str:
        """A value of this column as text."""
        if value is None:
            return NOTHING
        if isinstance(value, str):
            return value
        if self.kind == "count":
            return f"{number(value):,.0f}"
        if self.kind == "bytes":
            return size(number(value))
        if self.kind == "ratio":
            return f"{three(number(value))}×"
        if self.kind == "setting":
            return f"{number(value):g}"
        places = {"point": 1, "points": 2, "share": 3}.get(self.kind, decimals(number(value)))
        half = value.ci95 if isinstance(value, Summary) else None
        text = f"{number(value):,.{places}f}".replace("-", "−")
        return text if half is None else f"{text} ± {half:,.{places}f}"


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes
    ----------
    values : tuple
        One per column.
    best : frozenset of int
        Columns in which no row is better.
    apart : bool
        Whether the row is only there to compare with.

    Examples
    --------
    >>> Row(("gem", 1.0)).apart
    False
    """

    values: tuple[Value, ...]
    best: frozenset[int] = frozenset()
    apart: bool = False


@dataclass(frozen=True)
class Table:
    """A table, before anybody knows whether it becomes HTML, Markdown, LaTeX or CSV.

    Attributes
    ----------
    key : str
        Its file's name, unique in a report.
    number : str
        Such as ``"1.2"``.
    title, caption : str
        What it shows, in a few words and in some sentences.
    columns : tuple of Column
    rows : tuple of Row
    commands : tuple of str
        What made the runs behind it.

    Examples
    --------
    >>> columns = Column("method", "name"), Column("AP", "points")
    >>> table = Table("a", "1.1", "A", "All.", columns, (Row(("gem", 65.0)),))
    >>> table.texts(table.rows[0])
    ['gem', '65.00']
    """

    key: str
    number: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    commands: tuple[str, ...] = ()

    def texts(self, row: Row) -> list[str]:
        """A row's values as text."""
        return [c.write(v) for c, v in zip(self.columns, row.values, strict=True)]


@dataclass
class Sheet:
    """Rows as they come, from which a table is made once the best of them are known.

    Attributes
    ----------
    columns : list of Column
    rows : list of (tuple, bool)
        Values, and whether the row is only there to compare with.

    Examples
    --------
    >>> sheet = Sheet([Column("method", "name"), Column("AP", "points")])
    >>> sheet.add("gem", 60.0)
    >>> sheet.add("ewc", 65.0)
    >>> [row.best for row in sheet.done(highest=["AP"])]
    [frozenset(), frozenset({1})]
    """

    columns: list[Column]
    rows: list[tuple[tuple[Value, ...], bool]] = field(default_factory=list)

    def add(self, *values: Value, apart: bool = False) -> None:
        """Add a row."""
        self.rows.append((values, apart))

    def done(self, highest: Iterable[str] = (), lowest: Iterable[str] = ()) -> tuple[Row, ...]:
        """The rows, with the best in the columns whose highest or lowest value is."""
        best: dict[int, str] = {}
        for i, column in enumerate(self.columns):
            found = [v[i] for v, apart in self.rows if not apart and v[i] is not None]
            pick = max if column.name in highest else min if column.name in lowest else None
            if pick and len(found) > 1:
                # as written: two rows that look the same are both best
                best[i] = _mean_as_written(column, pick(found, key=number))
        return tuple(
            Row(
                values,
                frozenset(
                    i
                    for i, text in best.items()
                    if not apart and _mean_as_written(self.columns[i], values[i]) == text
                ),
                apart,
            )
            for values, apart in self.rows
        )


def number(value: Any) -> float:
    """What a value is compared by.

    Parameters
    ----------
    value : Summary, float or int

    Returns
    -------
    float

    Examples
    --------
    >>> number(Summary(2.0, None, None))
    2.0
    """
    return value.mean if isinstance(value, Summary) else float(value)


def three(value: float) -> str:
    """A number with three digits that count, without an exponent.

    Parameters
    ----------
    value : float

    Returns
    -------
    str

    Examples
    --------
    >>> three(0.01234), three(1.5), three(12.345), three(123456.0), three(0)
    ('0.0123', '1.50', '12.3', '123,456', '0.00')
    """
    return f"{value:,.{decimals(value)}f}"


def decimals(value: float) -> int:
    """How many decimals leave a number three digits that count, four at most.

    Parameters
    ----------
    value : float

    Returns
    -------
    int

    Examples
    --------
    >>> decimals(22.9), decimals(0.6), decimals(9.999)
    (1, 3, 1)
    """
    for places, least in ((0, 99.95), (1, 9.995), (2, 0.9995), (3, 0.09995)):
        if abs(value) >= least:
            return places
    return 4 if value else 2


def size(count: float) -> str:
    """Bytes, in the unit that suits them.

    Parameters
    ----------
    count : float

    Returns
    -------
    str

    Examples
    --------
    >>> size(880), size(16_900_152), size(2.5e9)
    ('880 B', '16.9 MB', '2.50 GB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * scale:
            return f"{three(count / scale)} {unit}"
    return f"{count:.0f} B"


def slug(name: str) -> str:
    """A name that can be part of a file's.

    Parameters
    ----------
    name : str

    Returns
    -------
    str

    Examples
    --------
    >>> slug("my graph.npz")
    'my_graph.npz'
    """
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def listed(values: Iterable[Any]) -> str:
    """Words in a row, the last after an *and*.

    Parameters
    ----------
    values : iterable

    Returns
    -------
    str

    Examples
    --------
    >>> listed([36, 8, 5]), listed(["one"])
    ('36, 8 and 5', 'one')
    """
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


def _mean_as_written(column: Column, value: Value) -> str:
    return column.write(value.mean if isinstance(value, Summary) else value)
