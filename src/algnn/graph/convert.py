"""Graphs from tables and from networkx: names of nodes become ids, everything is checked."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from algnn.checks import NO_LABEL, NO_LABELS, check_labels, check_number
from algnn.errors import DatasetError, InputError
from algnn.graph.datasets import finish, inputs_alone
from algnn.graph.npz import Arrays, graph_of_arrays
from algnn.labels import exact

if TYPE_CHECKING:
    import networkx

TIMES = (datetime, timedelta, np.datetime64, np.timedelta64)
WORDS = (str, bytes, bytearray)  # which may be codes, even if they read as numbers


def from_pandas(
    edges: pd.DataFrame,
    features: pd.DataFrame | None = None,
    labels: pd.Series | None = None,
    *,
    nodes: Sequence[Any] | None = None,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    directed: bool = False,
    seed: int = 42,
) -> Data:
    """A graph from a table of edges, and tables of features and labels by node.

    Parameters
    ----------
    edges : DataFrame
        A row for each edge; nodes may be numbers or strings. Weights of parallel edges add up.
    features : DataFrame, optional
        A row of numbers for each node; its index holds the nodes and fixes their order. Without it
        the graph gets structural features, and its nodes are those of `edges` and `labels`, sorted.
    labels : Series, optional
        The labels of some nodes or all, strings or ints of at least 0; its index holds the nodes.
        Missing values mean that a node has no label.
    nodes : sequence, optional
        Without `features`: the `node_names` of an earlier graph. These nodes keep their ids, and
        new ones follow; otherwise a new name may shift the ids of those that are sorted after it.
    source, target, weight : str
        The columns of `edges` with both ends and, optionally, with weights of at least 0.
    directed : bool
        Whether `target` gathers from `source` only. By default edges count in both directions; of
        one that is given both ways the weights are added up.
    seed : int
        Seed of the random 40/10/50 split of labelled nodes.

    Returns
    -------
    Data
        As `load` gives it, and `node_names`, the list of nodes by id. Without `labels` it has no
        `y` and no masks.

    Examples
    --------
    >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cid"]})
    >>> features = pd.DataFrame({"age": [31.0, 40, 27]}, index=["ann", "bob", "cid"])
    >>> graph = from_pandas(edges, features, pd.Series({"ann": "fair", "cid": "fraud"}))
    >>> graph.node_names, graph.y.tolist(), graph.class_names, graph.edge_index.size(1)
    (['ann', 'bob', 'cid'], [0, -1, 1], ['fair', 'fraud'], 4)
    """
    _check_table("edges", edges, pd.DataFrame)
    for column in (source, target, *([] if weight is None else [weight])):
        if column not in edges.columns:
            raise InputError(
                f"edges has no column {column!r}, it has {', '.join(map(str, edges.columns))}: name"
                " the columns with source=, target= and weight="
            )
        if not isinstance(edges[column], pd.Series):
            raise InputError(f"edges has column {column!r} more than once: rename or drop one")
    _check_table("features", features, pd.DataFrame, by_node=True)
    _check_table("labels", labels, pd.Series, by_node=True)
    if features is None:
        names = _names([edges[source], edges[target]], labels, nodes)
    elif nodes is None:
        names = features.index
    else:
        raise InputError("nodes and features both fix the order of nodes: leave nodes out")
    ends = [_ids(f"edges[{column!r}]", edges[column], names) for column in (source, target)]
    arrays: Arrays = {"edge_index": np.stack(ends)}
    if weight is not None:
        arrays["edge_weight"] = _numbers(f"edges[{weight!r}]", edges[weight], words=True)
    if features is not None:
        columns = [_numbers(f"features[{name!r}]", column) for name, column in features.items()]
        arrays["x"] = np.stack(columns, axis=1) if columns else np.zeros((len(names), 0))
    if labels is not None:
        arrays["y"] = _labels(labels, names)
    return _graph(arrays, names, directed, "pandas", seed)


def from_networkx(
    graph: networkx.Graph,
    x: str | Sequence[str] | None = None,
    y: str | None = None,
    weight: str | None = None,
    *,
    seed: int = 42,
) -> Data:
    """A graph from one of networkx, its attributes named.

    Parameters
    ----------
    graph : networkx.Graph or DiGraph
        Nodes may be anything; edges count in both directions unless it is directed.
    x : str or list of str, optional
        The attribute of nodes that holds a vector of numbers; or several that hold a number each.
        Without it the graph gets structural features.
    y : str, optional
        The attribute of nodes that holds the label; nodes without it have no label.
    weight : str, optional
        The attribute of edges that holds a weight of at least 0; edges without it weigh 1.
    seed : int
        As for `from_pandas`.

    Returns
    -------
    Data
        As for `from_pandas`; ids are in the order of ``graph.nodes``.

    Examples
    --------
    >>> import networkx as nx
    >>> club = nx.karate_club_graph()
    >>> graph = from_networkx(club, y="club")
    >>> graph.num_nodes, graph.class_names, graph.x.shape
    (34, ['Mr. Hi', 'Officer'], torch.Size([34, 384]))
    """
    if not hasattr(graph, "is_directed") or not hasattr(graph, "nodes"):
        raise InputError(f"graph is a {type(graph).__name__}: give a networkx.Graph")
    # as objects: a float among large ints would make floats of them, some of which are equal
    names = pd.Index(list(graph.nodes), dtype=object, tupleize_cols=False)
    if not len(names):
        raise InputError("graph has no nodes: give one with some")
    if weight is not None and all(each is None for *_, each in graph.edges.data(weight)):
        raise InputError(f"weight={weight!r} is no attribute of any edge")
    rows = list(graph.edges.data(weight, default=1.0))
    ids = {node: place for place, node in enumerate(graph.nodes)}
    ends = [[ids[row[end]] for row in rows] for end in (0, 1)]
    arrays: Arrays = {"edge_index": np.array(ends, np.int64)}
    if weight is not None:
        given = pd.Series([row[2] for row in rows])
        arrays["edge_weight"] = _numbers(f"weight={weight!r}", given, words=True)
    if x is not None:
        arrays["x"] = _vectors(graph, x)
    if y is not None:
        found = [label for _, label in graph.nodes.data(y)]
        if all(label is None for label in found):
            raise InputError(f"y={y!r} is no attribute of any node")
        arrays["y"] = _labels(pd.Series(found, names, dtype=object), names)
    return _graph(arrays, names, graph.is_directed(), "networkx", seed)


def _graph(arrays: Arrays, names: pd.Index, directed: bool, origin: str, seed: int) -> Data:
    """The arrays of an ``.npz``, checked as those of a file are, as a graph."""
    check_number("seed", seed, 0, 2**63, whole=True)
    try:
        graph = graph_of_arrays({"num_nodes": np.array(len(names)), **arrays})
    except DatasetError as error:
        raise InputError(str(error)) from error
    edges, weights = graph.edge_index, graph.get("edge_weight")
    if not directed:
        apart = edges[0] != edges[1]
        edges = torch.cat([edges, edges[:, apart].flip(0)], dim=1)
        weights = None if weights is None else torch.cat([weights, weights[apart]])
    graph.edge_index, graph.edge_weight = coalesce(edges, weights, len(names), "sum")
    result = finish(graph, origin, origin, "", seed) if "y" in arrays else inputs_alone(graph)
    result.node_names = names.tolist()
    return result


def _check_table(name: str, table: Any, kind: Any, by_node: bool = False) -> None:
    """Raise `InputError` for a wrong table; one `by_node`, if any, names each once in its index."""
    if by_node and table is None:
        return
    if not isinstance(table, kind):
        raise InputError(f"{name} is a {type(table).__name__}: give a pandas {kind.__name__}")
    if not len(table):
        raise InputError(f"{name} is empty: give at least one row")
    if by_node and table.index.nlevels > 1:
        levels = table.index.nlevels
        raise InputError(f"{name} has an index of {levels} levels: name each node by one value")
    if by_node and table.index.has_duplicates:
        twice = table.index[table.index.duplicated()][0]
        raise InputError(f"{name} has node {twice!r} twice in its index: give each node once")
    if by_node and table.index.hasnans:
        raise InputError(f"{name} has a missing node in its index: name every node")


def _names(
    ends: list[pd.Series], labels: pd.Series | None, nodes: Sequence[Any] | None
) -> pd.Index:
    """The nodes of an earlier graph, then the others of edges and labels, sorted."""
    parts = [*ends, *([] if labels is None else [pd.Series(labels.index)])]
    if not isinstance(nodes, list | tuple | np.ndarray | pd.Index | pd.Series | None):
        raise InputError(f"nodes is a {type(nodes).__name__}: give the node_names of a graph")
    # as objects: a float among large ints would make floats of them, some of which are equal
    before = pd.Index(pd.Series(nodes, dtype=object).tolist(), dtype=object, tupleize_cols=False)
    if strange := [n for n in before if not isinstance(n, Hashable) or n is None or n != n]:
        raise InputError(f"nodes holds {strange[0]!r}: give the node_names of a graph")
    if before.has_duplicates:
        raise InputError(f"nodes holds {before[before.duplicated()][0]!r} twice: give each once")
    if len(before):
        parts.append(pd.Series(before))
    if len({part.dtype.kind for part in parts}) > 1:  # floats hold ints up to 2**53 only
        parts = [part.astype(object) for part in parts]
    found = pd.unique(pd.concat(parts).dropna())
    try:
        names = pd.Index(np.sort(found))
    except TypeError:
        raise InputError(
            "edges, labels and nodes name nodes by numbers and by strings: use one kind for all"
        ) from None
    if not len(before):
        return names
    new = names[~names.isin(before)].tolist()
    return pd.Index([*before, *new], dtype=object, tupleize_cols=False)


def _ids(what: str, nodes: pd.Series | pd.Index, names: pd.Index) -> Any:
    for some in (nodes, names):
        values = some.dropna().to_numpy() if some.dtype.kind == "f" else np.zeros(0)
        if not (small := exact(values)).all():
            raise InputError(
                f"{what} or the index of features names node {values[~small][0]!s}, which"
                f" {values.dtype} may have rounded: read names as Int64 or as strings"
            )
    if names.dtype.kind != nodes.dtype.kind:  # as in `_names`
        names, nodes = names.astype(object), nodes.astype(object)
    ids = names.get_indexer(nodes)
    if (ids < 0).any():
        place = int(np.argmax(ids < 0))
        if pd.isna(nodes.tolist()[place]):
            raise InputError(f"{what} names no node in row {place}: leave the row out")
        raise InputError(
            f"{what} names {nodes.tolist()[place]!r} in row {place}, which is not in the index of"
            " features: name nodes there (read_csv has index_col=), or leave the row out"
        )
    return ids.astype(np.int64)


def _numbers(what: str, column: pd.Series, words: bool = False) -> Any:
    """A column as float64; of strings that read as numbers if `words` allows it."""
    try:
        kind = getattr(column.dtype, "kind", "")
        some = column.unique() if kind in "OUS" else ()
        if kind in "mMc" or any(isinstance(v, TIMES if words else TIMES + WORDS) for v in some):
            raise TypeError
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, NotImplementedError):  # the last by Arrow, of lists
        raise InputError(
            f"{what} holds {column.dtype} values: give numbers; categories may become columns with"
            " pandas.get_dummies"
        ) from None
    if not np.isfinite(values).all():
        raise InputError(f"{what} holds missing or infinite values: fill them in first")
    return values


def _labels(labels: pd.Series, names: pd.Index) -> Any:
    """A label for each node, ints with -1 or strings with '' where there is none."""
    given = labels.dropna().infer_objects()
    ids = _ids("labels", given.index, names)
    known = np.array([label not in NO_LABELS for label in given.tolist()], dtype=bool)
    values = check_labels(given[known], int(known.sum()))
    found = np.full(len(names), "" if values.dtype.kind == "U" else NO_LABEL, values.dtype)
    found[ids[known]] = values
    return found


def _vectors(graph: networkx.Graph, x: str | Sequence[str]) -> Any:
    names = [x] if isinstance(x, str) else list(x)
    if not names:
        raise InputError(f"x={x!r} names no attribute: give at least one, or leave x out")
    rows = []
    for node, found in graph.nodes.data():
        missing = [name for name in names if name not in found]
        if missing:
            raise InputError(f"node {node!r} has no attribute {missing[0]!r}: x needs it in each")
        rows.append(np.concatenate([np.atleast_1d(np.asarray(found[name])) for name in names]))
    if len({row.shape for row in rows}) > 1 or rows[0].dtype.kind not in "iufb":
        raise InputError(f"x={x!r} must be numbers, as many in each node")
    return np.stack(rows)
