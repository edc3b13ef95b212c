import dataclasses
import gzip
import http.server
import io
import json
import os
import pickle
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial import cKDTree
from torch_geometric.datasets import Amazon, CitationFull, Planetoid, Reddit
from torch_geometric.utils import is_undirected, to_undirected

from algnn.errors import AlgnnError, DatasetError, InputError
from algnn.graph import catalogue
from algnn.graph.catalogue import SOURCES
from algnn.graph.datasets import available, datasets, load, load_entry, structural_features
from algnn.graph.npz import read_npz, save_npz

DATA = os.environ.get("ALGNN_DATA")
ENTRIES = {entry.name: entry for entry in datasets()}
MASKS = ("train_mask", "val_mask", "test_mask")


def needs(name):
    """Skip a test where a real graph's files are not on this machine."""
    missing = not DATA or not available(name, DATA)
    return pytest.mark.skipif(missing, reason=f"needs the files of {name} in ALGNN_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Every test has a cache of its own, and no data root unless it names one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("ALGNN_DATA", raising=False)
    return tmp_path / "cache" / "algnn"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def digits():
    return load("digits")


def sizes(graph):
    return [int(graph[key].sum()) for key in MASKS]


def pairs(graph):
    """The set of directed edges; fails where one is there twice."""
    listed = list(map(tuple, graph.edge_index.t().tolist()))
    assert len(set(listed)) == len(listed)
    return set(listed)


def both_ways(*edges):
    return {(a, b) for a, b in edges} | {(b, a) for a, b in edges}


def same(a, b):
    keys = ("x", "edge_index", "y", *MASKS)
    return all(a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]) for key in keys)


def check_form(graph):
    n = graph.y.numel()
    assert graph.x.dtype == torch.float32
    assert graph.x.size(0) == n
    assert graph.edge_index.dtype == torch.int64
    assert graph.y.dtype == torch.int64
    assert all(graph[key].dtype == torch.bool and graph[key].shape == (n,) for key in MASKS)
    assert int(torch.stack([graph[key] for key in MASKS]).sum(dim=0).max()) <= 1
    assert json.loads(json.dumps(graph.provenance)) == graph.provenance


# -- small files in the formats of the real ones --------------------------------------------------


def write(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def npz_bytes(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def csr_parts(prefix, matrix):
    matrix = sp.csr_matrix(matrix)
    return {
        f"{prefix}_data": matrix.data,
        f"{prefix}_indices": matrix.indices,
        f"{prefix}_indptr": matrix.indptr,
        f"{prefix}_shape": np.array(matrix.shape),
    }


def citation_npz(**extra):
    """20 nodes on a path, edges one way, one self-loop, 3 classes, 5 words."""
    adjacency = np.zeros((20, 20))
    adjacency[np.arange(19), np.arange(1, 20)] = 1
    adjacency[4, 4] = 1
    words = 3.0 * (np.arange(100).reshape(20, 5) % 3 == 0)
    labels = np.arange(20) % 3
    return npz_bytes(
        **csr_parts("adj", adjacency), **csr_parts("attr", words), labels=labels, **extra
    )


PATH = both_ways(*((i, i + 1) for i in range(19)))


def reddit_files():
    graph = io.BytesIO()
    links = ([0, 1, 1, 2, 2, 3, 0], [1, 0, 2, 1, 3, 2, 1])  # (0, 1) twice
    sp.save_npz(graph, sp.coo_matrix((np.ones(7), links), shape=(5, 5)))
    data = npz_bytes(
        feature=np.arange(10.0).reshape(5, 2),
        label=np.array([0, 1, 1, 2, 0]),
        node_types=np.array([1, 1, 2, 3, 3]),
    )
    return {"raw/reddit_data.npz": data, "raw/reddit_graph.npz": graph.getvalue()}


def table(rows):
    return gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode())


def arxiv_files():
    return {
        # (1, 0) also the other way round, (2, 3) twice, (4, 4) a self-loop
        "raw/edge.csv.gz": table([(1, 0), (0, 1), (2, 3), (2, 3), (3, 1), (4, 4)]),
        "raw/node-feat.csv.gz": table([(i, i / 2, -1.5) for i in range(6)]),
        "raw/node-label.csv.gz": table([[4], [0], [2], [4], [0], [2]]),
        "raw/num-node-list.csv.gz": table([[6]]),
        "split/time/train.csv.gz": table([[5], [0]]),
        "split/time/valid.csv.gz": table([[1]]),
        "split/time/test.csv.gz": table([[2], [3]]),
    }


ARXIV_EDGES = both_ways((0, 1), (2, 3), (1, 3), (4, 4))


def planetoid_files(name="cora"):
    """530 nodes, 12 to train on and 10 to test on; the format fixes 500 for validation."""
    rng = np.random.default_rng(0)
    n, train, test = 530, 12, 10
    words = sp.csr_matrix(rng.integers(0, 2, (n, 4)).astype(np.float32))
    onehot = np.eye(3, dtype=np.int32)[np.arange(n) % 3]
    parts = {
        "x": words[:train],
        "tx": words[n - test :],
        "allx": words[: n - test],
        "y": onehot[:train],
        "ty": onehot[n - test :],
        "ally": onehot[: n - test],
        "graph": {i: [(i + 1) % n, (i - 1) % n] for i in range(n)},
    }
    files = {f"ind.{name}.{key}": pickle.dumps(part, 2) for key, part in parts.items()}
    order = "".join(f"{i}\n" for i in range(n - test, n))
    return files | {f"ind.{name}.test.index": order.encode()}


def put(root, folder, files):
    for file, content in files.items():
        write(root / folder / file, content)


def listing(folder):
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


# -- digits ---------------------------------------------------------------------------------------


def test_digits_are_what_the_table_says(digits):
    check_form(digits)
    entry = ENTRIES["digits"]
    assert digits.x.shape == (entry.nodes, entry.features)
    assert float(digits.x.min()) == 0.0
    assert float(digits.x.max()) == 1.0
    assert digits.provenance["edges"] == entry.edges == len(pairs(digits)) // 2
    assert digits.provenance["classes"] == entry.classes
    assert digits.provenance["source"] == "scikit-learn digits"
    assert sizes(digits) == [719, 180, 898]


def test_digits_edges_join_nearest_neighbours(digits):
    # an independent implementation: the distance of the tenth neighbour, self apart
    radius = torch.from_numpy(cKDTree(digits.x.numpy()).query(digits.x.numpy(), k=11)[0][:, 10])
    source, target = digits.edge_index
    length = (digits.x[source] - digits.x[target]).double().norm(dim=1)
    assert bool((length <= torch.maximum(radius[source], radius[target]) + 1e-6).all())
    assert bool((source != target).all())
    assert is_undirected(digits.edge_index)
    # all that is strictly nearer than the tenth is joined
    near = torch.cdist(digits.x.double(), digits.x.double()) < radius[:, None] - 1e-6
    near.fill_diagonal_(False)
    joined = torch.zeros_like(near)
    joined[source, target] = True
    assert bool((joined | ~near).all())
    assert int(joined.sum(dim=1).min()) >= 10


def test_split_follows_the_seed_only(digits):
    assert same(load("digits", seed=42), digits)
    other = load("digits", seed=7)
    assert other.provenance["split"] == "random 40/10/50, seed 7"
    assert not torch.equal(other.train_mask, digits.train_mask)
    assert torch.equal(other.edge_index, digits.edge_index)
    assert other.provenance["sha256"] != digits.provenance["sha256"]


# -- the named graphs on small files --------------------------------------------------------------


WORDS = citation_npz(class_names=np.array(["a", "b", "c"]))
RANDOM = "random 40/10/50, seed 42"
RING = (
    both_ways(*((i, (i + 1) % 530) for i in range(530))),
    (np.arange(530) % 3).tolist(),
    [12, 500, 10],
)
REDDIT = (both_ways((0, 1), (1, 2), (2, 3)), [0, 1, 1, 2, 0], [2, 1, 2])
ARXIV = (ARXIV_EDGES, [4, 0, 2, 4, 0, 2], [2, 1, 2])
CITATIONS = (PATH, (np.arange(20) % 3).tolist(), [8, 2, 10])
NAMED = {
    "cora": ("Planetoid/Cora/raw", planetoid_files(), RING, "public", "PyG Planetoid"),
    "corafull": ("CoraFull/cora/raw", {"cora.npz": WORDS}, CITATIONS, RANDOM, "PyG CoraFull"),
    "computers": (
        "Amazon/Computers/raw",
        {"amazon_electronics_computers.npz": WORDS},
        CITATIONS,
        RANDOM,
        "PyG Amazon",
    ),
    "reddit": ("Reddit", reddit_files(), REDDIT, "public", "PyG Reddit"),
    "arxiv": ("ogbn_arxiv", arxiv_files(), ARXIV, "OGB time split", "OGB raw files"),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_graphs_from_small_files_of_the_same_format(root, name):
    folder, files, (edges, labels, split), split_words, source = NAMED[name]
    put(root, folder, files)
    graph = load(name.capitalize(), root)
    check_form(graph)
    assert pairs(graph) == edges
    assert graph.y.tolist() == labels
    assert sizes(graph) == split
    loops = sum(a == b for a, b in edges)
    expected = {
        "name": name,
        "source": source,
        "split": split_words,
        "features": "given",
        "edges": (len(edges) + loops) // 2,
        "directed": False,
    }
    assert {key: graph.provenance[key] for key in expected} == expected
    if split_words == RANDOM:
        assert graph.x.unique().tolist() == [0.0, 1.0]
        assert graph.class_names == ["a", "b", "c"]
    if name == "arxiv":
        assert graph.x.tolist() == [[i, i / 2, -1.5] for i in range(6)]
        assert [graph[key].nonzero().flatten().tolist() for key in MASKS] == [[0, 5], [1], [2, 3]]


def test_pickled_class_names_are_left_alone(root):
    names = np.array(["a", "b", "c"], dtype=object)
    write(root / "CoraFull/cora/raw/cora.npz", citation_npz(class_names=names))
    assert "class_names" not in load("corafull", root)


@pytest.mark.parametrize(
    ("file", "rows", "problem"),
    [
        ("raw/node-feat.csv.gz", [(1, 2, 3)], "1 rows of features"),
        ("raw/node-label.csv.gz", [[0]], "1 labels"),
        ("raw/num-node-list.csv.gz", [[7]], "7 nodes, 6 rows of features and 6 labels"),
        ("raw/edge.csv.gz", [(0, 6)], "edges name target 6 to 6: ids are 0 to 5"),
        ("raw/edge.csv.gz", [(0, 1, 2)], "edge.csv.gz is no whole table.* has 3 elements"),
        ("split/time/test.csv.gz", [], "No columns"),
        ("raw/node-label.csv.gz", [["cs"]] * 6, "y .* must be a dense tensor or array of numbers"),
        ("raw/node-label.csv.gz", [[1.7]] * 6, "y .float64. must hold integers"),
    ],
)
def test_arxiv_files_that_do_not_belong_together(root, cache, file, rows, problem):
    put(root, "ogbn_arxiv", arxiv_files() | {file: table(rows)})
    with pytest.raises(DatasetError, match=problem) as caught:
        load("arxiv", root)
    assert str(caught.value).startswith("arxiv: ")
    assert "\n" not in str(caught.value)
    assert list((cache / "processed").iterdir()) == []


def test_graphs_without_features_are_those_with_features_less_the_features(root, tmp_path):
    put(root, "ogbn_arxiv", arxiv_files())
    full, bare = load("arxiv", root), load("arxiv-graph", root)
    check_form(bare)
    assert bare.provenance["features"].startswith("structural: ")
    assert torch.equal(bare.x, structural_features(full.edge_index, 6))
    assert all(torch.equal(bare[key], full[key]) for key in ("edge_index", "y", *MASKS))
    # the file without features comes first, and gives the same graph
    edges = np.array([(1, 0), (0, 1), (2, 3), (3, 1), (4, 4)], dtype=np.int32).T
    split = {"train_idx": [0, 5], "valid_idx": [1], "test_idx": [2, 3]}
    file = npz_bytes(edge_index=edges, y=full.y.numpy().astype(np.int16), **split)
    write(tmp_path / "other/ogbn_arxiv_nofeat/arxiv_graph.npz", file)
    light = load("arxiv-graph", tmp_path / "other")
    assert same(light, bare)
    assert light.provenance["sha256"] == bare.provenance["sha256"]
    assert light.provenance["source"] == "arxiv_graph.npz"


# -- data root, cache and processing --------------------------------------------------------------


def test_the_data_root_is_never_written_to(root, cache, monkeypatch, capfd):
    put(root, "Planetoid/Cora/raw", planetoid_files())
    put(root, "ogbn_arxiv", arxiv_files())
    folders = [path for path in [root, *root.rglob("*")] if path.is_dir()]
    before = listing(root)
    for folder in folders:
        folder.chmod(0o555)
    try:
        monkeypatch.setenv("ALGNN_DATA", str(root))
        monkeypatch.delenv("PYTEST_CURRENT_TEST")  # PyG is silent by itself where it sees this
        first, second = load("cora"), load("cora")
        load("arxiv-graph")
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert listing(root) == before
    assert same(first, second)
    assert capfd.readouterr() == ("", "")
    assert len(list((cache / "processed").glob("cora-*"))) == 1


def test_an_argument_goes_before_the_variable(root, tmp_path, monkeypatch):
    write(root / "CoraFull/cora/raw/cora.npz", citation_npz())
    monkeypatch.setenv("ALGNN_DATA", str(tmp_path / "elsewhere"))
    assert not available("corafull")
    assert available("corafull", root)
    assert load("corafull", root).provenance["nodes"] == 20


def test_processed_once_and_again_when_a_file_changes(root, cache):
    file = write(root / "CoraFull/cora/raw/cora.npz", citation_npz())
    load("corafull", root)
    (folder,) = (cache / "processed").iterdir()
    made = folder / "CoraFull/cora/processed/data_undirected.pt"
    assert (folder / "CoraFull/cora/raw/cora.npz").readlink() == file.resolve()  # not a copy
    stamp = made.stat().st_mtime_ns
    load("corafull", root)
    assert made.stat().st_mtime_ns == stamp
    with np.load(file) as stored:
        changed = dict(stored) | {"labels": np.zeros(20, dtype=np.int64)}
    write(file, npz_bytes(**changed))
    assert load("corafull", root).provenance["classes"] == 1
    assert len(list((cache / "processed").iterdir())) == 2


def test_unreadable_files_leave_nothing_behind(root, cache):
    put(root, "Planetoid/Cora/raw", planetoid_files() | {"ind.cora.allx": b"cut sh"})
    with pytest.raises(DatasetError, match=r"cora: its files cannot be read .*replace") as caught:
        load("cora", root)
    assert "\n" not in str(caught.value)
    assert list((cache / "processed").iterdir()) == []
    put(root, "Planetoid/Cora/raw", planetoid_files())
    assert load("cora", root).provenance["nodes"] == 530


def test_a_damaged_cache_is_named(root, cache):
    write(root / "CoraFull/cora/raw/cora.npz", citation_npz())
    load("corafull", root)
    (folder,) = (cache / "processed").iterdir()
    write(folder / "CoraFull/cora/processed/data_undirected.pt", b"nothing")
    with pytest.raises(DatasetError, match=f"delete {folder}"):
        load("corafull", root)


def test_two_processes_at_once(root, cache):
    write(root / "CoraFull/cora/raw/cora.npz", citation_npz())
    source = SOURCES["corafull"]
    files = catalogue.fetch(source, root)

    def overtaken(folder):
        # while this one is at work another one starts and finishes
        catalogue.process(source, files)
        return source.build(folder)

    slow = dataclasses.replace(source, build=overtaken)
    assert catalogue.process(slow, files).num_nodes == 20
    assert len(list((cache / "processed").iterdir())) == 1
    assert catalogue.process(source, files).num_nodes == 20


def test_a_cache_that_cannot_be_written(root, tmp_path, monkeypatch):
    write(root / "CoraFull/cora/raw/cora.npz", citation_npz())
    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "a_file")))
    with pytest.raises(DatasetError, match=r"cannot be written .*XDG_CACHE_HOME"):
        load("corafull", root)


def test_cache_at_home_without_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert catalogue.cache_dir() == tmp_path / ".cache" / "algnn"


# -- download -------------------------------------------------------------------------------------


@pytest.fixture
def server():
    """A web server on this machine; `pages` maps a path to bytes or to (bytes, claimed length)."""
    pages, asked = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path not in pages:
                self.send_error(404)
                return
            page = pages[self.path]
            content, length = page if isinstance(page, tuple) else (page, len(page))
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    httpd.pages, httpd.asked = pages, asked
    httpd.url = f"http://127.0.0.1:{httpd.server_port}"
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def at(server_url, name, page):
    """A named graph whose files come from our server."""
    entry = ENTRIES[name]
    source = dataclasses.replace(entry.source, url=f"{server_url}/{page}")
    return dataclasses.replace(entry, source=source)


def archive(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as members:
        for name, content in files.items():
            members.writestr(name, content)
    return buffer.getvalue()


def test_download_of_single_files(server, cache, capfd):
    server.pages |= {f"/data/{name}": content for name, content in planetoid_files().items()}
    entry = at(server.url, "cora", "data/{}")
    assert entry.status() == "download needed"
    graph = load_entry(entry)
    assert graph.provenance["nodes"] == 530
    assert capfd.readouterr().out == ""
    # from now on the cache has them
    assert entry.status() == "ready"
    server.pages.clear()
    assert same(load_entry(entry), graph)
    assert len(server.asked) == 8
    assert (cache / "raw/Planetoid/Cora/raw/ind.cora.x").is_file()


def test_only_missing_files_are_downloaded(server, root):
    files = planetoid_files()
    server.pages["/ind.cora.graph"] = files.pop("ind.cora.graph")
    put(root, "Planetoid/Cora/raw", files)
    before = listing(root)
    assert load_entry(at(server.url, "cora", "{}"), root).provenance["nodes"] == 530
    assert server.asked == ["/ind.cora.graph"]
    assert listing(root) == before


def test_download_of_archives(server, cache, tmp_path):
    reddit = {file.removeprefix("raw/"): content for file, content in reddit_files().items()}
    server.pages["/reddit.zip"] = archive({"../../evil.txt": b"evil"} | reddit)
    arxiv = {f"arxiv/{file}": content for file, content in arxiv_files().items()}
    server.pages["/arxiv.zip"] = archive(arxiv | {"/arxiv/mapping/README.md": b"more"})
    assert load_entry(at(server.url, "reddit", "reddit.zip")).provenance["edges"] == 3
    assert pairs(load_entry(at(server.url, "arxiv-graph", "arxiv.zip"))) == ARXIV_EDGES
    raw = cache / "raw"
    files = {str(path.relative_to(raw)) for path in raw.rglob("*") if path.is_file()}
    assert files == {*SOURCES["reddit"].files, *SOURCES["arxiv"].files}
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize(
    ("page", "content", "reason"),
    [
        ("missing.zip", b"", "404"),
        ("damaged.zip", b"this is no archive", "not a zip file"),
        ("partial.zip", archive({"reddit_data.npz": b"data"}), "holds no reddit_graph.npz"),
        ("cut.zip", (archive(reddit_files())[:500], 5000), "500"),
        ("{}", (b"half a file", 5000), r"11 of 5000|11 bytes read"),
    ],
)
def test_download_that_fails(server, cache, page, content, reason):
    if content:
        server.pages[f"/{page.format('reddit_data.npz')}"] = content
    with pytest.raises(DatasetError, match=reason) as caught:
        load_entry(at(server.url, "reddit", page))
    assert "\n" not in str(caught.value)
    left = {path.name for path in cache.rglob("*") if path.is_file()}
    assert left <= ({"reddit_data.npz"} if page == "partial.zip" else set())  # a whole member


def test_without_files_and_without_a_network(server, root, cache):
    server.shutdown()
    server.server_close()
    put(root, "Planetoid/Cora/raw", {"ind.cora.x": b"there"})
    with pytest.raises(DatasetError) as caught:
        load_entry(at(server.url, "cora", "{}"), root)
    message = str(caught.value)
    missing = "Planetoid/Cora/raw/ind.cora.tx"
    assert message.startswith(f"cora: {missing} is not on this machine")
    assert "refused" in message
    assert message.endswith(f"put the file at {root / missing} or {cache / 'raw' / missing}")
    assert "\n" not in message
    with pytest.raises(DatasetError, match=r"put the file at \$ALGNN_DATA/Planetoid/Cora/raw/ind"):
        load_entry(at(server.url, "cora", "{}"))


def test_every_source_has_a_url_and_relative_paths():
    for source in SOURCES.values():
        assert source.url.startswith("http")
        assert source.url.endswith(".zip") or source.url.format("file").endswith("/file")
        assert not any(Path(file).is_absolute() or "\\" in file for file in source.files)


def test_addresses_are_those_of_pytorch_geometric():
    assert SOURCES["cora"].url == f"{Planetoid.url}/{{}}"
    assert SOURCES["computers"].url == f"{Amazon.url}{{}}"
    assert SOURCES["corafull"].url == CitationFull.url.replace("{}.npz", "{}")
    assert SOURCES["reddit"].url == Reddit.url


# -- structural features --------------------------------------------------------------------------


def test_structural_features_are_the_formula():
    edges = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]])
    features = structural_features(edges, 5)
    adjacency = torch.eye(5, dtype=torch.float64)
    for a, b in ((0, 1), (1, 2)):
        adjacency[a, b] = adjacency[b, a] = 1
    scale = adjacency.sum(dim=1).rsqrt()
    adjacency = scale[:, None] * adjacency * scale[None, :]
    draws = np.random.Generator(np.random.Philox(0)).standard_normal((5, 128), dtype=np.float32)
    projection = torch.from_numpy(draws).double()
    for block, hop in enumerate((3, 6, 9)):
        expected = torch.linalg.matrix_power(adjacency, hop) @ projection
        expected = expected / expected.norm(dim=1, keepdim=True)
        actual = features[:, 128 * block : 128 * block + 128]
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)


def test_structural_features_follow_their_seed(monkeypatch):
    edges = torch.tensor([[0, 1], [1, 0]])
    first = structural_features(edges, 3)
    assert torch.equal(structural_features(edges, 3), first)
    monkeypatch.setattr("algnn.graph.datasets.SEED", 1)
    assert not torch.equal(structural_features(edges, 3), first)
    assert first.shape == (3, 384)


# -- the table, names and arguments ---------------------------------------------------------------


def test_unknown_names_and_bad_arguments(tmp_path):
    for call in (load, available):
        with pytest.raises(
            DatasetError, match=r"'coar' is no .*did you mean cora\?.: use one of di"
        ):
            call("coar")
        with pytest.raises(DatasetError, match=r"graph.pt is a pickle.*algnn\.save_npz"):
            call("graph.pt")
    with pytest.raises(DatasetError, match=r"my\.npz: there is no such file"):
        load("~no-such-user/my.npz")  # nor such a user
    with pytest.raises(DatasetError, match=r"root=.*is not a folder"):
        load("cora", root=tmp_path / "none")
    for seed in (-1, 1.0, True, None, 2**63):
        with pytest.raises(InputError, match="seed="):
            load("digits", seed=seed)
    assert issubclass(DatasetError, AlgnnError)
    assert issubclass(AlgnnError, ValueError)


def test_the_table_lists_every_graph(root):
    names = "digits cora citeseer pubmed computers corafull reddit arxiv arxiv-graph corafull-graph"
    names += " photo flickr facebook uai actor chameleon"
    assert [entry.name for entry in datasets()] == [*names.split(), "reddit-synthetic"]
    ready = [entry.name for entry in datasets() if entry.status(root) == "ready"]
    assert ready == ["digits", "reddit-synthetic"]
    put(root, "ogbn_arxiv", arxiv_files())
    assert ENTRIES["arxiv-graph"].status(root) == ENTRIES["arxiv"].status(root) == "ready"
    (root / "ogbn_arxiv/split/time/test.csv.gz").unlink()
    assert ENTRIES["arxiv"].status(root) == "download needed"
    assert not available("arxiv-graph", root)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ENTRIES["cora"].nodes = 1


# -- the real graphs ------------------------------------------------------------------------------

REAL = {
    "cora": ((180, 818), [140, 500, 1000]),
    "citeseer": ((264, 701), [120, 500, 1000]),
    "pubmed": ((4103, 7875), [60, 500, 1000]),
    "computers": ((291, 5158), [5501, 1375, 6876]),
    "corafull-graph": ((15, 928), [7917, 1979, 9897]),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in REAL])
def test_real_graphs_are_what_their_tables_say(name):
    graph, entry = load(name, DATA), ENTRIES[name]
    check_form(graph)
    class_sizes = torch.bincount(graph.y)
    assert (int(class_sizes.min()), int(class_sizes.max())) == REAL[name][0]
    assert sizes(graph) == REAL[name][1]
    assert graph.x.shape == (entry.nodes, entry.features)
    assert bool(torch.isfinite(graph.x).all())
    assert class_sizes.numel() == graph.provenance["classes"] == entry.classes
    assert graph.edge_index.size(1) == 2 * entry.edges
    assert graph.provenance["edges"] == entry.edges
    assert is_undirected(graph.edge_index, num_nodes=entry.nodes)


@needs("arxiv-graph")
def test_the_real_arxiv_graph():
    """Its file alone: the structural features of so many nodes take long."""
    entry = ENTRIES["arxiv-graph"]
    graph = read_npz(catalogue.locate(entry.file, DATA))
    assert to_undirected(graph.edge_index).size(1) == 2 * entry.edges
    assert graph.y.numel() == entry.nodes
    assert sizes(graph) == [90941, 29799, 48603]
    assert torch.bincount(graph.y).sort().values[[0, -1]].tolist() == [29, 27321]
    assert len(graph.class_names) == entry.classes
    assert "arxiv cs lg" in graph.class_names


@pytest.mark.parametrize("name", ["photo", "flickr", "facebook", "uai", "actor", "chameleon"])
def test_a_named_graph_from_its_file_draws_its_own_splits(name, tmp_path, make_graph):
    graph = make_graph()
    (tmp_path / "more").mkdir()
    save_npz(graph, tmp_path / "more" / f"{name}.npz")
    assert available(name, tmp_path)
    first, again, other = (load(name, tmp_path, seed=seed) for seed in (1, 1, 2))
    assert first.provenance["split"] == "random 40/10/50, seed 1"
    assert torch.equal(first.x, graph.x)
    assert first.provenance["sha256"] == again.provenance["sha256"] != other.provenance["sha256"]
    assert not torch.equal(first.train_mask, other.train_mask)


def test_without_its_file_it_is_downloaded_or_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    entries = {entry.name: entry for entry in datasets()}
    assert entries["uai"].status(tmp_path) == "file needed"
    assert entries["actor"].status(tmp_path) == "download needed"
    with pytest.raises(
        DatasetError, match=r"uai: more/uai.npz is not on this machine.*\$ALGNN_DATA"
    ):
        load("uai", tmp_path)
    (tmp_path / "heterophilous").mkdir()
    np.savez(
        tmp_path / "heterophilous" / "chameleon_filtered.npz",
        node_features=np.eye(4),
        node_labels=np.array([0, 1, 0, 1]),
        edges=np.array([[0, 1], [2, 3], [3, 3]]),
    )
    found = load("chameleon", tmp_path)
    assert found.edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    assert found.x.dtype == torch.float32
