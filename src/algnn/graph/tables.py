"""A graph from tables of edges, features and labels, which need not fit into memory."""

import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from algnn.checks import NO_LABEL
from algnn.errors import DatasetError
from algnn.files import make_folder, naming
from algnn.graph import store
from algnn.graph.catalogue import Name
from algnn.graph.npz import check_stored
from algnn.graph.partition import Edges, Ints, append_nodes, write_partitions
from algnn.graph.store import GraphStore
from algnn.labels import IS_PIPE, PARQUET, is_parquet, read_labels, without_index
from algnn.progress import WatchedFile

CHUNK = 2**21  # edges read at once, and as many cells of wider tables
# in a header, where pandas writes a second 0.5 as 0.5.1
NUMBER = re.compile(r"\s*[-+]?\.?[0-9][-+.0-9e]*\s*", re.IGNORECASE)


def write_tables(
    edges: Path,
    path: Name,
    features: Path | None,
    labels: Path | None = None,
    append: bool = False,
    undirected: bool = False,
    memory: str | int = store.DEFAULT_MEMORY,
    **options: Any,
) -> GraphStore:
    """Write a graph from tables of its edges, features and labels, or append these to one."""
    _tables(edges)  # what is not there is said before the features are read
    if features is None:
        x = torch.zeros(0, store.read_manifest(path)["features"])
    else:
        x = read_features(features, _beside(path))
    if append:
        return append_nodes(path, x, read_edges(edges), undirected=undirected, memory=memory)
    if labels is not None:
        ids, given, _ = read_labels(labels, x.size(0))
        known = check_stored({"y": given}, ids.size)
        options |= known | {"y": torch.full((x.size(0),), NO_LABEL)}
        options["y"][torch.from_numpy(ids)] = known["y"]
    options |= {"undirected": undirected, "memory": memory}
    return write_partitions(path, x, read_edges(edges), **options)


def write_ogb(source: Path, path: Name, **options: Any) -> GraphStore:
    """Write a graph from the raw files of OGB (``raw/edge.csv.gz`` …), which have no header."""
    x = read_features(source / "raw" / "node-feat.csv.gz", _beside(path), header=False)
    y = _column(source / "raw" / "node-label.csv.gz")
    counted = source / "raw" / "num-node-list.csv.gz"
    nodes = int(_column(counted).sum()) if counted.exists() else len(x)
    if not len(x) == len(y) == nodes:
        raise DatasetError(
            f"{nodes} nodes, {len(x)} rows of features and {len(y)} labels do not belong together"
        )
    split = torch.zeros(len(x), dtype=torch.uint8)
    for code, part in enumerate(("train", "valid", "test"), 1):
        for file in source.glob(f"split/*/{part}.csv.gz"):
            split[_column(file).to_numpy(copy=True)] = code
    options |= check_stored({"y": y.to_numpy()}, len(x))
    options["split"] = split if bool(split.any()) else None
    edges = read_edges(source / "raw" / "edge.csv.gz", header=False)
    return write_partitions(path, x, edges, **options)


def read_edges(path: Name, header: bool = True) -> Iterator[Edges]:
    """The edges of a CSV or Parquet table, or of a folder of such, in chunks."""
    columns = ("source", "target", "weight") if header else ("source", "target")
    for file, frame in _frames(Path(path), columns, header):
        for name in columns:  # a Weight would be left out, and so would a second weight, the .1
            alike = [n for n in frame if str(n).strip().lower().removesuffix(".1") == name]
            if alike not in ([], [name]):
                raise DatasetError(f"{file} has column {', '.join(alike)}: name one {name}")
        source, target = (_whole_numbers(file, frame, name) for name in ("source", "target"))
        weight = _numbers(file, frame[["weight"]])[:, 0] if "weight" in frame else None
        yield source, target, weight


def _column(file: Path) -> pd.Series:
    """The one column of a table without a header."""
    return pd.concat(frame for _, frame in _frames(file, ("node",), header=False))["node"]


def read_features(path: Name, work: Path | None = None, header: bool = True) -> Tensor:
    """Features [N, d], mapped: of an ``.npy``, or of a table, which is first copied into `work`."""
    file = Path(path)
    if file.suffix == ".npy":
        try:
            found = np.load(file, mmap_mode="c", allow_pickle=False)
        except (EOFError, OSError, ValueError) as error:
            raise DatasetError(f"{file} cannot be read: {error}") from error
        if found.ndim != 2 or found.dtype.kind not in "fiub" or not found.size:
            raise DatasetError(f"{file} ({found.dtype}, {found.shape}) must be numbers [N, d]")
        # foreign bytes, and numbers wider than torch has, are kept as they will be written
        plain = found.dtype.isnative and found.dtype.itemsize <= 8
        return torch.from_numpy(found if plain else found.astype(np.float32))
    columns: list[str] | None = None
    count, place = 0, work or tempfile.gettempdir()
    # a file that is gone once nobody maps it
    with naming(place), tempfile.TemporaryFile(dir=place) as out:
        for table, frame in _frames(file, None, header):
            if "node" in frame:
                ids = _whole_numbers(table, frame, "node")
                if not np.array_equal(ids, np.arange(count, count + len(ids))):
                    raise DatasetError(f"{table}: node must be 0, 1, 2, … from row to row")
            frame = frame.drop(columns="node", errors="ignore")
            names = [str(name) for name in frame]
            if header:
                _check_header(table, names)
            columns = names if columns is None else columns
            if names != columns:
                raise DatasetError(
                    f"{table} has the columns {','.join(names)[:40]} and tables before it"
                    f" {','.join(columns)[:40]}: give the same ones in the same order"
                )
            values = _numbers(table, frame)
            count += len(values)
            out.write(np.ascontiguousarray(values).data)
        if not columns or not count:
            raise DatasetError(f"{file} holds no features: give a row of numbers for each node")
        out.flush()
        return torch.from_numpy(np.memmap(out, np.float32, "c", shape=(count, len(columns))))


def _beside(path: Name) -> Path | None:
    """Where large temporary files belong: on the disk of a graph, if that is one of ours."""
    if "://" in str(path):
        return None
    make_folder(parent := Path(path).absolute().parent)
    return parent


def _tables(path: Path) -> list[Path]:
    """A table, or all tables in a folder by their names, in the order of their numbers."""
    if path.is_dir():
        shown, endings = path.glob("[!._]*"), (*PARQUET, ".csv", ".gz")
        tables = sorted((p for p in shown if p.suffix.lower() in endings), key=_order)
        if not tables:
            raise DatasetError(f"{path} holds no table: give a folder of .csv, .gz or .parquet")
        return tables
    if not path.is_file():
        raise DatasetError(
            f"{path} {IS_PIPE}" if path.exists() else f"{path}: there is no such file"
        )
    return [path]


def _order(path: Path) -> list[str | int]:
    """A name whose numbers count as such: part.2 comes before part.10."""
    return [int(text) if text.isdecimal() else text for text in re.split(r"(\d+)", path.name)]


def _frames(
    path: Path, columns: tuple[str, ...] | None, header: bool
) -> Iterator[tuple[Path, pd.DataFrame]]:
    """The rows of tables in chunks; of Parquet, only some columns are read if they are named."""
    for file in _tables(path):
        packed = is_parquet(file)
        try:
            if packed:
                from pyarrow.parquet import ParquetFile

                table = ParquetFile(file)
                every = table.schema_arrow.names
                names = [n for n in every if columns is None or n.strip().lower() in columns]
                for batch in table.iter_batches(2 * CHUNK // max(2, len(names)), columns=names):
                    yield file, without_index(batch.to_pandas(), columns or ("node",))
                continue
            gzip = "gzip" if file.suffix.lower() == ".gz" else None
            options: dict[str, Any] = {"compression": gzip, "skipinitialspace": True}
            with WatchedFile(file) as lines:
                # without a header, pandas refuses a row that is longer than the first one; with
                # one, it would take the first cell for the row's name, and shift all columns
                wide = pd.read_csv(lines, header=None, nrows=2, **options).shape[1]
                lines.seek(0)
                options |= {"chunksize": 2 * CHUNK // max(2, wide), "header": 0 if header else None}
                options["skip_blank_lines"] = wide > 1  # of one column, they are its empty cells
                for frame in pd.read_csv(lines, **options):
                    yield file, frame if header or not columns else frame.set_axis(columns, axis=1)
        except (ValueError, OSError, EOFError, zlib.error) as error:  # pyarrow's, too
            if "Calling read(nbytes)" in str(error):  # what pandas makes of Ctrl-C in Python 3.11
                raise KeyboardInterrupt from None
            words = "is no whole table, Parquet or CSV"
            words += " with as many cells in each row as in the header" * header
            raise DatasetError(f"{file} {words}: {error}") from error


def _check_header(file: Path, names: list[str]) -> None:
    """Raise `DatasetError` for the number of a row among the features, or a row as the header."""
    if strange := [n for n in names if re.fullmatch(r"Unnamed: \d+|\s*node(\.1)?\s*", n, re.I)]:
        raise DatasetError(
            f"{file} has a column {strange[0]!r}: if it numbers the rows, name it node or leave it"
            " out (to_csv has index=False), and if it is a feature, give it another name"
        )
    counted = names == [str(place) for place in range(len(names))]  # by pandas, for want of names
    if not is_parquet(file) and not counted and all(map(NUMBER.fullmatch, names)):
        raise DatasetError(
            f"{file}: its header is {','.join(names)[:40]!r}, which looks like a row of numbers:"
            " put a line with names of the columns first"
        )


def _whole_numbers(file: Path, frame: pd.DataFrame, name: str) -> Ints:
    if name not in frame:
        raise DatasetError(f"{file} has no column {name}: name the columns source and target")
    values: Ints = frame[name].to_numpy()
    if frame[name].isna().any():
        raise DatasetError(f"{file}: {name} is empty in a row: give an id in each")
    if not values.size:  # Spark writes parts with a header alone
        return values.astype(np.int64)
    if values.dtype.kind not in "iu":
        every = values.tolist()
        strange = next((v for v in every if not re.fullmatch(r"\d{1,18}(\.0)?", str(v))), every[0])
        raise DatasetError(
            f"{file}: {name} holds {strange!r}: give ids, whole numbers from 0 without decimal"
            " points, in the place of names"
        )
    if values.max() > np.iinfo(np.int64).max:
        raise DatasetError(
            f"{file}: {name} holds {values.max()}, which is no id: ids are rows of x"
        )
    return values.astype(np.int64)


def _numbers(file: Path, frame: pd.DataFrame) -> npt.NDArray[np.float32]:
    for name, column in frame.items():
        if len(column) and not pd.api.types.is_numeric_dtype(column):
            raise DatasetError(
                f"{file}: column {name} holds {column.iloc[0]!r}: give numbers; leave out names of"
                " nodes, whose ids are the rows from 0, and turn categories into columns of 0 and 1"
            )
    return cast(npt.NDArray[np.float32], frame.to_numpy(np.float32))
