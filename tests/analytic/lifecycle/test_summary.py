import numpy as np
import pytest
import torch

import algnn
from algnn.analytic.heads import HEADS, balanced_system


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
