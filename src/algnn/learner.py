"""What a learner is, and the checks that every learner's input passes before anything changes."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn import checkpoint
from algnn.errors import AlgnnError, CheckpointError, DeviceError, InputError, NotFittedError
from algnn.graph.memo import Memo
from algnn.graph.propagate import normalised_adjacency

Nodes = Tensor | npt.NDArray[Any] | Sequence[int]
Labels = Tensor | npt.NDArray[Any] | Sequence[int] | Sequence[str]
Path = str | os.PathLike[str]


class Learner(ABC):
    """Learns the classes of a graph session by session.

    The constructor of a subclass only stores its parameters, under their own names; what is
    learned ends in ``_``. `fit` starts anew, `partial_fit` goes on. A call that raises leaves the
    learner as it was.

    A subclass writes `_learn`, `_scores`, `_state` and `_restore`, and keeps all that it has
    learned in one attribute, `_learned`, which it replaces in a single assignment.
    """

    seed: int
    device: str
    _learned: Any = None

    # -- what a subclass writes ---------------------------------------------------------------

    @abstractmethod
    def _learn(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any], learned: Any) -> Any:
        """What is known after one more session; `learned`, None before the first, is kept."""

    @abstractmethod
    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        """Scores [n, C] of checked nodes over `classes_`."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is learned: tensors, and what JSON can hold. Names of tensors that are frozen
        after the base session start with ``encoder.``.
        """

    @abstractmethod
    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Any:
        """The value of `_learned` that `_state` described."""

    @property
    @abstractmethod
    def classes_(self) -> npt.NDArray[Any]:
        """The classes seen so far, sorted; ints or strings, as they were given."""

    # -- what everyone calls ------------------------------------------------------------------

    def fit(self, graph: Data, nodes: Nodes, labels: Labels) -> Self:
        """Forget everything and learn a first session.

        Parameters
        ----------
        graph : Data
            `x` [N, d] and `edge_index` [2, E]; labels in it are not looked at.
        nodes : Tensor, array or list [n]
            Ids of the session's nodes, or a mask [N].
        labels : Tensor, array or list [n]
            The class of each of these nodes: ints or strings.

        Returns
        -------
        self
        """
        return self._session(graph, nodes, labels, anew=True)

    def partial_fit(self, graph: Data, nodes: Nodes, labels: Labels) -> Self:
        """Learn one more session; the first call is the base stage.

        Parameters
        ----------
        graph, nodes, labels
            As for `fit`. The nodes may be of new classes, of known ones, or of both.

        Returns
        -------
        self
        """
        return self._session(graph, nodes, labels, anew=False)

    def decision_function(self, graph: Data, nodes: Nodes | None = None) -> npt.NDArray[Any]:
        """The score of each class for some nodes.

        Parameters
        ----------
        graph : Data
            The graph as it is now.
        nodes : Tensor, array or list [n], optional
            Ids or a mask; every node by default.

        Returns
        -------
        array [n, C]
            A column per entry of `classes_`.
        """
        self._check_fitted()
        self._check_graph(graph, self.n_features_in_)
        chosen = check_nodes(nodes, graph.x.size(0))
        scores: npt.NDArray[Any] = self._scores(graph, chosen).cpu().numpy()
        return scores

    def predict(self, graph: Data, nodes: Nodes | None = None) -> npt.NDArray[Any]:
        """The class of some nodes, out of those seen so far.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`.

        Returns
        -------
        array [n]
            Labels as they were given: ints or strings.
        """
        best = self.decision_function(graph, nodes).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def retained_bytes(self) -> int:
        """Bytes that must be kept between sessions beside the frozen encoder.

        Returns
        -------
        int
            The size of what `save` writes, without the tensors named ``encoder.…`` and the header.
        """
        if self._learned is None:
            return 0
        tensors, _ = self._state()
        return sum(t.nbytes for name, t in tensors.items() if not name.startswith("encoder."))

    def save(self, path: Path) -> None:
        """Write the learner to one file: whole, or not at all.

        Parameters
        ----------
        path : str or path
            A ``.safetensors`` file; one that exists is replaced in a single step.
        """
        self._check_fitted()
        tensors, facts = self._state()
        facts = {"params": self.get_params(), "classes": self.classes_.tolist(), **facts}
        checkpoint.write(path, type(self).__name__, tensors, facts)

    @classmethod
    def load(cls, path: Path, device: str | None = None) -> Self:
        """Read a learner that `save` wrote.

        Parameters
        ----------
        path : str or path
            The file.
        device : str, optional
            Where it shall run from now on; by default as it was saved, or on the CPU where that
            device is absent.

        Returns
        -------
        Learner
        """
        tensors, facts = checkpoint.read(path, cls.__name__)
        try:
            params = dict(facts.pop("params"))
            if device is not None:
                params["device"] = device
            elif str(params.get("device")).startswith("cuda") and not torch.cuda.is_available():
                params["device"] = "cpu"
            learner = cls(**params)
            resolve_device(learner.device)
            learner._learned = learner._restore(tensors, facts)
        except AlgnnError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{path} is not a {cls.__name__} checkpoint: {error}") from error
        return learner

    def get_params(self) -> dict[str, Any]:
        """The constructor's parameters and their values.

        Returns
        -------
        dict
        """
        return {name: getattr(self, name) for name in self.param_names()}

    @classmethod
    def param_names(cls) -> list[str]:
        """The names of the constructor's parameters.

        Returns
        -------
        list of str
        """
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({params})"

    # -- shared by all learners ---------------------------------------------------------------

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""

    def _check_params(self) -> None:
        """Raise `InputError` for a parameter that cannot be used."""
        check_number("seed", self.seed, 0, whole=True)
        resolve_device(self.device)

    def _session(self, graph: Data, nodes: Nodes, labels: Labels, *, anew: bool) -> Self:
        """Check everything, then learn, then replace what is known in one assignment."""
        self._check_params()
        first = anew or self._learned is None
        self._check_graph(graph, width=None if first else self.n_features_in_)
        chosen = check_nodes(nodes, graph.x.size(0), session=True)
        known = check_labels(labels, chosen.numel(), None if first else self.classes_)
        self._learned = self._learn(graph, chosen, known, None if first else self._learned)
        return self

    def _check_fitted(self) -> None:
        if self._learned is None:
            raise NotFittedError(
                f"this {type(self).__name__} has learned nothing yet: call fit or partial_fit first"
            )

    def _check_graph(self, graph: Data, width: int | None) -> None:
        """`check_graph`, once for as long as the graph stays the same."""
        tensors = (graph.get("x"), graph.get("edge_index")) if isinstance(graph, Data) else ()
        if tensors and all(isinstance(t, Tensor) for t in tensors):
            self._sound_graph.get(tensors, lambda: check_graph(graph))
        else:
            check_graph(graph)
        check_width(graph, width)

    def _adjacency(self, graph: Data) -> Tensor:
        """Â on the learner's device, built once for as long as the edges stay the same."""
        device = resolve_device(self.device)

        def build() -> Tensor:
            return normalised_adjacency(graph.edge_index.to(device), graph.x.size(0))

        return self._last_adjacency.get((graph.edge_index, graph.x), build)

    @cached_property
    def _sound_graph(self) -> Memo[bool]:
        return Memo()

    @cached_property
    def _last_adjacency(self) -> Memo[Tensor]:
        return Memo()


def resolve_device(device: str) -> torch.device:
    """The device a name stands for, if it is there.

    Parameters
    ----------
    device : str
        ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``, …

    Returns
    -------
    torch.device

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise DeviceError(f"device={device!r} is no device: use 'auto', 'cpu' or 'cuda'") from None
    if found.type not in ("cpu", "cuda"):
        raise DeviceError(f"device={device!r} is not supported: use 'auto', 'cpu' or 'cuda'")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"device={device!r} was asked for but torch sees {torch.cuda.device_count()} CUDA"
            " devices here: use device='cpu' or 'auto'"
        )
    return found


def check_graph(graph: Data) -> bool:
    """Raise `InputError` unless a learner can use this graph.

    Parameters
    ----------
    graph : Data

    Returns
    -------
    bool
        True.

    Examples
    --------
    >>> import torch
    >>> check_graph(Data(x=torch.tensor([[float("nan")]]), edge_index=torch.zeros(2, 0).long()))
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: graph.x holds NaN or infinite values (first at node 0): replace them...
    """
    if not isinstance(graph, Data):
        raise InputError(f"graph is a {type(graph).__name__}: give a torch_geometric.data.Data")
    x, edge_index = graph.get("x"), graph.get("edge_index")
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.dim() != 2:
        raise InputError("graph.x must be a dense tensor [nodes, features]; algnn.load makes one")
    if not x.is_floating_point():
        raise InputError(f"graph.x has type {x.dtype}: give floating point, e.g. graph.x.float()")
    if x.size(0) == 0 or x.size(1) == 0:
        raise InputError(f"graph.x has shape {list(x.shape)}: give at least one node and feature")
    finite = torch.isfinite(x.to(torch.float32)).all(dim=1)
    if not bool(finite.all()):
        raise InputError(
            f"graph.x holds NaN or infinite values (first at node {int(finite.int().argmin())}):"
            " replace them before learning"
        )
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise InputError("graph.edge_index must be a tensor [2, edges]")
    if edge_index.dtype != torch.int64:
        raise InputError(f"graph.edge_index has type {edge_index.dtype}: give torch.int64")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < x.size(0):
        raise InputError(
            f"graph.edge_index names nodes from {int(edge_index.min())} to {int(edge_index.max())}:"
            f" they must lie in 0 … {x.size(0) - 1}, the rows of graph.x"
        )
    return True


def check_width(graph: Data, width: int | None) -> None:
    """Raise `InputError` if the features are not as wide as they were in the base session.

    Parameters
    ----------
    graph : Data
    width : int or None
        None where any width will do.

    Examples
    --------
    >>> import torch
    >>> check_width(Data(x=torch.zeros(2, 3)), 3)
    """
    if width is not None and graph.x.size(1) != width:
        raise InputError(
            f"graph.x has {graph.x.size(1)} features and the base session had {width}: give the"
            " same features, or start anew with fit"
        )


def check_nodes(nodes: Nodes | None, num_nodes: int, *, session: bool = False) -> Tensor:
    """Node ids as an int64 tensor on the CPU.

    Parameters
    ----------
    nodes : Tensor, array or list [n], or None
        Ids, a mask [num_nodes], or None for every node.
    num_nodes : int
    session : bool
        Whether they are to be learned: then at least one, and each once.

    Returns
    -------
    Tensor [n]

    Examples
    --------
    >>> check_nodes([2, 0], 3), check_nodes(torch.tensor([True, False, True]), 3)
    (tensor([2, 0]), tensor([0, 2]))
    """
    if nodes is None and not session:
        return torch.arange(num_nodes)
    try:
        ids = torch.as_tensor(nodes).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise InputError("nodes must be a tensor, array or list of whole numbers") from None
    if ids.dim() != 1:
        raise InputError(f"nodes has shape {list(ids.shape)}: give one dimension of node ids")
    if ids.dtype == torch.bool:
        if ids.numel() != num_nodes:
            raise InputError(
                f"nodes is a mask of {ids.numel()} for {num_nodes} nodes: give one entry per node"
            )
        ids = ids.nonzero().squeeze(1)
    elif ids.numel() == 0:
        ids = ids.to(torch.int64)  # an empty list comes as floating point
    if ids.is_floating_point() or ids.is_complex():
        raise InputError(f"nodes has type {ids.dtype}: give whole numbers, the rows of graph.x")
    ids = ids.to(torch.int64)
    if session and ids.numel() == 0:
        raise InputError("nodes is empty: a session needs at least one labelled node")
    outside = ids[(ids < 0) | (ids >= num_nodes)]
    if outside.numel():
        raise InputError(f"nodes holds {int(outside[0])}: ids must lie in 0 … {num_nodes - 1}")
    if session:
        values, counts = torch.unique(ids, return_counts=True)
        if values.numel() != ids.numel():
            twice = int(values[counts > 1][0])
            raise InputError(
                f"nodes holds {twice} more than once: name each node of a session once"
            )
    return ids


def check_labels(
    labels: Labels, count: int, seen: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Labels as an array of int64 or of strings.

    Parameters
    ----------
    labels : Tensor, array or list [n]
    count : int
        n, the number of nodes.
    seen : array, optional
        The classes seen so far, which the labels must resemble.

    Returns
    -------
    array [n]

    Examples
    --------
    >>> check_labels([3, 1], 2), check_labels(["fraud", "fine"], 2)
    (array([3, 1]), array(['fraud', 'fine'], dtype='<U5'))
    """
    given = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels
    try:
        array = np.asarray(given)
    except ValueError:
        raise InputError("labels must be one flat list of ints or of strings") from None
    if array.dtype == object and array.ndim == 1 and all(isinstance(c, str) for c in array):
        array = array.astype(np.str_)
    if array.ndim != 1 or array.size != count:
        raise InputError(
            f"labels has shape {list(array.shape)} for {count} nodes: give one label per node"
        )
    if array.dtype.kind not in "iuU":
        raise InputError(f"labels has type {array.dtype}: give ints or strings")
    # np.asarray makes strings of a list that mixes numbers with strings
    if array.dtype.kind == "U" and isinstance(given, list | tuple):
        strange = next((c for c in given if not isinstance(c, str)), None)
        if strange is not None:
            raise InputError(
                f"labels mixes strings with {strange!r}: give only ints or only strings"
            )
    if array.dtype.kind != "U":
        if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise InputError("labels holds ints beyond 64 bits: give smaller ones, or strings")
        array = array.astype(np.int64)
    if seen is not None and (seen.dtype.kind == "U") != (array.dtype.kind == "U"):
        kinds = {True: "strings", False: "ints"}
        raise InputError(
            f"labels are {kinds[array.dtype.kind == 'U']} and the classes seen so far are"
            f" {kinds[seen.dtype.kind == 'U']}: keep to one kind"
        )
    return array


def check_number(
    name: str, value: Any, low: float, high: float = float("inf"), *, whole: bool = False
) -> None:
    """Raise `InputError` unless a parameter is a number in [low, high).

    Parameters
    ----------
    name : str
    value : object
    low, high : float
    whole : bool
        Whether it must be an int.

    Examples
    --------
    >>> check_number("epochs", 2.5, 1, whole=True)
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: epochs=2.5 must be a whole number of at least 1
    """
    kind = int if whole else (int, float)
    if isinstance(value, kind) and not isinstance(value, bool) and low <= value < high:
        return
    noun = "a whole number" if whole else "a number"
    below = "" if high == float("inf") else f" and below {high:g}"
    raise InputError(f"{name}={value!r} must be {noun} of at least {low:g}{below}")
