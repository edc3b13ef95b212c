"""Tables of nodes and labels, and of predictions: CSV or Parquet."""

import csv
import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from algnn.errors import InputError
from algnn.files import replacing
from algnn.progress import WatchedFile

Source = str | os.PathLike[str]
Column = npt.NDArray[Any]
# where a row stands, for messages, and its cells as text, with the spaces around it
Row = tuple[str, list[str]]

NUMBER = re.compile("-?[0-9]+")
PLAIN = re.compile(r"(0|-?[1-9][0-9]*)(\.0+)?")  # as numbers are written: 007 is a name
PARQUET = (".parquet", ".pq")
IS_PIPE = "is a pipe or the like, and tables are read twice: write it to a file and name that"
BOOLS = {"True": "1", "False": "0"}
MOST_DIGITS = 19  # of a number in 64 bits; Python reads only so many quickly


def exact(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which floats are so small that their type cannot have rounded a whole number to them."""
    found: npt.NDArray[np.bool_] = np.abs(values) < 2.0 ** min(np.finfo(values.dtype).nmant + 1, 53)
    return found


def all_whole(values: npt.NDArray[Any]) -> bool:
    """Whether floats are whole numbers, which their type holds exactly; NaN is not."""
    return bool((exact(values) & (values == np.trunc(values))).all())


def check_table(path: Source, *names: str) -> None:
    """Raise `InputError` if a table is missing, or its header or first row is wrong."""
    _rows(path, names, most=1)


def read_labels(
    path: Source, num_nodes: int, seen: Column | None = None, *, every: bool = False
) -> tuple[npt.NDArray[np.int64], Column, int]:
    """The nodes and labels of a table with the columns `node` and `label`.

    Labels are ints where all of them are written as whole numbers, or all as True or False, and
    strings otherwise; beside classes that were seen before, they are of their kind, and spelled as
    these. Rows without a label, or with -1, are left out and counted, or refused where `every` row
    must have one. Other columns are not looked at.
    """
    rows = _rows(path, ("node", "label"))
    nodes = _ids(path, rows, num_nodes)
    known = set() if seen is None else set(map(str, seen.tolist()))
    nothing = {"", "-1", "-1.0"} - known
    texts = [_spelled(cells[1], known) for _, cells in rows]
    labelled = np.array([text not in nothing for text in texts])
    if not labelled.any():
        raise InputError(f"{path}: no row has a label (-1 and empty cells mean none): give some")
    if every and not labelled.all():
        place, cells = rows[int(labelled.argmin())]
        raise InputError(
            f"{path}, {place}: node {cells[0]} has no label: give the one it has, or leave it out"
        )
    texts = [text for text in texts if text not in nothing]
    if cut := next((text for text in texts if text.endswith("\0")), None):
        raise InputError(f"{path}: a label is {cut!r}, which ends in NUL: NumPy would leave it out")
    as_ints = seen is None or seen.dtype.kind != "U"
    if as_ints and BOOLS.keys() >= set(texts):
        texts = [BOOLS[text] for text in texts]
    whole = [text.partition(".")[0] for text in texts if PLAIN.fullmatch(text)]
    as_ints &= len(whole) == len(texts) and all(map(_fits, whole))
    labels = [int(text) for text in whole] if as_ints else texts
    return nodes[labelled], np.array(labels), int((~labelled).sum())


def read_nodes(path: Source, num_nodes: int) -> npt.NDArray[np.int64]:
    """The nodes of a table with a column `node`."""
    return _ids(path, _rows(path, ("node",)), num_nodes)


def write_table(path: Source | None, pieces: Iterable[dict[str, Column]]) -> None:
    """Write rows to CSV or Parquet by the file's ending, or to stdout as CSV, atomically."""
    # they come in pieces, of which each has the same columns, and only one is in memory at a time
    import pandas

    packed, writer = path is not None and is_parquet(path), None
    look = {"index": False, "float_format": "%.6g", "lineterminator": "\n", "compression": None}
    if path is None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as in files: labels stay what they are
    with ExitStack() as stack:
        out: Any = sys.stdout if path is None else stack.enter_context(replacing(path))
        for place, columns in enumerate(pieces):
            frame = pandas.DataFrame(columns)
            if not packed:
                frame.to_csv(out, mode="a", header=place == 0, **look)
                continue
            import pyarrow
            from pyarrow.parquet import ParquetWriter

            table = pyarrow.Table.from_pandas(frame, preserve_index=False)
            writer = writer or stack.enter_context(ParquetWriter(out, table.schema))
            writer.write_table(table)


def is_parquet(path: Source) -> bool:
    """Whether a table is Parquet by its name; `InputError` if it is, and pyarrow is missing."""
    named = Path(path).suffix.lower() in PARQUET
    if named and find_spec("pyarrow") is None:
        raise InputError(
            f"{path}: Parquet needs pyarrow: install algnn[parquet], or use a .csv file"
        )
    return named


def without_index(frame: Any, names: Sequence[str]) -> Any:
    """A table of pandas whose index levels with these names are columns."""
    return frame.reset_index([n for n in frame.index.names if n in names and n not in frame])


def _rows(path: Source, names: Sequence[str], most: int | None = None) -> list[Row]:
    """The cells of some columns, row by row: all, or the first ones."""
    read = _parquet_rows if is_parquet(path) else _csv_rows
    try:
        rows = list(islice(read(path, names), most))
    except OSError as error:
        known = {errno.ENOENT: ": there is no such file", errno.ESPIPE: f" {IS_PIPE}"}
        reason = known.get(error.errno or 0, f" cannot be read: {error.strerror or error}")
        raise InputError(f"{path}{reason}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: write it again in UTF-8") from error
    if not rows:
        raise InputError(f"{path} names no node: give at least one row below the header")
    return rows


def _csv_rows(path: Source, names: Sequence[str]) -> Iterator[Row]:
    # Excel starts UTF-8 with a mark of its own
    with io.TextIOWrapper(WatchedFile(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)  # or a quote left open would take in all rows below
        try:
            header = [name.strip() for name in next(reader, [])]
            places = _places(path, header, names)
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) != len(header):
                    raise InputError(
                        f"{path}, line {reader.line_num}: has {len(cells)} cells and the header"
                        f" {len(header)}: put a label that holds a comma between quotes"
                    )
                yield f"line {reader.line_num}", [cells[place] for place in places]
        except csv.Error as error:
            raise InputError(
                f"{path}, line {reader.line_num}: is not CSV ({error}): close every quote"
            ) from error


def _parquet_rows(path: Source, names: Sequence[str]) -> Iterator[Row]:
    import pandas

    with Path(path).open("rb") as file:
        try:
            # a gap would make floats of whole numbers, which hold them up to 2**53 only
            frame = pandas.read_parquet(file, engine="pyarrow", dtype_backend="numpy_nullable")
        except Exception as error:  # pyarrow raises many kinds over damaged bytes
            raise InputError(f"{path} is not a whole Parquet file: write it again") from error
    frame = without_index(frame, names)
    frame = frame.iloc[:, _places(path, list(map(str, frame.columns)), names)]
    for place, cells in enumerate(frame.itertuples(index=False, name=None), 1):
        if not all(pandas.api.types.is_scalar(cell) for cell in cells):
            raise InputError(f"{path}: row {place} holds a list where one value belongs")
        whole = [c for c in cells if isinstance(c, float | np.floating) and c.is_integer()]
        if coarse := [cell for cell in whole if not exact(np.asarray(cell))]:
            words = "which its type of float may have rounded: store whole numbers, or strings"
            raise InputError(f"{path}: row {place} holds {coarse[0]!s}, {words}")
        yield f"row {place}", ["" if pandas.isna(cell) else _text(cell) for cell in cells]


def _text(cell: Any) -> str:
    """A cell as text; a whole number that a gap made a float, as a whole number."""
    if isinstance(cell, float | np.floating) and cell.is_integer():
        cell = int(cell)
    return cell.decode() if isinstance(cell, bytes) else str(cell)


def _spelled(cell: str, known: set[str]) -> str:
    """A label as the class that is known, also where a gap made 1 a float; without spaces else."""
    text = cell.strip()
    whole = text.partition(".")[0] if PLAIN.fullmatch(text) else text
    return next((one for one in (cell, text, whole, BOOLS.get(text, text)) if one in known), text)


def _places(path: Source, header: list[str], names: Sequence[str]) -> list[int]:
    if any(header.count(name) != 1 for name in names):
        raise InputError(
            f"{path}: its header is {','.join(header)[:80]!r}: it must hold {' and '.join(names)},"
            " once each, with commas between columns"
        )
    return [header.index(name) for name in names]


def _fits(number: str) -> bool:
    """Whether a whole number is one of 64 bits."""
    return len(number.lstrip("-")) <= MOST_DIGITS and -(2**63) <= int(number) < 2**63


def _ids(path: Source, rows: Sequence[Row], num_nodes: int) -> npt.NDArray[np.int64]:
    first: dict[int, str] = {}
    for place, (cell, *_) in rows:
        text = cell.strip()
        if not NUMBER.fullmatch(text):
            raise InputError(
                f"{path}, {place}: node is {text!r}: give its id, a whole number from 0, which is"
                " its row in graph.x"
            )
        # no number of that many digits is an id, and reading it could take for ever
        node = int(text) if len(text) <= MOST_DIGITS else -1
        if not 0 <= node < num_nodes:
            raise InputError(
                f"{path}, {place}: node {text[:20]} is not in the graph, whose ids are"
                f" 0 … {num_nodes - 1}"
            )
        if node in first:
            raise InputError(
                f"{path}, {place}: node {node} was named before, in {first[node]}: name each once"
            )
        first[node] = place
    return np.fromiter(first, dtype=np.int64)
