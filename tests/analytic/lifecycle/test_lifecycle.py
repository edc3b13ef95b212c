"""Forgetting, merging and fading are exact: as if a learner had never, always or hardly seen."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import algnn
from algnn.analytic.classes import GONE
from algnn.analytic.features.hops import VIEW_SETS, HopEncoder
from algnn.analytic.heads import HEADS
from algnn.analytic.joint import JointRidge
from algnn.analytic.lifecycle.preconditions import affected, without_node
from algnn.analytic.linalg import Span
from algnn.analytic.state import State
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError, NotFittedError

GCN = {"encoder": "gcn", "width": 48, "hidden": 8, "epochs": 2}
LEARNERS = {
    "default": {},
    "ridge": {"head": "ridge", "gamma": 0.1},
    "slda": {"head": "slda", "gamma": 0.1},
    "ncm": {"head": "ncm"},
    "paper": {**GCN, "head": "ridge", "gamma": 0.01},
    "paper, plain": {**GCN, "head": "ridge", "gamma": 0.1, "expansion": "plain"},
    "paper, γ chosen": GCN,
    "paper, slda": {**GCN, "head": "slda", "gamma": 0.1},
}
# so wide that 60 nodes leave room for a span, or so narrow that they do not
WIDE, NARROW = 64, 12


def learner(kind, **changes):
    return algnn.ALGNN(**{"width": 256, **LEARNERS[kind], "device": "cpu", **changes})


def assert_same(found, expected, graph, bound=1e-9):
    """Two learners that know the same."""
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert torch.equal(found.statistics_.n, expected.statistics_.n)
    assert found._learned.gamma == expected._learned.gamma
    pairs = zip(sums_of(found), sums_of(expected), strict=True)
    for ours, theirs in ((found.weights_, expected.weights_), *pairs):
        assert float((ours - theirs).norm()) <= bound * float(theirs.norm())
    np.testing.assert_allclose(
        found.decision_function(graph), expected.decision_function(graph), rtol=0, atol=1e-7
    )


def sums_of(model):
    known = model._learned
    for sums in map(known.span.whole, (known.statistics, known.half_sums)):
        yield from (sums.G, sums.Q)


def sessions_of(graph, labels=None):
    """A base session of two classes, then a mix: old classes again, one node, the rest."""
    nodes = graph.train_mask.nonzero().squeeze(1)
    first = nodes[graph.y[nodes] < 2]
    later = nodes[graph.y[nodes] >= 2]
    parts = (first[:-2], torch.cat([first[-2:], later[:1]]), later[1:4], later[4:])
    names = graph.y.numpy() if labels is None else labels[graph.y.numpy()]
    return [(part, names[part.numpy()]) for part in parts]


def taught(model, graph, sessions):
    for nodes, labels in sessions:
        model.partial_fit(graph, nodes, labels)
    return model


# -- forget -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize(
    ("features", "names"),
    [(WIDE, None), (NARROW, np.array(["ash", "birch", "cedar", "a longer name"]))],
    ids=["wide", "narrow"],
)
def test_what_was_forgotten_was_never_seen(make_graph, kind, features, names):
    graph = make_graph(features=features)
    sessions = sessions_of(graph, names)
    model = taught(learner(kind), graph, sessions)
    nodes = torch.cat([part for part, _ in sessions])
    labels = np.concatenate([part for _, part in sessions])
    # all of one class, and some of the others
    gone = (labels == labels[-1]) | (np.arange(labels.size) % 4 == 0)
    expected = model.blank().partial_fit(graph, nodes[~gone], labels[~gone])
    for part in np.array_split(gone.nonzero()[0], 3):
        model.forget(graph, nodes[part], labels[part])
    assert labels[-1] not in model.classes_
    assert_same(model, expected, graph)
    # and nothing that it learns or forgets later tells the difference
    for one in (model, expected):
        one.partial_fit(graph, nodes[gone][:3], labels[gone][:3])
        one.forget(graph, nodes[~gone][:2], labels[~gone][:2])
    assert_same(model, expected, graph)


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_everything_can_be_forgotten_and_learned_again(make_graph, kind):
    graph = make_graph(features=WIDE)
    sessions = sessions_of(graph)
    model = taught(learner(kind), graph, sessions)
    expected = taught(model.blank(), graph, sessions)
    for nodes, labels in sessions:
        model.forget(graph, nodes, labels)
    assert model.classes_.size == 0
    assert model.weights_.shape == (model._learned.features.width, 0)
    assert model.retained_bytes() == model.blank().retained_bytes()
    for ask in (model.predict, model.decision_function):
        with pytest.raises(NotFittedError, match="knows no class"):
            ask(graph)
    assert_same(taught(model, graph, sessions), expected, graph)


def steps(model, graph, count, seed, every):
    """Random sessions learned and forgotten, held against a refit now and then."""
    rng = np.random.default_rng(seed)
    kept = []
    for node in range(8):
        kept.append((node, int(graph.y[node])))
    model.partial_fit(graph, [n for n, _ in kept], [c for _, c in kept])
    model.decision_function(graph)  # encodes the graph, once for all steps
    blank = model.blank()
    for step in range(count):
        some = rng.integers(1, 5)
        if len(kept) > 30 or (len(kept) > 8 and rng.random() < 0.5):
            places = set()
            for place in rng.permutation(len(kept)):
                if len(places) < some and kept[place][0] not in {kept[p][0] for p in places}:
                    places.add(int(place))
            pairs = [kept[place] for place in places]
            model.forget(graph, [n for n, _ in pairs], [c for _, c in pairs])
            kept = [pair for place, pair in enumerate(kept) if place not in places]
        else:
            nodes = rng.choice(graph.num_nodes, some, replace=False).tolist()
            labels = graph.y[nodes].tolist()
            model.partial_fit(graph, nodes, labels, repeat="count")
            kept += zip(nodes, labels, strict=True)
        if (step + 1) % every == 0:
            refit = copy.deepcopy(blank)
            for pair in kept:  # one by one: a node may be there twice
                refit.partial_fit(graph, [pair[0]], [pair[1]], repeat="count")
            assert_same(model, refit, graph, bound=1e-8)


@pytest.mark.parametrize(
    ("kind", "features", "count"),
    [("ridge", 100, 100), ("paper", NARROW, 100), ("default", 100, 30)],
)
def test_a_hundred_steps_add_no_error(make_graph, kind, features, count):
    steps(learner(kind), make_graph(features=features), count, 1, every=count // 2)


@pytest.mark.parametrize("seed", range(5))
def test_forgotten_down_to_a_few_nodes_it_chooses_as_if_there_had_been_no_others(make_graph, seed):
    """So few that some halves have no nodes left, only the rounding of those they had."""
    graph = make_graph(features=NARROW)
    nodes = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))[:28]
    stays, gone = nodes[: 4 + seed % 5], nodes[4 + seed % 5 :]
    model = learner("default").fit(graph, nodes, graph.y[nodes])
    expected = model.blank().partial_fit(graph, stays, graph.y[stays])
    assert_same(model.forget(graph, gone, graph.y[gone]), expected, graph)


HARD = st.sampled_from(["plain", "repeated", "graded", "near", "zero"])


def rows(kind, count, generator):
    plain = torch.randn(count, 60, generator=generator).double()
    if kind == "repeated":
        return torch.eye(60).double()[torch.randint(0, 3, (count,), generator=generator)]
    if kind == "graded":
        return plain * torch.logspace(0, -9, count).double()[:, None]
    if kind == "near":
        return plain[:1] + 1e-7 * plain
    return plain * (kind != "zero")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(HARD, st.integers(1, 6)), min_size=2, max_size=4), st.data())
def test_a_span_without_some_nodes_is_that_of_the_others(sessions, data):
    """Rows that make a basis hard to find: sums, weights and directions of what is left."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    Z = torch.cat([rows(kind, count, generator) for kind, count in sessions])
    total = Z.size(0)
    labels = np.arange(total) % 3
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)))
    gone[data.draw(st.integers(0, total - 1))] = False
    features, nodes = HopEncoder("raw", inputs=60), torch.arange(total)
    sums, half_sums = Statistics.empty(0), Statistics.empty(0, ways=2)
    blank = State(features, Span.empty(60), sums, half_sums, "balanced", 1e-2)

    def learned(some):
        return blank.plus([Z[some]], some, labels[some.numpy()], seed=0)

    # a row of 1e-9 is below what sums over rows of 1 can show, and forgotten ones hide it
    graded = any(kind == "graded" for kind, _ in sessions)
    lost = 1e-9 if graded else 1e-12
    expected = learned(nodes[~gone])
    found = learned(nodes).minus([Z[gone]], nodes[gone], labels[nodes[gone].numpy()], seed=0)
    for ours, theirs in zip(
        (found.statistics, found.half_sums), (expected.statistics, expected.half_sums), strict=True
    ):
        ours, theirs = found.span.whole(ours), expected.span.whole(theirs)
        assert ours.classes.tolist() == theirs.classes.tolist()
        assert torch.equal(ours.n, theirs.n)
        assert float((ours.G - theirs.G).norm()) <= lost * float(Z.norm()) ** 2
        assert float((ours.Q - theirs.Q).norm()) <= lost * float(Z.norm())
    V = found.span.basis
    torch.testing.assert_close(V @ V.mT, torch.eye(V.size(0)).double(), rtol=0, atol=1e-12)
    assert found.span.rank <= int((~gone).sum())
    W, again = found.affine[0], expected.affine[0]
    if not graded:
        assert float((W - again).norm()) <= 1e-9 * max(float(again.norm()), 1e-9)


def test_the_basis_no_longer_shows_who_was_there(make_graph):
    graph = make_graph(features=WIDE)
    sessions = sessions_of(graph)
    model = taught(learner("default"), graph, sessions)
    (nodes, labels), *others = sessions
    expected = taught(model.blank(), graph, others)
    before = model._learned.span
    model.forget(graph, nodes, labels)
    V, U = model._learned.span.basis, expected._learned.span.basis
    assert V.size(0) == U.size(0) < before.rank
    torch.testing.assert_close(V.mT @ V, U.mT @ U, rtol=0, atol=1e-9)
    # rows of it follow from what is left, in whatever order that was learned
    G = model._learned.statistics.G
    assert float((G - G.diagonal().diag()).norm()) <= 1e-9 * float(G.norm())


def bytes_of(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    return (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["default", "paper"])
@pytest.mark.parametrize("features", [WIDE, NARROW])
def test_what_was_never_learned_is_refused_and_nothing_changes(
    make_graph, kind, features, tmp_path
):
    graph = make_graph(features=features)
    sessions = sessions_of(graph)
    model = taught(learner(kind), graph, sessions)
    before, scores = bytes_of(model, tmp_path), model.decision_function(graph)
    known = int(sessions[0][0][0])
    unlearned = int((~graph.train_mask).nonzero()[0])
    other = graph.clone()
    other.x = other.x.flip(0).contiguous()
    learned, label = [known], [int(graph.y[known])]
    cases = [
        (graph, [unlearned], [int(graph.y[unlearned])], "which was not learned as"),
        (graph, learned, [1 - label[0]], "which was not learned as"),
        (graph, learned, [77], "of which 0 were learned"),
        (graph, [known, unlearned], label * 2, r"1 of 2 were not"),
        (graph, [known, known], label * 2, "more than once"),
        (graph, learned, ["a"], "keep to one kind"),
        (graph, [], [], "empty"),
        (graph, [999], [0], "must lie in"),
        (None, learned, label, "graph is a NoneType"),
    ]
    if kind == "default":
        cases.append((other, learned, label, "give the graph as it was"))
    for on, nodes, labels, words in cases:
        with pytest.raises(InputError, match=words):
            model.forget(on, nodes, labels)
    assert bytes_of(model, tmp_path) == before
    assert np.array_equal(model.decision_function(graph), scores)
    # learned twice, forgotten twice, and not a third time
    model.partial_fit(graph, learned, label, repeat="count")
    model.forget(graph, learned, label).forget(graph, learned, label)
    with pytest.raises(InputError, match="which was not learned"):
        model.forget(graph, learned, label)


def test_sums_that_no_nodes_can_have_are_noticed_without_a_record(make_graph):
    graph = make_graph()
    model = taught(learner("paper"), graph, sessions_of(graph)).drop_record()
    assert not model.summary().record
    nodes = graph.train_mask.nonzero().squeeze(1)
    strange = graph.clone()
    strange.x = 30 * graph.x[torch.randperm(60, generator=torch.Generator().manual_seed(0))]
    before = model.weights_
    with pytest.raises(InputError, match="sums that no nodes can have"):
        model.forget(strange, nodes[:2], graph.y[nodes[:2]])
    one = nodes[graph.y[nodes] == 3]
    with pytest.raises(InputError, match="sums that no nodes can have"):
        model.forget(strange, one, graph.y[one])
    assert torch.equal(model.weights_, before)
    model.forget(graph, nodes[:2], graph.y[nodes[:2]])
    assert int(model.statistics_.n.sum()) == nodes.numel() - 2


def test_a_halving_that_was_given_up_does_not_come_back(make_graph, monkeypatch):
    monkeypatch.setattr("algnn.analytic.selection.SMALL_SUMS", 20)
    graph = make_graph(features=WIDE)
    nodes = torch.arange(30)
    model = learner("default").fit(graph, nodes, graph.y[:30])
    assert model._learned.ways == 1
    model.forget(graph, nodes[10:], graph.y[10:30])
    expected = model.blank()
    expected._learned = replace(expected._learned, half_sums=expected._learned.half_sums[:1])
    assert_same(model, expected.partial_fit(graph, nodes[:10], graph.y[:10]), graph)
    assert model.partial_fit(graph, nodes[20:], graph.y[20:30])._learned.ways == 1


def test_what_the_joint_reference_cannot_do(make_graph, tmp_path):
    graph = make_graph(features=WIDE)
    sessions = sessions_of(graph)
    joint = taught(JointRidge(width=320, device="cpu"), graph, sessions)
    before = joint._learned
    with pytest.raises(InputError, match="cannot forget"):
        joint.forget(graph, *sessions[1])
    assert joint._learned is before
    joint.save(tmp_path / "joint.safetensors")
    assert JointRidge.load(tmp_path / "joint.safetensors")._learned.kept[0].numel() == 24
    with pytest.raises(InputError, match="cannot be merged"):
        joint.merge(joint)
    with pytest.raises(InputError, match="keeps nodes and labels"):
        joint.drop_record()  # its file would still name them
    with pytest.raises(InputError, match="half_life=3"):
        JointRidge(half_life=3).fit(graph, [0, 1], [0, 1])
    blank = joint.blank()
    blank.save(tmp_path / "blank.safetensors")
    again = JointRidge.load(tmp_path / "blank.safetensors").partial_fit(graph, [0, 1], ["a", "b"])
    assert again.classes_.tolist() == ["a", "b"]


# -- forget a node ----------------------------------------------------------------------------


def directed(graph, seed):
    """Some of the edges in one direction only, and a loop."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(graph.edge_index.size(1), generator=generator) < 0.4
    edges = torch.cat([graph.edge_index[:, kept], torch.tensor([[3], [3]])], dim=1)
    return Data(x=graph.x, edge_index=edges, y=graph.y, train_mask=graph.train_mask)


@pytest.mark.parametrize(
    ("kind", "bank"),
    [
        *(("default", bank) for bank in VIEW_SETS),
        *((kind, "raw") for kind in ("ridge", "paper", "paper, plain", "paper, γ chosen")),
    ],
)
def test_a_node_that_left_was_never_there(make_graph, kind, bank):
    graph = directed(make_graph(features=WIDE), 1)
    sessions = sessions_of(graph)
    model = taught(learner(kind), graph, sessions)
    if not kind.startswith("paper"):
        model._learned = model._untaught(HopEncoder(bank, inputs=WIDE))
        taught(model, graph, sessions)
    nodes = torch.cat([part for part, _ in sessions])
    for gone in (int(nodes[3]), int((~graph.train_mask).nonzero()[5])):
        near = torch.isin(nodes, torch.from_numpy(model.reach(graph, gone)))
        one = copy.deepcopy(model)
        bare = one.forget_node(graph, gone, nodes[near], graph.y[nodes[near]])
        stays = nodes != gone
        expected = model.blank().partial_fit(bare, nodes[stays], graph.y[nodes[stays]])
        assert_same(one, expected, bare)
        assert one.events_[-1].what == "forget node"
        assert one.events_[-1].count == int((~stays).sum())


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([*VIEW_SETS, "gcn", "plain"]), st.integers(0, 99), st.integers(0, 59))
def test_reach_names_all_whose_features_change(bank, seed, node):
    generator = torch.Generator().manual_seed(seed)
    x, edges = (
        torch.randn(60, 12, generator=generator),
        torch.randint(0, 60, (2, 90), generator=generator),
    )
    graph = Data(x=x, edge_index=edges)
    model = algnn.ALGNN(device="cpu")
    if bank in VIEW_SETS:
        model._learned = model._untaught(HopEncoder(bank, inputs=12))
    else:
        model = learner("paper", expansion=bank).fit(graph, [0, 1], [0, 1])
    features = model._learned.features

    def encoded(of):
        return features(features.prepare(model._adjacency(of), model._inputs(of)))

    changed = (encoded(graph) != encoded(without_node(graph, node))).any(dim=1)
    assert set(changed.nonzero().squeeze(1).tolist()) <= set(model.reach(graph, node).tolist())


def test_how_far_features_look():
    far = {"all": 10, "pagerank": 10, "two hops": 2, "own and pagerank": 10}
    far |= {"own and two hops": 2, "raw": 0}
    path = Data(num_nodes=20, edge_index=torch.stack([torch.arange(19), torch.arange(1, 20)]))
    for name, hops in far.items():
        # and one hop more: who weighs a node weighs it otherwise
        reached = affected(HopEncoder(name, inputs=2), path, 2)
        assert reached.tolist() == list(range(2, 4 + hops if hops else 3))
    assert affected(HopEncoder("two hops", inputs=2), path, 2).tolist() == [2, 3, 4, 5]
    assert affected(HopEncoder("raw", inputs=2), path, 2).tolist() == [2]


def test_forget_node_says_what_it_needs(make_graph, tmp_path):
    graph = make_graph()
    sessions = sessions_of(graph)
    model = taught(learner("paper"), graph, sessions)
    before = bytes_of(model, tmp_path)
    nodes = torch.cat([part for part, _ in sessions])
    gone = int(nodes[0])
    near = nodes[torch.isin(nodes, torch.from_numpy(model.reach(graph, gone)))]
    far = nodes[~torch.isin(nodes, near)]
    with pytest.raises(InputError, match=rf"nodes lacks {near.numel()} of {near.numel()} learned"):
        model.forget_node(graph, gone)
    with pytest.raises(InputError, match=rf"lacks 1 of .* first is {int(near[-1])}"):
        model.forget_node(graph, gone, near[:-1], graph.y[near[:-1]])
    with pytest.raises(InputError, match="not learned as"):
        model.forget_node(graph, gone, near, (graph.y[near] + 1) % 4)
    if far.numel():
        with pytest.raises(InputError, match="whose features do not change"):
            model.forget_node(graph, gone, far, graph.y[far])
    with pytest.raises(InputError, match=r"labels has shape \[\] for 0 nodes"):
        model.forget_node(graph, gone, [], 3)
    for node, words in ((60, "nodes holds 60"), (-1, "nodes holds -1"), ("a", "nodes must be")):
        with pytest.raises(InputError, match=words):
            model.forget_node(graph, node)
    assert bytes_of(model, tmp_path) == before


def test_a_node_of_two_sites_is_forgotten_at_its_own(make_graph):
    """Where sites share ids, the message says so; the remedy that it names is exact."""
    north, south = make_graph(), make_graph()
    south.x = south.x.flip(0)
    first = taught(learner("default"), north, sessions_of(north))
    second = taught(first.blank(), south, sessions_of(south))
    both = copy.deepcopy(first).merge(second)
    nodes = torch.cat([part for part, _ in sessions_of(north)])
    gone = int(nodes[0])
    near = nodes[torch.isin(nodes, torch.from_numpy(both.reach(north, gone)))]
    with pytest.raises(InputError, match="forget_node in a site's own model, and merge again"):
        both.forget_node(north, gone, near, north.y[near])
    first.forget_node(north, gone, near, north.y[near])
    assert int(first.merge(second).statistics_.n.sum()) == 2 * nodes.numel() - 1


def test_a_node_apart_goes_without_a_word(make_graph):
    """Nobody learned is near: nothing of the sums changes, and the graph loses the node."""
    graph = make_graph()
    graph.x = torch.cat([graph.x, torch.ones(1, 12)])
    graph.edge_weight = torch.ones(graph.edge_index.size(1))
    model = taught(learner("default"), graph, sessions_of(graph))
    before = model.weights_
    bare = model.forget_node(graph, 60)
    assert torch.equal(model.weights_, before)
    assert float(bare.x[60].abs().sum()) == 0 < float(graph.x[60].sum())
    # without a record, the caller is trusted to have named all that were learned
    assert torch.equal(model.drop_record().forget_node(graph, 60).x, bare.x)
    fewer = without_node(graph, 0)
    assert fewer.num_nodes == 61
    assert fewer.edge_weight.numel() == fewer.edge_index.size(1) < graph.edge_index.size(1)
    assert not bool((fewer.edge_index == 0).any())


def test_a_node_learned_twice_is_named_twice(make_graph):
    graph = make_graph()
    model = taught(learner("paper"), graph, sessions_of(graph))
    nodes = graph.train_mask.nonzero().squeeze(1)
    twice = nodes[:1]
    model.partial_fit(graph, twice, graph.y[twice], repeat="count")
    gone = int(nodes[1])
    near = nodes[torch.isin(nodes, torch.from_numpy(model.reach(graph, gone)))]
    if int(twice) in near.tolist():
        with pytest.raises(InputError, match="lacks 1 of"):
            model.forget_node(graph, gone, near, graph.y[near])
        near = torch.cat([near, twice])
    bare = model.forget_node(graph, gone, near, graph.y[near])
    stays = nodes[nodes != gone]
    expected = model.blank().partial_fit(bare, stays, graph.y[stays])
    expected.partial_fit(bare, twice, graph.y[twice], repeat="count")
    assert_same(model, expected, bare)


# -- merge ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "features"),
    [("default", WIDE), ("default", 30), ("slda", 70), ("paper", WIDE), ("paper, γ chosen", 70)],
)
def test_five_sites_make_one_learner(make_graph, tmp_path, kind, features):
    """Each its own part of the nodes, classes overlapping or not; only files are exchanged."""
    graph = make_graph(features=features, per_class=30)
    names = np.array(["ash", "birch", "cedar", "elm"])
    train = graph.train_mask.nonzero().squeeze(1)
    first = taught(learner(kind), graph, sessions_of(graph, names))
    first.blank().save(tmp_path / "blank.safetensors")
    blank = algnn.ALGNN.load(tmp_path / "blank.safetensors")
    order = train[torch.randperm(train.numel(), generator=torch.Generator().manual_seed(2))]
    expected = blank.blank().partial_fit(graph, train, names[graph.y[train]])
    sites = []
    # one site has a single class, one a single node
    for place, part in enumerate(order.split([20, 1, 9, 9, train.numel() - 39])):
        part = part if place else order[:20][graph.y[order[:20]] == 1]
        site = algnn.ALGNN.load(tmp_path / "blank.safetensors")
        site.partial_fit(graph, part, names[graph.y[part].numpy()])
        site.save(tmp_path / f"{place}.safetensors")
        sites.append(algnn.ALGNN.load(tmp_path / f"{place}.safetensors"))
    rest = order[:20][graph.y[order[:20]] != 1]
    sites.append(blank.blank().partial_fit(graph, rest, names[graph.y[rest].numpy()]))
    scores = [site.decision_function(graph) for site in sites]
    for several in (sites, sites[::-1]):
        one = blank.blank()
        for site in several:
            one.merge(site)
        assert_same(one, expected, graph)
        # what came from elsewhere can be forgotten here
        one.forget(graph, train[:3], names[graph.y[train[:3]]])
        assert [event.what for event in one.events_] == [*["merge"] * 6, "forget"]
    for site, before in zip(sites, scores, strict=True):
        assert np.array_equal(site.decision_function(graph), before)


def test_merging_twice_counts_twice(make_graph):
    graph = make_graph(features=WIDE)
    model = taught(learner("default"), graph, sessions_of(graph))
    n = model.statistics_.n
    with pytest.raises(InputError, match="both learned 24 nodes with the same labels"):
        model.merge(model)
    assert torch.equal(model.statistics_.n, n)
    model.merge(model, repeat="count")
    assert torch.equal(model.statistics_.n, 2 * n)


def test_sites_that_have_learned_nothing_can_be_merged(make_graph):
    graph = make_graph(features=WIDE)
    model = taught(learner("default"), graph, sessions_of(graph))
    assert model.blank().merge(model.blank()).classes_.size == 0
    assert_same(model.blank().merge(model.blank()).merge(model), model, graph)


def test_a_label_that_is_not_unique_is_not_looked_up(make_graph):
    here, there = make_graph(seed=1, features=WIDE), make_graph(seed=2, features=WIDE)
    one, *_ = sessions_of(here)
    blank = taught(learner("default"), here, [one]).blank()
    sites = [blank.blank().partial_fit(here, range(6), [0, 1] * 3)]
    sites.append(blank.blank().partial_fit(there, range(3, 9), [2, 3] * 3))
    both = sites[0].merge(sites[1])
    with pytest.raises(InputError, match="node 4 was learned with several labels"):
        both.relabel(here, [2, 4], None, [1, 1])
    both.relabel(here, [2, 4], [0, 0], [1, 1]).relabel(here, [0], None, [1])
    assert both.statistics_.n.tolist() == [0, 6, 3, 3][1:]


def test_a_head_with_a_gamma_of_its_own_can_be_merged(make_graph):
    graph = make_graph(features=WIDE)
    first, *others = sessions_of(graph)
    here = taught(learner("default"), graph, [first]).set_head("ridge", 0.01)
    there = taught(here.blank(), graph, others)
    expected = taught(copy.deepcopy(here), graph, others)
    for one, other in ((here, there), (there, here)):
        found = copy.deepcopy(one).merge(other).decision_function(graph)
        np.testing.assert_allclose(found, expected.decision_function(graph), atol=1e-9)


def test_learners_that_differ_are_not_merged(make_graph, tmp_path):
    graph = make_graph()
    sessions = sessions_of(graph)
    model = taught(learner("paper"), graph, sessions)
    before = bytes_of(model, tmp_path)
    default = taught(learner("default"), graph, sessions)
    strings = model.blank().partial_fit(graph, [0, 1], ["a", "b"])
    faded = taught(learner("paper", half_life=2), graph, sessions)
    for mine, other, words in (
        (model, taught(learner("paper", width=40), graph, sessions), "features 40 wide"),
        (model, taught(learner("paper", seed=1), graph, sessions), "in another way"),
        (model, taught(learner("paper", epochs=3), graph, sessions), "in another way"),
        (model, taught(learner("paper", expansion="plain"), graph, sessions), "in another way"),
        (model, strings, "keep to one kind"),
        (model, faded, "half_life"),
        (faded, model, "half_life"),
        (model, "model.safetensors", "other is a str"),
        (model, taught(JointRidge(device="cpu"), graph, sessions), "other is a JointRidge"),
        (default, taught(learner("default", gamma=0.1), graph, sessions), "sums of two halves"),
    ):
        with pytest.raises(InputError, match=words):
            mine.merge(other)
    with pytest.raises(NotFittedError):
        model.merge(learner("paper"))
    assert bytes_of(model, tmp_path) == before
    other = learner("default", seed=5)
    other._learned = default.blank()._learned
    with pytest.raises(InputError, match="halves its nodes by seed=5"):
        default.merge(other)


# -- half-life --------------------------------------------------------------------------------


def weighted(model, graph, sessions, half_life, seed=0):
    """Sums as they are defined: each session weighed by its age."""
    G = Q = 0
    classes = np.unique(np.concatenate([labels for _, labels in sessions]))
    n = np.zeros(classes.size)
    for place, (nodes, labels) in enumerate(sessions):
        Z = torch.cat(list(model._features(graph, nodes, model._learned.features)))
        Y = torch.from_numpy((labels[:, None] == classes).astype(float))
        weight = 0.5 ** ((len(sessions) - 1 - place) / half_life)
        G, Q, n = G + weight * Z.mT @ Z, Q + weight * Z.mT @ Y, n + weight * Y.sum(0).numpy()
    return Statistics(G, Q, torch.from_numpy(n), classes)


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize(("features", "half_life"), [(WIDE, 1), (NARROW, 3.5)])
def test_old_sessions_fade_as_in_a_weighted_refit(make_graph, tmp_path, kind, features, half_life):
    graph = make_graph(features=features)
    sessions = sessions_of(graph)
    model = taught(learner(kind, half_life=half_life), graph, sessions)
    expected = weighted(model, graph, sessions, half_life)
    found = model.statistics_
    for ours, theirs in ((found.G, expected.G), (found.Q, expected.Q), (found.n, expected.n)):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    W, _ = HEADS[model.head](expected, model._learned.gamma)
    assert float((model.weights_ - W).norm()) <= 1e-9 * float(W.norm())
    model.save(tmp_path / "model.safetensors")
    again = algnn.ALGNN.load(tmp_path / "model.safetensors")
    assert torch.equal(again.weights_, again._learned.affine[0])
    torch.testing.assert_close(again.weights_, model.weights_, rtol=1e-9, atol=1e-12)
    assert again.retained_bytes() == model.retained_bytes()
    with pytest.raises(InputError, match="half_life has made old sessions count for less"):
        model.forget(graph, *sessions[-1])


def test_five_hundred_half_lives_later_it_is_still_solved():
    """One class comes again and again, in few directions; the others never do."""
    Z = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double()
    sums = Statistics.empty(3).plus([Z[:6]], np.arange(6) % 3)
    factor = 1 / 2
    for session in range(500):
        sums = sums.scaled(factor).plus([Z[7:]], np.array([0]))
        if session % 10 == 0:
            for head in HEADS.values():
                W, b = head(sums, 1e-3)
                assert bool(W.isfinite().all() and b.isfinite().all())
            assert float(torch.linalg.eigvalsh(sums.G)[0]) > -1e-12
    # 500 half-lives without a node: gone
    assert sums.classes.tolist() == [0]
    assert float(sums.n) == pytest.approx(1 / (1 - factor))


def test_a_class_that_fades_is_there_until_it_counts_for_nothing(make_graph):
    graph = make_graph(features=WIDE)
    model = learner("default", half_life=0.01).fit(graph, [0, 1, 2, 4, 5], [0, 1, 2, 0, 1])
    for session in range(3):
        model.partial_fit(graph, [8], [0])
        gone = 2.0 ** (-100 * (session + 1)) < GONE
        assert (1 in model.classes_) == (not gone)
        assert np.isfinite(model.decision_function(graph)).all()
    model.partial_fit(graph, [8], [0])
    assert model.classes_.tolist() == [0]
    assert model.summary().nodes == {0: pytest.approx(1)}


def test_a_first_session_can_be_forgotten_whatever_the_half_life(make_graph):
    graph = make_graph()
    model = learner("default", half_life=2).fit(graph, torch.arange(9), graph.y[:9])
    model.forget(graph, [0], [0])
    assert int(model.statistics_.n.sum()) == 8
    for bad in (-1, "x", float("nan"), float("inf"), True):
        with pytest.raises(InputError, match="half_life"):
            learner("default", half_life=bad).fit(graph, [0, 1], [0, 1])


def test_what_is_new_is_the_same_after_forgetting_as_without_learning():
    graph = algnn.load("digits").subgraph(torch.arange(700))
    never, model = (
        algnn.ALGNN(width=320, device="cpu").fit(graph, range(200), graph.y[:200]) for _ in range(2)
    )
    never.partial_fit(graph, range(200, 250), graph.y[200:250])
    model.partial_fit(graph, range(200, 400), graph.y[200:400])
    model.forget(graph, range(250, 400), graph.y[250:400])
    np.testing.assert_allclose(model.novelty(graph), never.novelty(graph), atol=1e-6)


def test_forgetting_a_node_keeps_the_names_of_all():
    # as many edges as nodes: a list of names is none of edges
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graph = Data(x=torch.eye(4), edge_index=ring, node_names=list("abcd"), y=torch.arange(4))
    bare = without_node(graph, 2)
    assert bare.node_names == list("abcd")
    assert bare.edge_index.tolist() == [[0, 3], [1, 0]]
    assert bare.y.tolist() == [0, 1, 2, 3]
