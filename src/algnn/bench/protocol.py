"""The protocol: any learner over any stream, with its accuracy, confidence, time and memory."""

import contextlib
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.bench import metrics
from algnn.bench.metrics import Outcome as Outcome
from algnn.checks import check_choice, check_number
from algnn.errors import InputError
from algnn.graph.propagate import equal
from algnn.graph.stream import ClassStream
from algnn.learner import Learner
from algnn.methods import APART

# about so many test nodes get a novelty score, evenly among them; but so many of each session
ASKED, FEWEST = 8192, 64
INPUTS = ("x", "edge_index", "edge_weight")  # what a learner is handed of a graph


def run(
    learner: Learner,
    stream: ClassStream,
    on_session: Callable[[int], None] | None = None,
    *,
    split: str = "test",
    confidence: bool = True,
) -> Outcome:
    """Teach a learner a stream, and test it after each session on all classes seen so far.

    Parameters
    ----------
    learner : Learner
        Starts anew, whatever it had learned: the base session is its `fit`. One that says so
        (`uses_validation`) is also handed the session's own validation nodes and labels.
    stream : ClassStream
        Every session must have test nodes.
    on_session : callable, optional
        Called with the index of each session once it is learned and tested.
    split : {"test", "val"}
        The nodes it is asked about. ``"val"`` is for choosing settings: validation nodes take the
        place of test nodes in everything below, and no test node is looked at.
    confidence : bool
        Whether to measure calibration and novelty too, which takes longer than all the rest.

    Returns
    -------
    Outcome

    Notes
    -----
    The learner is asked once after each session, about all test nodes of the graph in ascending
    order; only those of classes seen so far are counted. So neither the set of nodes nor their
    order says which class or session a node belongs to (but where the graph grows,
    ``edges="seen"``). A prediction that is not one of the classes seen so far is wrong like any
    other. A learner that writes into the graph it is handed ends the run with an error.

    The clocks stand still while data is prepared and answers are counted, and wait for the GPU's
    queue. Probabilities and novelty scores come from a second learner with the same state, off the
    clocks, so that nothing it caches saves the first one time. Novelty is scored on the graph of
    the next session, for about 8192 test nodes of it and of the sessions before.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> outcome = run(algnn.ALGNN(width=64, hidden=16, epochs=5), stream)
    >>> outcome.matrix.shape, len(outcome.learn_seconds)
    ((2, 2), 2)
    """
    classes = pd.Index([c for part in stream.classes for c in part])
    tests = tests_of(stream, split)
    correct, figures = [], []
    able = confidence and isinstance(learner, Learner)
    measured = _Confidence(learner, stream, tests) if able else None
    copies: dict[str, tuple[Tensor, Tensor]] = {}
    for session in stream:
        # all of them, but where the graph grows
        asked = tests[tests["node"] < session.graph.x.size(0)]
        for name in INPUTS:  # which most streams hand out as they are in every session
            tensor = session.graph.get(name)
            if tensor is not None and (name not in copies or copies[name][0] is not tensor):
                copies[name] = tensor, tensor.clone()
        learn = learner.fit if session.index == 0 else learner.partial_fit
        extra = (stream.nodes("val", session.index),) if learner.uses_validation else ()
        _, learning = _timed(learn, session.graph, session.nodes, session.labels, *extra)
        answers, predicting = _timed(learner.predict, session.graph, _nodes(asked))
        check_number("learner.retained_bytes()", retained := float(learner.retained_bytes()), 0)
        figures.append((learning, predicting, int(retained)))
        given = np.asarray(answers)
        if given.shape != (len(asked),) or given.dtype.kind == "O":  # which may equal anything
            what = f"an array of {given.dtype}, of shape {given.shape}, for {len(asked)} nodes"
            raise InputError(f"learner.predict gave {what}: it must give one class per node")
        named = given.astype(np.float64) if given.dtype.kind in "bf" else given  # pandas is strict
        found = classes.get_indexer(named)
        right = (found == asked["column"]) & (asked["session"] <= session.index)
        correct.append(np.bincount(asked["column"][right], minlength=classes.size))
        if measured is not None:
            measured.measure(learner, session.graph, asked)
        _check_kept(session.graph, copies, learner, session.index)
        if on_session is not None:
            on_session(session.index)
    found[found < 0] = classes.size
    ordered = found[np.lexsort((stream.original_ids(_nodes(asked)).numpy(), asked["column"]))]
    total = np.bincount(tests["column"], minlength=classes.size)
    # a user's own learner need not clock its selection
    selecting = tuple(map(float, getattr(learner, "selection_seconds_", ())))
    clocks: Any = (*zip(*figures, strict=True), selecting)
    more: Any = {"answers": ordered, **(measured.figures() if measured else {})}
    return Outcome(tuple(stream.classes), np.stack(correct), total, *clocks, **more)


def tests_of(stream: ClassStream, split: str) -> pd.DataFrame:
    """Test nodes in ascending order, with their labels, the columns of these and sessions."""
    check_choice("split", split, ("test", "val"))
    parts = [stream.nodes(split, index) for index in range(len(stream))]
    # in trials the base session alone must have any
    for i, (some, _) in enumerate(parts if split == "test" else parts[:1]):
        if len(some) == 0:
            where = f"session {i} (classes {stream.classes[i]})"
            remedy = f"give these classes {split} nodes, or join them to another session"
            raise InputError(f"stream has no {split} node in {where}: {remedy}")
    nodes, labels = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
    sessions = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
    columns = pd.Index([c for part in stream.classes for c in part]).get_indexer(labels)
    found = {"node": nodes, "label": labels, "column": columns, "session": sessions}
    return pd.DataFrame(found).sort_values("node")


def _nodes(tests: pd.DataFrame) -> Tensor:
    return torch.tensor(tests["node"].to_numpy())


class _Confidence:
    """Measures calibration and novelty detection on a second learner with the same state."""

    def __init__(self, learner: Learner, stream: ClassStream, tests: pd.DataFrame) -> None:
        step = -(-len(tests) // ASKED)
        parts = (own for _, own in tests.groupby("session"))
        some = [own[:: max(1, min(step, len(own) // FEWEST))] for own in parts]
        self.stream, self.tests = stream, pd.concat(some).sort_values("node")
        self.bins: list[metrics.Matrix] = []
        self.aurocs: list[float] = []
        self.twin = type(learner)(**learner.get_params())

    def measure(self, learner: Learner, graph: Data, asked: pd.DataFrame) -> None:
        """After a session: calibration on test nodes of seen classes, novelty on the next ones'."""
        # a user's learner may set some as it learns, and those apart need not be parameters
        for name in {*learner.get_params(), *APART}:
            with contextlib.suppress(AttributeError):
                setattr(self.twin, name, getattr(learner, name))
        # all that a learner has learned is in one attribute, and is replaced, never changed
        self.twin._learned = learner._learned
        seen = (asked["session"] <= len(self.bins)).to_numpy()
        columns = pd.Index(learner.classes_).get_indexer(asked["label"][seen])
        found = np.asarray(self.twin.predict_proba(graph, _nodes(asked)))
        self.bins.append(metrics.reliability(found[seen], columns))
        coming = len(self.bins)
        if coming < len(self.stream):
            later = self.stream.graph(coming)
            some = self.tests[self.tests["node"] < later.x.size(0)]
            scores, sessions = np.asarray(self.twin.novelty(later, _nodes(some))), some["session"]
            new, old = scores[sessions == coming], scores[sessions < coming]
            if len(new):  # a trial's session may be without
                self.aurocs.append(metrics.auroc(new, old))

    def figures(self) -> dict[str, Any]:
        """What an outcome has of both."""
        errors = tuple(map(metrics.calibration_error, self.bins))
        found = {"calibration_errors": errors, "novelty_aurocs": tuple(self.aurocs)}
        return {**found, "reliability": self.bins[-1]}


def _check_kept(graph: Data, copies: dict[str, Any], learner: Learner, index: int) -> None:
    """Put back what a learner has changed, and raise an error that names it."""
    for name, (tensor, copy) in copies.items():
        # another tensor in its place may hold the same, as where a graph is moved to a GPU
        if not all(equal(one.to(copy.device), copy) for one in (tensor, graph.get(name, tensor))):
            tensor.copy_(copy)
            what = f"{type(learner).__name__} has written into graph.{name} in session {index}"
            raise InputError(f"{what}: a learner must work on a copy, or it spoils what others get")


def _timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What `work` gives, and its seconds; all that it queues on a GPU is within the clock."""
    finish_queue = (torch.cuda if torch.cuda.is_available() else torch.cpu).synchronize
    finish_queue()
    start = perf_counter()
    result = work(*arguments)
    finish_queue()
    return result, perf_counter() - start
