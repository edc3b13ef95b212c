from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn import ALGNN, ClassStream, methods
from algnn.bench.plan import Plan, _stream
from algnn.bench.protocol import run
from algnn.errors import InputError


class Student:
    """Keeps what it was told and answers by a rule: the smallest thing that can be examined."""

    uses_validation = False

    def __init__(self, rule: Callable[[Tensor, list[int]], Any]) -> None:
        self.rule = rule
        self.seen: list[int] = []
        self.questions: list[list[int]] = []
        self.graphs: list[Data] = []

    def fit(self, graph: Data, nodes: Tensor, labels: Tensor) -> Student:
        self.seen = []
        return self.partial_fit(graph, nodes, labels)

    def partial_fit(self, graph: Data, nodes: Tensor, labels: Tensor) -> Student:
        self.seen += sorted(set(labels.tolist()))
        self.graphs.append(graph)
        return self

    def predict(self, graph: Data, nodes: Tensor) -> Any:
        assert graph is self.graphs[-1]
        self.questions.append(nodes.tolist())
        return self.rule(nodes, self.seen)

    def retained_bytes(self) -> int:
        return 8 * len(self.seen)


def test_one_who_knows_everything(small_graph: Data) -> None:
    stream = ClassStream(small_graph)
    student = Student(lambda nodes, seen: small_graph.y[nodes].numpy())
    outcome = run(student, stream)
    assert outcome.sessions == ((0, 1), (2,), (3,))
    # six test nodes of each class
    assert outcome.total.tolist() == [6, 6, 6, 6]
    assert outcome.correct.tolist() == [[6, 6, 0, 0], [6, 6, 6, 0], [6, 6, 6, 6]]
    assert (outcome.ap, outcome.af, outcome.macro, outcome.micro) == (100, 0, 100, 100)
    assert outcome.retained_bytes == (16, 24, 32)


def test_one_who_knows_only_the_latest_class(small_graph: Data) -> None:
    student = Student(lambda nodes, seen: np.full(len(nodes), seen[-1]))
    outcome = run(student, ClassStream(small_graph))
    nan = np.nan
    np.testing.assert_array_equal(outcome.matrix, [[50, nan, nan], [0, 100, nan], [0, 0, 100]])
    assert outcome.ap == pytest.approx(100 / 3)
    assert outcome.af == pytest.approx((50 + 100) / 2)
    np.testing.assert_allclose(outcome.stagewise, [50, 50, 100 / 3])


def test_a_class_not_seen_yet_is_a_wrong_answer(small_graph: Data) -> None:
    # always the last class of all, which is right only once it has been seen
    outcome = run(Student(lambda nodes, seen: np.full(len(nodes), 3)), ClassStream(small_graph))
    assert outcome.correct.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 6]]


def test_an_answer_counts_as_the_class_it_names(small_graph: Data) -> None:
    class Anything:
        """Equal to whatever it is compared with."""

        def __eq__(self, other: object) -> bool:
            return True

    cheat = Student(lambda nodes, seen: np.array([Anything() for _ in nodes], dtype=object))
    with pytest.raises(InputError, match=r"gave an array of object.* one class per node"):
        run(cheat, ClassStream(small_graph))
    # as floats, or as words, which are no class here
    floats = run(Student(lambda nodes, _: small_graph.y[nodes].double()), ClassStream(small_graph))
    assert floats.ap == 100
    for kind in (torch.float16, torch.uint8):
        short = Student(lambda nodes, _, kind=kind: small_graph.y[nodes].to(kind))
        assert run(short, ClassStream(small_graph)).ap == 100
    bools = run(Student(lambda nodes, _: small_graph.y[nodes] == 1), ClassStream(small_graph))
    assert bools.correct[-1].tolist() == [6, 6, 0, 0]
    words = Student(lambda nodes, seen: np.full(len(nodes), "0"))
    assert run(words, ClassStream(small_graph)).correct.sum() == 0


def test_one_question_per_session_about_all_test_nodes(small_graph: Data) -> None:
    student = Student(lambda nodes, seen: np.zeros(len(nodes), dtype=int))
    run(student, ClassStream(small_graph, order=[3, 1, 0, 2]))
    assert student.questions == [small_graph.test_mask.nonzero().squeeze(1).tolist()] * 3
    assert all(set(graph.keys()) == {"x", "edge_index"} for graph in student.graphs)


def test_neither_order_nor_choice_of_questions_tells_the_session(small_graph: Data) -> None:
    """One that reads classes off the questions themselves does no better than chance."""
    earlier: list[set[int]] = []

    def cheat(nodes: Tensor, seen: list[int]) -> Any:
        asked = nodes.numpy()
        # sessions one after another, or nodes that were not asked about before
        starts = np.flatnonzero(np.diff(asked) < 0) + 1
        part = np.searchsorted(starts, np.arange(len(asked)), side="right")
        for number, known in enumerate(earlier, start=1):
            part = np.maximum(part, number * ~np.isin(asked, list(known)))
        earlier.append(set(asked.tolist()))
        return np.array(seen)[np.where(part > 0, part + 1, 0).clip(max=len(seen) - 1)]

    outcome = run(Student(cheat), ClassStream(small_graph))
    # two classes, then one by one: always the same answer is right for one class
    assert outcome.correct.tolist() == [[6, 0, 0, 0]] * 3
    assert outcome.micro == 25


class Scaling(ALGNN):
    """Scales the features that it is handed, as some code does, where numpy lets it."""

    def _learn(self, graph: Data, *rest: Any) -> Any:
        graph.x.numpy()[...] *= 2
        return super()._learn(graph, *rest)


class Weighing(ALGNN):
    """Changes the weights of edges that it is handed."""

    def _learn(self, graph: Data, *rest: Any) -> Any:
        graph.edge_weight.numpy()[...] *= 2
        return super()._learn(graph, *rest)


def test_writing_into_weights_is_noticed_and_reaches_no_other_run(small_graph: Data) -> None:
    graph = small_graph.clone()
    graph.edge_weight = torch.ones(graph.num_edges)
    with pytest.raises(InputError, match=r"Weighing has written into graph\.edge_weight"):
        run(Weighing(device="cpu"), ClassStream(graph))
    assert bool((graph.edge_weight == 1).all())
    placed = _stream(Plan("digits", "algnn", [42], device="cpu"), graph, 42).graph(0)
    assert torch.equal(placed.edge_weight, graph.edge_weight)
    assert placed.edge_weight is not graph.edge_weight


@pytest.mark.parametrize("edges", ["full", "seen"])
def test_writing_into_the_graph_is_noticed_and_undone(small_graph: Data, edges: str) -> None:
    before = small_graph.x.clone()
    stream = ClassStream(small_graph, edges=edges)
    with pytest.raises(InputError, match=r"Scaling has written into graph\.x in session 0"):
        run(Scaling(device="cpu"), stream)
    assert torch.equal(small_graph.x, before)


class Replacing(ALGNN):
    """Puts other features in the place of those that it is handed."""

    def fit(self, graph: Data, *rest: Any) -> Any:
        graph.x = graph.x * 2
        return super().fit(graph, *rest)


class Converting(ALGNN):
    """Puts the same features in their place, as where a graph is moved to a GPU."""

    def partial_fit(self, graph: Data, *rest: Any) -> Any:
        graph.x = graph.x.clone()
        return super().partial_fit(graph, *rest)


@pytest.mark.parametrize("sparse", [False, True])
def test_other_features_in_their_place_are_noticed(small_graph: Data, sparse: bool) -> None:
    graph = small_graph.clone()
    graph.x = graph.x.to_sparse_csr() if sparse else graph.x
    stream = ClassStream(graph)
    given: dict[str, Any] = {"width": 16, "device": "cpu"}
    assert len(run(Converting(**given), stream).matrix) == len(stream)
    with pytest.raises(InputError, match=r"has written into graph\.x in session 0"):
        run(Replacing(**given), stream)


def test_bytes_below_zero_are_refused(small_graph: Data) -> None:
    class Lending(ALGNN):
        def retained_bytes(self) -> int:
            return -5

    with pytest.raises(InputError, match=r"retained_bytes\(\)=-5.0 must be a number of at least 0"):
        run(Lending(device="cpu", width=16), ClassStream(small_graph))
    student = Student(lambda nodes, seen: np.zeros(len(nodes)))
    student.retained_bytes = lambda: float("nan")  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"retained_bytes\(\)=nan must be a number"):
        run(student, ClassStream(small_graph))


def test_node_ids_where_the_graph_grows(small_graph: Data) -> None:
    stream = ClassStream(small_graph, order=[3, 1, 0, 2], edges="seen")
    student = Student(lambda nodes, seen: small_graph.y[stream.original_ids(nodes)].numpy())
    outcome = run(student, stream)
    assert outcome.sessions == ((3, 1), (0,), (2,))
    assert outcome.ap == 100
    sizes = [graph.x.size(0) for graph in student.graphs]
    assert sizes == [30, 45, 60]
    assert all(max(a) < n for a, n in zip(student.questions, sizes, strict=True))


def test_validation_nodes_of_the_session_for_one_who_asks(small_graph: Data) -> None:
    class Careful(Student):
        uses_validation = True
        given: list[tuple[Tensor, Tensor]]

        def fit(self, graph: Data, nodes: Tensor, labels: Tensor, *validation: Any) -> Student:
            self.given = list(validation)
            return super().fit(graph, nodes, labels)

        def partial_fit(
            self, graph: Data, nodes: Tensor, labels: Tensor, *validation: Any
        ) -> Student:
            self.given += validation
            return super().partial_fit(graph, nodes, labels)

    student = Careful(lambda nodes, seen: np.zeros(len(nodes), dtype=int))
    run(student, ClassStream(small_graph))
    for (nodes, labels), classes in zip(student.given, [{0, 1}, {2}, {3}], strict=True):
        assert set(labels.tolist()) == classes
        assert small_graph.val_mask[nodes].all()
        assert small_graph.y[nodes].tolist() == labels.tolist()


def test_a_session_without_test_nodes_stops_before_anything_starts(small_graph: Data) -> None:
    small_graph.test_mask &= small_graph.y != 2
    student = Student(lambda nodes, seen: small_graph.y[nodes].numpy())
    with pytest.raises(InputError, match=r"no test node in session 1 \(classes \(2,\)\)"):
        run(student, ClassStream(small_graph))
    assert student.graphs == []
    # in a session with others it is no obstacle: two classes, one of them tested
    outcome = run(student, ClassStream(small_graph, step=2))
    assert outcome.total.tolist() == [6, 6, 0, 6]
    assert (outcome.ap, outcome.macro) == (100, 100)


def test_the_learners_own_error_passes_through(small_graph: Data) -> None:
    def fail(nodes: Tensor, seen: list[int]) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(Student(fail), ClassStream(small_graph))


def test_answers_of_the_wrong_shape(small_graph: Data) -> None:
    for rule in (lambda n, s: [0], lambda n, s: 0, lambda n, s: np.zeros((len(n), 2))):
        with pytest.raises(InputError, match="one class per node"):
            run(Student(rule), ClassStream(small_graph))


def test_the_clocks_hold_what_happens_inside(small_graph: Data) -> None:
    class Slow(Student):
        def partial_fit(self, graph: Data, nodes: Tensor, labels: Tensor) -> Student:
            time.sleep(0.02)
            return super().partial_fit(graph, nodes, labels)

    def answer(nodes: Tensor, seen: list[int]) -> Any:
        time.sleep(0.01)
        return np.zeros(len(nodes), dtype=int)

    outcome = run(Slow(answer), ClassStream(small_graph))
    assert len(outcome.learn_seconds) == len(outcome.predict_seconds) == 3
    assert min(outcome.learn_seconds) >= 0.02
    assert min(outcome.predict_seconds) >= 0.01


def test_the_real_learner_starts_anew_each_time(small_graph: Data) -> None:
    stream = ClassStream(small_graph)
    learner = ALGNN.paper("cora", hidden=8, width=32, epochs=5, device="cpu")
    heard: list[int] = []
    first = run(learner, stream, heard.append)
    assert heard == [0, 1, 2]
    assert first.ap > 80
    again = run(learner, stream)
    np.testing.assert_array_equal(first.correct, again.correct)
    assert learner.classes_.tolist() == [0, 1, 2, 3]
    assert first.retained_bytes[-1] == learner.retained_bytes()
    steps = np.diff(first.retained_bytes)
    assert (steps == steps[0]).all()
    assert steps[0] > 0


class Certain(ALGNN):
    """Answers at random, and knows exactly how sure it may be and what it has seen."""

    truth: ClassVar[Tensor]
    asked: ClassVar[list[Certain]]

    def predict_proba(self, graph: Data, nodes: Any = None) -> Any:
        self.asked.append(self)
        assert (nodes.diff() > 0).all()
        classes = len(self.classes_)
        return np.full((len(nodes), classes), 1 / classes)

    def novelty(self, graph: Data, nodes: Any = None) -> Any:
        self.asked.append(self)
        assert (nodes.diff() > 0).all()
        assert int(nodes.max()) < graph.num_nodes
        # whatever is known: all that the graph has
        assert len(nodes) == 24 * graph.num_nodes // 60
        return ~np.isin(self.truth[nodes].numpy(), self.classes_) + 0.0


class Seeded(ALGNN):
    """Its constructor knows no seed, and it says with which one it is asked."""

    asked: ClassVar[set[tuple[int, str, float]]]

    def __init__(self, gamma: float = 0.1) -> None:
        super().__init__(gamma=gamma)

    def _learn(self, *given: Any) -> Any:
        self.gamma = 0.2  # as a user's own learner may
        return super()._learn(*given)

    def predict_proba(self, graph: Data, nodes: Any = None) -> Any:
        self.asked.add((self.seed, self.device, self.gamma))
        return super().predict_proba(graph, nodes)


def test_who_is_asked_for_confidence_has_the_parameters_of_who_learned(small_graph: Data) -> None:
    Seeded.asked = set()
    run(methods.make(Seeded, "digits", seed=7, device="cpu"), ClassStream(small_graph))
    assert Seeded.asked == {(7, "cpu", 0.2)}


@pytest.mark.parametrize("edges", ["full", "seen"])
def test_calibration_and_novelty_by_hand(small_graph: Data, edges: str) -> None:
    stream = ClassStream(small_graph, edges=edges)
    Certain.truth, Certain.asked = small_graph.y[stream.original_ids(torch.arange(60))], []
    learner = Certain(gamma=0.1)
    outcome = run(learner, stream)
    # all are as sure as one can be of the first class, and as right: all classes have six nodes
    assert outcome.calibration_errors == pytest.approx([0, 0, 0])
    assert outcome.novelty_aurocs == (1, 1)
    assert (outcome.ece, outcome.auroc) == (outcome.calibration_errors[-1], 1)
    assert outcome.reliability is not None
    np.testing.assert_allclose(outcome.reliability.sum(0), [24, 6, 6])
    # a twin was asked, so that the learner itself remembers no more of the graph than it would
    assert len(Certain.asked) == 3 + 2
    assert all(one is not learner for one in Certain.asked)
    assert len({id(one) for one in Certain.asked}) == 1


def test_no_more_is_asked_than_is_worth_it(
    small_graph: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ClassStream(small_graph)
    whole = run(ALGNN(), stream)
    monkeypatch.setattr("algnn.bench.protocol.ASKED", 10)
    monkeypatch.setattr("algnn.bench.protocol.FEWEST", 3)
    asked: list[list[int]] = []

    class Asked(ALGNN):
        def novelty(self, graph: Data, nodes: Any = None) -> Any:
            asked.append(nodes.tolist())
            return super().novelty(graph, nodes)

    some = run(Asked(), stream)
    assert asked[0] == asked[1] == sorted(asked[0])
    # every third of twelve, and every second of six, of which three must stay
    assert torch.bincount(small_graph.y[asked[0]]).tolist() == [2, 2, 3, 3]
    assert some.calibration_errors == whole.calibration_errors
    assert all(0.5 < told <= 1 for told in (*whole.novelty_aurocs, *some.novelty_aurocs))


def test_one_session_has_no_next_class(small_graph: Data) -> None:
    outcome = run(ALGNN(), ClassStream(small_graph, base=4))
    assert len(outcome.calibration_errors) == 1
    assert (outcome.novelty_aurocs, outcome.auroc) == ((), None)


def test_bad_probabilities_are_an_error(small_graph: Data) -> None:
    class Careless(ALGNN):
        def predict_proba(self, graph: Data, nodes: Any = None) -> Any:
            return super().predict_proba(graph, nodes) * 2

    with pytest.raises(InputError, match="probabilities must lie between 0 and 1"):
        run(Careless(), ClassStream(small_graph))
