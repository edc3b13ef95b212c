"""What several baselines have in common, method by method."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

import algnn
from algnn import checkpoint
from algnn.baselines.condensation import CaT, DeLoMe
from algnn.baselines.isolation import PIGNN
from algnn.baselines.regularisation import EWC, MAS, TWP, LwF
from algnn.baselines.replay import CGNN, ERGNN, GEM
from algnn.baselines.sums import RanPAC
from algnn.baselines.training import Bare
from algnn.errors import CheckpointError, InputError

SMALL = {"hidden": 16, "epochs": 10, "lr": 0.02, "device": "cpu"}

OFF = [
    (EWC, {"strength": 0.0}),
    (MAS, {"strength": 0.0}),
    (LwF, {"strength": 0.0}),
    (TWP, {"loss_strength": 0.0, "topology_strength": 0.0}),
    (GEM, {"budget": 0}),
    (ERGNN, {"budget": 0}),
    (CGNN, {"budget": 0}),
]


@pytest.mark.parametrize(("method", "off"), OFF)
def test_switched_off_it_is_bare_bit_for_bit(small_graph, learn, method, off):
    bare, without, usual = (
        learn(model, small_graph).decision_function(small_graph)
        for model in (Bare(**SMALL), method(**off, **SMALL), method(**SMALL))
    )
    assert np.array_equal(bare, without)
    assert not np.array_equal(bare, usual)


@pytest.mark.parametrize("method", [GEM, ERGNN, CGNN, CaT])
def test_a_memory_forgets_less_than_bare(small_graph, learn, method):
    old = (small_graph.test_mask & (small_graph.y < 2)).nonzero().squeeze(1)
    truth = small_graph.y[old].numpy()
    settings = {**SMALL, "epochs": 20}
    bare, memory = (
        (learn(model, small_graph).predict(small_graph, old) == truth).mean()
        for model in (Bare(**settings), method(budget=8, **settings))
    )
    assert memory > bare + 0.3


@pytest.mark.parametrize("method", [Bare, RanPAC])
def test_balanced_is_true_or_false(small_graph, method):
    model, nodes = method(balanced="no", device="cpu"), small_graph.train_mask
    with pytest.raises(InputError, match="balanced='no' must be True or False"):
        model.fit(small_graph, nodes, small_graph.y[nodes])


def test_a_balanced_mean_counts_each_class_the_same(small_graph):
    zeros, ones = ((small_graph.y == c).nonzero().squeeze(1) for c in (0, 1))
    nodes = torch.cat([zeros[:9], ones[:2]])
    labels = small_graph.y[nodes].numpy()
    for method in (Bare, EWC, GEM, TWP, LwF, ERGNN, CGNN, PIGNN):
        plain, balanced = (
            method(dropout=0.0, balanced=balanced, **SMALL) for balanced in (False, True)
        )
        for model in (plain, balanced):
            task = model._task(small_graph, nodes, labels, None)
            losses = cross_entropy(task.gcn(task.field), task.codes, reduction="none").detach()
            means = losses.mean(), (losses[:9].mean() + losses[9:].mean()) / 2
            found = model._loss(task, model._prepare(task)).item()
            beside = 1e-3 if method is TWP else 1e-6  # its β term
            assert found == pytest.approx(means[model.balanced].item(), rel=beside)
            shared = (task.shares(task.codes) @ losses).item()
            assert shared == pytest.approx(means[model.balanced].item(), rel=1e-6)


@pytest.mark.parametrize(
    ("method", "settings", "memory"),
    [(CGNN, {"strength": 0.0}, 1.0), (PIGNN, {"retrain": 0.5}, 0.5)],
)
def test_a_balanced_memory(small_graph, learn, task_of, method, settings, memory):
    """After a base session with 9 nodes of one class and 2 of another."""
    by_class = [(small_graph.y == c).nonzero().squeeze(1) for c in range(3)]
    model = method(**SMALL, **settings, dropout=0.0, balanced=True)
    model.fit(small_graph, torch.cat([by_class[0][:9], by_class[1][:2]]), [0] * 9 + [1] * 2)
    task = task_of(model, small_graph, by_class[2][:4], [2] * 4)
    prepared = model._prepare(task)
    sums = torch.bincount(prepared.codes, weights=prepared.shares).tolist()
    # CGNN has one mean over new and old nodes, PI-GNN one of each
    expected = [1 / 3] * 3 if method is CGNN else [memory / 2, memory / 2, 1.0]
    assert sums == pytest.approx(expected)


PENALTIES = ("importance", "anchor")
KEPT = {
    LwF: [],
    MAS: ["importance"],
    EWC: PENALTIES,
    TWP: [f"{kind}.{part}" for kind in ("loss", "topology") for part in PENALTIES],
}


@pytest.mark.parametrize("method", KEPT)
def test_a_few_numbers_for_each_weight_are_kept_however_many_sessions(small_graph, saved, method):
    model = method(**{**SMALL, "epochs": 2})
    for session in algnn.ClassStream(small_graph, base=2):
        before = model._known.memory if session.index else {}
        copies = {name: t.clone() for name, t in before.items()}
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, memory = saved(model)
        expected = {f"{part}.{n}": w.shape for part in KEPT[method] for n, w in weights.items()}
        assert {name: t.shape for name, t in memory.items()} == expected
        own = sum(t.nbytes for t in weights.values())
        assert model.retained_bytes() == (1 + len(KEPT[method])) * own
        assert all(torch.equal(before[name], copy) for name, copy in copies.items())


@pytest.mark.parametrize(
    ("method", "extra"), [(GEM, {"sessions"}), (ERGNN, set()), (CGNN, {"walks"}), (PIGNN, set())]
)
def test_classes_share_the_budget_and_nothing_else_is_kept(make_graph, saved, method, extra):
    graph = make_graph(classes=5)  # 6 training nodes of each class
    model = method(budget=10, **{**SMALL, "epochs": 1})
    known = set()
    for session in algnn.ClassStream(graph, base=2, order=[4, 1, 0, 3, 2]):
        model.partial_fit(session.graph, session.nodes, session.labels)
        _, memory = saved(model)
        nodes, codes = memory["nodes"], memory["codes"]
        assert set(memory) == {"nodes", "codes", *extra}
        assert {t.numel() for t in memory.values()} == {10}
        assert np.array_equal(model._learned.arrival[codes], graph.y[nodes])
        counts = torch.bincount(codes)
        assert counts.max() - counts.min() <= 1
        # what was dropped stays dropped
        assert set(nodes.tolist()) <= known | set(session.nodes.tolist())
        known = set(nodes.tolist())


@pytest.mark.parametrize("method", [GEM, ERGNN, CGNN, PIGNN])
def test_a_node_that_comes_again_counts_once_by_its_last_label(small_graph, method):
    model = method(budget=9, **{**SMALL, "epochs": 1})
    model.partial_fit(small_graph, [0, 4, 1, 5], [0, 0, 1, 1])
    model.partial_fit(small_graph, [4, 2], [1, 2])
    memory = model._learned.memory
    pairs = zip(memory["nodes"].tolist(), memory["codes"].tolist(), strict=True)
    assert sorted(pairs) == [(0, 0), (1, 1), (2, 2), (4, 1), (5, 1)]


BAD = {
    Bare: {"balanced": [1, "yes"]},
    EWC: {"strength": [-1.0, float("nan"), float("inf"), "much"]},
    MAS: {"strength": [-1.0, "much"]},
    LwF: {"strength": [-1.0], "temperature": [0.0, -2, "hot"]},
    TWP: {"loss_strength": [-1.0], "topology_strength": [-1.0], "beta": [-1.0]},
    GEM: {"budget": [-1, 2.5], "margin": [-0.1]},
    ERGNN: {
        "budget": [-1, 2.5],
        "distance": [-0.1],
        "weighting": ["ours"],
        "space": ["time"],
    },
    CGNN: {"budget": [-1, 2.5], "strength": [-0.1]},
    PIGNN: {"block": [0], "retrain": [-0.1], "budget": [2.5]},
    CaT: {"budget": [0], "condense_steps": [-1], "condense_lr": [-0.1]},
}


@pytest.mark.parametrize("method", BAD)
def test_bad_parameters_are_named(small_graph, method):
    for name, values in BAD[method].items():
        for value in values:
            with pytest.raises(InputError, match=f"{name}="):
                method(**{name: value}, device="cpu").fit(small_graph, [0, 1], [0, 1])


@pytest.mark.parametrize(
    ("method", "tensor"),
    [
        (EWC, "importance.weight1"),
        (MAS, "importance.weight1"),
        (TWP, "topology.importance.weight1"),
        (PIGNN, "nodes"),
        (GEM, "sessions"),
        (CGNN, "walks"),
        (CaT, "x"),
        (DeLoMe, "sessions"),
    ],
)
@pytest.mark.parametrize("spoil", [None, lambda t: t[:-1], lambda t: t.half()])
def test_a_file_with_another_memory_is_refused(small_graph, tmp_path, method, tensor, spoil):
    path = tmp_path / "model.safetensors"
    method(**{**SMALL, "epochs": 1}).fit(small_graph, [0, 1], [0, 1]).save(path)
    with safe_open(path, "pt") as file:
        header = file.metadata()
    tensors = load_file(path)
    whole = tensors.pop(f"memory.{tensor}")
    if spoil is not None:
        tensors[f"memory.{tensor}"] = spoil(whole).contiguous()
    save_file(tensors, path, header)
    with pytest.raises(CheckpointError, match=tensor.removeprefix("topology.")):
        method.load(path, verify=False)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"nodes": [0, 1], "codes": [0, 2]}, "codes names classes"),
        ({"nodes": [0, -1], "codes": [0, 1]}, "negative ids"),
        ({"walks": [1, 1, 1]}, "walks"),  # which this method does not have
    ],
)
def test_a_memory_of_impossible_nodes_is_refused(small_graph, tmp_path, changes, problem):
    path = tmp_path / "model.safetensors"
    ERGNN(**{**SMALL, "epochs": 1}).fit(small_graph, [0, 1], [0, 1]).save(path)
    with safe_open(path, "pt") as file:
        header = file.metadata()
    changed = {f"memory.{name}": torch.tensor(values) for name, values in changes.items()}
    save_file(load_file(path) | changed, path, header)
    with pytest.raises(CheckpointError, match=problem):
        ERGNN.load(path, verify=False)


def test_a_file_that_names_a_class_twice_is_refused(small_graph, tmp_path):
    path = tmp_path / "model.safetensors"
    EWC(**{**SMALL, "epochs": 1}).fit(small_graph, [0, 1], [0, 1]).save(path)
    tensors, facts = checkpoint.read(path, "EWC")
    checkpoint.write(path, "EWC", tensors, facts | {"arrival": [1, 1]})
    with pytest.raises(CheckpointError, match="arrival names a class twice"):
        EWC.load(path)
