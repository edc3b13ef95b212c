"""A graph's classes as an ordered stream of sessions, with the graph that each session sees."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from algnn.checks import check_choice, check_graph, check_number
from algnn.errors import InputError
from algnn.graph.npz import MASKS, PARTS
from algnn.graph.propagate import take_rows, to_csr


@dataclass(frozen=True)
class Session:
    """A session of a stream: a graph without labels, some nodes, and the labels of those nodes.

    Attributes
    ----------
    index : int
        Position in the stream; 0 is the base session.
    classes : tuple of int
        The classes that this session reveals.
    graph : Data
        `x` [N, d] and `edge_index` [2, E], and nothing else.
    nodes, labels : Tensor [n]
        The training nodes of these classes and their labels.
    """

    index: int
    classes: tuple[int, ...]
    graph: Data
    nodes: Tensor
    labels: Tensor


class ClassStream:
    """The classes of a graph, revealed a few at a time.

    Parameters
    ----------
    graph : Data
        With `x`, `edge_index`, `y` (-1 = no label) and `train_mask`, `val_mask`, `test_mask`.
    base : int, optional
        How many classes the base session holds; half of them, rounded up, by default.
    step : int
        How many classes each later session brings. Leftovers form a last, shorter session.
    order : "label", "random" or a sequence of every class
        The order in which classes appear.
    edges : "full" or "seen"
        With ``"full"`` the whole graph and all features are visible from the start and only labels
        are revealed by session: the paper's protocol. With ``"seen"`` only nodes of the classes
        revealed so far (and nodes without a label) exist; the nodes of a new class are appended, so
        a node never changes its id. Which nodes are new then reveals their class, test nodes
        included, so results of the two scenarios must not be mixed in a table.
    seed : int
        Seed of the random order.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=2)
    >>> [session.classes for session in stream]
    [(0, 1, 2, 3, 4), (5, 6), (7, 8), (9,)]
    >>> session = stream[1]
    >>> sorted(session.graph.keys()), set(session.labels.tolist())
    (['edge_index', 'x'], {5, 6})
    """

    def __init__(
        self,
        graph: Data,
        base: int | None = None,
        step: int = 1,
        order: str | Sequence[int] = "label",
        edges: str = "full",
        seed: int = 0,
    ) -> None:
        labels = _check_labelled(graph)
        check_number("seed", seed, 0, 2**63, whole=True)
        check_choice("edges", edges, ("full", "seen"))
        check_number("step", step, 1, whole=True)
        self.step, self.edges, self.seed = int(step), edges, int(seed)
        present = torch.unique(labels[labels >= 0]).tolist()
        self.order = _ordered(present, order, self.seed)
        base = -(-len(present) // 2) if base is None else base
        check_number("base", base, 1, len(present) + 1, whole=True)
        self.base = int(base)
        starts = [0, *range(self.base, len(present), self.step), len(present)]
        self.classes = [tuple(self.order[a:b]) for a, b in pairwise(starts)]
        session_of = {c: i for i, members in enumerate(self.classes) for c in members}
        names, places = torch.unique(labels, return_inverse=True)
        self._session_of = torch.tensor([session_of.get(c, -1) for c in names.tolist()])[places]
        # stable: within a session nodes keep the graph's own order
        arrival = torch.argsort(self._session_of.clamp(min=0), stable=True)
        self._arrival = arrival if edges == "seen" else torch.arange(labels.numel())
        self._position = torch.argsort(self._arrival)
        self._graph = graph
        taught = set(torch.unique(labels[graph.train_mask.cpu()]).tolist())
        empty = [str(c) for c in self.order if c not in taught]
        if empty:
            raise InputError(
                f"graph.train_mask holds no node of class {', '.join(empty)}: give each class a"
                " training node, or set its labels to -1"
            )

    def __len__(self) -> int:
        return len(self.classes)

    def __iter__(self) -> Iterator[Session]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Session:
        index = self._place(index)
        nodes, labels = self.nodes("train", index)
        return Session(index, self.classes[index], self.graph(index), nodes, labels)

    def graph(self, index: int) -> Data:
        """The graph in session `index`, without labels; ``edges="full"`` shares its tensors."""
        index, graph = self._place(index), self._graph
        if self.edges == "full":
            weight = graph.get("edge_weight")
            return Data(x=graph.x, edge_index=graph.edge_index, edge_weight=weight)
        device = graph.edge_index.device
        exists = self._arrival[: int((self._session_of <= index).sum())].to(device)
        # node ids in the order of arrival, of the nodes that exist
        edges = graph.edge_index, graph.get("edge_weight")
        edge_index, weight = subgraph(exists, *edges, num_nodes=graph.x.size(0))
        x = graph.x if graph.x.layout == torch.strided else to_csr(graph.x)
        edge_index = self._position.to(device)[edge_index]
        return Data(x=take_rows(x, exists), edge_index=edge_index, edge_weight=weight)

    def nodes(self, split: str, index: int) -> tuple[Tensor, Tensor]:
        """Nodes [n] of session `index`'s classes in one split, with their labels [n].

        `split` is "train", "val" or "test". The ids are valid in the graph of this and every later
        session. For the evaluation; a learner never sees a stream.
        """
        check_choice("split", split, PARTS)
        here = self._session_of == self._place(index)
        chosen = self._graph[f"{split}_mask"].cpu() & here
        chosen &= self._graph.y.cpu() >= 0
        original = chosen.nonzero().squeeze(1)
        return self._position[original], self._graph.y.cpu()[original]

    def _place(self, index: int) -> int:
        """The number of a session, which may be counted from the end."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"session {index} of a stream of {len(self)}")
        return range(len(self))[index]

    def original_ids(self, nodes: Tensor) -> Tensor:
        """The ids [n] that `nodes` [n] of a session have in the graph the stream was made of."""
        return self._arrival[nodes]


def _check_labelled(graph: Data) -> Tensor:
    check_graph(graph)
    missing = [key for key in ("y", *MASKS) if graph.get(key) is None]
    if missing:
        needs = "a stream needs labels and a split (algnn.load gives both)"
        raise InputError(f"graph has no {', '.join(missing)}: {needs}")
    labels, nodes = graph.y, graph.x.size(0)
    if not isinstance(labels, Tensor):
        raise InputError(f"graph.y is a {type(labels).__name__}: give a tensor of classes")
    for key in MASKS:
        mask = graph[key]
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (nodes,):
            raise InputError(f"graph.{key} must be a bool tensor [{nodes}]")
    if labels.is_floating_point() or labels.is_complex() or labels.shape != (nodes,):
        raise InputError(
            f"graph.y has shape {tuple(labels.shape)} and type {labels.dtype}: it must hold one"
            f" integer class for each of the {nodes} nodes"
        )
    return labels.cpu()


def _ordered(present: list[int], order: str | Sequence[int], seed: int) -> list[int]:
    if len(present) < 2:
        raise InputError(f"graph.y has {len(present)} classes: a stream needs at least 2")
    if isinstance(order, str):
        if order == "label":
            return present
        if order == "random":
            generator = torch.Generator().manual_seed(seed)
            return [present[i] for i in torch.randperm(len(present), generator=generator).tolist()]
        raise InputError(f"order={order!r} is unknown: use 'label', 'random' or a list of classes")
    try:
        given = [operator.index(c) for c in order]
    except TypeError:
        given = []
    if sorted(given) != present:
        raise InputError(
            f"order={order!r} must name each class of the graph exactly once; they are {present}"
        )
    return given
