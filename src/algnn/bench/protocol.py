"""The protocol: any learner over any stream, with its accuracy, confidence, time and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.bench import metrics
from algnn.bench.metrics import Outcome as Outcome
from algnn.errors import InputError
from algnn.graph.stream import ClassStream
from algnn.learner import Learner

# about so many test nodes get a novelty score, evenly among them; but so many of each session
ASKED, FEWEST = 8192, 64


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
    order, those of classes to come included; only those of classes seen so far are counted. So
    neither the set of nodes nor their order says which class or session a node belongs to. (Where
    the graph grows, ``edges="seen"``, its nodes are those of seen classes, and which of them are
    new is no secret.) A prediction that is not one of the classes seen so far is wrong like any
    other. A learner that writes into the graph it is handed ends the run with an error.

    The clocks stand still while data is prepared and answers are counted, and wait for the GPU's
    queue. Probabilities and novelty scores come from a second learner with the same state, off the
    clocks, so that nothing it caches about the graph saves the first one time. Novelty is scored on
    the graph of the next session, in which the nodes of its classes exist, in one call for about
    8192 test nodes of all sessions; those of the next session and of seen ones are compared.

    Examples
    --------
    >>> import algnn
    >>> stream = algnn.ClassStream(algnn.load("digits"), step=5)
    >>> outcome = run(algnn.ALGNN(width=64, hidden=16, epochs=5), stream)
    >>> outcome.matrix.shape, len(outcome.learn_seconds)
    ((2, 2), 2)
    """
    column = {label: i for i, label in enumerate(c for part in stream.classes for c in part)}
    tests = _Tests.of(stream, split, column)
    correct, learning, predicting, retained = [], [], [], []
    asks = confidence and isinstance(learner, Learner)
    measured = _Confidence(stream, tests) if asks else None
    watched = _Watched()
    for session in stream:
        asked = tests.of_graph(session.graph)
        watched.add(session.graph)
        learn = learner.fit if session.index == 0 else learner.partial_fit
        extra = (stream.nodes("val", session.index),) if learner.uses_validation else ()
        _, seconds = _timed(learn, session.graph, session.nodes, session.labels, *extra)
        learning.append(seconds)
        answers, seconds = _timed(learner.predict, session.graph, asked.nodes.clone())
        predicting.append(seconds)
        retained.append(int(learner.retained_bytes()))
        right = _check_answers(answers, asked.labels) == asked.labels
        right &= asked.sessions <= session.index
        correct.append(np.bincount(asked.columns[right], minlength=len(column)))
        if measured is not None:
            measured.measure(learner, session.graph, asked)
        watched.check(learner, session.index)
        if on_session is not None:
            on_session(session.index)
    found = np.array([column.get(one, len(column)) for one in np.asarray(answers).tolist()])
    given = found[np.lexsort((stream.original_ids(asked.nodes).numpy(), asked.columns))]
    total = np.bincount(tests.columns, minlength=len(column))
    # a user's own learner need not clock its selection
    selecting = tuple(getattr(learner, "selection_seconds_", ()))
    clocks = tuple(learning), tuple(predicting), tuple(retained), selecting
    outcome = Outcome(tuple(stream.classes), np.stack(correct), total, *clocks, answers=given)
    return outcome if measured is None else measured.added_to(outcome)


@dataclass(frozen=True)
class _Tests:
    """Test nodes in ascending order, with their labels, columns of these and sessions, [n] each."""

    nodes: Tensor
    labels: metrics.Counts
    columns: metrics.Counts
    sessions: metrics.Counts

    @classmethod
    def of(cls, stream: ClassStream, split: str, column: dict[int, int]) -> _Tests:
        """Those of all sessions."""
        parts = test_nodes(stream, split)
        nodes, labels = (torch.cat(part) for part in zip(*parts, strict=True))
        sessions = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
        columns = np.array([column[label] for label in labels.tolist()])
        found = cls(nodes, labels.numpy(), columns, sessions)
        return found._take(torch.argsort(nodes).numpy())

    def of_graph(self, graph: Data) -> _Tests:
        """Those that exist in a session's graph: all of them, but where it grows."""
        return self._take(np.flatnonzero(self.nodes.numpy() < graph.x.size(0)))

    def sample(self) -> _Tests:
        """About `ASKED` of them, evenly; at least `FEWEST` of each session that has as many."""
        step = -(-len(self.nodes) // ASKED)
        chosen = []
        for session in np.unique(self.sessions):
            own = np.flatnonzero(self.sessions == session)
            chosen.append(own[:: max(1, min(step, len(own) // FEWEST))])
        return self._take(np.sort(np.concatenate(chosen)))

    def _take(self, places: metrics.Counts) -> _Tests:
        parts = (part[places] for part in (self.labels, self.columns, self.sessions))
        return _Tests(self.nodes[places], *parts)


class _Confidence:
    """Measures calibration and novelty detection on a second learner with the same state."""

    def __init__(self, stream: ClassStream, tests: _Tests) -> None:
        self.stream = stream
        self.tests = tests.sample()
        self.bins: list[metrics.Matrix] = []
        self.aurocs: list[float] = []
        self.twin: Learner | None = None

    def measure(self, learner: Learner, graph: Data, asked: _Tests) -> None:
        """After a session: calibration on test nodes of seen classes, novelty on the next ones'."""
        if self.twin is None:
            self.twin = type(learner)(**learner.get_params())
        # all that a learner has learned is in one attribute, and is replaced, never changed
        self.twin._learned = learner._learned
        seen = asked.sessions <= len(self.bins)
        truth = asked.labels[seen]
        classes = np.asarray(learner.classes_)
        columns = np.searchsorted(classes, truth).clip(max=classes.size - 1)
        columns = np.where(classes[columns] == truth, columns, -1)
        found = np.asarray(self.twin.predict_proba(graph, asked.nodes.clone()))
        self.bins.append(metrics.reliability(found[seen], columns))
        coming = len(self.bins)
        if coming < len(self.stream):
            later = self.stream.graph(coming)
            some = self.tests.of_graph(later)
            scores = np.asarray(self.twin.novelty(later, some.nodes.clone()))
            new, old = scores[some.sessions == coming], scores[some.sessions < coming]
            self.aurocs.append(metrics.auroc(new, old))

    def added_to(self, outcome: Outcome) -> Outcome:
        """The outcome with both."""
        return replace(
            outcome,
            calibration_errors=tuple(map(metrics.calibration_error, self.bins)),
            novelty_aurocs=tuple(self.aurocs),
            reliability=self.bins[-1],
        )


class _Watched:
    """Copies of the tensors of graphs, by which a learner that writes into them is noticed."""

    def __init__(self) -> None:
        self.given: dict[str, tuple[Tensor, Tensor]] = {}

    def add(self, graph: Data) -> None:
        """A graph that is about to be handed out."""
        for name in ("x", "edge_index"):
            tensor = graph[name]
            # most streams hand out the same tensors in every session
            if name not in self.given or self.given[name][0] is not tensor:
                self.given[name] = tensor, tensor.clone()

    def check(self, learner: Learner, index: int) -> None:
        """Put back what a learner has changed, and raise an error that names it."""
        for name, (tensor, copy) in self.given.items():
            if not torch.equal(tensor, copy):
                tensor.copy_(copy)
                raise InputError(
                    f"{type(learner).__name__} has written into graph.{name} in session {index}: a"
                    " learner must work on a copy, or it spoils what others are handed"
                )


def test_nodes(stream: ClassStream, split: str) -> list[tuple[Tensor, Tensor]]:
    """The test nodes and their labels, [n] each, of every session; none may be without."""
    if split not in ("test", "val"):
        raise InputError(f"split={split!r} is not asked about: use 'test' or 'val'")
    tests = [stream.nodes(split, index) for index in range(len(stream))]
    empty = [i for i, (nodes, _) in enumerate(tests) if len(nodes) == 0]
    if empty:
        raise InputError(
            f"stream has no {split} node in session {empty[0]} (classes"
            f" {stream.classes[empty[0]]}):"
            f" give these classes {split} nodes, or join them to another session"
        )
    return tests


def _timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What `work` gives, and its seconds; all that it queues on a GPU is within the clock."""
    cuda = torch.cuda.is_available()
    finish_queue: Callable[[], object] = torch.cuda.synchronize if cuda else lambda: None
    finish_queue()
    start = perf_counter()
    result = work(*arguments)
    finish_queue()
    return result, perf_counter() - start


def _check_answers(answers: Any, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    given = np.asarray(answers)
    if given.shape != labels.shape:
        raise InputError(
            f"learner.predict gave an array of shape {given.shape} for {len(labels)} nodes: it"
            " must give one class per node"
        )
    return given
