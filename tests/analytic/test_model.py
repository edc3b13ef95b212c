"""The paper's claims on real features: after any sessions, the weights of the joint solution."""

import dataclasses
import json
import textwrap

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch_geometric.data import Data

import algnn
from algnn import settings
from algnn.analytic.heads import HEADS, ridge
from algnn.analytic.joint import JointRidge
from algnn.analytic.lifecycle.io import fingerprint
from algnn.analytic.lifecycle.membership import Membership
from algnn.analytic.linalg import MOST_ROWS_DIVISOR, UpdatedFactor
from algnn.analytic.selection import MOST_HALVINGS
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError

WIDTH = 256


PAPER = {"encoder": "gcn", "head": "ridge", "gamma": 0.01}


def paper(**changes):
    """A learner with the paper's encoder and head."""
    return algnn.ALGNN(**{**PAPER, **changes})


def relative_error(found, expected):
    return float((found - expected).norm() / expected.norm())


def joint_solution(Z, Y, gamma):
    """Ridge regression on all nodes at once, by orthogonal factors: no sums, no Cholesky."""
    stacked = torch.cat([Z, gamma**0.5 * torch.eye(Z.size(1), dtype=Z.dtype)])
    targets = torch.cat([Y, Y.new_zeros(Z.size(1), Y.size(1))])
    return torch.linalg.lstsq(stacked, targets, driver="gels").solution


@pytest.fixture(scope="module")
def base_of(real_graph):
    """A learner after its base session, with features of real width on a real graph."""
    made = {}

    def get(name):
        if name not in made:
            graph = real_graph(name)
            stream = algnn.ClassStream(graph)
            model = paper(width=WIDTH, epochs=2, seed=1, device="cpu")
            model.fit(stream[0].graph, stream[0].nodes, stream[0].labels)
            made[name] = (graph, stream, model)
        return made[name]

    return get


def with_gamma(model, gamma):
    """The same encoder and expansion, nothing learned yet, another γ."""
    fresh = paper(**{**model.get_params(), "gamma": gamma})
    known = model._learned
    nothing = Statistics.empty(WIDTH)
    record = Membership(known.membership.key)
    changes = {"statistics": nothing, "membership": record, "gamma": gamma, "solved": None}
    fresh._learned = dataclasses.replace(known, **changes)
    return fresh


def everything(model, graph, nodes, labels):
    Z = torch.cat(list(model._features(graph, nodes, model._learned.features)))
    codes = torch.from_numpy(np.unique(np.asarray(labels), return_inverse=True)[1])
    return Z, torch.nn.functional.one_hot(codes).double()


@pytest.mark.parametrize(
    ("name", "gamma", "bound"),
    [
        ("digits", 1e-3, 1e-6),
        ("digits", 0.1, 1e-9),
        ("cora", 1.0, 1e-9),
        ("citeseer", 1e-3, 1e-6),
    ],
)
def test_any_sessions_give_the_weights_of_the_joint_solution(base_of, name, gamma, bound):
    graph, stream, base = base_of(name)
    train = torch.cat([session.nodes for session in stream])
    Z, Y = everything(base, stream[0].graph, train, graph.y[train])
    expected = joint_solution(Z, Y, gamma)
    rng = np.random.default_rng(0)

    in_order = with_gamma(base, gamma)
    for session in stream:
        in_order.partial_fit(session.graph, session.nodes, session.labels)
    # any order of the sessions, each in any order of its nodes
    shuffled = with_gamma(base, gamma)
    for index in rng.permutation(len(stream)):
        session = stream[int(index)]
        rows = rng.permutation(session.nodes.numel())
        shuffled.partial_fit(session.graph, session.nodes[rows], session.labels[rows])
    # any batching: old and new classes together, more nodes of an old class, single nodes
    batched = with_gamma(base, gamma)
    rows = rng.permutation(train.numel())
    for batch in np.split(rows, [1, 2, 9, len(rows) // 2]):
        batched.partial_fit(stream[0].graph, train[batch], graph.y[train[batch]])

    test = graph.test_mask.nonzero().squeeze(1)
    Z_test = torch.cat(list(base._features(stream[0].graph, test, base._learned.features)))
    predicted = np.unique(graph.y[train])[(Z_test @ expected).argmax(1)]
    for model in (in_order, shuffled, batched):
        assert relative_error(model.weights_, expected) <= bound
        assert np.array_equal(model.predict(stream[0].graph, test), predicted)
        assert torch.equal(model.statistics_.n, Y.sum(0).long())


def test_at_the_papers_own_width_and_gamma(real_graph):
    graph = real_graph("cora")
    stream = algnn.ClassStream(graph)
    model = paper(**{**settings.read("algnn-paper", "cora"), "epochs": 5, "device": "cpu"})
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
    train = torch.cat([session.nodes for session in stream])
    Z, Y = everything(model, stream[0].graph, train, graph.y[train])
    assert model.weights_.shape == (2048, model.classes_.size)
    # the same solution by way of nodes, which are fewer than features
    kernel = Z @ Z.mT + model.gamma * torch.eye(len(Z)).double()
    assert relative_error(model.weights_, Z.mT @ torch.linalg.solve(kernel, Y)) <= 1e-9


@pytest.mark.parametrize("expansion", ["gcn", "plain"])
@pytest.mark.parametrize("edges", ["full", "seen"])
def test_streams_are_learned_whatever_the_expansion_and_scenario(make_graph, expansion, edges):
    graph = make_graph(classes=6, per_class=25)
    stream = algnn.ClassStream(graph, edges=edges)
    model = paper(width=128, hidden=32, lr=0.01, expansion=expansion, device="cpu")
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
    last = stream.graph(len(stream) - 1)
    right = total = 0
    for index in range(len(stream)):
        nodes, labels = stream.nodes("test", index)
        right += int((model.predict(last, nodes) == labels.numpy()).sum())
        total += nodes.numel()
    assert right / total > 0.9


def test_labels_come_back_as_they_were_given(small_graph):
    nodes = small_graph.train_mask.nonzero().squeeze(1)
    names = np.array(["apple", "fig", "plum", "a much longer name"])
    quick = {"width": 64, "hidden": 16, "device": "cpu"}
    by_int = paper(**quick).fit(small_graph, nodes, small_graph.y[nodes])
    by_name = paper(**quick)
    by_list = paper(**quick).fit(small_graph, nodes.tolist(), small_graph.y[nodes].tolist())
    first, later = small_graph.y[nodes] < 3, small_graph.y[nodes] == 3
    for part in (first, later):
        by_name.partial_fit(small_graph, nodes[part], list(names[small_graph.y[nodes[part]]]))
    assert by_name.classes_.tolist() == sorted(names)
    assert by_name.predict(small_graph).dtype.kind == "U"
    assert by_int.predict(small_graph).dtype == np.int64
    assert np.array_equal(by_int.predict(small_graph), by_list.predict(small_graph))
    assert torch.equal(by_int.weights_, by_list.weights_)
    scores = by_name.decision_function(small_graph)
    assert scores.shape == (60, 4)
    chosen = by_name.classes_[scores.argmax(1)]
    assert np.array_equal(chosen, by_name.predict(small_graph))


def test_a_mask_names_the_same_nodes_as_their_ids(small_graph):
    model = paper(width=64, hidden=16, device="cpu")
    mask = small_graph.train_mask
    by_mask = model.fit(small_graph, mask, small_graph.y[mask]).weights_
    by_ids = model.fit(small_graph, mask.nonzero().squeeze(1), small_graph.y[mask]).weights_
    assert torch.equal(by_mask, by_ids)


def test_fit_starts_anew_and_a_seed_decides_everything(small_graph):
    mask = small_graph.train_mask
    model = paper(width=64, hidden=16, seed=3, device="cpu")
    first = model.fit(small_graph, mask, small_graph.y[mask]).weights_
    again = model.fit(small_graph, mask, small_graph.y[mask]).weights_
    other = paper(width=64, hidden=16, seed=4, device="cpu")
    assert torch.equal(first, again)
    assert not torch.equal(first, other.fit(small_graph, mask, small_graph.y[mask]).weights_)


def test_labels_in_the_graph_are_not_looked_at(small_graph):
    bare = small_graph.clone()
    del bare.y, bare.train_mask, bare.val_mask, bare.test_mask
    mask = small_graph.train_mask
    quick = {"width": 64, "hidden": 16, "device": "cpu"}
    with_labels = paper(**quick).fit(small_graph, mask, small_graph.y[mask])
    without = paper(**quick).fit(bare, mask, small_graph.y[mask])
    assert torch.equal(with_labels.weights_, without.weights_)


def test_a_graph_changed_in_place_is_encoded_again(small_graph):
    mask = small_graph.train_mask
    model = paper(width=64, hidden=16, device="cpu")
    model.fit(small_graph, mask, small_graph.y[mask])
    before = model.decision_function(small_graph)
    small_graph.x.mul_(2)
    after = model.decision_function(small_graph)
    assert not np.allclose(before, after)
    copied = small_graph.clone()
    np.testing.assert_array_equal(model.decision_function(copied), after)


def test_an_interrupted_session_changes_nothing(small_graph, monkeypatch):
    mask = small_graph.train_mask & (small_graph.y < 3)
    model = paper(width=64, hidden=16, device="cpu")
    model.fit(small_graph, mask, small_graph.y[mask])
    scores = model.decision_function(small_graph)
    late = (small_graph.train_mask & (small_graph.y == 3)).nonzero().squeeze(1)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # the last step before the new state would be taken over
        patch.setattr("algnn.analytic.state.State.with_weights", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(small_graph, late, small_graph.y[late])
    assert np.array_equal(model.decision_function(small_graph), scores)
    assert model.classes_.tolist() == [0, 1, 2]
    model.partial_fit(small_graph, late, small_graph.y[late])
    assert model.classes_.tolist() == [0, 1, 2, 3]


def first_of(graph, count=18):
    """Some nodes of three classes, few of each, and all others."""
    first = (graph.train_mask & (graph.y < 3)).nonzero().squeeze(1)[:count]
    others = torch.ones(graph.num_nodes, dtype=torch.bool)
    others[first] = False
    return first, others.nonzero().squeeze(1)


def test_small_sessions_update_a_factor_to_the_same_weights(small_graph):
    """30 sessions of one node each, against one solution of all of them; spoiled on the way."""
    first, late = first_of(small_graph)
    model = paper(width=64, hidden=16, device="cpu", gamma=0.1)
    model.fit(small_graph, first, small_graph.y[first])
    rows = []
    for place, node in enumerate(late[:30, None]):
        known = model._learned
        if place == 10:
            spoiled = UpdatedFactor(known.factor.L / 2, known.factor.V)
            model._learned = known = dataclasses.replace(known, factor=spoiled)
        kept = known.statistics.G.clone(), known.affine[0].clone(), known.factor.V.clone()
        model.partial_fit(small_graph, node, small_graph.y[node])
        # whoever holds what was known before has it as it was
        assert all(map(torch.equal, kept, (known.statistics.G, known.affine[0], known.factor.V)))
        rows.append(model._learned.factor.V.size(0))
        expected, _ = ridge(model._learned.statistics, 0.1)
        assert relative_error(model.weights_, expected) < 1e-12
    # a new factorisation where the factor is spoiled, and where it has taken in d / 4 rows
    most = 64 // MOST_ROWS_DIVISOR
    assert rows == [*range(1, 11), *range(most + 1), *range(3)]


def test_a_factor_is_kept_where_few_nodes_are_likely_to_come(small_graph, tmp_path):
    first, late = first_of(small_graph, 18)
    labels = small_graph.y[first]
    width = MOST_ROWS_DIVISOR * 18 // labels.unique().numel()
    for changes, kept in (
        ({}, True),
        ({"width": width - 1}, False),  # so many nodes a class are not few for it
        ({"head": "slda"}, False),
        ({"encoder": "hops"}, False),  # nodes are few, and sums over their span
    ):
        model = paper(**{"width": width, "hidden": 16, "device": "cpu", **changes})
        model.fit(small_graph, first, labels)
        assert (model._learned.factor is not None) == kept, changes
    # it is not saved, nor kept once sums have faded
    model = paper(width=width, hidden=16, device="cpu").fit(small_graph, first, labels)
    before = model.retained_bytes()
    model.save(tmp_path / "model.safetensors")
    again = algnn.ALGNN.load(tmp_path / "model.safetensors")
    assert again._learned.factor is None
    assert again.retained_bytes() == before
    for one in (model, again):
        one.partial_fit(small_graph, late[:2], small_graph.y[late[:2]])
        assert one._learned.factor is not None
    assert relative_error(again.weights_, model.weights_) < 1e-11
    model.half_life = 2
    model.partial_fit(small_graph, late[2:3], small_graph.y[late[2:3]])
    assert model._learned.factor is None


def test_another_gamma_or_head_starts_from_the_sums(small_graph):
    first, late = first_of(small_graph)
    model = paper(width=64, hidden=16, device="cpu")
    model.fit(small_graph, first, small_graph.y[first])
    model.partial_fit(small_graph, late[:1], small_graph.y[late[:1]])
    assert model._learned.factor is not None
    model.gamma = 10.0
    model.partial_fit(small_graph, late[6:7], small_graph.y[late[6:7]])
    assert relative_error(model.weights_, ridge(model.statistics_, 10.0)[0]) < 1e-12
    model.gamma = 1.0
    model.forget(small_graph, late[6:7], small_graph.y[late[6:7]])
    assert relative_error(model.weights_, ridge(model.statistics_, 1.0)[0]) < 1e-12
    model.head = "slda"
    model.partial_fit(small_graph, late[7:8], small_graph.y[late[7:8]])
    assert torch.equal(model.weights_, HEADS["slda"](model.statistics_, 1.0)[0])


CONTINUE = textwrap.dedent(
    """
    import sys
    import numpy as np
    import torch
    import algnn

    torch.set_num_threads(int(sys.argv[4]))
    stream = algnn.ClassStream(algnn.load(sys.argv[3]))
    model = algnn.ALGNN.load(sys.argv[1])
    for session in list(stream)[2:]:
        model.partial_fit(session.graph, session.nodes, session.labels)
    model.save(sys.argv[2])
    """
)


def test_saved_loaded_in_another_process_and_continued_bit_for_bit(
    tmp_path, monkeypatch, run_process
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")  # the log has times in it
    stream = algnn.ClassStream(algnn.load("digits"))
    model = paper(width=WIDTH, epochs=5, seed=2, device="cpu")
    paths = [str(tmp_path / f"{part}.safetensors") for part in ("half", "other", "whole")]
    for index, session in enumerate(stream):
        if index == 2:
            model.save(paths[0])
        model.partial_fit(session.graph, session.nodes, session.labels)
    model.save(paths[2])
    run_process(CONTINUE, *paths[:2], "digits", torch.get_num_threads())
    continued = algnn.ALGNN.load(paths[1])
    assert torch.equal(continued.weights_, algnn.ALGNN.load(paths[2]).weights_)
    # the learner that went on had updated a factor, but not since it was saved
    assert torch.equal(continued.weights_, model.weights_)
    assert (tmp_path / "other.safetensors").read_bytes() == (
        tmp_path / "whole.safetensors"
    ).read_bytes()
    graph = stream.graph(0)
    assert np.array_equal(continued.predict(graph), model.predict(graph))


def test_retained_bytes_are_those_of_the_file_beyond_the_encoder(make_graph, tmp_path):
    path = tmp_path / "model.safetensors"
    sizes = {}
    for per_class in (10, 40):
        graph = make_graph(classes=6, per_class=per_class)
        model = paper(width=96, hidden=16, epochs=2, device="cpu")
        sizes[per_class] = []
        for session in algnn.ClassStream(graph):
            model.partial_fit(session.graph, session.nodes, session.labels)
            model.save(path)
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118
            encoder = sum(n for name, n in tensors.items() if name.startswith("encoder."))
            assert model.retained_bytes() == sum(tensors.values()) - encoder
            header = path.stat().st_size - sum(tensors.values())
            assert header < 2000 + 400 * len(model.events_)
            # without the record of learned nodes, sixteen bytes for each
            nodes = int(model.statistics_.n.sum())
            sizes[per_class].append(model.retained_bytes() - 16 * nodes)
        # the same session again: more nodes, no new class
        model.partial_fit(session.graph, session.nodes, session.labels, repeat="count")
        more = session.nodes.numel()
        assert model.retained_bytes() == sizes[per_class][-1] + 16 * (nodes + more)
    assert sizes[10] == sizes[40]
    assert np.diff(sizes[10]).tolist() == [96 * 8 + 8] * 3


def test_the_papers_settings():
    expected = {
        "cora": (2048, 1, 50, 0.001, 0.5),
        "citeseer": (2048, 1, 50, 0.001, 0.5),
        "corafull": (2048, 0.001, 50, 0.001, 0.5),
        "arxiv": (8192, 0.01, 1, 0.01, 0.7),
        "reddit": (1024, 0.01, 20, 0.001, 0.5),
        "computers": (1024, 0.01, 50, 0.001, 0.5),
    }
    for name, values in expected.items():
        model = algnn.ALGNN.paper(name, seed=9)
        assert (model.width, model.gamma, model.epochs, model.lr, model.dropout) == values
        assert (model.hidden, model.expansion, model.seed) == (256, "gcn", 9)
    with pytest.raises(algnn.InputError, match="use one of"):
        algnn.ALGNN.paper("imagenet")


def test_ridge_is_what_the_weights_are(small_graph):
    mask = small_graph.train_mask
    model = paper(width=64, hidden=16, gamma=0.3, device="cpu")
    model.fit(small_graph, mask, small_graph.y[mask])
    statistics = model.statistics_
    assert relative_error(model.weights_, ridge(statistics, 0.3)[0]) < 1e-13
    assert json.dumps(model.get_params())


def test_the_default_is_the_same_in_any_order_and_batches():
    """Classes that come back and sessions of one node among them; and all of it at once."""
    stream = algnn.ClassStream(algnn.load("digits"))
    first, *later = list(stream)
    nodes = torch.cat([session.nodes for session in later])
    labels = torch.cat([session.labels for session in later])
    found = []
    for order in (torch.arange(len(nodes)), torch.randperm(len(nodes), generator=seeded(1))):
        model = algnn.ALGNN(width=320, device="cpu").fit(first.graph, first.nodes, first.labels)
        for batch in torch.tensor_split(order, [1, 2, len(order) // 3, len(order) // 2]):
            model.partial_fit(first.graph, nodes[batch], labels[batch])
        found.append(model)
    joint = JointRidge(width=320, device="cpu").fit(first.graph, first.nodes, first.labels)
    joint.partial_fit(first.graph, nodes, labels)
    for model in found:
        assert model._learned.gamma == joint._learned.gamma
        assert relative_error(model.weights_, joint.weights_) < 1e-9
        assert np.array_equal(model.predict(first.graph), joint.predict(first.graph))
        assert relative_error(model.statistics_.G, joint.statistics_.G) < 1e-12


def test_nodes_that_fade_keep_one_halving_once_they_outgrow_the_span():
    digits = algnn.load("digits")
    model = algnn.ALGNN(width=400, half_life=1, device="cpu")
    for start in range(0, 240, 60):
        nodes = torch.arange(start, start + 60)
        model.partial_fit(digits, nodes, digits.y[nodes])
        outgrown = model._learned.span.basis is None
        assert model._learned.ways == (1 if outgrown else MOST_HALVINGS)
    assert outgrown
    assert float(model.statistics_.n.sum()) < 160  # what they still count for


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_many_labels_turn_the_span_into_whole_sums(make_graph):
    graph = make_graph()
    nodes = torch.arange(graph.num_nodes)
    model = algnn.ALGNN(width=64, device="cpu").fit(graph, nodes[:4], graph.y[:4] % 2)
    assert model._learned.span.basis is not None
    for node in nodes[4:, None]:
        model.partial_fit(graph, node, graph.y[node] % 2)
    assert model._learned.span.basis is None
    once = JointRidge(width=64, device="cpu").fit(graph, nodes[:4], graph.y[:4] % 2)
    once.partial_fit(graph, nodes[4:], graph.y[4:] % 2)
    assert relative_error(model.weights_, once.weights_) < 1e-9


def test_gamma_can_be_given_or_left_to_the_sums(small_graph):
    mask = small_graph.train_mask
    chosen = algnn.ALGNN(device="cpu", width=WIDTH).fit(small_graph, mask, small_graph.y[mask])
    given = algnn.ALGNN(gamma=chosen._learned.gamma, device="cpu", width=WIDTH)
    given.fit(small_graph, mask, small_graph.y[mask])
    torch.testing.assert_close(given.weights_, chosen.weights_)
    assert given.retained_bytes() < chosen.retained_bytes()
    given.gamma = 0.0
    with pytest.raises(algnn.InputError, match="gamma=0 needs the sums of two halves"):
        given.partial_fit(small_graph, ~mask, small_graph.y[~mask])


@pytest.mark.parametrize("count", [4, 300])
def test_nodes_without_features_are_learned_like_any(count):
    """Empty rows, in one half or in both, in sessions small and large."""
    x = torch.zeros(400, 800)
    x[390:] = torch.rand(10, 800, generator=seeded(0))
    graph = Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.long))
    model = algnn.ALGNN(device="cpu").fit(graph, torch.arange(count), np.arange(count) % 2)
    model.partial_fit(graph, [390, 391, 392], [2, 3, 3])
    assert model.predict(graph, [390, 391]).tolist() == [2, 3]
    assert set(model.predict(graph, [0, 5])) <= {0, 1, 2, 3}


def test_ties_do_not_depend_on_the_order(make_graph):
    """Without edges all views are the same, and one-hot features leave γ undecided."""
    y = np.arange(60) % 4
    graph = Data(x=torch.eye(4)[y], edge_index=torch.zeros(2, 0, dtype=torch.long))
    found = set()
    for seed in range(6):
        order = torch.randperm(60, generator=seeded(seed))
        model = algnn.ALGNN(device="cpu", width=WIDTH).fit(graph, order[:40], y[order[:40]])
        model.partial_fit(graph, order[40:], y[order[40:]])
        found.add((model._learned.features.name, model._learned.gamma))
    assert len(found) == 1


def test_learns_and_answers_in_inference_mode(small_graph):
    mask = small_graph.train_mask
    with torch.inference_mode():
        model = paper(width=32, hidden=8, epochs=2, device="cpu")
        model.fit(small_graph, mask, small_graph.y[mask])
        assert len(model.predict(small_graph)) == small_graph.num_nodes


@pytest.mark.parametrize(
    ("head", "gamma"),
    [("ridge", 0.1), ("ridge", 0.0), ("slda", 0.1), ("ncm", 0.0), ("balanced", 0.02)],
)
def test_another_head_needs_no_data(small_graph, head, gamma):
    mask = small_graph.train_mask
    model = algnn.ALGNN(device="cpu", width=WIDTH).fit(small_graph, mask, small_graph.y[mask])
    chosen = model.decision_function(small_graph)
    fresh = algnn.ALGNN(head=head, gamma=gamma, device="cpu", width=WIDTH).fit(
        small_graph, mask, small_graph.y[mask]
    )
    assert model.set_head(head, gamma) is model
    assert fingerprint(model._learned.features) == fingerprint(fresh._learned.features)
    assert model._learned.gamma == pytest.approx(fresh._learned.gamma)
    np.testing.assert_allclose(
        model.decision_function(small_graph), fresh.decision_function(small_graph), rtol=1e-8
    )
    assert model.events_[-1].what == "head"
    # and back again, γ chosen anew
    model.set_head("balanced")
    np.testing.assert_allclose(model.decision_function(small_graph), chosen, rtol=1e-8)


def test_a_head_that_cannot_be_had_changes_nothing(small_graph):
    mask = small_graph.train_mask
    model = algnn.ALGNN(device="cpu", width=WIDTH).fit(small_graph, mask, small_graph.y[mask])
    scores = model.decision_function(small_graph)
    for head, gamma in (("slda", 0.0), ("forest", 1.0), ("balanced", -1.0)):
        with pytest.raises(InputError):
            model.set_head(head, gamma)
        assert (model.head, model.gamma) == ("balanced", 0.0)
        assert np.array_equal(model.decision_function(small_graph), scores)
    fixed = algnn.ALGNN(gamma=0.1, device="cpu", width=WIDTH).fit(
        small_graph, mask, small_graph.y[mask]
    )
    with pytest.raises(InputError, match="gamma=0 needs the sums of two halves"):
        fixed.set_head("balanced")
    assert fixed.gamma == 0.1


def test_a_blank_learner_takes_another_head(small_graph):
    mask = small_graph.train_mask
    model = algnn.ALGNN(head="ridge", gamma=0.1, device="cpu", width=WIDTH)
    blank = model.fit(small_graph, mask, small_graph.y[mask]).blank().set_head("balanced")
    blank.partial_fit(small_graph, mask, small_graph.y[mask])
    assert blank.events_[-1].head == "balanced"
    assert blank._learned.gamma > 0


@pytest.mark.parametrize("portions", [1, 3, 8])
def test_rounding_chooses_nothing_where_no_two_nodes_have_anything_in_common(portions):
    """Every half is orthogonal to the other, so all that they could agree on is rounding."""
    x = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(0)))[0]
    graph = Data(x=x.float(), edge_index=torch.empty(2, 0, dtype=torch.long))
    y = torch.arange(40) % 4
    once = algnn.ALGNN(device="cpu", width=WIDTH).fit(graph, range(8), y[:8])
    often = algnn.ALGNN(device="cpu", width=WIDTH).fit(graph, range(8), y[:8])
    once.partial_fit(graph, range(8, 40), y[8:])
    for part in torch.arange(8, 40).flip(0).chunk(portions):
        often.partial_fit(graph, part, y[part])
    assert once._learned.gamma == often._learned.gamma
    torch.testing.assert_close(once.weights_, often.weights_, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("much", [{"width": 17_000}, {"encoder": "gcn", "hidden": 20_000}])
def test_what_no_file_could_hold_is_refused_before_it_is_learned(small_graph, much):
    with pytest.raises(InputError, match=f"{list(much)[-1]}=.* and below"):
        algnn.ALGNN(**much, device="cpu").fit(small_graph, range(8), small_graph.y[:8])


def test_weights_beyond_float32_are_refused(small_graph):
    graph = small_graph.clone()
    graph.edge_weight = torch.ones(graph.edge_index.size(1), dtype=torch.float64)
    graph.edge_weight[0] = 1e39
    with pytest.raises(InputError, match="edge_weight"):
        algnn.ALGNN(width=32, device="cpu").fit(graph, range(8), graph.y[:8])


def test_numbers_of_numpy_set_a_head(small_graph, tmp_path):
    model = algnn.ALGNN(width=32, device="cpu").fit(small_graph, range(8), small_graph.y[:8])
    model.set_head("ridge", np.float32(0.5)).save(tmp_path / "m.safetensors")
    assert type(model.gamma) is float


def test_a_learner_keeps_nodes_and_labels_of_its_own(small_graph):
    nodes, labels = torch.arange(8), np.array(["a", "b"] * 4)
    model = JointRidge(device="cpu").fit(small_graph, nodes, labels)
    nodes += 1
    labels[:] = "c"
    assert model._learned.kept[0].tolist() == list(range(8))
    assert model._learned.kept[1].tolist() == ["a", "b"] * 4
