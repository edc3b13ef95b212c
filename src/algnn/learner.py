"""The interface of every learner, with scikit-learn's conventions."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn import checkpoint, checks
from algnn.checkpoint import Path
from algnn.checks import Array, Labels, Nodes
from algnn.errors import AlgnnError, CheckpointError, DeviceError, InputError, NotFittedError
from algnn.files import locked
from algnn.graph.store import node_count
from algnn.graphs import GraphCache
from algnn.sharing import Shared, changes, full_precision, undisturbed

if TYPE_CHECKING:
    # scikit-learn has no types, and a base class of type Any would switch off all checks here
    class BaseEstimator:
        """What is used of scikit-learn's class of that name."""

        get_params: Callable[..., dict[str, Any]]
        set_params: Callable[..., Any]
else:
    from sklearn.base import BaseEstimator

SHOWN = 20  # classes in the HTML representation
NO_NODES = "nodes is empty: accuracy needs at least one labelled node"


class Learner(Shared, GraphCache, BaseEstimator, ABC):
    """Base class of all learners: a graph's classes are learned session by session.

    A learner is a scikit-learn estimator: `get_params`, `set_params`, ``sklearn.base.clone``,
    ``sklearn.utils.validation.check_is_fitted`` and the short ``repr`` all work. Its constructor
    only stores its parameters, under their own names; learned attributes end in ``_``. `fit` starts
    anew, `partial_fit` goes on. A call that raises leaves the learner as it was.

    Threads may share a learner. A call that answers (`predict`, `save`, …) reads what was learned
    once, when it starts, and never waits; calls that change a learner take turns.

    A subclass writes `_learn`, `_scores`, `_state` and `_restore`, and keeps all that it has
    learned in one attribute, `_learned`, which it replaces in a single assignment.
    """

    # whether `fit` and `partial_fit` take validation nodes as a further argument
    uses_validation: ClassVar[bool] = False

    # time spent on choosing or condensing nodes, per session since `fit` or `load`, where any is
    selection_seconds_: tuple[float, ...] = ()

    # for a learner of the user's own that has no such parameters
    seed: int = 0
    device: str = "auto"

    # of a class's own parameters: the lowest value, or the lowest and an upper bound that is not
    # reached; a parameter whose default is an int takes whole numbers
    _limits: ClassVar[Mapping[str, float | tuple[float, float]]] = {}

    @abstractmethod
    def _learn(self, graph: Data, nodes: Tensor, labels: Array, learned: Any) -> Any:
        """The state after one more session; `learned`, None before the first, is not changed."""

    @abstractmethod
    def _scores(self, graph: Data, nodes: Tensor) -> Tensor:
        """Scores [n, C] of checked nodes over `classes_`."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state as tensors, ``encoder.…`` if frozen after the base session, and JSON values."""

    @abstractmethod
    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Any:
        """The value of `_learned` that `_state` described."""

    @property
    @abstractmethod
    def classes_(self) -> Array:
        """The classes seen so far, sorted; ints or strings, as they were given."""

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""

    def fit(self, graph: Data, nodes: Nodes, labels: Labels | None = None) -> Self:
        """Forget everything and learn a first session.

        Parameters
        ----------
        graph : Data or GraphStore
            `x` [N, d], dense or sparse (CSR or COO; methods that train a network take a dense copy
            of it), `edge_index` [2, E], and, if edges have weights, `edge_weight` [E] (of which
            GraphSAGE makes no use); or, in the place of these two, the `adj_t` of PyG's
            ``ToSparseTensor``. A graph on disk (`algnn.open_graph`) stays there with `ALGNN`.
            Labels are not looked at, and `edge_attr` is refused. Of a directed edge, the target
            gathers from the source, and degrees count incoming edges; an undirected graph has each
            edge in both directions. A change of a graph that torch cannot see (through ``.data``,
            or a NumPy array that shares the memory) is missed: pass a new tensor then.
        nodes : Tensor, array or list [n]
            Ids of the session's nodes, or a mask [N].
        labels : Tensor, array or list [n]
            The class of each of these nodes: ints or strings. Whole floats and bools count as ints.
            A node without a label (-1, None or NaN) is refused: leave it out.
        """
        return self._session(graph, nodes, labels, anew=True)

    def partial_fit(self, graph: Data, nodes: Nodes, labels: Labels | None = None) -> Self:
        """Learn one more session, of new classes, known ones or both; the first is the base.

        Parameters
        ----------
        graph, nodes, labels
            As for `fit`.
        """
        return self._session(graph, nodes, labels, anew=False)

    def decision_function(self, graph: Data, nodes: Nodes | None = None) -> Array:
        """Scores of the classes.

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
        return self._view()._checked_scores(graph, nodes).cpu().numpy()

    def predict(self, graph: Data, nodes: Nodes | None = None) -> Array:
        """Predicted classes, out of those seen so far.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`.

        Returns
        -------
        array [n]
            Labels as they were given: ints or strings.
        """
        view = self._view()
        best = view._checked_scores(graph, nodes).argmax(dim=1)
        return cast(Array, view.classes_[best.cpu().numpy()])

    def predict_proba(self, graph: Data, nodes: Nodes | None = None) -> npt.NDArray[np.float64]:
        """Probabilities of the classes seen so far; the most probable one is that of `predict`.

        A softmax of the scores. That of `ALGNN` is calibrated, from the sums and the graph's nodes
        and without a validation set: among nodes like those that were learned, predictions with
        confidence 0.8 are right in about 8 cases of 10. That holds over all predictions: with the
        balanced head, one of a rare class is right less often than its confidence says, one of a
        frequent class more often.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`.

        Returns
        -------
        array [n, C]
            A column per entry of `classes_`; rows sum to 1, also where a node's class was never
            seen (`novelty` tells such nodes).

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, graph.train_mask, graph.y[graph.train_mask])
        >>> confidence = model.predict_proba(graph, graph.test_mask).max(axis=1)
        >>> right = model.predict(graph, graph.test_mask) == graph.y[graph.test_mask].numpy()
        >>> bool(abs(confidence.mean() - right.mean()) < 0.02)
        True
        """
        view = self._view()
        scores = view._checked_scores(graph, nodes).to(torch.float64)
        with full_precision():
            return view._probabilities(graph, scores).cpu().numpy()

    def novelty(self, graph: Data, nodes: Nodes | None = None) -> npt.NDArray[np.float64]:
        """Out-of-distribution scores: high for nodes that resemble no class seen so far.

        `ALGNN` compares a node with the seen classes, as the sums describe them, and with the graph
        at large (see `algnn.analytic.uncertainty.novelty`). The graph is looked at without labels,
        so a class without labels is recognised the better the more of its nodes are in the graph.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`.

        Returns
        -------
        array [n]
            From 0 to 1. For `ALGNN`, above 0.5 where a node is more likely under the distribution
            of the whole graph than under any seen class. For other learners, 1 − the largest
            probability, which is only meant for ranking nodes.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> seen = graph.train_mask & (graph.y < 9)
        >>> model = algnn.ALGNN(width=256).fit(graph, seen, graph.y[seen])
        >>> novelty = model.novelty(graph)
        >>> bool(novelty[graph.y == 9].mean() > 0.5 > novelty[graph.y < 9].mean())
        True
        """
        view = self._view()
        graph, chosen = view._asked(graph, nodes)
        with full_precision():
            return view._novelty(graph, chosen).cpu().numpy()

    def score(self, graph: Data, nodes: Nodes | None, labels: Labels) -> float:
        """Accuracy of `predict`; a node of a class that was never seen counts as an error.

        Parameters
        ----------
        graph, nodes
            As for `decision_function`; at least one node.
        labels : Tensor, array or list [n]
            The true classes.
        """
        view = self._view()
        predicted = view.predict(graph, nodes)
        if not predicted.size:
            raise InputError(NO_NODES)
        known = checks.check_labels(labels, predicted.size, view.classes_)
        return float((predicted == known).mean())

    def evaluate(self, graph: Data, nodes: Nodes | None, labels: Labels) -> pd.DataFrame:
        """Accuracy and confidence class by class.

        Parameters
        ----------
        graph, nodes, labels
            As for `score`.

        Returns
        -------
        DataFrame
            A row for each class of `labels`, in the order of learning: ``n`` nodes, ``accuracy``,
            mean ``confidence``, ``mistaken_for`` (the most frequent wrong answer) and ``session``
            (the call, from 0, that brought the class); missing where there is none or it is not
            known. ``attrs`` has the totals ``n``, ``accuracy``, ``macro`` and ``confidence``.

        Examples
        --------
        >>> import algnn
        >>> graph = algnn.load("digits")
        >>> model = algnn.ALGNN(width=256).fit(graph, range(200), graph.y[:200])
        >>> table = model.evaluate(graph, graph.test_mask, graph.y[graph.test_mask])
        >>> list(table.columns), table.attrs["n"], len(table)
        (['n', 'accuracy', 'confidence', 'mistaken_for', 'session'], 898, 10)
        """
        view = self._view()
        sure = view.predict_proba(graph, nodes)
        if not len(sure):
            raise InputError(NO_NODES)
        true = checks.check_labels(labels, len(sure), view.classes_)
        found = pd.DataFrame({"label": true, "answer": view.classes_[sure.argmax(axis=1)]})
        found["right"], found["sure"] = found.answer == found.label, sure.max(axis=1)
        groups, sessions = found.groupby("label"), view._sessions()
        wrong = found[~found.right].groupby("label").answer.agg(lambda given: given.mode().iloc[0])
        columns = {
            "n": groups.size(),
            "accuracy": groups.right.mean(),
            "confidence": groups.sure.mean(),
            "mistaken_for": wrong.astype(object).reindex(list(groups.groups)),
            "session": pd.array([sessions.get(name) for name in groups.groups], dtype="Int64"),
        }
        table = pd.DataFrame(columns).rename_axis("class").sort_values("session", kind="stable")
        means = {"accuracy": found.right, "macro": table.accuracy, "confidence": found.sure}
        table.attrs = {"n": len(found), **{name: float(of.mean()) for name, of in means.items()}}
        return table

    def retained_bytes(self) -> int:
        """Bytes to keep between sessions: what `save` writes, without header and frozen encoder."""
        view = self._view()
        if view._learned is None:
            return 0
        tensors, _ = view._state()
        return sum(t.nbytes for name, t in tensors.items() if not name.startswith("encoder."))

    def save(self, path: Path) -> None:
        """Write the learner to one file: whole, or not at all.

        Parameters
        ----------
        path : str or path
            A ``.safetensors`` file; one that exists is replaced in a single step, by one writer at
            a time, and keeps its mode. To change a file that others change too, use
            `algnn.open_model`.
        """
        checkpoint.check_path(path)
        self._settle()
        view = self._view()
        view._check_fitted()
        tensors, facts = view._state()
        params = view.get_params(deep=False)
        if str(view.device).startswith("cuda"):
            view.device = "cpu"  # a GPU may be absent here, and `load` can do without
        view._check_params()  # with a wrong one, the file could not be loaded again
        facts = {"params": params, "classes": view.classes_.tolist(), **facts}
        with locked(path):
            checkpoint.write(path, type(self).__name__, tensors, facts)

    @classmethod
    def load(cls, path: Path, device: str | None = None, *, verify: bool = True) -> Self:
        """Read a learner that `save` wrote; it answers bit for bit as the one that was saved.

        Parameters
        ----------
        path : str or path
        device : str, optional
            Where it shall run from now on; by default as it was saved, or on the CPU where that
            device is absent.
        verify : bool
            Whether to compare the content with the SHA-256 that `save` wrote into the file, which
            takes about a second for each gigabyte; with False a flipped bit is not detected.
        """
        tensors, facts = checkpoint.read(path, cls.__name__, verify=verify)
        try:
            asked = {} if device is None else {"device": device}
            learner = cls(**{**facts.pop("params"), **asked})
            try:
                checks.resolve_device(learner.device)
            except DeviceError:
                if device is not None or not str(learner.device).startswith("cuda"):
                    raise
                learner.device = "cpu"
            learner._check_params()
            learner._replace(learner._restore(tensors, facts))
        except DeviceError:
            raise
        except MemoryError as error:
            raise CheckpointError(f"{path} asks for more memory than there is") from error
        except checkpoint.MISFITS as error:  # AlgnnError is one of them
            kind = "whole" if isinstance(error, AlgnnError) else cls.__name__
            why = checkpoint.in_short(error)
            raise CheckpointError(f"{path} is not a {kind} checkpoint: {why}") from error
        return learner

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor by name: all or, where one is unknown, none."""
        known = self.get_params()
        unknown = [name for name in params if name not in known]
        if unknown:
            words = f"use one of {', '.join(known)}"
            raise InputError(f"{unknown[0]!r} is no parameter of {type(self).__name__}: {words}")
        with self._lock:
            super().set_params(**params)
        return self

    def __dir__(self) -> Iterable[str]:
        # not scikit-learn's, which computes every property to see whether it is there
        return object.__dir__(self)

    def __sklearn_is_fitted__(self) -> bool:
        return self._learned is not None

    def _repr_html_(self) -> str:
        view = self._view()
        try:
            rows = view._described() if view._learned is not None else {"": "not fitted yet"}
        except InputError as error:  # a parameter was changed after `fit`
            rows = {"": str(error)}
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table><caption>{html.escape(repr(self))}</caption>{cells}</table>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        # notebooks ask this first, and scikit-learn's would show a diagram of the parameters
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _described(self) -> dict[str, str]:
        """Rows of the HTML representation of a fitted learner."""
        names = shortened(map(str, self.classes_.tolist()))
        kept = f"{self.retained_bytes():,} bytes"
        return {"classes": f"{len(self.classes_)}: {names}", "kept": kept}

    def _check_params(self) -> None:
        """Raise `InputError` for a parameter that cannot be used."""
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, np.generic):  # as the number that it stands for
                setattr(self, name, value := value.item())
            if isinstance(getattr(type(self), name, None), bool) and not isinstance(value, bool):
                raise InputError(f"{name}={value!r} must be True or False")
        checks.check_number("seed", self.seed, 0, 2**63, whole=True)
        checks.resolve_device(self.device)
        for kind in type(self).__mro__:
            for name, limit in vars(kind).get("_limits", {}).items():
                low, high = limit if isinstance(limit, tuple) else (limit, math.inf)
                whole = isinstance(getattr(type(self), name, None), int)
                checks.check_number(name, getattr(self, name), low, high, whole=whole)

    @changes
    def _session(
        self, graph: Data, nodes: Nodes, labels: Labels | None, *, anew: bool, repeat: str = "count"
    ) -> Self:
        """Check everything, then learn, then replace the state in one assignment."""
        self._check_params()
        first = anew or self._learned is None
        if not first:
            self._check_fitted()
        graph = self._check_graph(graph, width=None if first else self.n_features_in_)
        if labels is None:
            raise InputError("labels are missing: a session is a graph, nodes and their labels")
        chosen = checks.check_nodes(nodes, node_count(graph), session=True)
        known = checks.check_labels(labels, chosen.numel(), None if first else self.classes_)
        if not first:
            new = self._new(chosen, known, repeat)
            if not new.any():
                return self
            chosen, known = chosen[torch.from_numpy(new)], known[new]
        with undisturbed():
            self._replace(self._learn(graph, chosen, known, None if first else self._learned))
        return self

    def _new(self, nodes: Tensor, labels: Array, repeat: str) -> npt.NDArray[np.bool_]:
        """Which of some labelled nodes to learn: all, where a learner cannot tell."""
        return np.ones(labels.size, dtype=bool)

    def _asked(self, graph: Data, nodes: Nodes | None) -> tuple[Data, Tensor]:
        """The graph and the nodes of a question, checked."""
        self._check_fitted()
        graph = self._check_graph(graph, self.n_features_in_)
        return graph, checks.check_nodes(nodes, node_count(graph))

    def _checked_scores(self, graph: Data, nodes: Nodes | None) -> Tensor:
        graph, chosen = self._asked(graph, nodes)
        with full_precision():
            scores = self._scores(graph, chosen)
        wanted = (chosen.numel(), len(self.classes_))
        # a learner may be a user's own
        if not isinstance(scores, Tensor) or scores.shape != wanted:
            found = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise AlgnnError(
                f"{type(self).__name__}._scores gave {found} for {wanted[0]} nodes and"
                f" {wanted[1]} classes: it must give a Tensor {list(wanted)}"
            )
        if bool(scores.isnan().any()):
            raise AlgnnError(f"{type(self).__name__}._scores gave NaN: scores must be numbers")
        return scores

    def _settle(self) -> None:
        """Before a file is written: answer to the last bit as what is loaded from it will."""

    def _probabilities(self, graph: Data, scores: Tensor) -> Tensor:
        """Probabilities [n, C] from scores of some of its nodes."""
        return torch.softmax(scores, dim=1)

    def _sessions(self) -> dict[Any, int]:
        """For each class the call that brought it, if known."""
        return {}

    def _novelty(self, graph: Data, nodes: Tensor) -> Tensor:
        """Novelty [n] of checked nodes."""
        scores = self._scores(graph, nodes).to(torch.float64)
        return 1 - self._probabilities(graph, scores).amax(dim=1)

    def _check_fitted(self) -> None:
        if self._learned is None:
            raise NotFittedError(
                f"this {type(self).__name__} has learned nothing yet: call fit or partial_fit first"
            )
        self._check_fixed()


def shortened(items: Iterable[str]) -> str:
    """Items with commas between them; of many, the first ones and how many more there are."""
    every = list(items)
    more = f", … {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return (", ".join(every[:SHOWN]) or "none") + more
