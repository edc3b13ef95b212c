"""The checks that every learner's input passes before anything changes.

Each returns its input in one known form, or raises an error that names argument, fault and remedy.
"""

import numbers
import operator
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from algnn.errors import DeviceError, InputError
from algnn.labels import all_whole

LAYOUTS = (torch.strided, torch.sparse_csr, torch.sparse_coo)  # of x
Array = npt.NDArray[Any]
Nodes = Tensor | Array | Sequence[int]
NO_LABEL = -1  # in a graph's y, a table of labels, a session
NO_LABELS = (NO_LABEL, str(NO_LABEL), "")  # the same in any form
REAL = int | float | np.integer | np.floating
MOST = sys.float_info.max
Labels = Tensor | Array | Sequence[int] | Sequence[str]


def onto(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, without waiting for what the device is doing."""
    # ordinary memory is taken over before this returns, and only its arrival is not waited for
    waits = tensor.device.type != "cpu" or tensor.is_pinned()
    return tensor.to(device, non_blocking=not waits)


def resolve_device(device: str) -> torch.device:
    """The device a name stands for, if it is there."""
    named = isinstance(device, str)  # a torch.device could not be written into a checkpoint
    if named and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device) if named else None
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise DeviceError(f"device={device!r} is not supported: use 'auto', 'cpu' or 'cuda'")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"device={device!r} was asked for but torch sees {torch.cuda.device_count()} CUDA"
            " devices here: use device='cpu' or 'auto'"
        )
    return found


def check_kind(graph: Any) -> None:
    """Raise `InputError` for what is no graph, and for a graph with parts that would be ignored."""
    if isinstance(graph, HeteroData):
        raise InputError(
            "graph is a HeteroData, with several kinds of nodes: give a Data of one kind, or"
            " graph.to_homogeneous() without its node_type and edge_type, if all count alike"
        )
    if not isinstance(graph, Data):
        raise InputError(
            f"graph is a {type(graph).__name__}: give a torch_geometric.data.Data, or what"
            " algnn.open_graph gives, then nodes and, to learn, labels: fit(graph, nodes, labels)"
        )
    if graph.get("edge_attr") is not None:
        raise InputError(
            "graph.edge_attr is not used by any learner: remove it (del graph.edge_attr), or put"
            " one weight for each edge into graph.edge_weight"
        )
    for name, part in (("edge_type", "edge_subgraph"), ("node_type", "subgraph")):
        given = graph.get(name, ())
        kinds: Any = given if isinstance(given, Tensor) else np.array(given)
        if (kinds != kinds.flatten()[:1]).any():
            raise InputError(
                f"graph.{name} names several kinds, which no learner tells apart: keep one, as"
                f" graph.{part}(graph.{name} == 0) does, or del graph.{name} if all count alike"
            )


def check_graph(graph: Data) -> None:
    """Raise `InputError` for a graph that no learner can use."""
    check_kind(graph)
    x, edge_index = graph.get("x"), graph.get("edge_index")
    tensor = isinstance(x, Tensor)
    if not tensor or x.layout not in LAYOUTS or x.dim() != 2 or x.dense_dim() not in (0, 2):
        remedy = "graph.x.to_dense().to_sparse_csr()" if tensor else "torch.from_numpy(x)"
        raise InputError(
            "graph.x must be a tensor [nodes, features], dense or sparse (CSR or COO), and is"
            f" {_kind(x)}: give {remedy}; without features, algnn.from_pandas(edges) makes"
            " structural ones"
        )
    if x.is_complex():
        raise InputError(f"graph.x has type {x.dtype}: give real numbers, e.g. graph.x.real")
    if x.size(0) == 0 or x.size(1) == 0:
        raise InputError(f"graph.x has shape {list(x.shape)}: give at least one node and feature")
    _check_finite(x.detach())
    _check_edges(edge_index, x.size(0))
    edges, weight = edge_index.size(1), graph.get("edge_weight")
    if weight is None:
        return
    if not isinstance(weight, Tensor) or weight.layout != torch.strided or weight.shape != (edges,):
        raise InputError(
            f"graph.edge_weight must be a dense tensor [{edges}], one for each edge, and is"
            f" {_kind(weight)}"
        )
    # in float32, which is what they are used in; what is negative has no root
    if weight.is_complex() or not bool(torch.isfinite(weight.float().sqrt()).all()):
        raise InputError(
            "graph.edge_weight holds values that are negative, NaN, infinite or beyond 3e38: give"
            " each edge a finite weight of at least 0"
        )


def _kind(value: Any) -> str:
    """What stands in the place of a tensor, in words."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} ({str(value.layout).removeprefix('torch.')})"
    return "missing" if value is None else f"a {type(value).__name__}"


def _check_edges(edge_index: Any, num_nodes: int) -> None:
    dense = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    if not dense or edge_index.dim() != 2 or edge_index.size(0) != 2:
        turned = dense and edge_index.dim() == 2 and edge_index.size(1) == 2
        found = _kind(edge_index) + (": give graph.edge_index.t()" if turned else "")
        found += ": give torch.from_numpy of it" if isinstance(edge_index, np.ndarray) else ""
        raise InputError(f"graph.edge_index must be a dense tensor [2, edges], and is {found}")
    if edge_index.dtype != torch.int64:
        raise InputError(f"graph.edge_index has type {edge_index.dtype}: give torch.int64")
    if edge_index.numel():
        low, high = torch.stack(torch.aminmax(edge_index)).tolist()
        if not 0 <= low <= high < num_nodes:
            raise InputError(
                f"graph.edge_index names nodes from {low} to {high}:"
                f" they must lie in 0 … {num_nodes - 1}, the rows of graph.x"
            )


def edges_of(graph: Data) -> dict[str, Tensor]:
    """`edge_index`, and `edge_weight` unless all are 1, of the `adj_t` of PyG's transform."""
    adj_t, nodes = graph.adj_t, graph.num_nodes
    sparse = isinstance(adj_t, Tensor) and adj_t.layout != torch.strided
    if not sparse or adj_t.shape != (nodes, nodes) or adj_t.dense_dim():
        raise InputError(
            f"graph.adj_t must be a sparse torch tensor [{nodes}, {nodes}], and is {_kind(adj_t)}:"
            " give edge_index in its place"
        )
    entries = added(adj_t.detach().to_sparse(layout=torch.sparse_coo))
    found = {"edge_index": entries.indices().flip(0)}
    if not bool((entries.values() == 1).all()):
        found["edge_weight"] = entries.values()
    return found


def _check_finite(x: Tensor) -> None:
    values, row_of = (x, None) if x.layout == torch.strided else _entries(x)
    # a finite sum has finite terms; only if it is not finite (it may overflow) is each looked at
    if bool(torch.isfinite(values.sum(dtype=torch.float32))):
        return
    strange = (~torch.isfinite(values.to(torch.float32))).nonzero()
    if strange.numel():
        node = int(strange[0, 0] if row_of is None else row_of[strange[0, 0]])
        raise InputError(
            f"graph.x holds NaN or infinite values (first at node {node}), and values beyond 3e38"
            " count as such: replace them before learning"
        )


def _entries(x: Tensor) -> tuple[Tensor, Tensor]:
    """The values of a sparse tensor, and the row of each, once its indices are sound."""
    try:
        if x.layout == torch.sparse_coo:
            places, values = x._indices(), x._values()
            torch.sparse_coo_tensor(places, values, x.shape, check_invariants=True)
            return (whole := added(x)).values(), whole.indices()[0]
        starts, columns, values = x.crow_indices(), x.col_indices(), x.values()
        torch.sparse_csr_tensor(starts, columns, values, x.shape, check_invariants=True)
    except RuntimeError as error:
        raise InputError(
            f"graph.x is a sparse tensor with invalid indices ({error}): make it with"
            " check_invariants=True"
        ) from error
    return values, torch.repeat_interleave(starts.diff())


def added(entries: Tensor) -> Tensor:
    """A COO tensor that names no place twice: what is there twice is added in floats."""
    if entries.is_coalesced() or entries.dtype == torch.float64:
        return entries.coalesce()
    return entries.float().coalesce()


def check_width(found: int, width: int | None) -> None:
    """Raise `InputError` if the features are not as wide as they were in the base session."""
    if width is not None and found != width:
        raise InputError(
            f"graph.x has {found} features and the base session had {width}: give the"
            " same features, or start anew with fit"
        )


def check_nodes(nodes: Nodes | None, num_nodes: int, *, session: bool = False) -> Tensor:
    """Node ids as an int64 tensor on the CPU, from ids, a mask, or None for every node.

    Those of a `session` are at least one, and each once.
    """
    if nodes is None and not session:
        return torch.arange(num_nodes)
    ids = _as_ids(nodes)
    if ids.ndim != 1:
        raise InputError(f"nodes has shape {list(ids.shape)}: give one dimension of node ids")
    count, kind = ids.numel(), ids.dtype
    # a mask of whole numbers would be read as the ids 0 and 1
    doubtful = kind != torch.bool and count > 2 and (count == num_nodes or kind == torch.uint8)
    if doubtful and bool(((ids == 0) | (ids == 1)).all()):
        raise InputError(
            f"nodes holds {count} zeros and ones of type {kind}: give a mask as bool, or name each"
            " node once"
        )
    if kind == torch.bool:
        if count != num_nodes:
            raise InputError(
                f"nodes is a mask of {count} for {num_nodes} nodes: give one entry per node"
            )
        ids = ids.nonzero().squeeze(1)
    elif count and (ids.is_floating_point() or ids.is_complex()):  # an empty list is float
        raise InputError(f"nodes has type {kind}: give whole numbers, the rows of graph.x")
    ids = ids.to(torch.int64)
    if session and ids.numel() == 0:
        raise InputError("nodes is empty: a session needs at least one labelled node")
    outside = ids[(ids < 0) | (ids >= num_nodes)]
    if outside.numel():
        raise InputError(f"nodes holds {outside[0]}: ids must lie in 0 … {num_nodes - 1}")
    if session:
        ordered = ids.sort().values
        twice = ordered[1:][ordered.diff() == 0]
        if twice.numel():
            raise InputError(f"nodes holds {twice[0]} more than once: name each node once")
    return ids


def _as_ids(nodes: Any) -> Tensor:
    if np.ma.is_masked(nodes):
        raise InputError("nodes has masked entries: leave them out, as nodes.compressed() does")
    try:
        if isinstance(nodes, Tensor):
            return nodes.detach().to_dense().cpu().clone()  # the caller may change theirs
        array = np.asarray(nodes)
        if array.dtype.kind == "O":
            if array.size:
                raise TypeError
            array = array.astype(np.int64)  # an empty selection of pandas
        # a copy in the machine's own order: reversed views and foreign bytes are arrays too
        return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "nodes must be a tensor, array or list of whole numbers below 2^63: ids, which are rows"
            " of graph.x, and not names"
        ) from None


def check_labels(labels: Labels, count: int, seen: Array | None = None) -> Array:
    """Labels as an array of int64 or of strings, of the kind of the classes `seen` so far."""
    try:
        given: Any = labels.numpy(force=True) if isinstance(labels, Tensor) else labels
        if np.ma.is_masked(given):
            given, masked = np.ma.getdata(given).astype(object), np.ma.getmaskarray(given)
            given[masked] = None
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        raise InputError("labels must be one flat list of ints or of strings") from None
    if array.ndim != 1 or array.size != count:
        raise InputError(
            f"labels has shape {list(array.shape)} for {count} nodes: give one label per node"
        )
    if array.dtype.kind in "OT" or (array.dtype.kind == "U" and not isinstance(given, np.ndarray)):
        # np.asarray makes strings of a list that mixes numbers with strings, and cuts off enums
        items = pd.Series(list(given), dtype=object)
        named = items.map(lambda one: np.ndim(one) == 0 and one in NO_LABELS, na_action="ignore")
        _check_none_missing(items, items.isna() | named.eq(True), seen)
        array = _of_one_kind(items.tolist())
    elif array.dtype.kind in "ifU":
        nothing = NO_LABELS[1:] if array.dtype.kind == "U" else NO_LABEL
        _check_none_missing(array, np.isin(array, nothing) | (array != array), seen)
    if array.dtype.kind == "b" or (array.dtype.kind == "f" and all_whole(array)):
        array = array.astype(np.int64)
    if array.dtype.kind == "f":
        raise InputError("labels holds floats that are not whole, or too large: give ints")
    if array.dtype.kind not in "iuUO":
        raise InputError(f"labels has type {array.dtype}: give ints or strings")
    if array.dtype.kind == "O" or (array.dtype.kind == "u" and (array >= 2**63).any()):
        raise InputError("labels holds ints beyond 64 bits: give smaller ones, or strings")
    words = array.dtype.kind == "U"
    if count and seen is not None and seen.size and (seen.dtype.kind == "U") != words:
        kinds = {True: "strings", False: "ints"}
        raise InputError(
            f"labels are {kinds[words]} and classes so far {kinds[not words]}: keep to one kind"
        )
    return array if words else array.astype(np.int64)


def _check_none_missing(labels: Any, missing: Any, seen: Array | None) -> None:
    """Raise `InputError` where a label says that there is none."""
    # models of early versions may hold a class of that name
    known = seen is not None and set(NO_LABELS) & set(seen.tolist())
    count = int(np.sum(missing))
    if count and not known:
        place = int(np.argmax(missing))
        raise InputError(
            f"labels holds {labels[place]!s} at place {place} ({count} of {len(labels)} are -1,"
            " None, NaN or empty, which mean no label): leave these nodes out"
        )


def strings(values: Iterable[str]) -> Array:
    """An array of strings; members of an enum, which NumPy would cut off, are their values."""
    return np.array(list(map(str.__str__, values)), dtype=np.str_)


def _of_one_kind(labels: list[Any]) -> Array:
    """An array of a list whose items must all be strings, or all be numbers."""
    strange = next((c for c in labels if not isinstance(c, str)), None)
    if strange is None:
        if cut := next((c for c in labels if c.endswith("\0")), None):
            raise InputError(f"labels holds {cut!r}, which ends in NUL: NumPy would leave that out")
        return strings(labels)
    if not any(isinstance(c, str) for c in labels):
        try:
            return np.array([c if isinstance(c, float) else operator.index(c) for c in labels])
        except (TypeError, OverflowError):
            raise InputError(
                f"labels holds {strange!r} and the like: give only ints or only strings"
            ) from None
    raise InputError(f"labels mixes strings with {strange!r}: give only ints or only strings")


def check_base(labels: Array) -> None:
    """Raise `InputError` unless a base session has the two classes that training needs."""
    if bool((labels == labels[0]).all()):
        raise InputError(
            f"labels holds only class {labels[0]!s}: the base session needs at least two classes,"
            " so add nodes of another (in a stream: base= or --base); a later session may have one"
        )


def check_kept_nodes(kept: Tensor | None, num_nodes: int) -> None:
    """Raise `InputError` if a graph has lost nodes that a learner remembers."""
    if kept is not None and kept.numel() and int(kept.max()) >= num_nodes:
        raise InputError(
            f"graph has {num_nodes} nodes and node {int(kept.max())} was learned before: a graph"
            " may grow, but nodes keep their ids"
        )


def check_trained(*weights: Tensor) -> None:
    """Raise `InputError` if training has left weights that are not finite."""
    if not all(bool(torch.isfinite(some).all()) for some in weights):
        raise InputError("training diverged (weights not finite): lower lr, or scale graph.x down")


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), *, whole: bool = False
) -> None:
    """Raise `InputError` unless a parameter is a number in [low, high)."""
    # NumPy's scalars are numbers in this sense, too
    fits = isinstance(value, numbers.Integral if whole else REAL) and not isinstance(value, bool)
    if fits and low <= value < min(high, MOST):
        return
    noun = "a whole number" if whole else "a number"
    below = f" and below {min(high, MOST):g}" if high < MOST or (fits and value >= MOST) else ""
    raise InputError(f"{name}={value!r} must be {noun} of at least {low:g}{below}")


def check_choice(name: str, value: Any, known: Collection[str]) -> None:
    """Raise `InputError` unless a parameter is one of some words."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name}={value!r} is unknown: use one of {', '.join(known)}")
