"""A graph as a plain ``.npz``, the file format for users' own graphs; all content is checked."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from algnn.checks import NO_LABEL, check_kind, strings
from algnn.errors import DatasetError, InputError
from algnn.files import make_folder, replacing
from algnn.graph.catalogue import Name, one_line, open_npz
from algnn.graph.propagate import csr, to_csr
from algnn.labels import all_whole

Arrays = dict[str, npt.NDArray[Any]]

# A split's parts, and the keys under which a file may hold each: a mask or an index array.
PARTS = {
    "train": ("train_mask", "train_idx"),
    "val": ("val_mask", "val_idx", "valid_idx"),
    "test": ("test_mask", "test_idx"),
}
MASKS = tuple(f"{part}_mask" for part in PARTS)
SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")  # CSR, under SciPy's names
INPUTS = ("edge_index", "edge_weight", "x", *SPARSE, "y", "num_nodes")
KEYS = (*INPUTS, "class_names", *(key for keys in PARTS.values() for key in keys))
UNUSED = ("node_year",)  # in the file of arxiv-graph
NUMBERS = "iufb"  # kinds of NumPy's types that count as such


def read_npz(path: Name, labels: Literal["needed", "optional", "ignored"] = "needed") -> Data:
    """The checked content of a file with the arrays that `algnn.load` documents."""
    try:
        arrays = read_arrays(path, INPUTS if labels == "ignored" else KEYS, strict=True)
        if labels == "needed" and "y" not in arrays:
            raise DatasetError("y is missing: a benchmark needs edge_index and y")
        return graph_of_arrays(arrays, labels=labels != "ignored")
    except DatasetError as error:
        raise DatasetError(f"{os.fspath(path)}: {error}") from error.__cause__


def graph_of_arrays(arrays: Arrays, *, labels: bool = True) -> Data:
    """The graph of the arrays of a file, all checked; its `labels` too, if there are any."""
    if "edge_index" not in arrays:
        raise DatasetError("edge_index is missing: it is needed")
    if labels and "y" in arrays:
        y, names = _labels(arrays)
        if not bool((y >= 0).any()):
            raise DatasetError("y has no labelled node: at least one must differ from -1 (or '')")
        masks = {key: mask & (y >= 0) for key, mask in _split(arrays, y.numel()).items()}
        return Data(y=y, **_inputs(arrays, y.numel()), **masks, class_names=names)
    nodes = _num_nodes(arrays)
    return Data(num_nodes=nodes, **_inputs(arrays, nodes))


def save_npz(graph: Data, path: Name) -> None:
    """Write a graph as the ``.npz`` that `load` reads: whole, or not at all.

    Structural features are left out as long as they are those that loading the file makes again.

    Parameters
    ----------
    graph : Data
        With `edge_index`; `x`, `y`, `edge_weight`, the masks and `class_names` are written where it
        has them. Without `y` the graph is one to fit, and not one for benchmarks.
    path : str or path
        The file, which ends in ``.npz``; one that exists is replaced.

    Examples
    --------
    >>> import tempfile
    >>> graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([7, -1]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npz(graph, folder + "/my.npz")
    ...     read_npz(folder + "/my.npz").y.tolist()
    [7, -1]
    """
    check_kind(graph)
    if not os.fspath(path).endswith(".npz"):
        raise InputError(f"path {os.fspath(path)!r} is no name for a graph: end it in .npz")
    given = {key: graph.get(key) for key in ("edge_index", "edge_weight", "y", "x")}
    x = given["x"]
    if isinstance(x, Tensor) and x.layout != torch.strided:
        x = to_csr(x.detach().cpu())
        parts = (x.values(), x.col_indices(), x.crow_indices(), torch.tensor(x.shape))
        given |= {"x": None, **dict(zip(SPARSE, parts, strict=True))}
    arrays: dict[str, Any]
    arrays = {key: as_array(f"graph.{key}", one) for key, one in given.items() if one is not None}
    if not {"x", "x_shape", "y"} & set(arrays):
        arrays["num_nodes"] = np.array(graph.num_nodes)
    try:  # by the checks of who reads it: no file is written that cannot be loaded
        checked = graph_of_arrays(arrays, labels=False)
    except DatasetError as error:
        raise InputError(f"graph: {error}") from error
    nodes = int(checked.num_nodes)
    claimed = graph.get("provenance", {}).get("features", "").startswith("structural")
    if claimed and "x" in arrays:  # what was made; it may have been replaced since, or the edges
        from algnn.graph.datasets import structural_features  # which imports this module

        if torch.equal(checked.x, structural_features(checked.edge_index, nodes)):
            arrays["num_nodes"] = np.array(len(arrays.pop("x")))
    known = check_stored(graph, nodes)
    if "y" in known and not bool((known["y"] >= 0).any()):
        raise InputError("graph.y has no labelled node: leave it out, or label at least one")
    arrays |= {key: np.asarray(value) for key, value in known.items()}
    make_folder(Path(os.path.realpath(path)).parent)
    with replacing(path) as temporary, temporary.open("wb") as file:
        # no array of objects gets here; older NumPy would store allow_pickle= as an array
        np.savez_compressed(file, **arrays)


def as_array(name: str, value: Any) -> npt.NDArray[Any]:
    """A tensor, array or list as an array of numbers or strings; `InputError` for any other."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        array = np.asarray(value)
        if array.dtype.kind == "O":
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise InputError(f"{name} ({kind}) must be a dense tensor or array of numbers") from None
    return array


def check_stored(graph: Mapping[str, Any] | Data, nodes: int) -> dict[str, Any]:
    """What a graph has of `y` [N], int64, masks and `class_names`, as any form of file takes it."""
    given = {key: graph.get(key) for key in ("y", *MASKS)}
    arrays = {key: as_array(key, one) for key, one in given.items() if one is not None}
    names = graph.get("class_names")
    if names is not None and len(names):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InputError("class_names must be a list of strings, one for each class")
        arrays["class_names"] = strings(names)
    y = arrays.get("y", np.full(nodes, NO_LABEL))
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y  # as OGB has it
    if y.shape != (nodes,):
        raise InputError(f"y has shape {y.shape}: give one label for each of {nodes} nodes")
    try:
        labels, words = _labels(arrays | {"y": y}) if nodes else (torch.zeros(0).long(), None)
        found = {"y": labels if "y" in arrays else None, "class_names": words}
        found |= _split(arrays, nodes)
    except DatasetError as error:
        raise InputError(f"graph: {error}") from error
    return {key: one for key, one in found.items() if one is not None}


def read_arrays(path: Name, keys: tuple[str, ...], *, strict: bool = False) -> Arrays:
    """Some arrays of an ``.npz``, as far as it has them, never unpickled; `strict`: no others."""
    arrays: Arrays = {}
    key = "the file"
    try:
        with open_npz(path) as file, np.load(file, allow_pickle=False) as stored:
            if strict:
                _check_names(stored.files)
            for key in (key for key in keys if key in stored.files):
                array = stored[key]
                if not isinstance(array, np.ndarray):  # numpy hands out foreign bytes as such
                    raise ValueError("no array")
                arrays[key] = array
    except DatasetError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds over damaged bytes
        raise DatasetError(
            f"{key} cannot be read ({one_line(error)}): write plain arrays of numbers or strings"
        ) from error
    return arrays


def _check_names(names: list[str]) -> None:
    strange = [name for name in names if name not in (*KEYS, *UNUSED) and name[:1] != "_"]
    if strange:
        near = difflib.get_close_matches(strange[0].lower(), KEYS, 1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        raise DatasetError(
            f"holds {', '.join(strange)}, which no graph has{guess}: rename or remove it, or let"
            f" its name start with _; known are {', '.join(KEYS)}"
        )


def _labels(arrays: Arrays) -> tuple[Tensor, list[str] | None]:
    y = arrays["y"]
    # whole numbers that became floats since some are missing
    if (y.dtype.kind == "f" and all_whole(y[~np.isnan(y)])) or y.dtype.kind == "b":
        y = np.where(np.isnan(y), -1, y).astype(np.int64)
    if y.ndim != 1 or y.size == 0:
        raise DatasetError(f"y has shape {y.shape}: give one label per node, [N]")
    if y.dtype.kind in "US":
        if "class_names" in arrays:
            raise DatasetError("class_names is for integer y, and y holds strings: leave it out")
        try:
            words = np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y
        except UnicodeDecodeError as error:
            raise DatasetError("y holds bytes that are not UTF-8: store text as UTF-8") from error
        given = pd.Series(words).mask(np.isin(words, ("", "-1")))
        codes, names = pd.factorize(given, sort=True)
        labels, found = torch.from_numpy(codes), names.tolist()
    elif y.dtype.kind in "iu" and y.min() >= -1 and y.max() < 2**63:
        labels = torch.from_numpy(y.astype(np.int64))
        found = class_names(arrays, labels)
    else:
        raise DatasetError(f"y ({y.dtype}) must hold integers, -1 and above, or strings")
    return labels, found


def class_names(arrays: Arrays, y: Tensor) -> list[str] | None:
    """The entry ``class_names`` [C], if any: a string for each class in `y`."""
    if "class_names" not in arrays:
        return None
    names, highest = arrays["class_names"], int(y.max())
    fits = names.ndim == 1 and names.size > highest
    _check("class_names", names, "U", fits, f"a string for each of the classes 0 to {highest}")
    return [str(name) for name in names]


def _num_nodes(arrays: Arrays) -> int:
    for key in ("x", "y"):
        if key in arrays and arrays[key].ndim and len(arrays[key]):
            return len(arrays[key])
    if "x_shape" in arrays:
        return _sparse_shape(arrays["x_shape"])[0]
    count = arrays.get("num_nodes", np.zeros(0))
    if count.ndim or count.dtype.kind not in "iu" or not 0 < count < 2**31:
        raise DatasetError("has neither x nor y: num_nodes must then say how many nodes there are")
    return int(count)


def _inputs(arrays: Arrays, nodes: int) -> dict[str, Tensor]:
    """Edges and, where they are there, features and weights."""
    edges = arrays["edge_index"]
    fits = edges.ndim == 2 and len(edges) == 2
    _check("edge_index", edges, "iu", fits, "integers [2, E]")
    _check_ids("edge_index", edges, nodes)
    found = {"edge_index": torch.from_numpy(edges.astype(np.int64))}
    sparse = [key for key in SPARSE if key in arrays]
    if "x" in arrays and sparse:
        raise DatasetError(f"x and {sparse[0]} are both there: give x once, dense or sparse")
    if "x" in arrays:
        x = arrays["x"]
        fits = x.ndim == 2 and x.shape[0] == nodes and x.shape[1] > 0
        _check("x", x, NUMBERS, fits, f"numbers of shape [N, d], N = {nodes} as in y")
        found["x"] = _float32("x", x)
    elif sparse:
        found["x"] = _sparse_features(arrays, nodes)
    if "edge_weight" in arrays:
        weights, count = arrays["edge_weight"], edges.shape[1]
        words = f"numbers of shape [{count}], one for each edge"
        _check("edge_weight", weights, NUMBERS, weights.shape == (count,), words)
        found["edge_weight"] = _float32("edge_weight", weights)
        if bool((found["edge_weight"] < 0).any()):
            raise DatasetError("edge_weight holds negative values: weights are 0 or more")
    return found


def _check(key: str, array: npt.NDArray[Any], kinds: str, fits: bool, words: str) -> None:
    """Raise `DatasetError` unless an array has the right shape and one of some kinds of entries."""
    if not fits or array.dtype.kind not in kinds:
        raise DatasetError(f"{key} ({array.dtype}, shape {array.shape}) must be {words}")


def _check_ids(key: str, ids: npt.NDArray[Any], nodes: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= nodes):
        raise DatasetError(
            f"{key} names nodes {ids.min()} to {ids.max()}: there are {nodes} nodes, so ids are 0"
            f" to {nodes - 1}"
        )


def _float32(key: str, values: npt.NDArray[Any]) -> Tensor:
    with np.errstate(over="ignore"):  # what float32 cannot hold is found as infinite just below
        found = torch.from_numpy(values.astype(np.float32, order="C"))
    if not bool(torch.isfinite(found).all()):
        raise DatasetError(f"{key} holds NaN or infinite values: replace them by float32 numbers")
    return found


def _sparse_features(arrays: Arrays, nodes: int) -> Tensor:
    """X in CSR from its four arrays; within a row, columns may come in any order, each once."""
    lacking = [key for key in SPARSE if key not in arrays]
    if lacking:
        raise DatasetError(f"{lacking[0]} is missing: a sparse x needs {', '.join(SPARSE)}")
    data, indices, indptr, shape = (arrays[key] for key in SPARSE)
    rows, columns = _sparse_shape(shape)
    if rows != nodes:
        raise DatasetError(f"x_shape gives {rows} rows: there are {nodes} nodes")
    for key, kinds in zip(SPARSE, (NUMBERS, "iu", "iu"), strict=False):
        _check(key, arrays[key], kinds, arrays[key].ndim == 1, "numbers [n]")
    parts = (_float32("x_data", data).numpy(), indices.astype(np.int64), indptr.astype(np.int64))
    try:
        matrix = csr_array(parts, shape=(rows, columns))
        matrix.check_format(full_check=True)
    except ValueError as error:
        fault = one_line(error)
        raise DatasetError(f"x_indices or x_indptr do not fit x_shape ({fault})") from error
    matrix.sort_indices()
    if not matrix.has_canonical_format:
        raise DatasetError("x_indices names a column twice in one row: name each once")
    starts, places = (torch.from_numpy(part).long() for part in (matrix.indptr, matrix.indices))
    return csr(starts, places, torch.from_numpy(matrix.data), (rows, columns))


def _sparse_shape(shape: npt.NDArray[Any]) -> tuple[int, int]:
    fits = shape.shape == (2,) and shape.dtype.kind in "iu" and bool((shape > 0).all())
    _check("x_shape", shape, "iu", fits, "two sizes, N and d")
    return int(shape[0]), int(shape[1])


def _split(arrays: Arrays, nodes: int) -> dict[str, Tensor]:
    given = {part: [key for key in keys if key in arrays] for part, keys in PARTS.items()}
    if not any(given.values()):
        return {}
    masks = {}
    for part, keys in given.items():
        if len(keys) != 1:
            has = " and ".join(keys) if keys else f"no {' or '.join(PARTS[part])}"
            raise DatasetError(f"has {has}: give each of train, val and test once, or no split")
        masks[f"{part}_mask"] = _part(keys[0], arrays[keys[0]], nodes)
    if bool((torch.stack(list(masks.values())).sum(dim=0) > 1).any()):
        used = ", ".join(keys[0] for keys in given.values())
        raise DatasetError(f"{used} overlap: a node must be in one part only")
    return masks


def _part(key: str, array: npt.NDArray[Any], nodes: int) -> Tensor:
    if key.endswith("_mask"):
        _check(key, array, "b", array.shape == (nodes,), f"[{nodes}] bool")
        return torch.from_numpy(array)
    if array.size == 0:  # an empty array is float64 unless one says otherwise
        array = array.astype(np.int64).reshape(-1)
    _check(key, array, "iu", array.ndim == 1, "integers [n]")
    _check_ids(key, array, nodes)
    if np.unique(array).size != array.size:
        raise DatasetError(f"{key} names a node twice: name each once")
    return cast(Tensor, index_to_mask(torch.from_numpy(array.astype(np.int64)), nodes))
