"""Checkpoints and other files: whole or not at all, whoever is killed."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import Data

import algnn
from algnn import checkpoint
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.selection import MOST_HALVINGS
from algnn.errors import CheckpointError, InputError
from algnn.files import replacing

PAPER = {"encoder": "gcn", "head": "ridge", "gamma": 0.01, "width": 32, "hidden": 8, "epochs": 2}


@pytest.fixture
def paper(small_graph, tmp_path):
    nodes = small_graph.train_mask.nonzero().squeeze(1)
    model = algnn.ALGNN(**PAPER, device="cpu").fit(small_graph, nodes, small_graph.y[nodes])
    model.save(tmp_path / "paper.safetensors")
    return tmp_path / "paper.safetensors"


@pytest.fixture
def default(small_graph, tmp_path):
    model = algnn.ALGNN(width=256, device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1])
    model.save(tmp_path / "default.safetensors")
    return tmp_path / "default.safetensors"


def change(path, tensors=None, facts=None):
    """Write a checkpoint anew with some tensors and facts replaced; None removes a tensor."""
    old_tensors, old_facts = checkpoint.read(path, "ALGNN")
    merged = {**old_tensors, **(tensors or {})}
    kept = {name: tensor for name, tensor in merged.items() if tensor is not None}
    checkpoint.write(path, "ALGNN", kept, {**old_facts, **(facts or {})})


def rewrite(path, **changes):
    """Save the same tensors under a changed header."""
    tensors, facts = checkpoint.read(path, "ALGNN")
    header = {"format": "algnn", "version": checkpoint.VERSION, "kind": "ALGNN", "facts": facts}
    save_file(tensors, path, metadata={"algnn": json.dumps({**header, **changes})})


def test_every_truncation_is_noticed(paper):
    content = paper.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1]:
        paper.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
            algnn.ALGNN.load(paper)


def test_foreign_files_are_refused(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("node,label\n1,2\n" * 100)
    other = tmp_path / "b.safetensors"
    save_file({"a": torch.ones(1)}, other)
    for path, words in (
        (text, "damaged or not a checkpoint"),
        (other, "not one that algnn wrote"),
        (tmp_path / "absent", "is not a file"),
        (tmp_path, "is not a file"),
    ):
        with pytest.raises(CheckpointError, match=words):
            algnn.ALGNN.load(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": checkpoint.VERSION + 1}, "checkpoint version 2 and this algnn reads 1"),
        ({"kind": "Other"}, "holds a Other"),
    ],
)
def test_another_version_or_kind_is_named(paper, changes, words):
    rewrite(paper, **changes)
    with pytest.raises(CheckpointError, match=words):
        algnn.ALGNN.load(paper)


def test_a_flipped_bit_in_the_name_of_the_checksum_does_not_switch_it_off(paper):
    content = paper.read_bytes()
    at = content.index(b"sha256")
    for place in range(at, at + 6):
        damaged = bytearray(content)
        damaged[place] ^= 1
        paper.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="not one that algnn wrote"):
            algnn.ALGNN.load(paper)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("paper", f"statistics.{part}") for part in "GQn"),
        ("paper", "encoder.bias"),
        *(("default", name) for name in ("span.basis", "second0.G", "second3.n", "statistics.Q")),
    ],
)
@pytest.mark.parametrize("damage", ["shape", "type", "missing"])
def test_wrong_tensors_are_refused(request, kind, name, damage):
    path = request.getfixturevalue(kind)
    tensor = checkpoint.read(path, "ALGNN")[0][name]
    wrong = {
        "shape": torch.zeros(3, 3, dtype=tensor.dtype),
        "type": tensor.to(torch.float16),
        "missing": None,
    }
    change(path, {name: wrong[damage]})
    if (name, damage) == ("second0.G", "missing"):
        assert algnn.ALGNN.load(path)._learned.ways == MOST_HALVINGS - 1
        return
    with pytest.raises(CheckpointError):
        algnn.ALGNN.load(path)


BANK = {"name": "raw", "inputs": 12, "projected": 0, "seed": 0}


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("paper", {"params": {"unheard_of": 1}}),
        ("paper", {"params": None}),
        ("paper", {"classes": []}),
        ("paper", {"classes": [[0], [1]]}),
        ("paper", {"classes": [0.5, 1.5, 2.5, 3.5]}),
        ("paper", {"expansion": {}}),
        ("paper", {"expansion": {"kind": "gcn", "inputs": "8", "width": 32, "seed": 0}}),
        ("paper", {"expansion": {"kind": "gcn", "inputs": 8, "width": 10**9, "seed": 0}}),
        ("paper", {"head": "unheard of"}),
        ("paper", {"gamma": "one"}),
        ("paper", {"gamma": None}),
        ("default", {"classes": [0, 0]}),
        ("default", {"classes": [1, 0]}),
        ("default", {"classes": [0, "a"]}),
        ("default", {"gamma": -1.0}),
        ("default", {"gamma": float("nan")}),
        ("default", {"bank": {}}),
        ("default", {"bank": {**BANK, "name": "some"}}),
        ("default", {"bank": {**BANK, "inputs": "12"}}),
        ("default", {"bank": {**BANK, "inputs": 10**15}}),
        ("default", {"bank": {**BANK, "projected": -1}}),
    ],
)
def test_wrong_facts_are_refused(request, kind, facts):
    path = request.getfixturevalue(kind)
    change(path, facts=facts)
    with pytest.raises(CheckpointError):
        algnn.ALGNN.load(path)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("span.basis", lambda basis: basis.mul_(2)),
        ("statistics.Q", lambda Q: Q[0].fill_(torch.nan)),
        ("statistics.n", lambda n: n[:1].fill_(0)),
        ("second1.n", lambda n: n[:1].fill_(99)),
    ],
)
def test_values_that_cannot_be_are_refused(default, name, spoil):
    tensors, _ = checkpoint.read(default, "ALGNN")
    spoil(tensors[name])
    change(default, tensors)
    with pytest.raises(CheckpointError, match="whole checkpoint"):
        algnn.ALGNN.load(default)


def test_a_failed_save_keeps_the_old_file(paper):
    before = paper.read_bytes()
    with pytest.raises(TypeError):
        checkpoint.write(paper, "ALGNN", {}, {"a": object()})
    assert paper.read_bytes() == before
    assert [file.name for file in paper.parent.iterdir()] == [paper.name]


def test_the_same_learner_gives_the_same_bytes(paper, tmp_path):
    again = tmp_path / "again.safetensors"
    algnn.ALGNN.load(paper).save(again)
    assert again.read_bytes() == paper.read_bytes()


def test_no_pickle_in_the_file(paper):
    with pytest.raises(pickle.UnpicklingError), paper.open("rb") as file:
        pickle.load(file)


def test_a_small_file_cannot_ask_for_much_memory(default):
    wide = torch.zeros(0, 10**12, dtype=torch.float64)
    change(default, {"span.basis": wide}, {"bank": {**BANK, "inputs": 10**12}})
    with pytest.raises(CheckpointError, match="inputs"):
        algnn.ALGNN.load(default)


@pytest.mark.parametrize("claim", [{"inputs": 10**6}, {"expanded": 10**6}])
def test_a_small_file_cannot_ask_for_much_memory_later(small_graph, tmp_path, claim):
    """Without any direction in its span a file shows no width, and may claim any."""
    path = tmp_path / "model.safetensors"
    small_graph.x = torch.zeros_like(small_graph.x)
    algnn.ALGNN(width=1, device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1]).save(path)
    assert algnn.ALGNN.load(path).predict(small_graph).shape == (60,)
    tensors, facts = checkpoint.read(path, "ALGNN")
    assert tensors["span.basis"].shape == (0, 48)
    bank = {**facts["bank"], **claim}
    wide = torch.zeros(0, HopEncoder(**bank).width, dtype=torch.float64)
    change(path, {"span.basis": wide}, {"bank": bank})
    with pytest.raises(CheckpointError, match=r"width|expanded"):
        algnn.ALGNN.load(path)


@pytest.mark.parametrize(("nodes", "widths"), [(100, [100] * 4), (420, [384, 384, 384, 420])])
def test_views_of_wide_features_are_saved(tmp_path, nodes, widths):
    path, draws = tmp_path / "model.safetensors", torch.Generator().manual_seed(0)
    graph = Data(
        x=torch.rand(nodes, 530, generator=draws),
        edge_index=torch.randint(nodes, (2, 900), generator=draws),
    )
    model = algnn.ALGNN(device="cpu").fit(graph, range(40), [0, 1] * 20)
    model.save(path)
    found = algnn.ALGNN.load(path)
    assert found._learned.features.widths == widths
    assert np.array_equal(found.decision_function(graph), model.decision_function(graph))
    _, facts = checkpoint.read(path, "ALGNN")
    for near in (-1, nodes + 1, 2.5, True, "all"):
        change(path, facts={"bank": {**facts["bank"], "near": near}})
        with pytest.raises(CheckpointError, match="near="):
            algnn.ALGNN.load(path)


def test_a_checkpoint_can_be_read_by_whoever_may_read_other_files(tmp_path):
    (tmp_path / "other").write_text("")
    checkpoint.write(tmp_path / "model.safetensors", "Example", {"a": torch.ones(2)}, {})
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("name", ["model.npz", "m\udcff.safetensors"])
def test_no_name_that_could_not_be_loaded_again(small_graph, tmp_path, name):
    model = algnn.ALGNN(width=32, device="cpu").fit(small_graph, [0, 1], [0, 1])
    with pytest.raises(InputError, match="is no name for a model"):
        model.save(tmp_path / "new" / name)
    assert not list(tmp_path.iterdir())
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(InputError, match="is no name for a model"):
        model.save(tmp_path / "folder.safetensors")


def test_what_an_error_quotes_is_one_short_line():
    found = checkpoint.in_short(KeyError("unheard\n" * 100))
    assert found.startswith("'unheard")
    assert "\n" not in found
    assert len(checkpoint.in_short(ValueError("x" * 999))) == 200


# -- files ----------------------------------------------------------------------------------------


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted():
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_missing_folders_are_made_and_the_umask_is_kept(tmp_path):
    path = tmp_path / "b" / "c" / "a.txt"
    plain = tmp_path / "plain"
    plain.write_text("x")
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    """A real process rewrites a file as fast as it can and is killed at some moment."""
    path = tmp_path / "a.bin"
    script = textwrap.dedent(
        """
        import itertools, sys
        from algnn.files import replacing
        for i in itertools.count():
            with replacing(sys.argv[1]) as temporary:
                with open(temporary, "wb") as file:
                    for _ in range(64):
                        file.write(bytes([i % 256]) * 4096)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)])
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    content = path.read_bytes()
    assert len(content) == 64 * 4096
    assert len(set(content)) == 1


def test_a_file_that_is_replaced_meanwhile_is_read_as_one_of_both(paper, tmp_path, start_process):
    change(paper, facts={"which": 0})
    one, other, path = paper, tmp_path / "other", tmp_path / "model"
    other.write_bytes(one.read_bytes())
    change(other, {"statistics.Q": torch.zeros(3)}, {"which": 1})
    path.write_bytes(one.read_bytes())
    script = """
import itertools, os, sys
*both, path = sys.argv[1:]
for one in itertools.cycle(both):
    os.link(one, path + ".new")
    os.replace(path + ".new", path)
"""
    process = start_process(script, one, other, path)
    try:
        seen = []
        while len(seen) < 100 or len(set(seen)) < 2:
            assert process.is_alive()
            tensors, facts = checkpoint.read(path, "ALGNN")  # compares SHA-256
            seen.append(facts["which"])
            assert (tensors["statistics.Q"].shape == (3,)) == bool(facts["which"])
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_tensors_of_a_type_that_no_learner_has_are_refused(paper, kind):
    change(paper, {"statistics.Q": torch.zeros(3).to(kind)})
    with pytest.raises(CheckpointError, match=r"damaged|belongs"):
        algnn.ALGNN.load(paper)


# -- all at once ----------------------------------------------------------------------------------


# as from a shell, but forked; and so are the processes that it starts, from where it comes from
STRESS = """
import runpy, sys
from multiprocessing import forkserver
forkserver._forkserver.ensure_running = lambda: None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_nothing_is_lost(run_process):
    script = Path(__file__).parent.parent / "benchmarks" / "stress.py"
    figures = json.loads(run_process(STRESS, script, "--seconds", 2))
    assert figures["wrong"] == []
    assert figures["answers from memory"] > 0 < figures["changes in memory"]
    assert figures["processes killed"] > 0
