from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import algnn.files as files_module
from algnn import ALGNN, InputError, save_npz, write_graph
from algnn.cli import main
from algnn.errors import is_out_of_memory
from algnn.graph.datasets import load_inputs
from algnn.graph.npz import MASKS

WORDS = ["fox", "cat", "owl", "bee"]
ORDINALS = ["third", "fourth"]


def write_labels(path: Path, graph: Data, classes: Iterable[int], words: bool = True) -> Path:
    """The training nodes of some classes, as a person would hand them over."""
    rows = [
        f"{node},{WORDS[label] if words else label}"
        for node, label in enumerate(graph.y.tolist())
        if label in classes and bool(graph.train_mask[node])
    ]
    path.write_text("\n".join(["node,label", *rows]) + "\n")
    return path


def furnish(folder: Path, graph: Data) -> Path:
    """Write a graph that has no labels, and labels in three files."""
    np.savez(folder / "graph.npz", x=graph.x.numpy(), edge_index=graph.edge_index.numpy())
    write_labels(folder / "base.csv", graph, {0, 1})
    write_labels(folder / "third.csv", graph, {2})
    write_labels(folder / "fourth.csv", graph, {3})
    return folder


@pytest.fixture
def desk(tmp_path: Path, small_graph: Data, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a graph and labels."""
    monkeypatch.chdir(tmp_path)
    return furnish(tmp_path, small_graph)


@pytest.fixture(scope="module")
def full_desk(tmp_path_factory: pytest.TempPathFactory, make_graph: Callable[..., Data]) -> Path:
    """A folder with models beside them, and files that are wrong; for tests that change nothing."""
    folder = furnish(tmp_path_factory.mktemp("desk"), make_graph())
    name = str(folder / "a.safetensors")
    run("fit", name, str(folder / "graph.npz"), str(folder / "base.csv"))
    gcn = ALGNN(encoder="gcn", hidden=4, width=8, epochs=1, head="ridge", gamma=1.0)
    gcn.fit(load_inputs(folder / "graph.npz"), [0, 1], ["fox", "cat"]).save(
        folder / "gcn.safetensors"
    )
    np.savez(folder / "other.npz", x=np.ones((60, 3)), edge_index=np.zeros((2, 0), dtype=int))
    (folder / "broken.safetensors").write_bytes((folder / "a.safetensors").read_bytes()[:-9])
    (folder / "beyond.csv").write_text("node,label\n2,owl\n60,owl\n")
    (folder / "twice.csv").write_text("node,label\n2,owl\n2,owl\n")
    return folder


def run(*arguments: str) -> None:
    assert main([*arguments]) == 0


def by_hand(graph: Data, *sessions: set[int]) -> ALGNN:
    """The same as the commands do, in Python."""
    model = ALGNN()
    for classes in sessions:
        chosen = graph.train_mask & torch.isin(graph.y, torch.tensor(sorted(classes)))
        nodes = chosen.nonzero().squeeze(1)
        model.partial_fit(graph, nodes, [WORDS[label] for label in graph.y[nodes].tolist()])
    return model


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# -- a life ---------------------------------------------------------------------------------------


def test_a_privacy_budget_is_given_once(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--private", "8", "--set", "epsilon=0.1")
    assert main(["fit", "a.safetensors", "graph.npz", "base.csv", *both]) == 2
    assert "epsilon is set twice" in capsys.readouterr().err
    assert not Path("a.safetensors").exists()


def test_a_rehearsal_gives_no_noisy_counts_away(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "a.safetensors", "graph.npz", "base.csv", "--private", "8"]) == 0
    capsys.readouterr()
    shown = []
    for _ in range(2):
        assert main(["learn", "a.safetensors", "graph.npz", "third.csv", "--dry-run"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "more" in shown[0]


@pytest.mark.parametrize(
    "given",
    ["a.safetensors graph.npz", "b.safetensors graph.npz base.csv -o c.safetensors"],
)
def test_the_model_of_fit_is_named_once(
    desk: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "graph.npz", "base.csv", "-o", "a.safetensors")
    run("fit", "b.safetensors", "graph.npz", "base.csv")
    ours, theirs = (ALGNN.load(f"{name}.safetensors") for name in "ab")
    assert torch.equal(ours.weights_, theirs.weights_)
    capsys.readouterr()
    assert main(["fit", *given.split(), "--force"]) == 2
    assert "give MODEL GRAPH LABELS, or GRAPH LABELS -o MODEL" in capsys.readouterr().err
    assert not Path("c.safetensors").exists()


def test_a_graph_at_an_address_may_stand_first(
    desk: Path, small_graph: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "cache"))
    write_graph(small_graph, desk / "g")
    run("fit", f"file://{desk}/g", "base.csv", "-o", "a.safetensors")
    run("fit", "b.safetensors", f"file://{desk}/g", "base.csv")
    ours, theirs = (ALGNN.load(f"{name}.safetensors") for name in "ab")
    assert torch.equal(ours.weights_, theirs.weights_)


def test_fit_and_learn(desk: Path, small_graph: Data, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    out = capsys.readouterr().out
    assert "a.safetensors holds 2 classes, 12 nodes" in out
    assert [line.split() for line in out.splitlines()[1:3]] == [
        ["cat", "0", "6", "new"],
        ["fox", "0", "6", "new"],
    ]
    run("learn", "a.safetensors", "graph.npz", "third.csv")
    out = capsys.readouterr().out
    assert "a.safetensors holds 3 classes, 18 nodes" in out
    assert "cat" not in out
    found = ALGNN.load("a.safetensors")
    expected = by_hand(small_graph, {0, 1}, {2})
    assert found.classes_.tolist() == ["cat", "fox", "owl"]
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=1e-9, atol=1e-12)
    assert not list(desk.glob(".*"))


def test_predictions(
    desk: Path,
    small_graph: Data,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    (desk / "some.csv").write_text("node\n7\n3\n")
    run("predict", "a.safetensors", "graph.npz", "-o", "deep/out.csv", "--all")
    assert "deep/out.csv: 60 nodes" in capsys.readouterr().out
    rows = read_csv(desk / "deep" / "out.csv")
    assert list(rows[0]) == ["node", "label", "probability", "novelty", "p_cat", "p_fox"]
    model = by_hand(small_graph, {0, 1})
    assert [int(row["node"]) for row in rows] == list(range(60))
    assert [row["label"] for row in rows] == model.predict(small_graph).tolist()
    novelty = [float(row["novelty"]) for row in rows]
    np.testing.assert_allclose(novelty, model.novelty(small_graph), rtol=1e-4, atol=1e-6)
    each = [[float(row["p_cat"]), float(row["p_fox"])] for row in rows]
    np.testing.assert_allclose(each, model.predict_proba(small_graph), rtol=1e-4, atol=1e-6)
    assert [max(pair) for pair in each] == [float(row["probability"]) for row in rows]

    # also where progress is shown on a terminal meanwhile
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    run("predict", "a.safetensors", "graph.npz", "--nodes", "some.csv")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node,label,probability,novelty"
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [str(node), rows[node]["label"]] for node in (7, 3)
    ]


def test_predictions_are_utf_8_everywhere(desk: Path, run_process: Callable[..., str]) -> None:
    text = (desk / "base.csv").read_text()
    (desk / "greek.csv").write_text(text.replace("fox", "γάτα"), "utf-8")
    run("fit", "a.safetensors", "graph.npz", "greek.csv")
    run("predict", "a.safetensors", "graph.npz", "-o", "out.csv")
    code = "import sys; from algnn.cli import main; sys.stdout.reconfigure(encoding='ascii');"
    printed = run_process(f"{code} sys.exit(main({['predict', 'a.safetensors', 'graph.npz']}))")
    assert "γάτα" in printed
    assert printed == (desk / "out.csv").read_text("utf-8")


def test_predictions_do_not_replace_the_table_of_nodes(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    before = (desk / "base.csv").read_bytes()
    (desk / "link.csv").symlink_to("base.csv")
    for out in ("base.csv", "link.csv"):
        assert (
            main(["predict", "a.safetensors", "graph.npz", "--nodes", "base.csv", "-o", out]) == 2
        )
        assert f"--out {out} is the table of --nodes" in capsys.readouterr().err
    assert (desk / "base.csv").read_bytes() == before


def test_predictions_corrected_by_hand_can_be_learned(desk: Path) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    run("predict", "a.safetensors", "graph.npz", "-o", "out.csv")
    text = (desk / "out.csv").read_text().splitlines()
    (desk / "right.csv").write_text("\n".join([text[0], text[4].replace(",cat,", ",bee,")]))
    assert "3," in text[4]
    run("learn", "a.safetensors", "graph.npz", "right.csv")


def test_labels_stay_of_the_kind_they_were(desk: Path, small_graph: Data) -> None:
    """A model of words takes a session whose only word is a number."""
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    (desk / "number.csv").write_text("node,label\n2,1\n6,1\n")
    run("learn", "a.safetensors", "graph.npz", "number.csv")
    assert ALGNN.load("a.safetensors").classes_.tolist() == ["1", "cat", "fox"]
    write_labels(desk / "ints.csv", small_graph, {0, 1}, words=False)
    run("fit", "b.safetensors", "graph.npz", "ints.csv")
    assert ALGNN.load("b.safetensors").classes_.tolist() == [0, 1]


def test_explain(desk: Path, small_graph: Data, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    model = by_hand(small_graph, {0, 1})
    capsys.readouterr()
    run("explain", "a.safetensors", "graph.npz", "4")
    assert capsys.readouterr().out == f"{model.explain(small_graph, 4)}\n"
    run("explain", "a.safetensors", "graph.npz", "4", "--label", "cat")
    assert capsys.readouterr().out == f"{model.explain(small_graph, 4, 'cat')}\n"


def test_forget(desk: Path, small_graph: Data, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    run("learn", "a.safetensors", "graph.npz", "third.csv")
    base = (desk / "base.csv").read_text().splitlines()
    (desk / "theirs.csv").write_text("\n".join([base[0], *base[3:5]]))
    capsys.readouterr()
    run("forget", "a.safetensors", "graph.npz", "theirs.csv")
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[1:3]] == [
        ["cat", "6", "5"],
        ["fox", "6", "5"],
    ]
    run("forget", "a.safetensors", "graph.npz", "third.csv")
    assert ["owl", "6", "0", "gone"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    kept = [line.split(",") for line in [*base[1:3], *base[5:]]]
    expected = by_hand(small_graph, {0, 1}).blank()
    expected.partial_fit(small_graph, [int(n) for n, _ in kept], [word for _, word in kept])
    found = ALGNN.load("a.safetensors")
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=1e-9, atol=1e-9)

    before = files(desk)
    assert main(["forget", "a.safetensors", "graph.npz", "theirs.csv"]) == 2
    assert "was not learned as" in capsys.readouterr().err
    # nobody shall think that an erasure was done that was not
    (desk / "gap.csv").write_text("\n".join([*base[:2], base[5].split(",")[0] + ","]))
    before = files(desk)
    for command in ("forget", "relabel"):
        assert main([command, "a.safetensors", "graph.npz", "gap.csv"]) == 2
        assert "gap.csv, line 3: node" in capsys.readouterr().err
    assert files(desk) == before
    (desk / "gap.csv").write_text("\n".join([base[0], base[3], base[4].split(",")[0] + ","]))
    run("learn", "a.safetensors", "graph.npz", "gap.csv", "--dry-run")
    assert "gap.csv: 1 row without a label left out" in capsys.readouterr().err


def test_a_node_goes_altogether(
    desk: Path, small_graph: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    # of nodes without a label, which may be in a table of all, nothing was learned
    (desk / "all.csv").write_text((desk / "base.csv").read_text() + "59,-1\n")
    before = files(desk)
    arguments = ["forget", "a.safetensors", "graph.npz", "all.csv", "--node", "4"]
    run(*arguments, "--graph-out", "smaller.npz", "--dry-run")
    assert "smaller.npz would hold the graph without node 4" in capsys.readouterr().out
    assert files(desk) == before
    run(*arguments, "--graph-out", "smaller.npz")
    assert "smaller.npz holds the graph without node 4" in capsys.readouterr().out
    smaller = np.load(desk / "smaller.npz")
    assert not smaller["x"][4].any()
    assert 4 not in smaller["edge_index"]
    fewer = Data(
        x=torch.from_numpy(smaller["x"]), edge_index=torch.from_numpy(smaller["edge_index"])
    )
    rows = [row for row in read_csv(desk / "base.csv") if row["node"] != "4"]
    expected = by_hand(small_graph, {0, 1}).blank()
    expected.partial_fit(fewer, [int(r["node"]) for r in rows], [r["label"] for r in rows])
    found = ALGNN.load("a.safetensors")
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=1e-9, atol=1e-9)

    (desk / "few.csv").write_text((desk / "base.csv").read_text().rsplit("\n", 4)[0])
    before = files(desk)
    arguments = ["forget", "a.safetensors", "smaller.npz", "few.csv", "--node", "5"]
    for out, message in (("least.npz", "nodes lacks"), ("smaller.npz", "must be a new file")):
        assert main([*arguments, "--graph-out", out]) == 2
        assert message in capsys.readouterr().err
    assert files(desk) == before


@pytest.mark.parametrize("keys", [("y", *MASKS), ("y",)])
def test_a_graph_keeps_its_labels_when_a_node_goes(
    desk: Path, small_graph: Data, keys: tuple[str, ...]
) -> None:
    inputs = dict(np.load("graph.npz"))
    known = {key: small_graph[key].numpy() for key in keys} | {"class_names": WORDS}
    np.savez("graph.npz", **inputs, **known)
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    out = ["--node", "4", "--graph-out", "smaller.npz"]
    run("forget", "a.safetensors", "graph.npz", "base.csv", *out)
    smaller = dict(np.load("smaller.npz"))
    assert smaller.keys() == inputs.keys() | known.keys()  # a split that is drawn is not kept
    assert all((smaller[key] == one).all() for key, one in known.items())


def test_sites_start_from_a_blank_and_are_merged(
    desk: Path, small_graph: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    run("blank", "a.safetensors", "-o", "b.safetensors")
    assert "b.safetensors holds the encoder of a.safetensors" in capsys.readouterr().out
    run("inspect", "b.safetensors")
    told = capsys.readouterr().out
    assert "gives away          no label and no sum" in told
    assert ALGNN.load("b.safetensors").exposure().startswith("no label and no sum")
    assert "γ" not in told
    run("blank", "a.safetensors", "-o", "c.safetensors")
    run("learn", "b.safetensors", "graph.npz", "third.csv")
    run("learn", "c.safetensors", "graph.npz", "fourth.csv")
    three = [f"{name}.safetensors" for name in "abc"]
    before = files(desk)
    run("merge", *three, "-o", "all.safetensors", "--dry-run")
    assert files(desk) == before
    run("merge", *three, "-o", "all.safetensors")
    assert "all.safetensors holds 4 classes, 24 nodes" in capsys.readouterr().out
    found, expected = ALGNN.load("all.safetensors"), by_hand(small_graph, {0, 1}, {2}, {3})
    assert found.classes_.tolist() == sorted(WORDS)
    np.testing.assert_allclose(found.weights_, expected.weights_, rtol=1e-9, atol=1e-9)

    # into one of them only if that is said
    before = files(desk)
    assert main(["merge", *three[:2], "-o", three[0]]) == 2
    assert files(desk) == before
    run("merge", *three[:2], "-o", three[0], "--force")
    assert ALGNN.load(three[0]).classes_.tolist() == ["cat", "fox", "owl"]


def test_inspect(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    run("learn", "a.safetensors", "graph.npz", "third.csv")
    run("forget", "a.safetensors", "graph.npz", "third.csv")
    capsys.readouterr()
    run("inspect", "a.safetensors", "--full")
    assert capsys.readouterr().out == f"{ALGNN.load('a.safetensors').summary()}\n"
    run("inspect", "a.safetensors", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == {"cat": 6, "fox": 6}
    assert [event["what"] for event in found["events"]] == ["learn", "learn", "forget"]


def test_settings_and_a_graph_without_features(desk: Path, small_graph: Data) -> None:
    np.savez("bare.npz", edge_index=small_graph.edge_index.numpy(), num_nodes=60)
    run("fit", "a.safetensors", "bare.npz", "base.csv", "--set", "head=ridge",
        "--set", "gamma=0.5", "--seed", "3", "--device", "cpu")  # fmt: skip
    model = ALGNN.load("a.safetensors")
    assert (model.head, model.gamma, model.seed, model.device) == ("ridge", 0.5, 3, "cpu")
    assert model.n_features_in_ == 384
    run("predict", "a.safetensors", "bare.npz", "-o", "out.csv")
    assert len(read_csv(desk / "out.csv")) == 60


# -- nothing is written by accident ---------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_model_is_written_where_what_is_printed_is_not(desk: Path) -> None:
    command = [sys.executable, "-m", "algnn", "fit", "a.safetensors", "graph.npz", "base.csv"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1  # 2 would say that nothing was done
    assert done.stderr.startswith("algnn: stdout cannot be written (No space left on device): ")
    assert done.stderr.count("\n") == 1
    assert ALGNN.load(desk / "a.safetensors").classes_.tolist() == ["cat", "fox"]


FULL = """
import resource, sys
from algnn.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
sys.exit(main(sys.argv[1:]))
"""


def test_a_model_has_a_name_that_can_be_opened_again(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (b"\xe9.safetensors", b"\xe9/a.safetensors"):
        assert main(["fit", os.fsdecode(name), "graph.npz", "base.csv"]) == 2
        assert "?" in (words := capsys.readouterr().err)
        assert "is no name for a model: give a file that ends in .safetensors, in UTF-8" in words
    assert not [found for found in os.listdir(b".") if found.startswith(b"\xe9")]
    run("fit", "été.safetensors", "graph.npz", "base.csv")
    run("learn", "été.safetensors", "graph.npz", "third.csv")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("partition graph.npz g", r"g/\.sorting-\w+"),
        ("partition edges.csv g --features x.npy", r"g/\.sorting-\w+"),
        ("partition edges.csv g --features x.csv", ".*"),
        ("partition bare.npz g", r"g/part-00000/.*\.npy"),
        ("predict a.safetensors graph.npz -o out.csv", r"out\.csv"),
        ("predict a.safetensors graph.npz -o out.parquet", r"out\.parquet"),
        ("forget a.safetensors graph.npz base.csv --node 3 --graph-out b.npz", r"b\.npz"),
        ("fit b.safetensors graph.npz base.csv", r"b\.safetensors"),
    ],
)
def test_a_full_disk_is_named(
    desk: Path, full_desk: Path, start_process: Callable[..., Any], arguments: str, named: str
) -> None:
    shutil.copy(full_desk / "a.safetensors", desk)
    graph = load_inputs("graph.npz")
    np.savez("bare.npz", x=graph.x.numpy(), edge_index=np.zeros((2, 0), dtype=int))
    np.save("x.npy", graph.x.numpy())
    pd.DataFrame(graph.x.numpy()).add_prefix("f").to_csv("x.csv", index=False)
    edges = pd.DataFrame(graph.edge_index.T.numpy(), columns=["source", "target"])
    edges.to_csv("edges.csv", index=False)
    before = files(desk)
    process = start_process(FULL, *arguments.split(), err="err.txt")
    process.join(120)
    assert process.exitcode == 2
    told = (desk / "err.txt").read_text()
    assert re.fullmatch(f"algnn: {named} cannot be written: .*\n", told), told
    (desk / "err.txt").unlink()
    assert files(desk) == before
    assert not (desk / "g").exists()


def test_a_rehearsal_writes_nothing(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit", "new/a.safetensors", "graph.npz", "base.csv", "--dry-run")
    out = capsys.readouterr().out
    assert "a.safetensors would hold 2 classes, 12 nodes" in out
    assert "nothing was written (--dry-run)" in out
    assert not (desk / "new").exists()
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    before = files(desk)
    for command, labels in (("learn", "third.csv"), ("forget", "base.csv")):
        run(command, "a.safetensors", "graph.npz", labels, "--dry-run")
        assert "nothing was written" in capsys.readouterr().out
    assert files(desk) == before


def test_a_model_is_not_replaced_unless_that_is_said(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    before = files(desk)
    assert main(["fit", "a.safetensors", "graph.npz", "third.csv"]) == 2
    assert "a.safetensors exists" in capsys.readouterr().err
    assert files(desk) == before
    (desk / "both.csv").write_text(
        (desk / "third.csv").read_text() + (desk / "fourth.csv").read_text().split("\n", 1)[1]
    )
    run("fit", "a.safetensors", "graph.npz", "both.csv", "--force")
    assert ALGNN.load("a.safetensors").classes_.tolist() == ["bee", "owl"]


def test_an_address_is_no_local_file(
    desk: Path, small_graph: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    before = sorted(desk.rglob("*"))
    for command in (
        "fit s3://bucket/a.safetensors graph.npz base.csv",
        "predict a.safetensors graph.npz -o s3://bucket/out.csv",
    ):
        assert main(command.split()) == 2
        assert "bucket is an address, where graphs alone can be" in capsys.readouterr().err
    with pytest.raises(InputError, match="bucket is an address"):
        ALGNN.load("a.safetensors").save("s3://bucket/a.safetensors")
    with pytest.raises(InputError, match="bucket is an address"):
        save_npz(small_graph, "s3://bucket/graph.npz")
    assert sorted(desk.rglob("*")) == before
    (desk / "here:").mkdir()
    save_npz(small_graph, "here:/new/graph.npz")


def test_a_link_stays_one(desk: Path) -> None:
    (desk / "versions").mkdir()
    os.symlink("versions/one.safetensors", "a.safetensors")
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    assert Path("a.safetensors").is_symlink()
    assert ALGNN.load("versions/one.safetensors").classes_.tolist() == ["cat", "fox"]


def test_links_that_lead_nowhere_give_way_to_a_model(desk: Path) -> None:
    os.symlink("b.safetensors", "a.safetensors")
    os.symlink("a.safetensors", "b.safetensors")
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    assert ALGNN.load("b.safetensors").classes_.tolist() == ["cat", "fox"]


# -- two writers ----------------------------------------------------------------------------------


def holder(path: Path) -> Any:
    """A process that holds a model's lock until it is killed."""
    code = f"""
from pathlib import Path
from algnn.files import locked
with locked(Path({str(path)!r})):
    print("held", flush=True)
    input()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_waits_and_then_says_so(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    before = (desk / "a.safetensors").read_bytes()
    process = holder(desk / "a.safetensors")
    try:
        monkeypatch.setattr(files_module, "PATIENCE", 0.1)
        assert main(["learn", "a.safetensors", "graph.npz", "third.csv"]) == 2
        assert "is being changed by another algnn command" in capsys.readouterr().err
        assert (desk / "a.safetensors").read_bytes() == before
        # who only reads is not kept waiting, nor who changes another model
        run("predict", "a.safetensors", "graph.npz", "-o", "out.csv")
        run("learn", "a.safetensors", "graph.npz", "third.csv", "--dry-run")
        run("fit", "b.safetensors", "graph.npz", "base.csv")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    # the lock went with its holder, though the file that carried it is still there
    assert (desk / ".a.safetensors.lock").exists()
    run("learn", "a.safetensors", "graph.npz", "third.csv")
    assert not list(desk.glob(".*"))


def test_of_two_writers_none_is_lost(desk: Path) -> None:
    """Side by side as threads, which the lock keeps apart as it does processes."""
    run("fit", "a.safetensors", "graph.npz", "base.csv")
    commands = [["learn", "a.safetensors", "graph.npz", f"{name}.csv"] for name in ORDINALS]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(main, commands)) == [0, 0]
    assert ALGNN.load("a.safetensors").classes_.tolist() == sorted(WORDS)
    assert not list(desk.glob(".*"))


def test_the_lock_is_taken_on_the_file_that_is_there(tmp_path: Path) -> None:
    """A lock on a file that its holder has removed since is none."""
    path = tmp_path / "a.safetensors"
    lock = tmp_path / ".a.safetensors.lock"
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    with files_module.locked(path):
        assert os.fstat(descriptor).st_ino == lock.stat().st_ino
    os.close(descriptor)
    assert not lock.exists()
    with pytest.raises(ZeroDivisionError), files_module.locked(path):
        raise ZeroDivisionError

    def again() -> None:
        with files_module.locked(path):
            pass

    with files_module.locked(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_module, "PATIENCE", 0.05)
        again()  # whoever holds it may ask again, and still holds it then
        with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match="is being changed"):
            pool.submit(again).result()
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ValueError, match="cannot be a folder"),
        files_module.locked(tmp_path / "file" / "a"),
    ):
        raise AssertionError


# -- not enough memory ----------------------------------------------------------------------------


def test_only_a_failed_allocation_is_called_out_of_memory(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(desk)
    # more than any machine can address
    options = ("--method", "bare", "--set", f"hidden={10**12}", "--seeds", "42", "--device", "cpu")
    assert main(["run", "digits", *options]) == 2
    assert capsys.readouterr().err.startswith("algnn: out of memory: use smaller settings")
    assert files(desk) == before
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    # a bug, whose traceback is wanted
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))


# -- nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit", "Missing argument"),
        ("fit a.safetensors graph.npz", "give MODEL GRAPH LABELS"),
        ("fit new.safetensors graph.npz none.csv", "none.csv: there is no such file"),
        ("fit new.safetensors none.npz base.csv", "none.npz"),
        ("fit new.safetensors nowhere base.csv", "'nowhere' is no known graph"),
        ("fit graph.npz a.safetensors base.csv", "graph.npz is no name for a model"),
        ("fit new.safetensors base.csv graph.npz", "base.csv"),
        ("fit new.safetensors graph.npz third.csv", "labels holds only class owl"),
        ("fit new.safetensors graph.npz base.csv --set gamma=-1", "gamma=-1"),
        ("fit new.safetensors graph.npz base.csv --set colour=red", "colour"),
        ("fit new.safetensors graph.npz base.csv --seed -3", "seed=-3"),
        ("fit new.safetensors graph.npz base.csv --device abacus", "device='abacus'"),
        ("fit base.csv/new.safetensors graph.npz base.csv", "cannot be a folder"),
        ("learn none.safetensors graph.npz base.csv", "none.safetensors is not a file"),
        ("learn broken.safetensors graph.npz base.csv", "broken.safetensors is damaged"),
        ("learn a.safetensors other.npz third.csv", "3 features and the base session had 12"),
        ("learn a.safetensors graph.npz beyond.csv", "beyond.csv, line 3: node 60 is not in"),
        ("learn a.safetensors graph.npz twice.csv", "twice.csv, line 3: node 2 was named before"),
        ("learn a.safetensors graph.npz a.safetensors", "a.safetensors"),
        ("predict a.safetensors", "Missing argument"),
        ("predict a.safetensors graph.npz -o out.txt", "--out out.txt is no name for a table"),
        ("predict a.safetensors graph.npz --nodes beyond.csv", "line 3: node 60"),
        ("predict a.safetensors graph.npz --nodes none.csv", "there is no such file"),
        ("predict graph.npz a.safetensors", "graph.npz is a graph and no saved learner"),
        ("forget a.safetensors graph.npz third.csv", "were learned: name only nodes"),
        ("forget a.safetensors graph.npz base.csv --node 3", "--graph-out"),
        ("forget a.safetensors graph.npz base.csv --graph-out b.npz", "--node"),
        ("forget a.safetensors graph.npz base.csv --node 99 --graph-out b.npz", "holds 99"),
        ("forget a.safetensors graph.npz base.csv --node 3 --graph-out b.txt", "ends in .npz"),
        ("merge a.safetensors b.safetensors", "--out"),
        ("merge a.safetensors -o b.safetensors", "at least two models"),
        ("merge a.safetensors none.safetensors -o b.safetensors", "none.safetensors is not a file"),
        ("merge a.safetensors a.safetensors -o b.csv", "b.csv is no name for a model"),
        ("merge a.safetensors gcn.safetensors -o b.safetensors", "wide"),
        ("blank a.safetensors -o a.safetensors", "a.safetensors exists"),
        ("blank none.safetensors -o b.safetensors", "none.safetensors is not a file"),
        ("inspect none.safetensors", "none.safetensors is not a file"),
        ("inspect graph.npz", "graph.npz is a graph and no saved learner"),
        ("explain gcn.safetensors graph.npz 0", "encoder='gcn' is trained and not linear"),
        ("explain a.safetensors graph.npz 99", "nodes holds 99"),
        ("explain a.safetensors graph.npz fox", "valid integer"),
        ("explain a.safetensors graph.npz 0 --label owl", "label='owl' is none of the classes"),
    ],
)
def test_nonsense(
    arguments: str,
    message: str,
    full_desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(full_desk)
    before = files(full_desk)
    assert main(arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("algnn: ")
    assert err.count("\n") == 1
    assert message in err
    assert files(full_desk) == before
