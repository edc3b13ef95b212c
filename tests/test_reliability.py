"""What ordinary life does to a learner: calls sent twice, threads, flipped bits, odd input.

Nothing of it may be silently wrong: it works as anyone would expect, or is refused in a line that
says what to do.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

import algnn
from algnn.cli import main
from algnn.errors import AlgnnError, CheckpointError, InputError

GCN = {"encoder": "gcn", "head": "ridge", "gamma": 0.1, "hidden": 8, "width": 200, "epochs": 2}
KINDS = {"default": {}, "paper": GCN, "slda": {"head": "slda", "gamma": 0.1}}
# narrower than it comes, to be quick
SMALL = {"width": 96, "device": "cpu"}


@pytest.fixture(params=KINDS)
def model(request, small_graph):
    """A learner of three classes, nodes 0 to 39 but those of class 3."""
    nodes = base_nodes(small_graph)
    fresh = algnn.ALGNN(**{**SMALL, **KINDS[request.param]})
    return fresh.fit(small_graph, nodes, small_graph.y[nodes])


def base_nodes(graph):
    return (graph.y[:40] < 3).nonzero().squeeze(1)


def same(one, other, bound=1e-9):
    assert one.classes_.tolist() == other.classes_.tolist()
    assert torch.equal(one.statistics_.n, other.statistics_.n)
    assert float((one.weights_ - other.weights_).norm()) <= bound * float(other.weights_.norm())


# -- learning twice, relabelling, merging twice ---------------------------------------------------


def test_nothing_is_skipped_where_no_record_says_what_was_learned(model, small_graph):
    model.drop_record()
    before, nodes = model._learned, base_nodes(small_graph)
    with pytest.raises(InputError, match=r"'ignore' .*--again.* needs the record"):
        model.partial_fit(small_graph, nodes, small_graph.y[nodes], repeat="ignore")
    assert model._learned is before


def test_what_was_learned_is_refused_skipped_or_counted(model, small_graph):
    nodes = base_nodes(small_graph)
    labels, before = small_graph.y[nodes], model._learned
    with pytest.raises(InputError, match=r"nodes holds 0, which was learned as 0 before \(30 of"):
        model.partial_fit(small_graph, nodes, labels)
    more, their = [*nodes[:3].tolist(), 41], small_graph.y[[*nodes[:3].tolist(), 41]]
    with pytest.raises(InputError, match=r"\(3 of 4 were\): leave these out.*'ignore'.*--again"):
        model.partial_fit(small_graph, more, their)
    with pytest.raises(InputError, match="repeat='twice' is unknown: use one of error, ignore"):
        model.partial_fit(small_graph, more, their, repeat="twice")
    assert model.partial_fit(small_graph, nodes, labels, repeat="ignore")._learned is before
    model.partial_fit(small_graph, more, their, repeat="ignore")
    expected = model.blank().partial_fit(small_graph, nodes, labels)
    same(model, expected.partial_fit(small_graph, [41], small_graph.y[[41]]))
    model.partial_fit(small_graph, nodes, labels, repeat="count")
    assert int(model.statistics_.n.sum()) == 61
    # forgotten, they can be learned again; without a record, nothing is known
    model.forget(small_graph, [41], small_graph.y[[41]])
    model.partial_fit(small_graph, [41], small_graph.y[[41]])
    model.drop_record().partial_fit(small_graph, [41], small_graph.y[[41]])


def test_another_label_is_refused_and_relabel_is_offered(model, small_graph):
    nodes = base_nodes(small_graph)
    before = model._learned
    for repeat in ("error", "ignore"):
        with pytest.raises(
            InputError, match=r"holds 5, which was learned as 1 and is 2 here \(1 of"
        ):
            model.partial_fit(small_graph, [5, 41], [2, 1], repeat=repeat)
    assert model._learned is before
    right = small_graph.y.clone()
    right[[5, 8]] = torch.tensor([2, 3])
    expected = model.blank().partial_fit(small_graph, nodes, right[nodes])
    looked_up = copy.deepcopy(model).relabel(small_graph, [5, 8], None, [2, 3])
    same(looked_up, expected)
    same(model.relabel(small_graph, [5, 8], [1, 0], [2, 3]), expected)
    assert [event.what for event in model.events_] == ["learn", "forget", "learn"]
    # and it can be forgotten as what it is now, only
    with pytest.raises(InputError, match="5, which was not learned as 1"):
        model.forget(small_graph, [5], [1])
    model.forget(small_graph, [5], [2])
    for nodes, old, new, words in (
        ([41], None, [2], "holds 41, which was not learned: relabel only"),
        ([41], [1], [2], "41, which was not learned as 1"),
        ([0], [0], ["a"], "keep to one kind"),
        ([0], [0], [-1], "leave these nodes out"),
    ):
        with pytest.raises(InputError, match=words):
            model.relabel(small_graph, nodes, old, new)
    with pytest.raises(InputError, match="no record of what was learned: give the old labels"):
        model.drop_record().relabel(small_graph, [0], None, [1])
    model.relabel(small_graph, [0], [0], [1])


def test_two_copies_are_not_merged_but_two_sites_are(model, small_graph, make_graph):
    twin = copy.deepcopy(model).partial_fit(small_graph, [41], [1])
    for one, other in ((model, twin), (twin, model)):
        with pytest.raises(InputError, match="both learned 30 nodes with the same labels and fea"):
            one.merge(other)
    with pytest.raises(InputError, match="repeat='ignore' is unknown"):
        model.merge(twin, repeat="ignore")
    # nor is another label for the same node, unless both shall count
    other = model.blank().partial_fit(small_graph, [5, 41], [2, 1])
    for one, two in ((model, other), (other, model)):
        before = one._learned
        with pytest.raises(InputError, match=r"learned 1 nodes .* with other labels: .*relabel\("):
            one.merge(two)
        assert one._learned is before
    assert int(copy.deepcopy(model).merge(other, repeat="count").statistics_.n.sum()) == 32
    same(
        copy.deepcopy(model).merge(other.forget(small_graph, [5], [2])),
        copy.deepcopy(model).partial_fit(small_graph, [41], [1]),
    )
    # the same numbers at another site are other nodes
    there = make_graph(seed=5)
    site = model.blank().partial_fit(there, base_nodes(there), there.y[base_nodes(there)])
    joined = copy.deepcopy(model).merge(site)
    assert int(joined.statistics_.n.sum()) == 60
    with pytest.raises(InputError, match="both learned 30 nodes"):
        joined.merge(site)
    # either can be forgotten, each with its own features
    joined.forget(there, [0, 1], [0, 1]).forget(small_graph, [0, 1], [0, 1])
    assert int(joined.merge(twin, repeat="count").statistics_.n.sum()) == 87


def test_another_label_is_noticed_of_nodes_that_are_all_alike(small_graph):
    alike = Data(x=torch.zeros_like(small_graph.x), edge_index=small_graph.edge_index)
    alike.x[30:] = small_graph.x[30:]
    alike.edge_index = alike.edge_index[:, (alike.edge_index >= 30).all(dim=0)]
    here = algnn.ALGNN(**SMALL).fit(alike, range(40), small_graph.y[:40])
    there = here.blank().partial_fit(alike, range(30), [9] * 30)
    with pytest.raises(InputError, match="learned 30 nodes of this learner with other labels"):
        here.merge(there)


def test_twins_are_not_one_node(small_graph):
    """Nodes without edges and of the same features, learned apart as different classes."""
    twins = Data(x=small_graph.x.clone(), edge_index=small_graph.edge_index.clone())
    twins.x[[50, 51]] = twins.x[50].clone()
    kept = ~torch.isin(twins.edge_index, torch.tensor([50, 51])).any(dim=0)
    twins.edge_index = twins.edge_index[:, kept]
    here = algnn.ALGNN(**SMALL).fit(twins, range(8), small_graph.y[:8])
    there = here.blank().partial_fit(twins, [51], [3])
    here.partial_fit(twins, [50], [2]).merge(there)
    assert int(here.statistics_.n.sum()) == 10


def test_the_shell_learns_once_relabels_and_merges_once(small_graph, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    algnn.save_npz(small_graph, "graph.npz")
    rows = [f"{node},{int(small_graph.y[node])}" for node in range(20)]
    Path("base.csv").write_text("\n".join(["node,label", *rows]))
    Path("more.csv").write_text("\n".join(["node,label", *rows[:3], "30,2", "31,", "32,-1"]))
    Path("wrong.csv").write_text("node,label\n3,0\n")
    assert main(["fit", "m.safetensors", "graph.npz", "base.csv"]) == 0
    assert "gives away: which nodes were learned as what" in capsys.readouterr().out
    whole = Path("m.safetensors").read_bytes()
    for labels, words in (("base.csv", "(20 of 20 were)"), ("wrong.csv", "algnn relabel")):
        assert main(["learn", "m.safetensors", "graph.npz", labels]) == 2
        assert words in capsys.readouterr().err
    assert main(["learn", "m.safetensors", "graph.npz", "base.csv", "--again"]) == 0
    assert Path("m.safetensors").read_bytes() == whole
    assert main(["learn", "m.safetensors", "graph.npz", "more.csv", "--again"]) == 0
    assert "holds 4 classes, 21 nodes" in capsys.readouterr().out
    assert main(["relabel", "m.safetensors", "graph.npz", "wrong.csv"]) == 0
    found = algnn.ALGNN.load("m.safetensors")
    assert found.statistics_.n.tolist() == [6, 5, 6, 4]
    assert main(["inspect", "m.safetensors"]) == 0
    assert "gives away          which nodes were learned" in capsys.readouterr().out
    merge = ["merge", "m.safetensors", "m.safetensors", "-o", "two.safetensors"]
    assert main(merge) == 2
    assert "both learned 21 nodes" in capsys.readouterr().err
    assert main([*merge, "--overlap"]) == 0


# -- threads and processes ------------------------------------------------------------------------


def test_readers_see_one_state_and_never_wait(small_graph, tmp_path):
    """Classes and heads come and go in one thread; whoever asks sees all of one state."""
    nodes = base_nodes(small_graph)
    three = (small_graph.y[:40] == 3).nonzero().squeeze(1)
    model = algnn.ALGNN(**SMALL).fit(small_graph, nodes, small_graph.y[nodes])
    changes = (
        lambda: model.partial_fit(small_graph, three, small_graph.y[three]),
        lambda: model.set_head("ridge", 0.1),
        lambda: model.set_head("balanced"),
        lambda: model.forget(small_graph, three, small_graph.y[three]),
    )
    states = []
    for change in changes:
        states.append([model.predict_proba(small_graph), model.novelty(small_graph)])
        change()
    done = threading.Event()

    def known(place, found):
        return any(s[place].shape == found.shape and np.allclose(s[place], found) for s in states)

    def change():
        while not done.is_set():
            for step in changes:
                step()

    def ask(place):
        path = tmp_path / f"{place}.safetensors"
        for turn in range(20):
            assert known(0, model.predict_proba(small_graph))
            assert known(1, model.novelty(small_graph))
            assert set(model.predict(small_graph)) <= {0, 1, 2, 3}
            assert model.retained_bytes() > 0
            if turn % 6 == 0:
                model.save(path)
                again = algnn.ALGNN.load(path)
                assert known(0, again.predict_proba(small_graph))
                assert sum(again.summary().nodes.values()) in (30, 40)
        return True

    with ThreadPoolExecutor(4) as pool:
        writer = pool.submit(change)
        try:
            assert all(pool.map(ask, range(3)))
        finally:
            done.set()
        writer.result()


def test_a_reader_does_not_wait_for_a_writer(small_graph):
    nodes = base_nodes(small_graph)
    model = algnn.ALGNN(**SMALL).fit(small_graph, nodes, small_graph.y[nodes])
    with ThreadPoolExecutor(1) as pool, model._lock:
        for ask in (model.predict, model.predict_proba, model.novelty):
            pool.submit(ask, small_graph).result(timeout=60)
        writer = pool.submit(model.partial_fit, small_graph, [41], [1])
        time.sleep(0.05)
        assert not writer.done()
        model.forget(small_graph, [0], [0])  # whoever holds it can go on
    assert int(model.statistics_.n.sum()) == 30


def test_of_two_threads_no_update_is_lost(small_graph):
    for _ in range(2):
        model = algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8])
        parts = torch.arange(8, 56).split(12)
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(lambda p, m=model: m.partial_fit(small_graph, p, small_graph.y[p]), parts)
            )
        expected = model.blank().partial_fit(small_graph, range(56), small_graph.y[:56])
        same(model, expected)


def test_the_lock_is_neither_copied_nor_pickled(model, small_graph):
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert other._lock is not model._lock
        with model._lock:
            same(other.partial_fit(small_graph, [41], [1]), copy.deepcopy(other))
    assert int(model.statistics_.n.sum()) == 30
    assert clone(model)._learned is None


LEARN = """
import sys, torch, algnn
path, graph = sys.argv[1], algnn.load(sys.argv[2])
for node in range(10, 22):
    with algnn.open_model(path) as model:
        model.partial_fit(graph, [node], [int(graph.y[node])])
"""


def test_of_two_processes_no_update_is_lost(small_graph, tmp_path, monkeypatch, start_process):
    """One that opens the file, and commands; they go on for as long as the other does."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.safetensors"
    algnn.save_npz(small_graph, "graph.npz")
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8])
    model.save(path)
    nodes = [*range(8), *range(10, 22)]
    process = start_process(LEARN, path, "graph.npz")
    for node in range(30, 60):
        if not process.is_alive():
            break
        Path("one.csv").write_text(f"node,label\n{node},{int(small_graph.y[node])}\n")
        assert main(["learn", "m.safetensors", "graph.npz", "one.csv"]) == 0
        nodes.append(node)
    process.join()
    assert process.exitcode == 0
    assert len(nodes) > 20
    expected = model.blank().partial_fit(small_graph, nodes, small_graph.y[nodes])
    same(algnn.ALGNN.load(path), expected)
    assert not list(tmp_path.glob(".*"))


def test_open_model_writes_what_changed_and_nothing_else(small_graph, tmp_path):
    path = tmp_path / "m.safetensors"
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8])
    model.save(path)
    before = path.stat()
    with algnn.open_model(path) as found:
        found.predict(small_graph)
    assert path.stat().st_mtime_ns == before.st_mtime_ns

    def fails():
        with algnn.open_model(path) as found:
            found.partial_fit(small_graph, [9], [1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with algnn.open_model(path) as found:
        found.partial_fit(small_graph, [9], [1])
        found.save(path)  # the lock is its own
        found.partial_fit(small_graph, [13], [1])
    assert algnn.ALGNN.load(path).statistics_.n.tolist() == [2, 4, 2, 2]
    private = algnn.PrivateALGNN(epsilon=8.0).fit(small_graph, range(8), small_graph.y[:8])
    private.save(path)
    with algnn.open_model(path) as found:
        assert isinstance(found, algnn.PrivateALGNN)
        found.partial_fit(small_graph, [9], [1])
    assert algnn.PrivateALGNN.load(path).spent_[1] > 8.1
    with pytest.raises(CheckpointError, match="is not a file"):
        pytest.fail(algnn.open_model(tmp_path / "absent" / "m").__enter__())
    assert not (tmp_path / "absent").exists()


def test_a_thread_opens_a_model_once(small_graph, tmp_path):
    """Of two that are open at a time, who writes last would undo the other."""
    path = tmp_path / "m.safetensors"
    algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8]).save(path)

    async def learn(node):
        with algnn.open_model(path) as found:
            await asyncio.sleep(0.01)
            found.partial_fit(small_graph, [node], [1])

    async def both():
        return await asyncio.gather(learn(9), learn(13), return_exceptions=True)

    first, second = asyncio.run(both())
    assert first is None
    assert isinstance(second, InputError)
    assert "open in this thread already" in str(second)
    asyncio.run(learn(13))
    assert algnn.ALGNN.load(path).statistics_.n.tolist() == [2, 4, 2, 2]


def test_open_model_writes_parameters_too(small_graph, tmp_path):
    path = tmp_path / "m.safetensors"
    algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8]).save(path)
    with algnn.open_model(path) as found:
        found.set_params(half_life=3.0)
    assert algnn.ALGNN.load(path).half_life == 3.0


def test_whoever_writes_takes_the_same_lock(small_graph, tmp_path, monkeypatch, capsys):
    path, table = tmp_path / "m.safetensors", tmp_path / "one.csv"
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8])
    model.save(path)
    algnn.save_npz(small_graph, tmp_path / "graph.npz")
    table.write_text("node,label\n12,0\n")
    monkeypatch.setattr("algnn.files.PATIENCE", 0.1)
    whole = path.read_bytes()
    with ThreadPoolExecutor(1) as pool, algnn.open_model(path):
        for call in (model.save, algnn.open_model(path).__enter__):
            with pytest.raises(InputError, match="is being changed by another"):
                pool.submit(call, *([path] if call == model.save else [])).result(timeout=60)
        learn = ["learn", str(path), str(tmp_path / "graph.npz"), str(table)]
        assert pool.submit(main, learn).result(timeout=60) == 2
        assert "is being changed by another" in capsys.readouterr().err
        # whoever only reads does not wait
        assert pool.submit(algnn.ALGNN.load, path).result(timeout=60).classes_.size == 4
    assert path.read_bytes() == whole
    assert main(learn) == 0


# -- files ----------------------------------------------------------------------------------------


def test_every_flipped_byte_is_noticed(model, tmp_path):
    path = tmp_path / "m.safetensors"
    model.save(path)
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(0)
    places = [*rng.integers(start, len(whole), 60), *rng.integers(8, start, 60)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            found = algnn.ALGNN.load(path)
        except CheckpointError:
            continue
        # a space more or less in the header, perhaps; nothing that was learned
        assert place < start
        assert torch.equal(found.weights_, model.weights_)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="content is not that of its SHA-256"):
        algnn.ALGNN.load(path)
    algnn.ALGNN.load(path, verify=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_answers_bit_for_bit(kind, tmp_path):
    """Single nodes, which leave sums that are not symmetric, and factors that are updated."""
    graph, path = algnn.load("digits").subgraph(torch.arange(600)), tmp_path / "m.safetensors"
    model = algnn.ALGNN(**{"width": 320, **KINDS[kind], "device": "cpu"})
    for session in algnn.ClassStream(graph, step=5):
        model.partial_fit(session.graph, session.nodes[:-1], session.labels[:-1])
        model.partial_fit(session.graph, session.nodes[-1:], session.labels[-1:])
    model.forget(graph, session.nodes[:9], session.labels[:9])
    model.partial_fit(graph, session.nodes[:5], session.labels[:5])
    assert (model._learned.factor is not None) == (kind == "paper")
    model.save(path)
    found = algnn.ALGNN.load(path)
    for ask in ("decision_function", "predict_proba", "novelty"):
        assert np.array_equal(getattr(found, ask)(graph), getattr(model, ask)(graph))


def test_mode_and_links_are_kept_and_leftovers_are_swept(small_graph, tmp_path, run_process):
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8])
    real, link = tmp_path / "deep" / "m.safetensors", tmp_path / "link.safetensors"
    model.save(real)
    if os.geteuid() == 0:
        os.chown(real, 4321, 1234)
    real.chmod(0o600)
    owner = real.stat().st_uid, real.stat().st_gid
    os.symlink(real, link)
    left = [tmp_path / "deep" / name for name in (".x", "y.tmp")]
    for path in left:
        path.write_text("not ours")
    code = f"""
import os, pathlib, algnn
def half(path, content):
    with open(path, "wb") as file:
        file.write(content[:99])
    os._exit(9)
pathlib.Path.write_bytes = half
algnn.ALGNN.load({str(real)!r}).save({str(real)!r})
"""
    run_process(code, exitcode=9)
    (half,) = real.parent.glob(".*.tmp.safetensors")
    assert stat.S_IMODE(half.stat().st_mode) == 0o600
    model.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert (real.stat().st_uid, real.stat().st_gid) == owner
    assert {path.name for path in real.parent.iterdir()} == {".x", "y.tmp", real.name}


# -- input that was misread -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_a_mask_of_numbers_is_refused(model, small_graph, kind):
    mask = small_graph.test_mask.to(kind)
    for call in (model.predict, model.novelty):
        with pytest.raises(InputError, match=r"60 zeros and ones .*give a mask as bool"):
            call(small_graph, mask)
    if kind == torch.uint8:
        with pytest.raises(InputError, match="9 zeros and ones"):
            model.predict(small_graph, mask[:9])
    assert model.predict(small_graph, torch.tensor([5, 1], dtype=torch.uint8)).size == 2


def test_no_label_is_the_same_everywhere(small_graph, tmp_path):
    """−1, empty, None, NaN: refused in a session, skipped in a file, no class in a graph."""
    words = np.array(["a", "b", "c", "d"])[small_graph.y.numpy()].astype(object)
    for labels, missing in ((small_graph.y.numpy(), -1), (small_graph.y.double().numpy(), np.nan)):
        spoiled = labels.copy()
        spoiled[7] = missing
        for given in (spoiled, spoiled.tolist(), pd.Series(spoiled)):
            with pytest.raises(InputError, match=r"at place 7 \(1 of 60 .*leave these nodes out"):
                algnn.ALGNN(**SMALL).fit(small_graph, range(60), given)
    for missing in (None, np.nan, pd.NA, "", "-1"):
        words[7] = missing
        for given in (words, words.tolist(), pd.Series(words)):
            with pytest.raises(InputError, match="at place 7"):
                algnn.ALGNN(**SMALL).fit(small_graph, range(60), given)
    path = tmp_path / "graph.npz"
    y = small_graph.y.double().numpy()
    y[7] = np.nan
    np.savez(path, edge_index=small_graph.edge_index, x=small_graph.x, y=y)
    found = algnn.load(path).y
    assert (int(found[7]), int(found[6])) == (-1, int(small_graph.y[6]))
    words[7], words[8] = "-1", ""
    arrays = {"edge_index": small_graph.edge_index, "x": small_graph.x, "y": words.astype(str)}
    np.savez(path, **arrays)
    found = algnn.load(path)
    assert found.y[6:9].tolist() == [int(small_graph.y[6]), -1, -1]
    assert found.class_names == ["a", "b", "c", "d"]
    # a model of an early version may know a class of that name
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(8), small_graph.y[:8])
    known = model._learned.statistics
    known.classes[0] = -1
    model.partial_fit(small_graph, [12], [-1])


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 3), ("encoder", "gcn"), ("width", 100), ("expansion", "plain"), ("hidden", 4)],
)
def test_what_a_fit_depends_on_cannot_be_changed_after_it(
    model, small_graph, tmp_path, name, value
):
    path, unsaved = tmp_path / "m.safetensors", copy.deepcopy(model)
    model.save(path)
    for one in (unsaved, model, algnn.ALGNN.load(path), model.blank()):
        old = getattr(one, name)
        value = "hops" if (name, old) == ("encoder", "gcn") else value
        one.set_params(**{name: value})
        for call in (
            lambda m: m.save(path),
            lambda m: m.predict(small_graph),
            lambda m: m.partial_fit(small_graph, [41], [1]),
            lambda m: m.forget(small_graph, [0], [0]),
            lambda m: m.merge(m),
            lambda m: m.summary(),
        ):
            with pytest.raises(InputError, match=f"{name}=.* was set after fit, which had"):
                call(one)
        one.set_params(**{name: old})
    model.predict(small_graph)
    model.set_params(seed=9).fit(small_graph, range(8), small_graph.y[:8]).predict(small_graph)


def test_forget_refuses_exactly_what_would_be_inexact(model, small_graph, tmp_path):
    """An edge more at one node: those who can see it have other features, and nobody else has."""
    grown = small_graph.clone()
    new = torch.tensor([[0, 12], [12, 0]])
    grown.edge_index = torch.cat([small_graph.edge_index, new], dim=1)
    features = model._learned.features
    before, after = (
        features(features.prepare(model._adjacency(g), model._inputs(g)))
        for g in (small_graph, grown)
    )
    moved = (before - after).norm(dim=1) > 1e-4 * before.norm(dim=1)
    nodes = base_nodes(small_graph)
    assert int(moved[nodes].sum()) > 0
    known = model._learned
    for node in nodes.tolist():
        if bool(moved[node]):
            with pytest.raises(InputError, match=r"other features in this graph.*as it was when"):
                model.forget(grown, [node], small_graph.y[[node]])
            assert model._learned is known
        elif bool(before[node].equal(after[node])):
            copy.deepcopy(model).forget(grown, [node], small_graph.y[[node]])
    # a file of an early version has hashes alone, and only sums to go by
    tensors, facts = model._state()
    del tensors["record.prints"]
    old = copy.deepcopy(model)
    old._replace(old._restore(tensors, {**facts, "classes": model.classes_.tolist()}))
    same(old.forget(small_graph, nodes[:2], small_graph.y[nodes[:2]]), model.forget(
        small_graph, nodes[:2], small_graph.y[nodes[:2]]))  # fmt: skip
    old.save(tmp_path / "m.safetensors")
    algnn.ALGNN.load(tmp_path / "m.safetensors").forget(
        small_graph, nodes[2:4], small_graph.y[nodes[2:4]]
    )


def test_a_node_learned_from_two_graphs_is_forgotten_from_either(small_graph):
    other = small_graph.clone()
    other.x = other.x.roll(1, 0).contiguous()
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(12), small_graph.y[:12])
    model.partial_fit(other, [0, 1], [0, 1], repeat="count")
    model.partial_fit(other, [0], [0], repeat="count")
    expected = copy.deepcopy(model)
    for graph, node in ((other, 0), (small_graph, 0), (other, 0)):
        model.forget(graph, [node], [0])
    with pytest.raises(InputError, match="not learned as 0"):
        model.forget(other, [0], [0])
    for graph, node in ((small_graph, 0), (other, 0), (other, 0)):
        expected.forget(graph, [node], [0])
    same(model, expected)


# -- input that simply works ----------------------------------------------------------------------


def answers(graph, **params):
    model = algnn.ALGNN(**{**SMALL, **params})
    for session in algnn.ClassStream(graph):
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model.decision_function(graph), model.predict_proba(graph), model.novelty(graph)


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_torchs_defaults_make_no_difference(small_graph, kind):
    expected = answers(small_graph, **KINDS[kind])
    try:
        torch.set_default_dtype(torch.float64)
        with torch.autocast("cpu"):
            found = answers(small_graph, **KINDS[kind])
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_numbers_of_every_make(small_graph, tmp_path):
    stream = algnn.ClassStream(
        small_graph, np.int64(2), np.int32(1), order=np.arange(4), seed=np.int64(0)
    )
    plain = algnn.ClassStream(small_graph, 2, 1)
    assert stream.classes == plain.classes
    assert stream[-1].classes == plain[2].classes == (3,)
    assert stream[np.int64(-3)].index == 0
    for index in (3, -4):
        with pytest.raises(IndexError):
            stream[index]
    scalars = {"hidden": np.int64(8), "width": np.int32(48), "gamma": np.float64(0.1)}
    given = {**GCN, **scalars, "seed": np.int64(5), "half_life": np.float32(0)}
    model = algnn.ALGNN(**given).fit(small_graph, range(8), small_graph.y[:8])
    expected = algnn.ALGNN(**{**GCN, "hidden": 8, "width": 48, "gamma": 0.1, "seed": 5})
    expected.fit(small_graph, range(8), small_graph.y[:8])
    assert np.array_equal(model.predict_proba(small_graph), expected.predict_proba(small_graph))
    model.save(tmp_path / "m.safetensors")
    assert algnn.ALGNN.load(tmp_path / "m.safetensors").get_params()["seed"] == 5
    integers = Data(x=(3 * small_graph.x).long(), edge_index=small_graph.edge_index)
    floats = Data(x=integers.x.float(), edge_index=small_graph.edge_index)
    for graph in (integers, floats):
        model = algnn.ALGNN(**SMALL).fit(graph, range(40), small_graph.y[:40])
        assert model.score(floats, None, small_graph.y) > 0.9
        assert np.array_equal(model.novelty(integers), model.novelty(floats))
    floats.edge_weight = torch.arange(small_graph.num_edges) % 3 / 1
    expected = model.decision_function(floats)
    floats.edge_weight = floats.edge_weight.to(torch.uint16)  # of which torch compares no two
    assert np.array_equal(model.decision_function(floats), expected)


def test_labels_of_every_make(small_graph):
    y = small_graph.y[:40]
    expected = algnn.ALGNN(**SMALL).fit(small_graph, range(40), y)
    for labels in (y.double(), y.float().numpy(), y.to(torch.uint8), y.double().tolist(),
                   pd.Series(y.numpy(), dtype="Int64"), pd.Series(y.numpy()).astype(object),
                   [np.int8(label) for label in y]):  # fmt: skip
        model = algnn.ALGNN(**SMALL).fit(small_graph, range(40), labels)
        assert model.classes_.tolist() == [0, 1, 2, 3]
        same(model, expected, 0)
    assert algnn.ALGNN(**SMALL).fit(small_graph, range(40), y > 1).classes_.tolist() == [0, 1]
    words = pd.Series(["a", "b", "b", "a"] * 10, dtype="category")
    assert algnn.ALGNN(**SMALL).fit(small_graph, range(40), words).classes_.tolist() == ["a", "b"]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_the_adjacency_of_pyg_works(small_graph):
    packed = ToSparseTensor()(small_graph.clone())
    assert "edge_index" not in packed
    one, other = (
        algnn.ALGNN(**SMALL).fit(g, range(40), small_graph.y[:40]) for g in (packed, small_graph)
    )
    for ask in ("decision_function", "novelty"):
        np.testing.assert_allclose(getattr(one, ask)(packed), getattr(other, ask)(small_graph))
    one.partial_fit(packed, [41], [1]).relabel(packed, [41], [1], [2]).forget(packed, [41], [2])
    same(one, other)
    assert one.explain(packed, 3).label == other.explain(small_graph, 3).label
    near = [n for n in one.reach(packed, 5).tolist() if n < 40]
    bare = one.forget_node(packed, 5, near, small_graph.y[near])
    assert 5 not in bare.edge_index
    assert "adj_t" not in bare


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.float16])
def test_entries_of_adj_t_that_are_there_twice_are_added_as_floats(small_graph, kind):
    source, target = small_graph.edge_index
    places = torch.stack([target, source]).repeat(1, 2)
    values = torch.full((places.size(1),), 1 if kind is torch.bool else 200).to(kind)
    adj_t = torch.sparse_coo_tensor(places, values, (60, 60))
    weighted = Data(x=small_graph.x, edge_index=small_graph.edge_index)
    weighted.edge_weight = torch.full((small_graph.num_edges,), 2 * float(values[0]))
    nodes, y = range(40), small_graph.y[:40]
    one, other = (
        algnn.ALGNN(width=64, device="cpu").fit(graph, nodes, y).decision_function(graph)
        for graph in (Data(x=small_graph.x, adj_t=adj_t), weighted)
    )
    np.testing.assert_allclose(one, other)


# -- mistakes that are named ----------------------------------------------------------------------


def test_mistakes_are_named(small_graph):
    x, y = small_graph.x.numpy(), small_graph.y.numpy()
    turned = Data(x=small_graph.x, edge_index=small_graph.edge_index.t().contiguous())
    attributes = small_graph.clone()
    attributes.edge_attr = torch.ones(small_graph.num_edges, 2)
    kinds = small_graph.clone()
    kinds.edge_type = (torch.arange(small_graph.num_edges) > 0).long()
    dense = Data(x=small_graph.x, adj_t=torch.eye(60))
    small = Data(x=small_graph.x, adj_t=torch.eye(10).to_sparse())
    hybrid = Data(x=small_graph.x.to_sparse(1), edge_index=small_graph.edge_index)
    column = small_graph.clone()
    column.edge_weight = torch.ones(small_graph.num_edges, 1)
    masked = np.ma.array([0, 1, 999], mask=[0, 0, 1])
    for arguments, words in (
        ((x, y), r"graph is a ndarray: .*fit\(graph, nodes, labels\)"),
        ((small_graph, y), "labels are missing: a session is a graph, nodes and their labels"),
        ((turned, [0, 1], [0, 1]), r": give graph\.edge_index\.t\(\)"),
        ((HeteroData(), [0, 1], [0, 1]), r"HeteroData.*graph\.to_homogeneous\(\)"),
        ((kinds, [0, 1], [0, 1]), r"graph\.edge_type names several kinds.*or del graph\.edge_type"),
        ((attributes, [0, 1], [0, 1]), r"graph\.edge_attr is not used.*graph\.edge_weight"),
        ((dense, [0, 1], [0, 1]), r"graph\.adj_t must be a sparse torch tensor \[60, 60\]"),
        ((small, [0, 1], [0, 1]), r"graph\.adj_t must .*, and is a tensor \[10, 10\]"),
        ((hybrid, [0, 1], [0, 1]), r"graph\.x must .*: give graph\.x\.to_dense\(\)"),
        ((column, [0, 1], [0, 1]), r"graph\.edge_weight must .*, and is a tensor \[.*, 1\]"),
        ((small_graph, masked, [0, 1, 1]), "nodes has masked entries"),
        ((small_graph, [0, 1, 2], masked), "labels holds None at place 2"),
        ((small_graph, [0, 1], [2**64, 2**70]), "labels holds ints beyond 64 bits"),
        ((small_graph, [0, 4], [7, 7]), "only class 7: the base session needs at least two cla"),
    ):
        for model in (algnn.ALGNN(**SMALL), algnn.PrivateALGNN(epsilon=8.0)):
            if "only class" in words and isinstance(model, algnn.PrivateALGNN):
                continue
            for method in (model.fit, model.partial_fit):
                with pytest.raises(AlgnnError, match=words) as caught:
                    method(*arguments)
                assert "network" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"gamma": -1.0}, {"head": "round"}, {"device": "moon"}])
def test_no_file_is_written_that_cannot_be_read(small_graph, tmp_path, wrong):
    path = tmp_path / "m.safetensors"
    model = algnn.ALGNN(**SMALL).fit(small_graph, range(40), small_graph.y[:40])
    model.save(path)
    with pytest.raises(AlgnnError, match=next(iter(wrong))):
        model.set_params(**wrong).save(path)
    with pytest.raises(AlgnnError, match=next(iter(wrong))), algnn.open_model(path) as opened:
        opened.set_params(**wrong)
    same(algnn.ALGNN.load(path), model.set_params(**algnn.ALGNN(**SMALL).get_params()))


def test_private_models_live_in_the_shell(small_graph, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    algnn.save_npz(small_graph, "graph.npz")
    for name, nodes in (("base", range(20)), ("more", range(20, 40))):
        rows = [f"{node},{int(small_graph.y[node])}" for node in nodes]
        Path(f"{name}.csv").write_text("\n".join(["node,label", *rows]))
    fit = ["fit", "p.safetensors", "graph.npz", "base.csv", "--private", "50", "--set", "width=4"]
    assert main(fit) == 0
    assert "gives away: of a labelled node ε ≤ 50 at δ = 1e-06" in capsys.readouterr().out
    assert main(["learn", "p.safetensors", "graph.npz", "more.csv"]) == 0
    private = algnn.PrivateALGNN.load("p.safetensors")
    assert (private.epsilon, private.width) == (50, 4)
    spent = f"of a labelled node ε ≤ {private.spent_.max():.3g} at"
    assert private.spent_.max() > 51  # two sessions of the same classes
    assert f"gives away: {spent}" in capsys.readouterr().out
    assert main(["predict", "p.safetensors", "graph.npz", "-o", "out.csv"]) == 0
    assert len(Path("out.csv").read_text().splitlines()) == 61
    assert main(["inspect", "p.safetensors"]) == 0
    assert spent in capsys.readouterr().out
    assert main(["inspect", "p.safetensors", "--json"]) == 0
    assert spent in json.loads(capsys.readouterr().out)["gives away"]
    for command in (
        "forget p.safetensors graph.npz more.csv",
        "relabel p.safetensors graph.npz more.csv",
        "merge p.safetensors p.safetensors -o q.safetensors",
        "blank p.safetensors -o q.safetensors",
        "explain p.safetensors graph.npz 3",
        "learn p.safetensors graph.npz more.csv --again",
    ):
        assert main(command.split()) == 2
        assert "private" in capsys.readouterr().err
    assert main([*fit[:4], "--private", "-1", "--force"]) == 2
    assert "epsilon=-1" in capsys.readouterr().err
