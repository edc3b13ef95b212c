"""One suite that every kind of method passes; a new method is covered by registering it."""

from __future__ import annotations

import copy
import inspect
from functools import cache

import numpy as np
import pytest
import sklearn.base
import sklearn.exceptions
import torch
from safetensors import safe_open
from sklearn.utils.validation import check_is_fitted
from torch_geometric.data import Data

import algnn
from algnn.errors import InputError, NotFittedError
from algnn.graph.propagate import to_csr
from algnn.methods import METHODS, find, make, settings

SMALL = {"hidden": 16, "epochs": 3, "width": 48, "budget": 12, "block": 8, "condense_steps": 5}
SMALL |= {"pretrain": 3}
CLASSES = 6


def kind(method):
    """What a method is, numbers apart: methods that differ by a number alone are tried once."""
    words = (v for v in settings(method, "digits").values() if isinstance(v, str))
    return find(method).learner, *words


DISTINCT = {kind(method): method for method in reversed(METHODS)}
pytestmark = pytest.mark.parametrize("method", list(DISTINCT.values())[::-1])


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """The one length of training that is no parameter."""
    monkeypatch.setattr("algnn.analytic.features.selfsupervised.STEPS", 3)


def small(method, device="cpu", seed=3, **changes):
    """The method with its own settings, but small."""
    known = find(method).defaults
    sizes = {name: value for name, value in SMALL.items() if name in known}
    return make(method, "digits", seed=seed, device=device, **{**sizes, **changes})


def learn_one(model, stream, index):
    session = stream[index]
    extra = (stream.nodes("val", index),) if model.uses_validation else ()
    model.partial_fit(session.graph, session.nodes, session.labels, *extra)


def learn(model, stream, sessions=None):
    for index in range(len(stream) if sessions is None else sessions):
        learn_one(model, stream, index)
    return model


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(classes=CLASSES, per_class=15)


@pytest.fixture(scope="module")
def known(graph):
    """A method that has learned three sessions of the graph, for tests that only ask."""
    return cache(lambda method: learn(small(method), algnn.ClassStream(graph), 3))


def test_learns_a_stream_and_predicts_only_seen_classes(method, graph):
    stream = algnn.ClassStream(graph, edges="seen", step=2)
    model = small(method)
    for index in range(len(stream)):
        learn_one(model, stream, index)
        seen = sorted(c for members in stream.classes[: index + 1] for c in members)
        assert model.classes_.tolist() == seen
        here = stream.graph(index)
        scores = model.decision_function(here)
        assert scores.shape == (here.num_nodes, len(seen))
        assert np.isfinite(scores).all()
        predicted = model.predict(here)
        assert set(predicted.tolist()) <= set(seen)
        assert np.array_equal(predicted, model.classes_[scores.argmax(1)])


def test_knows_its_base_session_well(method, graph):
    changes = {} if "lr" not in find(method).defaults else {"lr": 0.05, "epochs": 25}
    stream = algnn.ClassStream(graph)
    model = learn(small(method, **changes), stream, 1)
    nodes, labels = stream.nodes("test", 0)
    assert (model.predict(stream.graph(0), nodes) == labels.numpy()).mean() > 0.8


def test_seed_and_session_alone_decide(method, graph, known):
    """Not the graph's own labels, nor whether gradients are on; and nobody's random numbers."""
    stream = algnn.ClassStream(graph)
    again, state = small(method), torch.random.get_rng_state()
    with torch.no_grad():
        for index in range(3):
            session = stream[index]
            mislabelled = session.graph.clone()
            mislabelled.y = (graph.y * 7 + 3) % CLASSES
            mislabelled.train_mask = torch.ones_like(graph.train_mask)
            extra = (stream.nodes("val", index),) if again.uses_validation else ()
            again.partial_fit(mislabelled, session.nodes, session.labels, *extra)
    assert torch.equal(torch.random.get_rng_state(), state)
    expected = known(method).decision_function(graph)
    assert np.array_equal(again.decision_function(graph), expected)
    # the default has nothing random in it but the halves by which it chooses γ, the bank nothing
    if method not in ("algnn", "algnn-nodes", "linear-bank"):
        other = learn(small(method, seed=4), stream, 3)
        assert not np.array_equal(other.decision_function(graph), expected)


def test_saved_loaded_and_continued_equals_never_stopped(method, graph, tmp_path):
    """And `retained_bytes` are what the file holds beyond the encoder."""
    stream = algnn.ClassStream(graph, edges="seen", step=2)
    straight, path = small(method), tmp_path / "model.safetensors"
    stopped = small(method)
    assert stopped.retained_bytes() == 0
    for index in range(len(stream)):
        learn_one(straight, stream, index)
        learn_one(stopped, stream, index)
        stopped.save(path)
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if not name.startswith("encoder.")]  # noqa: SIM118
            held = sum(file.get_tensor(name).nbytes for name in names)
        assert straight.retained_bytes() == stopped.retained_bytes() == held
        stopped = type(stopped).load(path)
    here = stream.graph(len(stream) - 1)
    assert np.array_equal(straight.decision_function(here), stopped.decision_function(here))
    assert straight.retained_bytes() == stopped.retained_bytes()
    assert straight.get_params() == stopped.get_params()


def test_a_parameter_set_after_learning_spoils_no_file(method, graph, known, tmp_path):
    """It is refused before the file is touched, or what is loaded answers as what was saved."""
    path, model = tmp_path / "model.safetensors", copy.deepcopy(known(method))
    model.save(path)
    numbers = {k: v for k, v in model.get_params().items() if isinstance(v, int | float)}
    for name, value in numbers.items():
        for other in {not value} if isinstance(value, bool) else {value + 1, value / 2}:
            before = path.read_bytes()
            model.set_params(**{name: type(value)(other)})
            try:
                model.save(path)
            except InputError:
                assert path.read_bytes() == before
            else:
                expected = model.decision_function(graph)
                assert np.array_equal(type(model).load(path).decision_function(graph), expected)
            model.set_params(**{name: value})


def test_a_budget_in_nodes_is_never_passed(method, make_graph, tmp_path):
    if "budget" not in find(method).defaults:
        assert find(method).kind not in ("replay", "condensation", "isolation")
        return
    graph = make_graph(classes=9, per_class=10)
    stream = algnn.ClassStream(graph)
    # fewer than there are classes, and more
    for budget in (4, 20):
        model = small(method, budget=budget)
        for index in range(len(stream)):
            learn_one(model, stream, index)
            model.save(tmp_path / "model.safetensors")
            with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
                codes = file.get_tensor("memory.codes")
                assert 0 < codes.numel() <= budget
                for name in file.keys():  # noqa: SIM118
                    tensor = file.get_tensor(name)
                    # ids, labels and whatever else could stand for a node: one for each kept
                    if name.startswith("memory.") and not tensor.is_floating_point():
                        assert tensor.shape == codes.shape


def test_survives_odd_sessions(method, graph):
    """One node; more nodes of an old class; old and new classes together; string labels."""
    names = np.array(["ash", "birch", "cedar", "elm", "fir", "oak"])
    model = small(method)
    y = graph.y

    def nodes_of(*classes, among=graph.train_mask):
        return (torch.isin(y, torch.tensor(classes)) & among).nonzero().squeeze(1)

    for nodes in (
        nodes_of(1, 2, 4),
        nodes_of(5)[:1],
        nodes_of(1, among=graph.val_mask),
        torch.cat([nodes_of(5)[1:], nodes_of(0)]),
        nodes_of(3)[:1],
    ):
        model.partial_fit(graph, nodes, names[y[nodes].numpy()])
    assert model.classes_.tolist() == sorted(names)
    assert set(model.predict(graph).tolist()) <= set(names)
    assert np.isfinite(model.decision_function(graph)).all()


def test_bad_input_is_named_and_changes_nothing(method, graph, known):
    fresh = small(method)
    with pytest.raises(InputError, match="at least two classes"):
        fresh.partial_fit(graph, [0, 6], [0, 0])
    with pytest.raises(NotFittedError):
        fresh.predict(graph)
    model = known(method)
    before = model.decision_function(graph)
    spoiled = graph.clone()
    spoiled.x = spoiled.x.clone()
    spoiled.x[0] = torch.nan
    narrow = graph.clone()
    narrow.x = narrow.x[:, :3].clone()
    for bad, nodes, labels, words in (
        (graph, [0, 0], [0, 0], "more than once"),
        (graph, [900], [0], "must lie in"),
        (graph, [], [], "empty"),
        (graph, [0, 1], [0], "one label per node"),
        (graph, [0], ["a"], "keep to one kind"),
        (spoiled, [0], [0], "NaN"),
        (narrow, [0], [0], "3 features"),
    ):
        with pytest.raises(InputError, match=words):
            model.partial_fit(bad, nodes, labels)
    assert np.array_equal(model.decision_function(graph), before)


def test_probabilities_and_novelty(method, graph, known):
    for ask in (small(method).predict_proba, small(method).novelty):
        with pytest.raises(NotFittedError):
            ask(graph)
    model = known(method)
    assert model.classes_.tolist() == list(range(5))
    likely, new = model.predict_proba(graph), model.novelty(graph)
    assert likely.shape == (graph.num_nodes, len(model.classes_))
    assert likely.dtype == np.float64
    assert ((likely >= 0) & (likely <= 1)).all()
    np.testing.assert_allclose(likely.sum(1), 1)
    assert np.array_equal(model.classes_[likely.argmax(1)], model.predict(graph))
    assert new.shape == (graph.num_nodes,)
    assert ((new >= 0) & (new <= 1)).all()
    some = [7, 30, 2]
    np.testing.assert_allclose(model.predict_proba(graph, some), likely[some], rtol=1e-4)
    np.testing.assert_allclose(model.novelty(graph, some), new[some], rtol=1e-4)
    before = model.decision_function(graph)
    narrow = graph.clone()
    narrow.x = narrow.x[:, :3].clone()
    for ask in (model.predict_proba, model.novelty):
        with pytest.raises(InputError, match="must lie in"):
            ask(graph, [900])
        with pytest.raises(InputError, match="3 features"):
            ask(narrow)
        assert len(ask(graph, [])) == 0
    assert np.array_equal(model.decision_function(graph), before)


def test_a_graph_that_lost_remembered_nodes_is_refused(method, graph, known):
    model = known(method)
    holds = model._state()[0]
    nodes = holds.get("memory.nodes", holds.get("kept.nodes"))
    if nodes is None:
        return  # remembers no node, so any graph will do
    shrunken = graph.subgraph(torch.arange(int(nodes.max())))
    shrunken.edge_index = shrunken.edge_index.contiguous()
    before = model.decision_function(graph)
    # a node that was not learned before, which would be refused by itself
    fresh = int((~graph.train_mask).nonzero()[0])
    with pytest.raises(InputError, match="a graph may grow"):
        model.partial_fit(shrunken, [fresh], [int(graph.y[fresh])])
    assert np.array_equal(model.decision_function(graph), before)


def test_training_that_diverges_is_refused(method, graph, known):
    model = known(method)
    before = model.decision_function(graph)
    huge = graph.clone()
    huge.x = graph.x * 1e38 / graph.x.abs().max()
    with pytest.raises(InputError, match=r"scale graph\.x|NaN"):
        model.fit(huge, graph.train_mask, graph.y[graph.train_mask])
    assert np.array_equal(model.decision_function(graph), before)


def test_scikit_learn_knows_it(method, graph, known):
    model = small(method)
    params = model.get_params(deep=True)
    assert {"seed", "device"} <= set(params)
    assert all(isinstance(value, int | float | str) for value in params.values())
    # stored as given, and only what differs from the defaults is shown
    odd = object()
    assert all(type(model)(**{**params, name: odd}).get_params()[name] is odd for name in params)
    assert repr(model.set_params(device="cuda:7", seed=5)).startswith(f"{type(model).__name__}(")
    defaults = inspect.signature(type(model)).parameters
    assert repr(type(model)(seed=5)) == f"{type(model).__name__}(seed=5)"
    for name, value in model.get_params().items():
        assert (f"{name}=" in repr(model)) == (value != defaults[name].default)
    model.set_params(**params)
    # a name that is unknown changes nothing
    with pytest.raises(InputError, match="'gama' is no parameter of"):
        model.set_params(seed=9, gama=1.0)
    assert model.get_params() == params
    with pytest.raises(sklearn.exceptions.NotFittedError):
        check_is_fitted(model)
    assert not hasattr(model, "classes_")
    assert "classes_" in dir(model)
    model = known(method)
    check_is_fitted(model)
    fresh = sklearn.base.clone(model)
    assert type(fresh) is type(model)
    assert fresh.get_params() == params
    with pytest.raises(NotFittedError):
        fresh.predict(graph)
    assert "<table>" in model._repr_mimebundle_()["text/html"]


def test_the_score_is_accuracy(method, graph, known):
    model = known(method)
    nodes = graph.test_mask
    expected = (model.predict(graph, nodes) == graph.y[nodes].numpy()).mean()
    assert model.score(graph, nodes, graph.y[nodes]) == expected
    for some, labels, words in (
        ([], [], "nodes is empty"),
        ([0, 1], [0], "one label per node"),
        ([0], ["a"], "keep to one kind"),
    ):
        with pytest.raises(InputError, match=words):
            model.score(graph, some, labels)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cpu_and_gpu_agree(method, graph):
    stream = algnn.ClassStream(graph)
    still = {"dropout": 0.0} if "dropout" in find(method).defaults else {}
    models = [learn(small(method, device=d, **still), stream) for d in ("cpu", "cuda")]
    predicted = [m.predict(stream.graph(0)) for m in models]
    # the last bits of float32 sums differ, and with them a few close decisions
    assert (predicted[0] == predicted[1]).mean() > 0.9
    assert models[0].retained_bytes() == models[1].retained_bytes()


def test_edges_count_by_their_weights(method, graph):
    """An edge of weight 2 is two edges; and a learner takes sparse features."""
    twice = torch.cat([graph.edge_index, graph.edge_index[:, :40]], dim=1)
    weight = torch.ones(graph.edge_index.size(1))
    weight[:40] = 2
    nodes = graph.train_mask.nonzero().squeeze(1)
    doubled = Data(x=graph.x, edge_index=twice)
    weighted = Data(x=to_csr(graph.x), edge_index=graph.edge_index, edge_weight=weight)
    models = small(method), small(method)
    extra = (nodes, graph.y[nodes])
    if method == "joint-sage":
        with pytest.raises(InputError, match=r"edge_weight is not used by GraphSAGE"):
            models[0].fit(weighted, *extra)
        return
    for model, one in zip(models, (weighted, doubled), strict=True):
        model.fit(one, *extra, *([extra] if model.uses_validation else []))
    found, expected = models[0].decision_function(weighted), models[1].decision_function(doubled)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2 * np.abs(expected).max())
