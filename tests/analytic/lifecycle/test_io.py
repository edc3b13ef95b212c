"""What a life leaves in a checkpoint: the log, the record of nodes, sums that fade."""

import hashlib
import json

import numpy as np
import pytest
import torch

import algnn
from algnn import checkpoint
from algnn.analytic.features.expansion import Expansion
from algnn.analytic.features.gcn import ExpandedGCN, GCNEncoder
from algnn.analytic.lifecycle.io import fingerprint
from algnn.errors import CheckpointError


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
    weight, expansion = torch.arange(6.0).view(2, 3), Expansion("gcn", inputs=3, width=8, seed=7)
    facts = '{"expansion": {"inputs": 3, "kind": "gcn", "seed": 7, "width": 8}}'
    text = b"encoder.bias torch.float32 [3]" + np.ones(3, dtype="<f4").tobytes()
    text += b"encoder.weight torch.float32 [2, 3]" + np.arange(6, dtype="<f4").tobytes()
    expected = hashlib.sha256(facts.encode() + text).hexdigest()
    # the same numbers in another order in memory
    for same in (weight, weight.T.contiguous().T):
        assert fingerprint(ExpandedGCN(GCNEncoder(same, torch.ones(3)), expansion)) == expected
