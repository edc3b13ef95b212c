"""Graphs in memory, on disk, on a cluster or growing: the same weights and the same answers."""

import os
import shutil
import signal

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import algnn
from algnn.analytic.cluster import Cluster, _opened
from algnn.analytic.features import blocked
from algnn.analytic.features.blocked import Views, encoded
from algnn.analytic.features.hops import HopEncoder
from algnn.bench.processes import start_forkserver
from algnn.cli import main


def digits():
    """The digits, of which some have lost all their edges."""
    graph = algnn.load("digits")
    graph.edge_index = graph.edge_index[:, (graph.edge_index % 7 != 0).all(dim=0)]
    return graph


@pytest.fixture(scope="module")
def learned():
    """A graph, two sessions on it, and a model that has learned both from memory."""
    graph = digits()
    labelled = graph.train_mask.nonzero().squeeze(1)[:300]
    sessions = [labelled[graph.y[labelled] < 4], labelled[graph.y[labelled] >= 4]]
    return graph, sessions, fitted(graph, graph, sessions)


def fitted(graph, seen, sessions, **how):
    model = algnn.ALGNN(width=300, device="cpu")
    model.fit(seen, sessions[0], graph.y[sessions[0]], **how)
    return model.partial_fit(seen, sessions[1], graph.y[sessions[1]], **how)


def assert_same(model, store, expected, graph):
    W, V = model.weights_, expected.weights_
    assert float((W - V).norm()) <= 1e-9 * float(V.norm())
    assert np.array_equal(model.predict(store), expected.predict(graph))
    some = [5, 0, graph.num_nodes - 1]
    np.testing.assert_allclose(model.novelty(store, some), expected.novelty(graph, some), rtol=1e-6)


@pytest.mark.parametrize("parts", [1, 3, 16])
def test_a_graph_on_disk_gives_the_weights_of_one_in_memory(tmp_path, learned, parts):
    graph, sessions, expected = learned
    algnn.write_graph(graph, tmp_path / "g", parts)
    # so little memory that columns come in several blocks
    store = algnn.open_graph(tmp_path / "g", memory="8MB" if parts == 3 else "4GiB")
    assert_same(fitted(graph, store, sessions), store, expected, graph)


@pytest.mark.parametrize("adjusted", ["scales", "centre"])
def test_scaled_and_centred_columns_on_disk_and_in_a_file(tmp_path, adjusted):
    graph = algnn.load("digits").subgraph(torch.arange(300))
    if adjusted == "scales":
        graph.x[:, 20] += 1e4 * torch.rand(300, generator=torch.Generator().manual_seed(0))
    else:
        graph.x -= 40.0
    sessions = [torch.arange(60), torch.arange(60, 120)]
    expected = fitted(graph, graph, sessions)
    assert getattr(expected._known.features, adjusted) is not None
    store = algnn.write_graph(graph, tmp_path / "g", parts=3)
    assert_same(fitted(graph, store, sessions), store, expected, graph)
    path = tmp_path / "model.safetensors"
    expected.save(path)
    loaded = algnn.ALGNN.load(path)
    assert np.array_equal(loaded.decision_function(graph), expected.decision_function(graph))
    loaded.forget(graph, sessions[1], graph.y[sessions[1]])
    assert set(loaded.classes_) == set(graph.y[sessions[0]].tolist())


def test_empty_partitions_and_weights(tmp_path):
    generator = torch.Generator().manual_seed(0)
    graph = algnn.load("digits")
    small = graph.subgraph(torch.arange(30))
    small.edge_weight = torch.rand(small.edge_index.size(1), generator=generator)
    sessions = [torch.arange(12), torch.arange(12, 20)]
    expected = fitted(small, small, sessions)
    store = algnn.write_graph(small, tmp_path / "g", parts=40)
    assert any(part.start == part.stop for part in store.parts)
    assert_same(fitted(small, store, sessions), store, expected, small)


def test_other_operations_take_a_graph_on_disk(tmp_path, learned):
    graph, sessions, expected = learned
    store = algnn.write_graph(graph, tmp_path / "g", parts=3)
    model = fitted(graph, store, sessions)
    assert model.explain(store, 5).score == pytest.approx(expected.explain(graph, 5).score)
    assert np.array_equal(model.reach(store, 5), expected.reach(graph, 5))
    model.forget(store, sessions[1], graph.y[sessions[1]])
    assert model.classes_.tolist() == [0, 1, 2, 3]
    private = [algnn.PrivateALGNN(epsilon=1e5).fit(g, sessions[0], graph.y[sessions[0]])
               for g in (graph, store)]  # fmt: skip
    answers = private[0].predict(graph, range(50)) == private[1].predict(store, range(50))
    assert answers.mean() > 0.9
    paper = algnn.ALGNN(encoder="gcn", gamma=1.0, epochs=2, width=32, hidden=8)
    assert paper.fit(store, sessions[0], graph.y[sessions[0]]).predict(store, [0]).size == 1


def test_wide_sparse_features_are_reduced_alike(tmp_path):
    x = torch.rand(50, 700, generator=torch.Generator().manual_seed(0))
    x[x < 0.95] = 0
    from torch_geometric.data import Data

    edge_index = torch.randint(50, (2, 200), generator=torch.Generator().manual_seed(1))
    for layout in (x, x.to_sparse_csr()):
        graph = Data(x=layout, edge_index=edge_index)
        store = algnn.write_graph(graph, tmp_path / str(layout.layout), parts=3)
        model = algnn.ALGNN(device="cpu")
        encoder, there = model._hop_encoder(graph), model._hop_encoder(store)
        assert torch.equal(encoder.basis, there.basis)
        found = encoded(there, store)[torch.arange(50)]
        torch.testing.assert_close(found, encoded(encoder, model._rows(graph))[torch.arange(50)])


@pytest.mark.parametrize("memory", ["1GB", "1MB"])
def test_views_of_different_widths_are_the_same_from_disk(tmp_path, memory):
    graph = algnn.load("digits")
    encoder = HopEncoder.of(graph.x, 300, seed=0, widest=60, near=20, rank=50)
    everyone = torch.arange(1797)
    algnn.write_graph(graph, tmp_path / "g", parts=3)
    store = algnn.open_graph(tmp_path / "g", memory=memory)
    expected = encoded(encoder, algnn.ALGNN(device="cpu")._rows(graph))
    views = encoded(encoder, store)
    # blocks of columns end before, at or beyond the last one of the narrow views
    assert (len(views.columns) > 3) == (memory == "1MB")
    assert torch.equal(views[everyone], expected)
    assert not views.lacking(views.columns)
    assert sum(np.load(file).shape[1] for file in views.folder.glob("?-*.npy")) == 3 * 20 + 50


def test_interrupted_work_goes_on_and_finished_work_is_found(tmp_path, monkeypatch):
    graph = algnn.load("digits")
    algnn.write_graph(graph, tmp_path / "g", parts=2)
    store = algnn.open_graph(tmp_path / "g", memory="2MB")
    encoder = HopEncoder.of(graph.x, 300, seed=0)
    expected = encoded(encoder, algnn.ALGNN(device="cpu")._rows(graph))[torch.arange(1797)]
    calls, real = [], blocked.hop

    def failing(*args):
        calls.append(args)
        if len(calls) == 40:
            raise KeyboardInterrupt
        real(*args)

    monkeypatch.setattr(blocked, "hop", failing)
    with pytest.raises(KeyboardInterrupt):
        encoded(encoder, store)
    monkeypatch.setattr(blocked, "hop", lambda *args: (calls.append(args), real(*args)))
    assert torch.equal(encoded(encoder, store)[torch.arange(1797)], expected)
    # 12 hops for each of two partitions and three blocks of columns: less than all of it again
    assert 72 <= len(calls) < 40 + 72
    calls.clear()
    again = encoded(encoder, algnn.open_graph(tmp_path / "g"))
    assert torch.equal(again[torch.arange(1797)], expected)
    assert not calls


def test_columns_are_cut_anew_where_memory_has_become_less(tmp_path):
    encoder = HopEncoder("all", 10)

    def blocks_with(step, write=0):
        views = Views(encoder, step, "cpu", tmp_path)
        for columns in views.columns[:write]:
            for view in range(len(encoder.views)):
                views.file(view, columns).touch()
        return len(views.columns)

    assert blocks_with(5, write=1) == 2
    assert blocks_with(10) == 2  # goes on
    assert blocks_with(3, write=4) == 4
    assert [blocks_with(step) for step in (10, 5, 1)] == [4, 4, 4]  # finished


def test_processes_with_more_and_less_memory_share_a_cache(tmp_path, monkeypatch):
    graph = algnn.load("digits")
    algnn.write_graph(graph, tmp_path / "g", parts=2)
    encoder, every = HopEncoder.of(graph.x, 300, seed=0), torch.arange(1797)
    expected = encoded(encoder, algnn.ALGNN(device="cpu")._rows(graph))[every]
    calls, real, found = [], blocked.hop, []

    def views(memory):
        found.append(encoded(encoder, algnn.open_graph(tmp_path / "g", memory=memory)))

    def interleaved(*args):
        calls.append(args)
        if len(calls) == 40:  # the first block of columns is there
            views("1MB")
        real(*args)

    monkeypatch.setattr(blocked, "hop", interleaved)
    for memory in ("2MB", "2MB", "1MB", "4GiB"):
        views(memory)
    assert all(torch.equal(some[every], expected) for some in found)
    assert [len(some.columns) for some in found] == [5, 3, 3, 3, 3]  # the widest that is finished


def test_a_cache_that_cannot_be_written_names_the_remedy(tmp_path, monkeypatch):
    graph = algnn.load("digits")
    store = algnn.write_graph(graph, tmp_path / "g", parts=2)
    encoder = HopEncoder.of(graph.x, 300, seed=0)
    (tmp_path / "file").touch()
    with pytest.raises(algnn.InputError, match=r"cannot be a folder.*cache=FOLDER"):
        encoded(encoder, algnn.open_graph(tmp_path / "g", cache=tmp_path / "file"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(algnn.InputError, match=r"cannot be written to.*cache=FOLDER"):
            encoded(encoder, store)
    expected = encoded(encoder, store)[torch.arange(5)]
    monkeypatch.setattr(os, "access", lambda *_: False)  # what is finished is only read
    assert torch.equal(encoded(encoder, store)[torch.arange(5)], expected)


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    """The digits on disk, a session, and a model that has learned it from memory."""
    # several chunks of sums, also of few nodes
    monkeypatch.setattr("algnn.analytic.cluster.CHUNK_NODES", 100)
    graph = digits()
    nodes = graph.train_mask.nonzero().squeeze(1)[:300]
    algnn.write_graph(graph, tmp_path / "g", parts=3)
    return graph, nodes, algnn.ALGNN(width=300, device="cpu").fit(graph, nodes, graph.y[nodes])


def test_four_workers_give_the_weights_of_one_process(tmp_path, on_disk, learned, monkeypatch):
    distributed = pytest.importorskip("distributed")
    graph, sessions, expected = learned
    store = algnn.open_graph(tmp_path / "g", memory="2MB")
    path = tmp_path / "m.safetensors"
    labels = pd.DataFrame({"node": sessions[1], "label": graph.y[sessions[1]]})
    labels.to_csv(tmp_path / "y.csv", index=False)
    read, failed = algnn.GraphStore.adjacency, []

    def fails_once(store, part):
        if not failed:
            failed.append(part)
            raise OSError("the disk did not answer")
        return read(store, part)

    monkeypatch.setattr(algnn.GraphStore, "adjacency", fails_once)
    with distributed.Client(
        n_workers=4, threads_per_worker=1, processes=False, dashboard_address=None
    ) as client:
        model = fitted(graph, store, sessions, client=client)
        assert_same(model, algnn.on_cluster(store, client), expected, graph)
        assert failed
        with pytest.raises(algnn.InputError, match="graph on disk"):
            model.fit(graph, sessions[0], graph.y[sessions[0]], client=client)
        with pytest.raises(algnn.InputError, match=r"client is a str: give a distributed\.Client"):
            model.fit(store, sessions[0], graph.y[sessions[0]], client="tcp://head:8786")
        model = algnn.ALGNN(width=300, device="cpu")
        model.fit(store, sessions[0], graph.y[sessions[0]], client=client).save(path)
        # an encoder that is trained stays in this process, whatever the graph
        trained = algnn.ALGNN(width=300, encoder="self-supervised", hidden=16, device="cpu")
        here = trained.fit(graph, sessions[0], graph.y[sessions[0]]).weights_
        there = trained.fit(store, sessions[0], graph.y[sessions[0]], client=client).weights_
        assert torch.allclose(here, there, rtol=1e-9, atol=0)
        answers = trained.predict(algnn.on_cluster(store, client), range(50))
        assert np.array_equal(answers, trained.predict(graph, range(50)))
        command = ["learn", path, tmp_path / "g", tmp_path / "y.csv"]
        assert main([*map(str, command), "--scheduler", client.scheduler.address]) == 0
    assert_same(algnn.ALGNN.load(path), store, expected, graph)
    assert not list(tmp_path.rglob("scratch-*"))


def test_a_worker_opens_a_graph_that_was_written_anew(tmp_path):
    graph, wheres = digits(), []
    for count in (50, 60):
        shutil.rmtree(tmp_path / "g", ignore_errors=True)
        store = algnn.write_graph(part(graph, count), tmp_path / "g", parts=2)
        wheres.append(Cluster(store, None).where)
        assert _opened(wheres[-1]).num_nodes == count
    _opened.cache_clear()
    with pytest.raises(algnn.DatasetError, match="open it again"):
        _opened(wheres[0])


def test_a_worker_in_another_folder_opens_the_same_graph(tmp_path, monkeypatch):
    algnn.write_graph(part(digits(), 50), tmp_path / "g", parts=2)
    monkeypatch.chdir(tmp_path)
    wheres = [Cluster(algnn.open_graph(p), None).where for p in ("g", f"file://{tmp_path}/g")]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [_opened(where).num_nodes for where in wheres] == [50, 50]


def test_what_a_killed_client_left_is_removed_after_a_day(tmp_path):
    store = algnn.write_graph(part(digits(), 50), tmp_path / "g", parts=2)
    dead, alive, mine = (Cluster(store, None) for _ in range(3))
    folders = [runner.array("x", 2).parent for runner in (dead, alive, mine)]
    os.utime(folders[0], (0, 0))
    mine.close()
    assert [folder.exists() for folder in folders] == [False, True, False]


def test_killed_workers_leave_the_same_bits(tmp_path, on_disk):
    distributed = pytest.importorskip("distributed")
    graph, nodes, expected = on_disk
    found = []
    # from the process in which all is imported: five seconds less for each worker
    start_forkserver()
    dask = pytest.importorskip("dask")
    forked = dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    with (
        forked,
        distributed.Client(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as client,
    ):
        for kills in ((), (20,)):  # in the middle of a hop
            # by an address: workers fetch its files as they need them
            address, cache = f"file://{tmp_path}/g", tmp_path / f"cache{len(kills)}"
            store = algnn.open_graph(address, cache=cache)
            there = algnn.on_cluster(store, client)
            killed = sabotage(there.runner, client, kills)
            found.append(algnn.ALGNN(width=300, device="cpu"))
            found[-1].fit(there, nodes, graph.y[nodes])
            assert_same(found[-1], there, expected, graph)
            assert len(killed) == len(kills)
        # all of them, once the first has the weights
        killed = sabotage(there.runner, client, (1,), workers=2)
        assert np.array_equal(found[1].predict(there), expected.predict(graph))
        assert len(killed) == 2
    assert torch.equal(found[0].weights_, found[1].weights_)


def sabotage(runner, client, kills, workers=1):
    """Kill workers when so many tasks were submitted; returns the list of those killed.

    Futures are held, so that Dask does tasks of earlier steps again, too, if their worker dies.
    """
    submit, submitted, killed = runner._submit, [], []

    def sabotaged(*args):
        submitted.append(submit(*args))
        if len(submitted) in kills:
            submitted[0].result()
            killed.extend(list(client.run(os.getpid).values())[:workers])
            for worker in killed[-workers:]:
                os.kill(worker, signal.SIGKILL)
        return submitted[-1]

    runner._submit = sabotaged
    return killed


# -- the graph gains nodes and edges between calls ------------------------------------------------


def part(graph: Data, count: int) -> Data:
    """The first nodes, and the edges between them."""
    edges, _ = subgraph(torch.arange(count), graph.edge_index, num_nodes=graph.num_nodes)
    return Data(x=graph.x[:count], edge_index=edges)


def test_nodes_that_came_after_training_are_classified():
    graph = algnn.load("digits")
    young = part(graph, 1200)
    known = torch.arange(1000)
    model = algnn.ALGNN(width=512, device="cpu").fit(young, known, graph.y[known])
    late = torch.arange(1200, graph.num_nodes)
    grown = Data(x=graph.x, edge_index=graph.edge_index)
    assert np.mean(model.predict(grown, late) == graph.y[late].numpy()) > 0.9
    # what was there before is still known, in the graph as it is now
    old = torch.arange(1000, 1200)
    assert np.mean(model.predict(grown, old) == graph.y[old].numpy()) > 0.9


def test_a_class_is_learned_from_nodes_that_came_after_training():
    graph = algnn.load("digits")
    young, known = part(graph, 1200), torch.arange(1200)
    known = known[graph.y[known] < 9]
    model = algnn.ALGNN(width=512, device="cpu").fit(young, known, graph.y[known])
    late = torch.arange(1200, graph.num_nodes)
    nines = late[graph.y[late] == 9]
    model.partial_fit(graph, nines[:20], graph.y[nines[:20]])
    assert np.mean(model.predict(graph, nines[20:]) == 9) > 0.6
