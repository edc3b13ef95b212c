import numpy as np
import pytest
import torch

from algnn.baselines.joint import Joint
from algnn.errors import InputError


def nodes_of(graph, mask, *classes):
    return (mask & torch.isin(graph.y, torch.tensor(classes))).nonzero().squeeze(1)


def quick(**changes):
    return Joint(**{"hidden": 16, "epochs": 8, "device": "cpu", "seed": 1, **changes})


def test_all_labels_so_far_are_learned_at_once(small_graph):
    """Two sessions or one with everything: the same nodes and labels stand in the loss."""
    first, second = (nodes_of(small_graph, small_graph.train_mask, *c) for c in ((0, 1), (2, 3)))
    model = quick()
    for nodes in (first, second):
        model.partial_fit(small_graph, nodes, small_graph.y[nodes])
    memory = model._learned.memory
    assert memory["nodes"].tolist() == [*first.tolist(), *second.tolist()]
    assert torch.equal(memory["codes"], small_graph.y[memory["nodes"]])


def test_a_node_that_comes_again_counts_once_by_its_last_label(small_graph):
    nodes = nodes_of(small_graph, small_graph.train_mask, 0, 1)
    model = quick().fit(small_graph, nodes, small_graph.y[nodes])
    model.partial_fit(small_graph, nodes[:3], [1, 1, 1])
    memory = model._learned.memory
    assert sorted(memory["nodes"].tolist()) == sorted(nodes.tolist())
    assert memory["codes"][-3:].tolist() == [1, 1, 1]


def test_the_best_epoch_on_validation_nodes_is_kept(small_graph):
    """Trained until it has unlearned: a learning rate that only the first looks survive."""
    train = small_graph.train_mask.nonzero().squeeze(1)
    held = small_graph.val_mask.nonzero().squeeze(1)
    validation = (held, small_graph.y[held])

    def accuracy(model):
        return (model.predict(small_graph, held) == small_graph.y[held].numpy()).mean()

    settings = {"epochs": 40, "lr": 0.5, "check_every": 1}
    last = quick(**settings).fit(small_graph, train, small_graph.y[train])
    best = quick(**settings).fit(small_graph, train, small_graph.y[train], validation)
    by_epoch = [
        accuracy(quick(**{**settings, "epochs": e}).fit(small_graph, train, small_graph.y[train]))
        for e in range(1, 41)
    ]
    assert accuracy(last) == by_epoch[-1]
    assert accuracy(best) == max(by_epoch)


def test_the_last_epoch_is_looked_at_too(small_graph):
    train = small_graph.train_mask.nonzero().squeeze(1)
    held = small_graph.val_mask.nonzero().squeeze(1)
    plain = quick(epochs=3).fit(small_graph, train, small_graph.y[train])
    looked = quick(epochs=3).fit(
        small_graph, train, small_graph.y[train], (held, small_graph.y[held])
    )
    scores = (m.decision_function(small_graph) for m in (plain, looked))
    assert np.array_equal(*scores)


def test_bad_validation_nodes_are_refused(small_graph):
    train = nodes_of(small_graph, small_graph.train_mask, 0, 1)
    labels = small_graph.y[train]
    for validation, words in (
        (([0], [3]), "validation holds class 3"),
        (([900], [0]), "must lie in"),
        (([0, 1], [0]), "one label per node"),
    ):
        with pytest.raises(InputError, match=words):
            quick().fit(small_graph, train, labels, validation)
    model = quick().fit(small_graph, train, labels, ([58], [0]))
    smaller = small_graph.subgraph(torch.arange(50))
    with pytest.raises(InputError, match="a graph may grow"):
        model.partial_fit(smaller, train[:1], labels[:1])
