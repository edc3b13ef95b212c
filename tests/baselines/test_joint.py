import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from algnn import open_graph, write_graph
from algnn.baselines.joint import NETWORKS, Joint
from algnn.errors import CheckpointError, InputError, NotFittedError

every_model = pytest.mark.parametrize("model", NETWORKS)


def nodes_of(graph, mask, *classes):
    return (mask & torch.isin(graph.y, torch.tensor(classes))).nonzero().squeeze(1)


def quick(**changes):
    return Joint(**{"hidden": 16, "epochs": 8, "device": "cpu", "seed": 1, **changes})


def everything(graph):
    """All training nodes with their labels, and all validation nodes with theirs."""
    train, held = (mask.nonzero().squeeze(1) for mask in (graph.train_mask, graph.val_mask))
    return train, graph.y[train], (held, graph.y[held])


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

    settings = {"epochs": 15, "lr": 0.5, "check_every": 1, "other_weight_decay": 5e-4}
    last = quick(**settings).fit(small_graph, train, small_graph.y[train])
    best = quick(**settings).fit(small_graph, train, small_graph.y[train], validation)
    by_epoch = [
        accuracy(quick(**{**settings, "epochs": e}).fit(small_graph, train, small_graph.y[train]))
        for e in range(1, 16)
    ]
    assert accuracy(last) == by_epoch[-1]
    assert accuracy(best) == max(by_epoch)


def test_the_last_epoch_is_looked_at_too(small_graph):
    train = small_graph.train_mask.nonzero().squeeze(1)
    held = small_graph.val_mask.nonzero().squeeze(1)
    plain = quick(epochs=3).fit(small_graph, train, small_graph.y[train])
    looked = quick(epochs=3, other_weight_decay=5e-4).fit(
        small_graph, train, small_graph.y[train], (held, small_graph.y[held])
    )
    assert [trial.epoch for trial in looked.trials_] == [3]
    scores = (m.decision_function(small_graph) for m in (plain, looked))
    assert np.array_equal(*scores)


@every_model
@pytest.mark.parametrize("order", [(5e-4, 1e3), (1e3, 5e-4)], ids=["first", "second"])
def test_the_better_of_two_weight_decays_is_kept(small_graph, model, order):
    """One of them drowns every gradient of the loss; each trial is what its decay gives alone."""
    train, labels, validation = everything(small_graph)

    def trained(one, other):
        settings = {"epochs": 12, "check_every": 12, "lr": 0.05, "model": model}
        learner = quick(weight_decay=one, other_weight_decay=other, **settings)
        return learner.fit(small_graph, train, labels, validation)

    alone = {decay: trained(decay, decay) for decay in order}
    both = trained(*order)
    assert both.trials_ == tuple(alone[decay].trials_[0] for decay in order)
    good, bad = (alone[decay].trials_[0].accuracy for decay in (5e-4, 1e3))
    assert good > bad
    scores = (m.decision_function(small_graph) for m in (both, alone[5e-4]))
    assert np.array_equal(*scores)


def test_all_validation_nodes_so_far_choose_in_each_session(small_graph):
    small_graph.x += 2 * torch.randn(
        small_graph.x.shape, generator=torch.Generator().manual_seed(0)
    )
    model = quick(epochs=12, check_every=2)
    for classes in ((0, 1), (2, 3)):
        train, held = (
            nodes_of(small_graph, mask, *classes)
            for mask in (small_graph.train_mask, small_graph.val_mask)
        )
        validation = (held, small_graph.y[held])
        model.partial_fit(small_graph, train, small_graph.y[train], validation)
        assert [trial.weight_decay for trial in model.trials_] == [5e-4, 5e-3]
    held = small_graph.val_mask.nonzero().squeeze(1)
    truth = small_graph.y[held].numpy()
    right = model.predict(small_graph, held) == truth
    by_class = np.array([right[truth == c].mean() for c in range(4)])
    # else the nodes of one session would do as well
    assert by_class[:2].mean() != by_class[2:].mean()
    best = max(trial.accuracy for trial in model.trials_)
    assert by_class.mean() == pytest.approx(best)


def test_a_graph_on_disk_takes_validation_nodes_too(small_graph, tmp_path):
    train, labels, validation = everything(small_graph)
    write_graph(small_graph, tmp_path / "g", parts=2)
    models = (quick(), quick())
    for model, graph in zip(models, (small_graph, open_graph(tmp_path / "g")), strict=True):
        model.fit(graph, train, labels, validation)
    assert np.array_equal(*(model.decision_function(small_graph) for model in models))


def test_a_tie_goes_to_weight_decay(small_graph):
    """This graph is learned without a fault with either."""
    train, labels, validation = everything(small_graph)

    def trained(one, other):
        learner = quick(epochs=20, lr=0.05, weight_decay=one, other_weight_decay=other)
        return learner.fit(small_graph, train, labels, validation)

    scores = {}
    for order in ((0.0, 0.01), (0.01, 0.0)):
        both = trained(*order)
        assert {trial.accuracy for trial in both.trials_} == {1.0}
        scores[order] = both.decision_function(small_graph)
        alone = trained(order[0], order[0]).decision_function(small_graph)
        assert np.array_equal(scores[order], alone)
    assert not np.array_equal(*scores.values())


def test_one_training_where_there_is_nothing_to_choose(small_graph):
    train, labels, validation = everything(small_graph)
    blind = quick().fit(small_graph, train, labels)
    assert blind.trials_ == ((5e-4, 8, None),)
    other = quick(other_weight_decay=0.5).fit(small_graph, train, labels)
    assert np.array_equal(*(m.decision_function(small_graph) for m in (blind, other)))
    same = quick(other_weight_decay=5e-4).fit(small_graph, train, labels, validation)
    assert len(same.trials_) == 1


def test_the_trials_are_saved(small_graph, tmp_path):
    train, labels, validation = everything(small_graph)
    with pytest.raises(NotFittedError):
        _ = quick().trials_
    for offered in (validation, None):
        model = quick().fit(small_graph, train, labels, offered)
        model.save(tmp_path / "model.safetensors")
        assert Joint.load(tmp_path / "model.safetensors").trials_ == model.trials_


def test_a_file_without_the_neighbours_weights_is_refused(small_graph, tmp_path):
    train, labels, _ = everything(small_graph)
    path = tmp_path / "model.safetensors"
    quick(model="sage").fit(small_graph, train, labels).save(path)
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        header = file.metadata()
    mean = tensors.pop("weights.mean2")
    for spoiled in (tensors, {**tensors, "weights.mean2": mean[:, :2].contiguous()}):
        save_file(spoiled, path, header)
        with pytest.raises(CheckpointError, match="mean2"):
            Joint.load(path, verify=False)
    unknown = {name: text.replace('"sage"', '"gat"') for name, text in header.items()}
    save_file({**tensors, "weights.mean2": mean}, path, unknown)
    with pytest.raises(CheckpointError, match="model='gat' is unknown"):
        Joint.load(path, verify=False)


def test_bad_settings_are_refused(small_graph):
    train, labels, _ = everything(small_graph)
    for changes, words in (
        ({"model": "gat"}, "model='gat' is unknown: use one of gcn, appnp, sage"),
        ({"model": ["gcn"]}, "is unknown"),
        ({"other_weight_decay": -1.0}, "other_weight_decay=-1.0 must be a number of at least 0"),
        ({"weight_decay": "5e-4"}, "weight_decay='5e-4' must be a number"),
    ):
        with pytest.raises(InputError, match=words):
            quick(**changes).fit(small_graph, train, labels)


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


def test_weights_of_one_network_are_not_taken_for_those_of_another(small_graph, tmp_path):
    train, labels, _ = everything(small_graph)
    model = quick().fit(small_graph, train, labels).set_params(model="appnp")
    for call in (
        lambda: model.predict(small_graph),
        lambda: model.save(tmp_path / "joint.safetensors"),
        lambda: model.partial_fit(small_graph, train, labels),
    ):
        with pytest.raises(InputError, match="model='appnp' was set after fit, which had"):
            call()
    assert model.fit(small_graph, train, labels).predict(small_graph).size == 60
