"""Graphs on disk: what was written is what is read, grows, and is never silently damaged."""

import gzip
import json
import re
import signal
import threading
from io import FileIO

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import algnn
from algnn.bench.plan import recorded_name
from algnn.cli import main
from algnn.errors import DatasetError, InputError
from algnn.graph import tables
from algnn.graph.catalogue import check_name
from algnn.graph.npz import MASKS
from algnn.graph.partition import append_nodes, write_partitions
from algnn.graph.propagate import normalised_adjacency, to_csr
from algnn.graph.store import GraphStore, parse_bytes
from algnn.graph.tables import read_edges, read_features
from algnn.labels import read_labels

BARE = {"header": False, "index": False}  # as OGB writes tables


def random_graph(seed=0, nodes=40, edges=150, weighted=False, sparse=False) -> Data:
    """Directed, with loops, repeated edges and, since few ids are drawn, isolated nodes."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes * 3 // 4, (2, edges), generator=generator)
    x = torch.randn(nodes, 6, generator=generator)
    x[x < 0.5] = 0
    graph = Data(x=to_csr(x) if sparse else x, edge_index=edge_index)
    graph.y = torch.arange(nodes) % 4 - 1
    if weighted:
        graph.edge_weight = torch.rand(edges, generator=generator)
    return graph


def dense(store: GraphStore) -> torch.Tensor:
    return torch.cat([store.adjacency(part).to_dense() for part in range(len(store.parts))])


@pytest.mark.parametrize("parts", [1, 3, 16, 50])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_the_adjacency_are_those_in_memory_to_the_bit(tmp_path, parts, weighted):
    graph = random_graph(weighted=weighted)
    store = algnn.write_graph(graph, tmp_path / "g", parts)
    expected = normalised_adjacency(graph.edge_index, 40, graph.get("edge_weight")).to_dense()
    assert len(store.parts) == parts
    # repeated edges are summed in whatever order
    torch.testing.assert_close(dense(store), expected, rtol=1e-7, atol=0)
    assert torch.equal(store.take(torch.arange(40)), graph.x)
    assert torch.equal(store.labels(), graph.y)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_the_features_come_in_the_order_asked_for(tmp_path, sparse):
    graph = random_graph(sparse=sparse)
    store = algnn.write_graph(graph, tmp_path / "g", parts=5)
    rows = torch.tensor([39, 0, 17, 17, 8])
    assert torch.equal(store.take(rows).to_dense(), graph.x.to_dense()[rows])
    assert store.take(rows[:0]).to_dense().shape == (0, 6)


def test_it_grows_by_a_partition_and_nothing_is_rewritten(tmp_path):
    graph = random_graph(weighted=True)
    # the first 30 nodes with the edges among them, then the others
    first = (graph.edge_index < 25).all(dim=0)
    old = Data(x=graph.x[:25], edge_index=graph.edge_index[:, first], y=graph.y[:25])
    old.edge_weight = graph.edge_weight[first]
    algnn.write_graph(old, tmp_path / "g", parts=2)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.npy")}
    ends = [row[~first].numpy() for row in graph.edge_index]
    more = (*ends, graph.edge_weight[~first].numpy())
    store = append_nodes(tmp_path / "g", graph.x[25:], [more], y=graph.y[25:])
    assert all(p.read_bytes() == content for p, content in before.items())
    expected = normalised_adjacency(graph.edge_index, 40, graph.edge_weight).to_dense()
    torch.testing.assert_close(dense(store), expected)
    assert torch.equal(store.labels(), graph.y)
    assert store.num_edges == graph.edge_index.size(1)
    assert store.fingerprint != algnn.write_graph(graph, tmp_path / "h", 3).fingerprint
    with pytest.raises(InputError, match="have weights"):
        append_nodes(tmp_path / "g", graph.x[:0], [(ends[0], ends[1], None)])
    with pytest.raises(InputError, match="must have no weights, as those of the graph"):
        write_partitions(tmp_path / "i", graph.x, [(ends[0], ends[1], None), more])


def test_edges_in_chunks_larger_than_memory_are_sorted(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK", 7)
    graph = random_graph(3)
    table = pd.DataFrame(graph.edge_index.T.numpy(), columns=["source", "target"])
    (tmp_path / "edges").mkdir()
    table[:80].to_parquet(tmp_path / "edges" / "0.parquet")
    table[80:].to_csv(tmp_path / "edges" / "1.csv", index=False)
    chunks = list(read_edges(tmp_path / "edges"))
    assert max(len(chunk[0]) for chunk in chunks) == 7
    store = write_partitions(tmp_path / "g", graph.x, chunks, parts=3)
    assert torch.equal(dense(store), normalised_adjacency(graph.edge_index, 40).to_dense())
    with pytest.raises(InputError, match=r"give \d+ times as much"):
        write_partitions(tmp_path / "h", graph.x, chunks, parts=3, memory=100)
    with pytest.raises(InputError, match=r"give \d+ times as much"):
        algnn.write_graph(graph, tmp_path / "h", 3, memory=100)
    assert not (tmp_path / "h").exists()
    with pytest.raises(InputError, match=r"give \d+ times as much"):
        append_nodes(tmp_path / "g", graph.x[:1], chunks, memory=100)
    assert len(algnn.open_graph(tmp_path / "g", verify=True).parts) == 3


@pytest.mark.parametrize("features", ["x.npy", "x.parquet", "x.csv"])
def test_the_command_makes_an_undirected_graph_of_tables(tmp_path, capsys, features):
    graph = random_graph(4)
    table = pd.DataFrame(graph.edge_index.T.numpy(), columns=["source", "target"])
    table.to_parquet(tmp_path / "edges.parquet")
    frame = pd.DataFrame(graph.x.numpy(), columns=[f"f{i}" for i in range(6)])
    np.save(tmp_path / "x.npy", graph.x.numpy())
    frame.to_parquet(tmp_path / "x.parquet")
    frame.rename_axis("node").to_csv(tmp_path / "x.csv")
    labels = pd.DataFrame({"node": range(4), "label": ["b", "a", "", "b"]})
    labels.to_csv(tmp_path / "y.csv", index=False)
    made = ["partition", str(tmp_path / "edges.parquet"), str(tmp_path / "g"), "--parts", "3"]
    made += ["--features", str(tmp_path / features), "--labels", str(tmp_path / "y.csv")]
    assert main([*made, "--undirected"]) == 0, capsys.readouterr().err
    store = algnn.open_graph(tmp_path / "g", verify=True)
    both = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1).unique(dim=1)
    assert store.num_edges == both.size(1)
    assert torch.equal(dense(store), normalised_adjacency(both, 40).to_dense())
    assert torch.allclose(store.take(torch.arange(40)), graph.x, rtol=1e-6)
    assert store.labels()[:4].tolist() == [1, 0, -1, 1]
    assert store.manifest["class_names"] == ["a", "b"]
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("tmp")]
    assert main(made) == 2
    assert "holds a graph already" in capsys.readouterr().err
    del made[-2:]
    assert main([*made, "--append"]) == 2
    assert "--append adds one partition" in capsys.readouterr().err
    del made[3:5]
    assert main([*made, "--append", "--memory", "1KiB"]) == 2
    assert "give 8 times as much" in capsys.readouterr().err
    assert main([*made, "--append"]) == 0
    assert algnn.open_graph(tmp_path / "g").num_nodes == 80


def test_a_folder_is_a_graph_where_a_name_is(tmp_path, capsys):
    graph = algnn.load("digits")
    algnn.save_npz(graph, tmp_path / "d.npz")
    assert main(["partition", str(tmp_path / "d.npz"), str(tmp_path / "g"), "--parts", "3"]) == 0
    again = algnn.load(tmp_path / "g")
    for key in ("x", "y", "train_mask", "test_mask"):
        assert torch.equal(again[key], graph[key])
    assert again.edge_index.size(1) == graph.edge_index.size(1)
    capsys.readouterr()
    assert main(["partition", str(tmp_path / "g"), str(tmp_path / "h")]) == 2
    assert "is a folder of partitions already: use it as it is" in capsys.readouterr().err
    unknown = ["partition", str(tmp_path / "d.npz"), str(tmp_path / "h"), "--memory", "abc"]
    assert main(unknown) == 2
    assert "memory='abc' is no size: give bytes, or words such as '4GiB'" in capsys.readouterr().err
    assert not (tmp_path / "h").exists()
    model, labels = str(tmp_path / "m.safetensors"), tmp_path / "y.csv"
    rows = pd.DataFrame({"node": range(60), "label": graph.y[:60]})
    rows.to_csv(labels, index=False)
    for where in ("g", "d.npz"):
        assert main(["fit", model, str(tmp_path / where), str(labels), "--force"]) == 0
        out = str(tmp_path / f"{where}.out.csv")
        assert main(["predict", model, str(tmp_path / where), "-o", out, "--no-novelty"]) == 0
    assert (tmp_path / "g.out.csv").read_bytes() == (tmp_path / "d.npz.out.csv").read_bytes()
    for where, options, words in (
        ("d.npz", ["--workers", "2"], "with algnn partition"),
        ("g", ["--workers", "2", "--scheduler", "tcp://head:1"], "leave one of them out"),
        ("g", ["--workers", "-3"], "'--workers'"),
    ):
        assert main(["fit", model, str(tmp_path / where), str(labels), "--force", *options]) == 2
        assert words in capsys.readouterr().err


def test_a_folder_does_not_pass_for_a_known_graph(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    graph = algnn.load("digits")
    for name, near in (("Digits", "digits"), ("cora", "cora")):
        algnn.write_graph(graph, tmp_path / name)
        with pytest.raises(
            DatasetError, match=rf"'{name}' is a known graph.*: write \./{name} for"
        ):
            algnn.load(name)
        assert algnn.open_graph(f"./{name}").num_nodes == len(algnn.load(f"./{name}").y) == 1797
        assert recorded_name(f"./{name}") == f"./{name}"  # nor in records
        assert recorded_name(near) == near
    assert main(["fit", "m.safetensors", "cora", "y.csv"]) == 2
    assert "write ./cora for that one" in capsys.readouterr().err
    algnn.save_npz(graph, "citeseer.npz")
    (tmp_path / "citeseer.npz").rename("citeseer")
    with pytest.raises(DatasetError, match=r"write \./citeseer for"):
        algnn.load("citeseer")
    monkeypatch.chdir(tmp_path / "cora")
    assert algnn.load(".").provenance["name"] == "cora"
    assert recorded_name(".") == "./cora"
    monkeypatch.chdir(tmp_path)
    # what is no graph is in nobody's way
    (tmp_path / "Digits" / "manifest.json").unlink()
    assert len(algnn.load("Digits").y) == 1797


def test_a_folder_with_the_ending_of_a_table_is_a_graph(tmp_path):
    algnn.write_graph(random_graph(), tmp_path / "g.csv")
    check_name(tmp_path / "g.csv")


def test_ogb_raw_files_are_read_in_chunks(tmp_path, capsys):
    graph = random_graph(5)
    for folder in ("raw", "split/time"):
        (tmp_path / "ogb" / folder).mkdir(parents=True)

    def write(name, rows):
        pd.DataFrame(rows).to_csv(tmp_path / "ogb" / name, header=False, index=False)

    write("raw/edge.csv.gz", graph.edge_index.T.numpy())
    write("raw/node-feat.csv.gz", graph.x.numpy())
    write("raw/node-label.csv.gz", graph.y.numpy())
    for part, ids in (("train", [0, 1]), ("valid", [2]), ("test", [3])):
        write(f"split/time/{part}.csv.gz", ids)
    assert main(["partition", str(tmp_path / "ogb"), str(tmp_path / "g"), "--parts", "2"]) == 0
    store = algnn.open_graph(tmp_path / "g")
    assert torch.equal(dense(store), normalised_adjacency(graph.edge_index, 40).to_dense())
    assert store.in_memory.train_mask.nonzero().squeeze(1).tolist() == [0, 1]
    made = ["partition", str(tmp_path / "ogb"), str(tmp_path / "h")]
    file = str(tmp_path / "ogb" / "raw" / "edge.csv.gz")
    for options in (["--append"], ["--features", file], ["--labels", file]):
        assert main([*made, *options]) == 2
        assert "an OGB folder is a whole graph" in capsys.readouterr().err
    assert not (tmp_path / "h").exists()


def test_damage_is_noticed(tmp_path):
    graph = random_graph()
    algnn.write_graph(graph, tmp_path / "g", parts=2)
    file = tmp_path / "g" / "part-00001" / "x.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    algnn.open_graph(tmp_path / "g")
    with pytest.raises(DatasetError, match=r"part-00001/x\.npy is not as it was written"):
        algnn.open_graph(tmp_path / "g", verify=True)
    file.write_bytes(content[:-1])
    with pytest.raises(DatasetError, match=r"part-00001/x\.npy is not"):
        algnn.open_graph(tmp_path / "g")
    file.unlink()
    with pytest.raises(DatasetError, match=r"x\.npy is missing"):
        algnn.open_graph(tmp_path / "g")
    manifest = tmp_path / "g" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(DatasetError, match="version 99"):
        algnn.open_graph(tmp_path / "g")
    with pytest.raises(DatasetError, match="algnn partition"):
        algnn.open_graph(tmp_path)
    algnn.write_graph(graph, tmp_path / "h")
    manifest = tmp_path / "h" / "manifest.json"
    whole = json.loads(manifest.read_text())
    broken = [{k: v for k, v in whole.items() if k != key} for key in whole if key != "format"]
    part = whole["partitions"][0]
    files = part["files"]
    parts = [{}, part | {"nodes": [0, 39]}, part | {"files": {}}, part | {"files": []}]
    parts += [part | {"files": {k: v for k, v in files.items() if k != gone}} for gone in files]
    parts.append(part | {"files": files | {"x.npy": {"shape": files["x.npy"]["shape"]}}})
    broken += [whole | {"partitions": [one]} for one in parts]
    broken += [whole | {"partitions": []}, whole | {"partitions": [part, part]}]
    broken += [whole | {"nodes": 41}, whole | {"nodes": "40"}, whole | {"sparse": True}]
    broken += [
        whole | {flag: not whole[flag]}
        for flag in ("weighted", "labelled", "split")
        if not whole[flag]
    ]
    for content in broken:
        manifest.write_text(json.dumps(content))
        with pytest.raises(DatasetError, match="it is damaged"):
            algnn.open_graph(tmp_path / "h")


@pytest.mark.parametrize("name", ["edge", "node-feat", "node-label", "num-node-list"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "wide"])
def test_a_damaged_gzip_is_named(tmp_path, capsys, name, damage):
    wide = {"edge": 2, "node-feat": 3}
    (tmp_path / "ogb" / "raw").mkdir(parents=True)
    for each in ("edge", "node-feat", "node-label", "num-node-list"):
        rows = 1 if each == "num-node-list" else 600
        numbers = np.arange(600).reshape(-1, 1)[:rows] * 7919 % 600
        numbers = np.repeat(numbers if rows > 1 else [[600]], wide.get(each, 1), axis=1)
        content = bytearray(gzip.compress(pd.DataFrame(numbers).to_csv(None, **BARE).encode()))
        if each == name and damage == "wide":
            content = gzip.compress(b"1,2,3\n1,2,3,4\n")
        elif each == name:
            content[-6] ^= 255 * (damage == "flipped")
            del content[{"cut": len(content) // 2, "flipped": len(content), "empty": 0}[damage] :]
        (tmp_path / "ogb" / "raw" / f"{each}.csv.gz").write_bytes(content)
    assert main(["partition", str(tmp_path / "ogb"), str(tmp_path / "g")]) == 2
    assert re.search(rf"{name}\.csv\.gz is no whole table", capsys.readouterr().err)
    assert [file.name for file in tmp_path.iterdir()] == ["ogb"]


def test_an_interrupted_table_is_not_called_damaged(tmp_path, capsys, monkeypatch):
    def read(file, size=-1):
        if file.tell():  # by now pandas reads in C
            signal.raise_signal(signal.SIGINT)
        return FileIO.read(file, size)

    monkeypatch.setattr(tables.WatchedFile, "read", read)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    (tmp_path / "e.csv").write_text("source,target\n" + "0,1\n" * 300_000)
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    made = ["partition", str(tmp_path / "e.csv"), str(tmp_path / "g")]
    try:
        assert main([*made, "--features", str(tmp_path / "x.npy")]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "algnn: interrupted\n"
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("source,target,Weight", "Weight"),
        ("source,target,weight ", "weight "),
        ("Source,target,weight", "Source"),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_of_edges_are_not_passed_over(tmp_path, header, found, ending):
    path = tmp_path / f"e{ending}"
    path.write_text(f"{header}\n0,1,2\n")
    if ending == ".parquet":
        pd.read_csv(path).to_parquet(path)
    with pytest.raises(DatasetError, match=f"has column {found}: name one [a-z]+$"):
        list(read_edges(path))
    path.with_suffix(".csv").write_text("source,target,target\n0,1,2\n")
    with pytest.raises(DatasetError, match=r"has column target, target\.1: name one target$"):
        list(read_edges(path.with_suffix(".csv")))


def test_bad_tables_are_named(tmp_path):
    graph = random_graph()
    far = (np.array([0, 40]), np.array([1, 2]), None)
    with pytest.raises(InputError, match="ids are 0 to 39"):
        write_partitions(tmp_path / "g", graph.x, [far])
    assert not (tmp_path / "g").exists()
    with pytest.raises(InputError, match="NaN or infinite"):
        write_partitions(tmp_path / "g", graph.x / 0, [])
    assert not (tmp_path / "g").exists()
    # a folder of the user's stays, with what it holds
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(InputError, match="ids are 0 to 39"):
        write_partitions(tmp_path / "mine", graph.x, [far])
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    (tmp_path / "e.csv").write_text("from,to\n1,2\n")
    with pytest.raises(DatasetError, match="no column source"):
        list(read_edges(tmp_path / "e.csv"))
    for last, words in (
        ("ann", "source holds 'ann': give ids, whole numbers from 0"),
        ("1.5", "source holds 1.5: give ids"),
        ("1.0", "source holds 0.0: give ids, whole numbers from 0 without decimal points"),
        (2**64 - 1, f"source holds {2**64 - 1}, which is no id"),
        (2**70, f"source holds {2**70}: give ids"),
    ):
        (tmp_path / "e.csv").write_text(f"source,target\n0,1\n{last},0\n")
        with pytest.raises(DatasetError, match=words):
            list(read_edges(tmp_path / "e.csv"))
    (tmp_path / "e.csv").write_text("source,target\n0,1\n\n1,0\n\n")
    assert [chunk[0].tolist() for chunk in read_edges(tmp_path / "e.csv")] == [[0, 1]]
    # in a table of one column an empty line is a row, and without it ids would shift
    (tmp_path / "x.csv").write_text("age\n31\n\n33\n")
    assert read_features(tmp_path / "x.csv", tmp_path).isnan().flatten().tolist() == [0, 1, 0]
    (tmp_path / "gap.csv").write_text("source,target\n0,1\n,2\n")
    with pytest.raises(DatasetError, match="source is empty in a row: give an id in each"):
        list(read_edges(tmp_path / "gap.csv"))
    (tmp_path / "e.csv").write_text("source,target,weight\n1,2,much\n")
    with pytest.raises(DatasetError, match="column weight holds 'much': give numbers"):
        list(read_edges(tmp_path / "e.csv"))
    (tmp_path / "x.csv").write_text("name,age\nann,31\n")
    with pytest.raises(DatasetError, match="column name holds 'ann': give numbers"):
        read_features(tmp_path / "x.csv", tmp_path)
    for header, row, message in (
        (",a", "0,1", r"has a column 'Unnamed: 0': .*name it node"),
        ("Node,a", "0,1", "has a column 'Node': .*name it node"),
        ("node,node,a", "0,0,1", r"has a column 'node\.1': .*name it node"),
        ("0.5,.5e-1,0.5", "1,2,3", "a row of"),
    ):
        (tmp_path / "x.csv").write_text(f"{header}\n{row}\n")
        with pytest.raises(DatasetError, match=message):
            read_features(tmp_path / "x.csv", tmp_path)
    for header in ("0,1", "node,0"):  # as pandas names columns
        (tmp_path / "x.csv").write_text(f"{header}\n0,1\n")
        assert read_features(tmp_path / "x.csv", tmp_path)[0, -1] == 1
    for wrong in ("4 elephants", "-1GiB", 0, 0.5, "0.0001KB", True):
        with pytest.raises(InputError, match="memory="):
            parse_bytes(wrong)


@pytest.mark.parametrize("rows", ["0,1,2", "0,1,2\n1,2,3", "0,1\n1,2,3", "0,1,\n1,2,"])
@pytest.mark.parametrize("ending", [".csv", ".gz"])
def test_rows_longer_than_the_header_are_refused(tmp_path, rows, ending):
    """Pandas takes the first cell of such rows for a name, and would shift all columns."""
    for part, header in (("edges", "source,target"), ("features", "a,b")):
        text = f"{header}\n{rows}\n".encode()
        (tmp_path / (part + ending)).write_bytes(gzip.compress(text) if ending == ".gz" else text)
    with pytest.raises(DatasetError, match=r"as many cells in each row as in the header.* saw 3"):
        list(read_edges(tmp_path / f"edges{ending}"))
    with pytest.raises(DatasetError, match=r"as many cells in each row as in the header.* saw 3"):
        read_features(tmp_path / f"features{ending}", tmp_path)


def test_a_remote_graph_is_fetched_when_it_is_needed(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graph, address = random_graph(6), f"memory://{tmp_path.name}/g"
    algnn.write_graph(graph, address, parts=3)
    store = algnn.open_graph(address, cache=tmp_path / "here")
    assert torch.equal(store.take(torch.tensor([0, 1])), graph.x[:2])
    assert len(list(tmp_path.rglob("*.npy"))) == 1
    assert torch.equal(dense(store), normalised_adjacency(graph.edge_index, 40).to_dense())
    assert torch.equal(algnn.load(address).x, graph.x)
    with pytest.raises(InputError, match="holds a graph already"):
        algnn.write_graph(graph, address)
    grown = append_nodes(address, graph.x[:1], [(np.array([40]), np.array([3]), None)])
    edges = torch.cat([graph.edge_index, torch.tensor([[40], [3]])], dim=1)
    assert torch.equal(dense(grown), normalised_adjacency(edges, 41).to_dense())
    # what was copied of another graph at the same address is not taken for this one
    import fsspec

    fsspec.filesystem("memory").rm(f"/{tmp_path.name}/g", recursive=True)
    graph.x = graph.x + 1
    algnn.write_graph(graph, address, parts=3)
    assert torch.equal(algnn.load(address).x, graph.x)
    with pytest.raises(DatasetError, match="algnn partition"):
        algnn.load(f"memory://{tmp_path.name}/h")
    # one that has lost a file opens, and says so when it is verified
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}/g/part-00001/x.npy")
    algnn.open_graph(address, cache=tmp_path / "anew")
    with pytest.raises(DatasetError, match=r"part-00001/x\.npy is"):
        algnn.open_graph(address, cache=tmp_path / "anew", verify=True)


def test_a_damaged_view_is_named_and_what_a_killed_command_left_is_removed(tmp_path):
    graph, left = random_graph(), tmp_path / "g" / ".sorting-old"
    left.mkdir(parents=True)
    algnn.write_graph(graph, tmp_path / "g", parts=2)
    assert not left.exists()
    store = algnn.open_graph(tmp_path / "g", cache=tmp_path / "cache")
    algnn.ALGNN(width=64, device="cpu").fit(store, range(10), [0, 1] * 5)
    for cut in (slice(-8), slice(0)):  # a part of it, and all
        for view in tmp_path.rglob("views-*/*.npy"):
            view.write_bytes(view.read_bytes()[cut])
        again = algnn.open_graph(tmp_path / "g", cache=tmp_path / "cache")
        with pytest.raises(DatasetError, match=r"views-.* is no whole array .*: delete it"):
            algnn.ALGNN(width=64, device="cpu").fit(again, range(10), [0, 1] * 5)


def test_a_slash_at_the_end_of_an_address_overwrites_nothing(tmp_path):
    pytest.importorskip("fsspec")
    graph, address = random_graph(6), f"memory://{tmp_path.name}/kept"
    algnn.write_graph(graph, address)
    with pytest.raises(InputError, match="holds a graph already"):
        algnn.write_graph(random_graph(3), f"{address}/")
    assert algnn.open_graph(address, cache=tmp_path).num_nodes == graph.num_nodes
    assert append_nodes(f"{address}/", graph.x[:1], []).num_nodes == graph.num_nodes + 1


def pairs(store: GraphStore) -> list[tuple[int, int]]:
    return sorted(map(tuple, store.in_memory.edge_index.t().tolist()))


@pytest.mark.parametrize("kind", [np.int32, np.uint8, ">i8", list])
def test_edges_of_other_types_are_stored_as_they_are(tmp_path, kind):
    graph = random_graph(edges=0, weighted=True)
    algnn.write_graph(graph, tmp_path / "g")
    ids = [[3, 1, 2], [0, 39, 0]]
    ends = ids if kind is list else [np.array(one, dtype=kind) for one in ids]
    weight = np.array([0.5, 2.0, 7.0])  # float64
    store = append_nodes(tmp_path / "g", graph.x[:0], [(*ends, weight)])
    assert pairs(store) == [(1, 39), (2, 0), (3, 0)]
    assert store.in_memory.edge_weight.tolist() == [7.0, 0.5, 2.0]


ONE = np.array([1])


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        ((ONE, ONE), "edges holds a tuple: give chunks"),
        ((ONE * 1.0, ONE, None), "each source is float64: give ids"),
        ((np.array([1, 2]), ONE, None), "chunk of shapes"),
        ((ONE[None], ONE[None], None), "chunk of shapes"),
        ((ONE, ONE, np.array([1.0, 2.0])), "chunk of shapes"),
        ((ONE, None, None), "chunk of shapes"),
        ((ONE, ONE, np.array(["much"])), "edge weights are <U4"),
        ((ONE, ONE, np.array([1e300])), "edge weights must be finite"),
        ((ONE, np.array([2**63], dtype=np.uint64), None), "edges name target"),
        ((np.array([None]), ONE, None), "edges .* must be a dense tensor or array"),
        (ONE, "edges holds a ndarray"),
    ],
)
def test_edges_that_are_none_are_refused(tmp_path, chunk, message):
    graph = random_graph(weighted=isinstance(chunk, tuple) and chunk[-1] is not None)
    algnn.write_graph(graph, tmp_path / "g")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=message):
        append_nodes(tmp_path / "g", graph.x[:1], [chunk])
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_edges_and_features_that_are_no_such_thing_are_refused(tmp_path):
    graph = random_graph()
    algnn.write_graph(graph, tmp_path / "g")
    with pytest.raises(InputError, match="edges is a NoneType"):
        append_nodes(tmp_path / "g", graph.x, None)
    for x in (graph.x.numpy(), graph.x[:, 1:], graph.x + 0j):
        with pytest.raises(InputError, match=r"x \(.*\) must be a tensor \[m, 6\]"):
            append_nodes(tmp_path / "g", x, [])


def test_two_that_write_at_once_lose_nothing(tmp_path):
    graph, failed = random_graph(), []

    def again():
        with pytest.raises(InputError, match="holds a graph already"):
            algnn.write_graph(random_graph(1), tmp_path / "g")
        failed.append(True)

    second = threading.Thread(target=again)

    def edges():
        second.start()  # while the folder holds no graph yet
        second.join(timeout=0.5)
        yield ONE, ONE, None

    write_partitions(tmp_path / "g", graph.x, edges(), parts=3)
    second.join()
    assert failed
    store = algnn.open_graph(tmp_path / "g", verify=True)
    assert (store.num_edges, len(store.parts)) == (1, 3)
    names = {path.name for path in (tmp_path / "g").iterdir()}
    assert names == {"manifest.json", "part-00000", "part-00001", "part-00002"}


def test_two_that_append_at_once_lose_nothing(tmp_path):
    graph = random_graph()
    algnn.write_graph(graph, tmp_path / "g")
    second = threading.Thread(target=append_nodes, args=(tmp_path / "g", graph.x[:3], []))

    def edges():
        second.start()  # while the first has read how many nodes there are
        second.join(timeout=0.5)
        yield ONE, ONE, None

    append_nodes(tmp_path / "g", graph.x[:2], edges())
    second.join()
    store = algnn.open_graph(tmp_path / "g", verify=True)
    assert [part.stop for part in store.parts] == [40, 42, 45]
    with pytest.raises(DatasetError, match="algnn partition"):
        append_nodes(tmp_path / "none", torch.ones(1, 6), [])
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


NODES = torch.arange(40)
NO_SPLIT = torch.zeros(40, dtype=torch.bool)
STRANGE = [
    ({"y": torch.zeros(40, 2).long()}, r"y has shape \(40, 2\): give one label for each of 40"),
    ({"y": NODES[:39]}, r"y has shape \(39,\)"),
    ({"y": NODES * 1.7}, "y .float32. must hold integers"),
    ({"y": NODES - 7}, "y .int64. must hold integers, -1 and above"),
    ({"y": [None] * 40}, "y .* must be a dense tensor or array"),
    ({"train_mask": NO_SPLIT, "test_mask": NO_SPLIT}, "no val_mask"),
    ({key: NO_SPLIT[:, None].expand(40, 10) for key in MASKS}, "train_mask .*shape"),
    ({key: NO_SPLIT.int() for key in MASKS}, "train_mask .int32.* bool"),
    (dict.fromkeys(MASKS, ~NO_SPLIT), "overlap"),
    ({"class_names": [1, 2, 3]}, "class_names must be a list of strings"),
    ({"class_names": "abc"}, "class_names must be a list of strings"),
    ({"class_names": ["a", "b"]}, "class_names .* for each of the classes 0 to 2"),
]


@pytest.mark.parametrize(("changes", "message"), STRANGE)
def test_labels_and_masks_that_no_graph_has_are_not_written(tmp_path, changes, message):
    graph = random_graph()
    graph.update(changes)
    with pytest.raises(InputError, match=message):
        algnn.write_graph(graph, tmp_path / "g")
    with pytest.raises(InputError, match=message):
        algnn.save_npz(graph, tmp_path / "new" / "g.npz")
    assert list(tmp_path.iterdir()) == []


def test_labels_in_other_forms_mean_the_same(tmp_path):
    graph = random_graph()
    wanted = graph.y
    names = np.array(["a", "b", "c"], dtype=object)
    floats = torch.where(wanted < 0, torch.nan, wanted)
    split = {key: (part == NODES % 3) & (wanted >= 0) for part, key in enumerate(MASKS)}
    words = [("", *names)[code + 1] for code in wanted]
    graph.update(split)
    for n, y in enumerate([floats, wanted[:, None], wanted.tolist(), wanted.int(), words]):
        graph.y, graph.class_names = y, None if y is words else names
        algnn.save_npz(graph, tmp_path / f"{n}.npz")
        stored = algnn.write_graph(graph, tmp_path / f"{n}").in_memory
        for again in (stored, algnn.load(tmp_path / f"{n}.npz")):
            assert again.y.equal(wanted)
            assert again.class_names == ["a", "b", "c"]
            assert all(again[key].equal(mask) for key, mask in split.items())


def test_labels_of_new_nodes_are_checked(tmp_path):
    graph = random_graph()
    algnn.write_graph(graph, tmp_path / "g")
    x = graph.x[:2]
    for y, message in (
        ([1], r"y has shape \(1,\): give one label for each of 2"),
        (torch.tensor([1.5, 0.0]), "y .float32. must hold integers"),
        (["a", "b"], "y holds strings"),
    ):
        with pytest.raises(InputError, match=message):
            append_nodes(tmp_path / "g", x, [], y=y)
    store = append_nodes(tmp_path / "g", x, [], y=torch.tensor([torch.nan, 3.0]))
    assert store.labels()[40:].tolist() == [-1, 3]
    assert append_nodes(tmp_path / "g", x[:0], [], y=[]).num_nodes == 42
    graph.class_names = ["a", "b", "c"]
    algnn.write_graph(graph, tmp_path / "named")
    with pytest.raises(InputError, match=r"y holds class 3: class_names .* 3, so give 0 to 2"):
        append_nodes(tmp_path / "named", x, [], y=[2, 3])
    assert append_nodes(tmp_path / "named", x, [], y=[2, -1]).num_nodes == 42
    del graph.y
    algnn.write_graph(graph, tmp_path / "bare")
    with pytest.raises(InputError, match="the graph has no labels"):
        append_nodes(tmp_path / "bare", x, [], y=[0, 1])


def test_a_folder_without_tables_is_no_graph_without_edges(tmp_path, capsys):
    (tmp_path / "edges").mkdir()
    (tmp_path / "edges" / "edges.tsv").write_text("source\ttarget\n0\t1\n")
    np.save(tmp_path / "x.npy", np.eye(3))
    made = ["partition", str(tmp_path / "edges"), str(tmp_path / "new" / "g")]
    assert main([*made, "--features", str(tmp_path / "x.npy")]) == 2
    assert "edges holds no table: give a folder of .csv" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_tables_with_a_header_alone_count_for_nothing(tmp_path):
    for name, header, rows in (
        ("e", "source,target,weight", "0,1,2\n"),
        ("x", "node,a", "0,1\n1,2\n"),
    ):
        (tmp_path / name).mkdir()
        for number, content in enumerate(("", rows, "")):
            (tmp_path / name / f"{number}.csv").write_text(f"{header}\n{content}")
    x = read_features(tmp_path / "x")
    assert x.tolist() == [[1.0], [2.0]]
    store = write_partitions(tmp_path / "g", x, read_edges(tmp_path / "e"))
    assert (pairs(store), store.manifest["weighted"]) == ([(0, 1)], True)
    with pytest.raises(DatasetError, match="holds no features"):
        read_features(tmp_path / "x" / "0.csv")
    (tmp_path / "e.csv").write_text("from,to\n")
    with pytest.raises(DatasetError, match="no column source"):
        list(read_edges(tmp_path / "e.csv"))


def test_tables_of_features_follow_the_numbers_in_their_names(tmp_path):
    for place in range(12):  # as Dask names them
        pd.DataFrame({"a": [place], "b": [0]}).to_parquet(tmp_path / f"part.{place}.parquet")
    assert read_features(tmp_path)[:, 0].tolist() == list(range(12))
    pd.DataFrame({"b": [0], "a": [12]}).to_parquet(tmp_path / "part.12.parquet")
    with pytest.raises(DatasetError, match=r"12\.parquet has the columns b,a and .* it a,b: give"):
        read_features(tmp_path)


def test_an_index_of_pandas_is_a_column_of_a_parquet_table(tmp_path):
    x = pd.DataFrame({"node": [1, 0], "a": [2.0, 3.0]})
    x.set_index("node").to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match="node must be 0, 1, 2"):
        read_features(tmp_path / "x.parquet")
    for keep in (True, False):
        x[::-1].set_index("node", drop=keep).to_parquet(tmp_path / "x.parquet")
        assert read_features(tmp_path / "x.parquet").tolist() == [[3.0], [2.0]]
    edges = pd.DataFrame({"source": [0, 0, 1], "target": [1, 1, 0], "weight": [2.0, 3.0, 4.0]})
    edges.groupby(["source", "target"]).sum().to_parquet(tmp_path / "e.parquet")
    [found] = read_edges(tmp_path / "e.parquet")
    assert [part.tolist() for part in found] == [[0, 1], [1, 0], [5.0, 4.0]]
    y = pd.Series(["a", "b"], pd.Index([3, 1], name="node"), name="label")
    y.to_frame().to_parquet(tmp_path / "y.parquet")
    assert [part.tolist() for part in read_labels(tmp_path / "y.parquet", 5)[:2]] == [
        [3, 1],
        ["a", "b"],
    ]


def test_spaces_after_commas_are_no_part_of_a_name(tmp_path):
    (tmp_path / "e.csv").write_text("source,target, weight\n0, 1, 2.5\n")
    [found] = read_edges(tmp_path / "e.csv")
    assert [part.tolist() for part in found] == [[0], [1], [2.5]]
    (tmp_path / "x.csv").write_text("a, node\n7, 0\n")
    assert read_features(tmp_path / "x.csv").tolist() == [[7.0]]


@pytest.mark.parametrize("kind", [torch.uint16, torch.uint32])
def test_new_nodes_of_a_sparse_graph_may_have_counts_for_features(tmp_path, kind):
    algnn.write_graph(random_graph(sparse=True), tmp_path / "g")
    x = torch.tensor([[0, 1, 0, 1, 1, 0]]).to(kind)
    store = append_nodes(tmp_path / "g", x, [])
    assert store.take(torch.tensor([40])).to_dense().tolist() == [[0, 1, 0, 1, 1, 0]]


@pytest.mark.parametrize("kind", [">f4", ">i2", np.longdouble])
def test_features_of_any_type_of_numpy_are_read(tmp_path, kind):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(3, 2).astype(kind))
    assert read_features(tmp_path / "x.npy").tolist() == [[0, 1], [2, 3], [4, 5]]
    (tmp_path / "x.npy").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"x\.npy cannot be read"):
        read_features(tmp_path / "x.npy")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("keep")
    graph = random_graph()
    for place in ("file", "file/g"):
        with pytest.raises(InputError, match=r"file.* cannot be a folder"):
            algnn.write_graph(graph, tmp_path / place)
    with pytest.raises(InputError, match="file cannot be a folder"):
        algnn.save_npz(graph, tmp_path / "file" / "g.npz")
    assert (tmp_path / "file").read_text() == "keep"


def test_a_graph_that_fails_half_way_leaves_nothing(tmp_path):
    graph = random_graph()
    graph.x[39] = torch.nan
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(InputError, match="NaN or infinite values among nodes 20 to 39"):
        write_partitions(tmp_path, graph.x, [], parts=2)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
