import copy
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import algnn
from algnn.analytic.linalg.cholesky import factorise
from algnn.analytic.linalg.recursion import Inverse
from algnn.analytic.statistics import Statistics
from algnn.analytic.tape import COLUMNS, ROWS, Tape

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def identity(rows):
    """Features that are there already."""
    return rows


def known(Z, labels, gamma):
    """Sums, R as a matrix and W of some nodes."""
    sums = Statistics.empty(Z.size(1), Z.device).plus([Z], labels)
    R = Inverse.of(factorise(sums.G.clone(), gamma), whole=True)
    return sums, R, R.times(sums.Q)


def joint(Z, labels, gamma):
    """G, Q and W of all nodes at once."""
    sums = Statistics.empty(Z.size(1), Z.device).plus([Z], labels)
    matrix = sums.G.clone()
    matrix.diagonal().add_(gamma)
    return sums.G, sums.Q, torch.linalg.solve(matrix, sums.Q)


def assert_close(found, expected, rtol=1e-9):
    assert float((found - expected).abs().max()) <= rtol * float(expected.abs().max())


@pytest.mark.parametrize("device", DEVICES)
@given(
    st.lists(st.integers(1, 2 * ROWS + 9), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.sampled_from([1e-3, 1.0]),
)
@settings(max_examples=10, deadline=None)
def test_sessions_by_a_tape_equal_all_at_once(device, counts, seed, gamma):
    chance = torch.Generator().manual_seed(seed)
    ends = np.cumsum([40, *counts])
    Z = torch.randn(ends[-1], 24, generator=chance, dtype=torch.float64).relu_().to(device)
    # the first session has two classes, each later one a class of its own
    labels = np.repeat(np.arange(len(ends)) + 1, np.diff([0, *ends]))
    labels[:20] = 0
    tape = Tape(identity)
    tape.take(*known(Z[:40], labels[:40], gamma), gamma)
    for start, end in itertools.pairwise(ends):
        tape.learn(Z, torch.arange(start, end), labels[start:end])
        assert tape.is_settled()
    G, Q, R, W = tape.copies(len(ends) + 1)
    for found, expected in zip((G, Q, W), joint(Z, labels, gamma), strict=True):
        assert_close(found, expected)
    assert_close(R @ Q, W, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_classes_beyond_the_spare_columns_find_room(device):
    count = COLUMNS + 3
    Z = torch.randn(count, 8, dtype=torch.float64, device=device)
    labels = np.arange(count)
    sums, R, W = known(Z[: COLUMNS - 1], labels[: COLUMNS - 1], 0.1)
    tape = Tape(identity)
    tape.take(sums, R, W, 0.1)
    tape.keep(sums, R)
    assert tape.holds(sums, R, COLUMNS)
    assert not tape.holds(sums, R, COLUMNS + 1)
    wider = sums._on(labels)
    tape.take(wider, R, torch.nn.functional.pad(W, (0, 4)), 0.1)
    tape.learn(Z, torch.arange(COLUMNS - 1, count), labels[COLUMNS - 1 :])
    assert tape.is_settled()
    for found, expected in zip(tape.copies(count)[:2], joint(Z, labels, 0.1), strict=False):
        assert_close(found, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_what_it_gave_out_does_not_change(device):
    Z = torch.randn(60, 8, dtype=torch.float64, device=device)
    labels = np.arange(60) % 3
    sums, R, W = known(Z[:20], labels[:20], 0.1)
    tape = Tape(identity)
    tape.take(sums, R, W, 0.1)
    tape.learn(Z, torch.arange(20, 40), labels[20:40])
    first = tape.copies(3)
    before = [tensor.clone() for tensor in first]
    for _ in range(3):
        tape.learn(Z, torch.arange(40, 60), labels[40:])
    assert tape.is_settled()
    assert all(torch.equal(*pair) for pair in zip(first, before, strict=True))
    assert not torch.equal(tape.copies(3)[0], before[0])


def test_it_holds_what_it_was_told_to_keep_and_nothing_else():
    Z, labels = torch.randn(20, 8, dtype=torch.float64), np.arange(20) % 2
    sums, R, W = known(Z, labels, 0.1)
    tape = Tape(identity)
    assert not tape.holds(sums, R, 2)
    tape.take(sums, R, W, 0.1)
    assert not tape.holds(sums, R, 2)
    tape.keep(sums, R)
    assert tape.holds(sums, R, 2)
    assert not tape.holds(replace(sums), R, 2)
    assert not tape.holds(sums, replace(R), 2)
    # while nodes come in, the buffers are nobody's
    tape.learn(Z, torch.arange(4), labels[:4])
    assert not tape.holds(sums, R, 2)


@pytest.mark.parametrize("device", DEVICES)
def test_an_r_that_is_far_off_does_not_settle(device):
    Z, labels = torch.randn(40, 8, dtype=torch.float64, device=device), np.arange(40) % 2
    sums, R, W = known(Z, labels, 0.1)
    tape = Tape(identity)
    tape.take(sums, replace(R, root=1.5 * R.root), W, 0.1)
    tape.learn(Z, torch.arange(9), labels[:9])
    assert not tape.is_settled()
    tape.take(sums, replace(R, root=R.root * torch.nan), W, 0.1)
    tape.learn(Z, torch.arange(9), labels[:9])
    assert not tape.is_settled()


def test_nodes_of_other_sessions_do_no_harm():
    Z, labels = torch.randn(60, 8, dtype=torch.float64), np.arange(60) % 3
    tape = Tape(identity)
    tape.take(*known(Z[20:40], labels[20:40], 0.1), 0.1)
    all_but_these = torch.full_like(Z, torch.inf)
    all_but_these[40:] = Z[40:]
    tape.learn(all_but_these, torch.arange(40, 60), labels[40:])
    assert tape.is_settled()
    assert_close(tape.copies(3)[3], joint(Z[20:], labels[20:], 0.1)[2])


def test_what_it_gives_out_keeps_nothing_large_alive():
    Z, labels = torch.randn(20, 64, dtype=torch.float64), np.arange(20) % 2
    tape = Tape(identity)
    tape.take(*known(Z, labels, 0.1), 0.1)
    tape.learn(Z, torch.arange(4), labels[:4])
    G, Q, R, W = tape.copies(2)
    assert all(tensor.is_contiguous() for tensor in (G, Q, R, W))
    for large in (G, R):
        assert large.untyped_storage().nbytes() == large.nbytes
    for small in (Q, W):
        assert small.untyped_storage().nbytes() == 2 * small.nbytes


@pytest.mark.parametrize("device", DEVICES)
def test_features_that_cannot_be_recorded_go_call_by_call(device):
    def waits(rows):
        assert bool(rows.isfinite().all())  # a look at the device
        return rows

    Z, labels = torch.randn(60, 8, dtype=torch.float64, device=device), np.arange(60) % 3
    tape = Tape(waits)
    tape.take(*known(Z[:20], labels[:20], 0.1), 0.1)
    for start in (20, 40):
        tape.learn(Z, torch.arange(start, start + 20), labels[start : start + 20])
        assert tape.is_settled()
    assert_close(tape.copies(3)[3], joint(Z, labels, 0.1)[2])
    # and others still can
    another = Tape(identity)
    another.take(*known(Z[:20], labels[:20], 0.1), 0.1)
    another.learn(Z, torch.arange(20, 60), labels[20:])
    assert_close(another.copies(3)[3], joint(Z, labels, 0.1)[2])


def test_copies_start_anew():
    Z, labels = torch.randn(20, 8, dtype=torch.float64), np.arange(20) % 2
    sums, R, W = known(Z, labels, 0.1)
    tape = Tape(identity)
    tape.take(sums, R, W, 0.1)
    tape.keep(sums, R)
    for other in (copy.deepcopy(tape), pickle.loads(pickle.dumps(tape))):
        assert other.features is identity
        assert not other.holds(sums, R, 2)
        other.take(sums, R, W, 0.1)


# -- within a learner ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph():
    return algnn.load("digits")


def learner(device, **changes):
    given = {"encoder": "gcn", "head": "ridge", "gamma": 0.1, "width": 256, "hidden": 32}
    return algnn.ALGNN(**given, epochs=3, device=device, **changes)


def blank_of(model):
    """One that has learned nothing, and sees a graph as this one does, to the last bit."""
    other = copy.copy(model)
    other._learned, other._tape = model.blank()._learned, None
    return other


def with_whole_r(model):
    """As on a GPU: R is a matrix, so that few nodes come by a tape."""
    known = model._learned
    factor = factorise(known.statistics.G.clone(), known.gamma)
    model._learned = replace(known, R=Inverse.of(factor, whole=True))
    return model


def sessions(graph, order):
    """Nodes of each class, 30 each, by the order of classes: three, then one at a time."""
    of = [(graph.y == label).nonzero().squeeze(1)[:30] for label in order]
    return [torch.cat(of[:3]), *of[3:]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [range(8), [3, 7, 4, 0, 9, 5, 1]])
def test_a_learner_knows_what_one_that_factorises_knows(graph, device, order):
    first, *later = sessions(graph, order)
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    blank = blank_of(model)
    for nodes in later:
        assert model._learned.can_replay
        model.partial_fit(graph, nodes, graph.y[nodes])
    every = torch.cat([first, *later])
    joint = blank.partial_fit(graph, every, graph.y[every])
    assert model.classes_.tolist() == sorted(order)
    assert model.statistics_.n.tolist() == joint.statistics_.n.tolist()
    assert_close(model.weights_, joint.weights_)
    assert_close(model.statistics_.G, joint.statistics_.G)
    assert model._learned.record.ordered.tolist() == joint._learned.record.ordered.tolist()
    assert [event.count for event in model.events_] == [90.0] + [30.0] * len(later)
    # on a GPU, not call by call
    assert (model._tape._buffers._graph is not None) == (device == "cuda")


@pytest.mark.parametrize("device", DEVICES)
def test_nodes_of_known_classes_and_of_new_ones_together(graph, device):
    first, *later = sessions(graph, [2, 5, 7, 1, 9])
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    blank = blank_of(model)
    both = torch.cat([later[0], later[1]])[torch.randperm(60)]
    again = (graph.y == 5).nonzero().squeeze(1)[30:70]
    model.partial_fit(graph, both, graph.y[both]).partial_fit(graph, again, graph.y[again])
    every = torch.cat([first, both, again])
    assert_close(model.weights_, blank.partial_fit(graph, every, graph.y[every]).weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_forgetting_between_sessions_leaves_the_tape_behind(graph, device):
    first, *later = sessions(graph, range(6))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    blank = blank_of(model)
    for nodes in later:
        model.partial_fit(graph, nodes, graph.y[nodes])
        gone = nodes[:10]
        assert model._tape is not None
        assert model.forget(graph, gone, graph.y[gone])._tape is None
    left = torch.cat([first, *(nodes[10:] for nodes in later)])
    assert_close(model.weights_, blank.partial_fit(graph, left, graph.y[left]).weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_and_its_original_go_their_own_ways(graph, device):
    first, second, third = sessions(graph, range(5))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    model.partial_fit(graph, second, graph.y[second])
    other, blank = copy.deepcopy(model), blank_of(model)
    kept = model.weights_.clone()
    other.partial_fit(graph, third, graph.y[third])
    assert torch.equal(model.weights_, kept)
    every = torch.cat([first, second, third])
    model.partial_fit(graph, third, graph.y[third])
    joint = blank.partial_fit(graph, every, graph.y[every])
    assert_close(model.weights_, joint.weights_)
    assert_close(other.weights_, joint.weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_learned_can_be_taken_back_and_learned_again(graph, device):
    first, second, third = sessions(graph, range(5))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    before, every = model._learned, torch.cat([first, second, third])
    joint = blank_of(model).partial_fit(graph, every, graph.y[every])
    for _ in range(2):
        # the second time, what the tape holds is not what this learner knows
        model._learned = before
        for nodes in (second, third):
            model.partial_fit(graph, nodes, graph.y[nodes])
        assert_close(model.weights_, joint.weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_a_learner_saved_after_a_tape_is_the_same(graph, device, tmp_path):
    first, second, _ = sessions(graph, range(5))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    model.partial_fit(graph, second, graph.y[second])
    model.save(tmp_path / "one.safetensors")
    again = algnn.ALGNN.load(tmp_path / "one.safetensors")
    assert torch.equal(again.statistics_.G, model.statistics_.G)
    assert torch.equal(again.statistics_.Q, model.statistics_.Q)
    assert_close(again.weights_, model.weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_a_tape_that_does_not_settle_is_no_loss(graph, device):
    first, second, third = sessions(graph, range(5))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    blank, R = blank_of(model), model._learned.R
    model._learned = replace(model._learned, R=replace(R, root=1.5 * R.root))
    model.partial_fit(graph, second, graph.y[second])
    model.partial_fit(graph, third, graph.y[third])
    every = torch.cat([first, second, third])
    assert_close(model.weights_, blank.partial_fit(graph, every, graph.y[every]).weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_fitting_anew_starts_with_another_tape(graph, device):
    first, second, third = sessions(graph, range(5))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    model.partial_fit(graph, second, graph.y[second])
    tape = model._tape
    assert tape is not None
    model.fit(graph, first, graph.y[first])
    assert model._tape is None
    with_whole_r(model).partial_fit(graph, third, graph.y[third])
    assert model._tape is not tape


@pytest.mark.parametrize("device", DEVICES)
def test_learners_in_threads_do_not_disturb_each_other(graph, device):
    def live(seed):
        first, *later = sessions(graph, range(8))
        model = with_whole_r(learner(device, seed=seed).fit(graph, first, graph.y[first]))
        blank = blank_of(model)
        for nodes in later:
            model.partial_fit(graph, nodes, graph.y[nodes])
            model.predict(graph)
        every = torch.cat([first, *later])
        return model.weights_, blank.partial_fit(graph, every, graph.y[every]).weights_

    with ThreadPoolExecutor(4) as pool:
        for found, expected in pool.map(live, range(8)):
            assert_close(found, expected)


def test_one_learner_in_threads_loses_no_consistency(graph):
    first, *later = sessions(graph, range(8))
    model = with_whole_r(learner("cpu").fit(graph, first, graph.y[first]))
    before, blank = model._learned, blank_of(model)

    def add(nodes):
        # each from the same start, all by one tape
        own = copy.copy(model)
        own._learned = before
        own.partial_fit(graph, nodes, graph.y[nodes])
        return nodes, own.weights_

    model.partial_fit(graph, later[0], graph.y[later[0]])
    with ThreadPoolExecutor(4) as pool:
        for nodes, found in pool.map(add, later * 3):
            every = torch.cat([first, nodes])
            joint = copy.copy(blank).partial_fit(graph, every, graph.y[every])
            assert_close(found, joint.weights_)


def test_an_interrupted_session_changes_nothing(graph, monkeypatch):
    first, second, third = sessions(graph, range(5))
    model = with_whole_r(learner("cpu").fit(graph, first, graph.y[first]))
    model.partial_fit(graph, second, graph.y[second])
    weights, every = model.weights_.clone(), torch.cat([first, second, third])
    joint = blank_of(model).partial_fit(graph, every, graph.y[every])

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    # with the nodes in the tape already
    for name in ("copies", "is_settled", "keep"):
        with monkeypatch.context() as patch:
            patch.setattr(Tape, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.partial_fit(graph, third, graph.y[third])
        assert model.classes_.tolist() == [0, 1, 2, 3]
        assert torch.equal(model.weights_, weights)
    assert_close(model.partial_fit(graph, third, graph.y[third]).weights_, joint.weights_)


def test_without_memory_for_buffers_it_goes_without(graph, monkeypatch):
    first, second, third = sessions(graph, range(5))
    model = with_whole_r(learner("cpu").fit(graph, first, graph.y[first]))
    every = torch.cat([first, second, third])
    joint = blank_of(model).partial_fit(graph, every, graph.y[every])

    def full(*_, **__):
        raise torch.OutOfMemoryError

    for nodes, name in ((second, "take"), (third, "copies")):
        with monkeypatch.context() as patch:
            patch.setattr(Tape, name, full)
            model.partial_fit(graph, nodes, graph.y[nodes])
        assert model._tape is None
    assert_close(model.weights_, joint.weights_)
    assert model._learned.record.ordered.tolist() == joint._learned.record.ordered.tolist()


@pytest.mark.skipif(len(DEVICES) == 1, reason="needs a GPU")
def test_a_thread_or_a_file_that_comes_cold_can_still_record(graph, tmp_path):
    first, second, _ = sessions(graph, range(5))
    model = learner("cuda").fit(graph, first, graph.y[first])
    model.save(tmp_path / "one.safetensors")
    loaded = with_whole_r(algnn.ALGNN.load(tmp_path / "one.safetensors"))
    for one in (with_whole_r(model), loaded):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(one.partial_fit, graph, second, graph.y[second]).result()
        assert one._tape._buffers._graph is not None
        every = torch.cat([first, second])
        joint = blank_of(one).partial_fit(graph, every, graph.y[every])
        assert_close(one.weights_, joint.weights_)


@pytest.mark.parametrize("device", DEVICES)
def test_a_graph_may_be_another_one_each_time(graph, device):
    first, *later = sessions(graph, range(8))
    model = with_whole_r(learner(device).fit(graph, first, graph.y[first]))
    blank = blank_of(model)
    for place, nodes in enumerate(later):
        seen = copy.copy(graph) if place % 3 else graph
        seen.x = graph.x.clone() if place % 3 else graph.x
        model.partial_fit(seen, nodes, graph.y[nodes])
    every = torch.cat([first, *later])
    joint = blank.partial_fit(graph, every, graph.y[every])
    assert_close(model.weights_, joint.weights_, rtol=1e-6)
