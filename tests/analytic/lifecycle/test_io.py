"""What a life leaves in a checkpoint: the log, the record of nodes, sums that fade."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import algnn
from algnn import checkpoint
from algnn.analytic.features.expansion import ExpandedGCN
from algnn.analytic.heads import HEADS, balanced_system
from algnn.analytic.lifecycle.io import fingerprint
from algnn.analytic.lifecycle.membership import Membership
from algnn.errors import CheckpointError, InputError


@pytest.fixture
def path(small_graph, tmp_path):
    model = algnn.ALGNN(device="cpu").fit(small_graph, torch.arange(12), small_graph.y[:12])
    model.partial_fit(small_graph, [20, 21], small_graph.y[20:22])
    model.forget(small_graph, [3], small_graph.y[3:4])
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(path, tensors, facts):
    checkpoint.write(path, "ALGNN", tensors, facts)


def test_the_life_goes_on_after_loading(path, small_graph):
    model = algnn.ALGNN.load(path)
    assert [event.what for event in model.events_] == ["learn", "learn", "forget"]
    model.forget(small_graph, [20], small_graph.y[20:21])
    with pytest.raises(algnn.InputError, match="was not learned as"):
        model.forget(small_graph, [3], small_graph.y[3:4])
    model.save(path)
    assert algnn.ALGNN.load(path).events_ == model.events_


def test_no_node_is_named(path):
    _, facts = checkpoint.read(path, "ALGNN")
    for event in facts["log"]["events"]:
        assert set(event) == {
            *("what", "time", "nodes", "head", "gamma", "kept", "other", "before"),
        }
        assert [label for label, _ in event["nodes"]] == sorted({c for c, _ in event["nodes"]})


def test_nothing_is_made_of_a_size_that_a_file_only_claims(path):
    tensors, facts = checkpoint.read(path, "ALGNN")
    del facts["log"], tensors["record.prints"]
    tensors["statistics.n"] = torch.full_like(tensors["statistics.n"], 2**50)
    rewrite(path, tensors, facts)
    with pytest.raises(CheckpointError, match=r"record\.hashes is"):
        algnn.ALGNN.load(path)


def test_a_file_without_a_log_says_so_from_now_on(path):
    tensors, facts = checkpoint.read(path, "ALGNN")
    del facts["log"]
    rewrite(path, tensors, facts)
    events = algnn.ALGNN.load(path).events_
    assert [(event.what, event.count) for event in events] == [("found", 13)]


def another_log(tensors, facts):
    other = algnn.analytic.lifecycle.audit.AuditLog().plus("learn", {0: 1}, "balanced", 0.1)
    facts["log"] = json.loads(json.dumps(other.to_json()))


def cut_log(tensors, facts):
    facts["log"]["events"].pop()


def one_hash_less(tensors, facts):
    tensors["record.hashes"] = tensors["record.hashes"][1:].clone()


def other_hashes(tensors, facts):
    tensors["record.hashes"] = tensors["record.hashes"].double()


def weights_below_nothing(tensors, facts):
    tensors["statistics.n"] = tensors["statistics.n"].double()
    tensors["statistics.n"][0] = 1e-200


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (another_log, "does not add up"),
        (cut_log, "changed or cut"),
        (one_hash_less, r"record\.hashes"),
        (other_hashes, r"record\.hashes"),
        (weights_below_nothing, "n holds counts"),
    ],
)
def test_a_spoiled_life_is_refused(path, spoil, words):
    tensors, facts = checkpoint.read(path, "ALGNN")
    spoil(tensors, facts)
    rewrite(path, tensors, facts)
    with pytest.raises(CheckpointError, match=words):
        algnn.ALGNN.load(path)


@pytest.mark.parametrize("encoder", ["hops", "gcn"])
def test_a_blank_learner_can_be_sent(small_graph, path, encoder):
    settings = {"encoder": encoder, "width": 32, "hidden": 8, "epochs": 2, "device": "cpu"}
    model = algnn.ALGNN(**settings).fit(small_graph, torch.arange(12), small_graph.y[:12])
    model.blank().save(path)
    blank = algnn.ALGNN.load(path)
    assert blank.classes_.size == 0
    assert blank.events_ == ()
    blank.partial_fit(small_graph, [0, 1], ["one", "two"])
    assert blank.classes_.tolist() == ["one", "two"]
    again = model.blank().partial_fit(small_graph, torch.arange(12), small_graph.y[:12])
    np.testing.assert_allclose(
        again.decision_function(small_graph), model.decision_function(small_graph), atol=1e-9
    )


def test_without_its_record_a_learner_forgets_on_trust(path, small_graph):
    model = algnn.ALGNN.load(path).drop_record()
    model.save(path)
    tensors, _ = checkpoint.read(path, "ALGNN")
    assert "record.hashes" not in tensors
    again = algnn.ALGNN.load(path)
    assert again.events_[-1].what == "drop record"
    again.forget(small_graph, [0], small_graph.y[:1])
    with pytest.raises(algnn.InputError, match="nodes the class 3, of which"):
        again.forget(small_graph, [7, 11, 15, 19], [3, 3, 3, 3])


def test_fingerprints_never_change():
    """Hashes of nodes are made with them, so how they are made is part of the format."""
    weight = torch.arange(6.0).view(2, 3)
    facts = '{"expansion": {"inputs": 3, "kind": "gcn", "seed": 7, "width": 8}}'
    text = b"encoder.bias torch.float32 [3]" + np.ones(3, dtype="<f4").tobytes()
    text += b"encoder.weight torch.float32 [2, 3]" + np.arange(6, dtype="<f4").tobytes()
    expected = hashlib.sha256(facts.encode() + text).hexdigest()
    # the same numbers in another order in memory
    for same in (weight, weight.T.contiguous().T):
        assert fingerprint(ExpandedGCN(same, torch.ones(3), "gcn", width=8, seed=7)) == expected


# -- summary --------------------------------------------------------------------------------------


def learner(graph, head, **changes):
    model = algnn.ALGNN(head=head, gamma=0.05, device="cpu", **{"width": 128, **changes})
    nodes = graph.train_mask.nonzero().squeeze(1)
    first = graph.y[nodes] < 2
    model.fit(graph, nodes[first], graph.y[nodes[first]])
    return model.partial_fit(graph, nodes[~first], graph.y[nodes[~first]])


@pytest.mark.parametrize("features", [12, 200])
@pytest.mark.parametrize("head", HEADS)
def test_it_describes_the_system_that_is_solved(make_graph, head, features):
    model = learner(make_graph(features=features), head)
    found, sums = model.summary(), model.statistics_
    if head == "ncm":
        assert (found.condition, found.degrees) == (None, None)
        return
    means = sums.Q / sums.n
    matrix, penalty = {
        "ridge": (sums.G, 0.05),
        "balanced": (balanced_system(sums)[0], 0.05 * float(balanced_system(sums)[0].trace())),
        "slda": (sums.G - (means * sums.n) @ means.mT, 0.05),
    }[head]
    solved = matrix + penalty * torch.eye(matrix.size(0)).double()
    assert found.condition == pytest.approx(float(torch.linalg.cond(solved)), rel=1e-6)
    degrees = float(torch.linalg.solve(solved, matrix).trace())
    assert found.degrees == pytest.approx(degrees, rel=1e-9)


def test_it_says_what_was_seen(make_graph, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    graph = make_graph()
    model = learner(graph, "ridge")
    nodes = graph.train_mask.nonzero().squeeze(1)[:2]
    model.forget(graph, nodes, graph.y[nodes])
    model.merge(model.blank())
    found = model.summary()
    assert found.nodes == {0: 5, 1: 5, 2: 6, 3: 6}
    assert [(e.what, e.count) for e in found.events] == [
        ("learn", 12),
        ("learn", 12),
        ("forget", 2),
        ("merge", 0),
    ]
    assert found.events == model.events_
    assert (found.inputs, found.labels, found.record) == (12, "int", True)
    assert found.retained_bytes == model.retained_bytes()
    text = str(found)
    assert text.splitlines()[0] == "4 classes, 22 nodes; labels are ints, x has 12 columns"
    assert "1970-01-01T00:00:00Z  forget      2        2  ridge  0.05" in text
    assert found.encoder in text
    assert found.schema in text
    # the same after a night on disk
    model.save(tmp_path / "model.safetensors")
    again = algnn.ALGNN.load(tmp_path / "model.safetensors").summary()
    assert again.events == found.events
    assert str(again) == text


def test_fingerprints_tell_encoders_and_data_apart(make_graph):
    graph = make_graph()
    model = learner(graph, "ridge")
    blank = model.blank()
    assert blank.summary().encoder == model.summary().encoder
    assert blank.summary().labels == "none"
    assert str(blank.summary()).startswith("0 classes, 0 nodes; no labels yet")
    named = blank.partial_fit(graph, [0, 1], ["a", "b"])
    assert named.summary().schema != model.summary().schema
    paper = {"encoder": "gcn", "width": 32, "hidden": 8, "epochs": 2}
    prints = {
        learner(graph, "ridge", **{**paper, **changes}).summary().encoder
        for changes in ({}, {"seed": 1}, {"epochs": 3}, {"expansion": "plain"}, {"width": 33})
    }
    assert len(prints) == 5


def test_long_tables_are_cut_in_the_middle(make_graph):
    graph = make_graph(classes=50, per_class=4)
    model = algnn.ALGNN(head="ncm", device="cpu")
    model.fit(graph, torch.arange(100), np.array([f"class {c}" for c in graph.y[:100].tolist()]))
    text = str(model.summary())
    assert "… 10 more" in text
    assert all(len(line) < 100 for line in text.splitlines())


# -- which nodes were learned ---------------------------------------------------------------------


PAIRS = st.lists(st.tuples(st.integers(0, 6) | st.integers(0, 2**62), st.integers(-2, 3)))


def split(pairs):
    nodes = torch.tensor([node for node, _ in pairs], dtype=torch.int64)
    return nodes, np.array([label for _, label in pairs], dtype=np.int64)


@given(st.lists(PAIRS, max_size=4), PAIRS)
def test_it_is_a_multiset_of_pairs(sessions, gone):
    members, held = Membership("key"), Counter()
    for pairs in sessions:
        members = members.plus(*split(pairs))
        held.update(pairs)
    nodes = torch.arange(7)
    times = [sum(held[node, label] for label in range(-2, 4)) for node in range(7)]
    assert members.known(nodes, np.arange(-2, 4))[1].tolist() == times
    if Counter(gone) <= held:
        left = members.minus(*split(gone))
        rest = Membership("key").plus(*split(list((held - Counter(gone)).elements())))
        assert left.ordered[0].tolist() == rest.ordered[0].tolist()
    else:
        with pytest.raises(InputError, match="was not learned as"):
            members.minus(*split(gone))


def test_keys_and_kinds_of_labels_have_nothing_in_common():
    nodes = torch.arange(1000)
    labels = np.arange(1000) % 3
    hashes = [
        set(Membership(key).plus(nodes, of).hashes.tolist())
        for key, of in (("a", labels), ("b", labels), ("a", labels.astype(str)))
    ]
    assert all(len(one) == 1000 for one in hashes)
    assert not hashes[0] & hashes[1]
    assert not hashes[0] & hashes[2]


def test_hashes_are_spread_evenly():
    members = Membership("key").plus(torch.arange(100_000), np.zeros(100_000, dtype=np.int64))
    assert np.unique(members.hashes).size == 100_000
    for bit in range(64):
        share = (members.hashes.view(np.uint64) >> np.uint64(bit) & np.uint64(1)).mean()
        assert 0.49 < share < 0.51


def test_the_order_of_learning_does_not_show():
    one = Membership("key").plus(torch.arange(9), np.arange(9))
    other = Membership("key").plus(torch.arange(8, -1, -1), np.arange(8, -1, -1))
    assert one.ordered[0].tolist() == other.ordered[0].tolist()


def by_hand(key, node, label):
    digest = hashlib.sha256(f"{key} {label!r}".encode()).digest()
    first, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))

    def mixed(bits):
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        return bits ^ bits >> 31

    return (mixed((node + first) % 2**64) + mixed(node ^ second)) % 2**64


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(-9, 9) | st.text(max_size=3))),
    st.sampled_from([0, 30]),
)
def test_hashes_never_change(pairs, more):
    """Checkpoints hold them, so how they are made is part of the format."""
    pairs = [*pairs, *((node, kind(node % 3)) for node in range(more) for kind in (int, str))]
    for kind in (int, str):
        some = [(node, label) for node, label in pairs if isinstance(label, kind)]
        nodes = torch.tensor([node for node, _ in some], dtype=torch.int64)
        labels = np.array([label for _, label in some], dtype=np.int64 if kind is int else np.str_)
        expected = [
            by_hand("key", node, label)
            for (node, _), label in zip(some, labels.tolist(), strict=True)
        ]
        found = Membership("key").plus(nodes, labels).hashes
        assert found.view(np.uint64).tolist() == expected
