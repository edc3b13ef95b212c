import json

import pytest
import torch
from safetensors.torch import save_file

import algnn
from algnn import checkpoint
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.selection import MOST_HALVINGS
from algnn.errors import CheckpointError


@pytest.fixture
def saved(small_graph, tmp_path):
    paper = {"encoder": "gcn", "head": "ridge", "gamma": 0.01}
    model = algnn.ALGNN(**paper, width=32, hidden=8, epochs=2, device="cpu")
    nodes = small_graph.train_mask.nonzero().squeeze(1)
    model.fit(small_graph, nodes, small_graph.y[nodes])
    path = tmp_path / "model.safetensors"
    model.save(path)
    return path


def rewrite(path, **changes):
    """Save the same tensors under a changed header."""
    tensors, facts = checkpoint.read(path, "ALGNN")
    header = {"format": "algnn", "version": checkpoint.VERSION, "kind": "ALGNN", "facts": facts}
    save_file(tensors, path, metadata={"algnn": json.dumps({**header, **changes})})


def test_every_truncation_is_noticed(saved):
    content = saved.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
            algnn.ALGNN.load(saved)


def test_foreign_files_are_refused(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("node,label\n1,2\n" * 100)
    with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
        algnn.ALGNN.load(text)
    other = tmp_path / "b.safetensors"
    save_file({"a": torch.ones(1)}, other)
    with pytest.raises(CheckpointError, match="not one that algnn wrote"):
        algnn.ALGNN.load(other)
    with pytest.raises(CheckpointError, match="is not a file"):
        algnn.ALGNN.load(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="is not a file"):
        algnn.ALGNN.load(tmp_path)


def test_another_version_is_named(saved):
    rewrite(saved, version=checkpoint.VERSION + 1)
    with pytest.raises(CheckpointError, match="checkpoint version 2 and this algnn reads 1"):
        algnn.ALGNN.load(saved)


def test_another_kind_of_learner_is_named(saved):
    rewrite(saved, kind="Other")
    with pytest.raises(CheckpointError, match="holds a Other"):
        algnn.ALGNN.load(saved)


@pytest.mark.parametrize("name", ["encoder.bias", "statistics.G", "statistics.Q", "statistics.n"])
@pytest.mark.parametrize("damage", ["shape", "type", "missing"])
def test_wrong_tensors_are_refused(saved, name, damage):
    tensors, facts = checkpoint.read(saved, "ALGNN")
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = torch.zeros(3, 3, dtype=tensors[name].dtype)
    else:
        tensors[name] = tensors[name].to(torch.float16)
    checkpoint.write(saved, "ALGNN", tensors, facts)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        algnn.ALGNN.load(saved)


@pytest.mark.parametrize(
    "facts",
    [
        {"params": {"unheard_of": 1}},
        {"params": None},
        {"classes": []},
        {"classes": [[0], [1]]},
        {"classes": [0.5, 1.5, 2.5, 3.5]},
        {"expansion": {}},
        {"expansion": {"kind": "gcn", "inputs": "8", "width": 32, "seed": 0}},
        {"expansion": {"kind": "gcn", "inputs": 8, "width": 10**9, "seed": 0}},
        {"head": "unheard of"},
        {"gamma": "one"},
        {"gamma": None},
    ],
)
def test_wrong_facts_are_refused(saved, facts):
    tensors, old = checkpoint.read(saved, "ALGNN")
    checkpoint.write(saved, "ALGNN", tensors, {**old, **facts})
    with pytest.raises(CheckpointError):
        algnn.ALGNN.load(saved)


def test_a_failed_save_keeps_the_old_file(saved, small_graph):
    before = saved.read_bytes()
    with pytest.raises(TypeError):
        checkpoint.write(saved, "ALGNN", {}, {"a": object()})
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def test_the_same_learner_gives_the_same_bytes(saved, tmp_path):
    again = tmp_path / "again.safetensors"
    algnn.ALGNN.load(saved).save(again)
    assert again.read_bytes() == saved.read_bytes()


def test_no_pickle_in_the_file(saved):
    import pickle

    with pytest.raises(pickle.UnpicklingError), saved.open("rb") as file:
        pickle.load(file)


@pytest.mark.parametrize("name", ["span.basis", "second0.G", "second3.n", "statistics.Q"])
@pytest.mark.parametrize("damage", ["shape", "type", "missing"])
def test_wrong_tensors_of_the_default_are_refused(small_graph, tmp_path, name, damage):
    path, nodes = tmp_path / "model.safetensors", [0, 1, 2, 3]
    model = algnn.ALGNN(device="cpu").fit(small_graph, nodes, [0, 1, 0, 1])
    model.save(path)
    assert (algnn.ALGNN.load(path).predict(small_graph) == model.predict(small_graph)).all()
    tensors, facts = checkpoint.read(path, "ALGNN")
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = torch.zeros(3, 3, dtype=tensors[name].dtype)
    else:
        tensors[name] = tensors[name].to(torch.float16)
    checkpoint.write(path, "ALGNN", tensors, facts)
    if (name, damage) == ("second0.G", "missing"):
        assert algnn.ALGNN.load(path)._learned.ways == MOST_HALVINGS - 1
        return
    with pytest.raises(CheckpointError):
        algnn.ALGNN.load(path)


@pytest.mark.parametrize(
    "bank",
    [
        {},
        {"name": "all", "inputs": 12, "projected": 0, "seed": 0},
        {"name": "raw", "inputs": "12", "projected": 0, "seed": 0},
        {"name": "raw", "inputs": 10**15, "projected": 0, "seed": 0},
        {"name": "raw", "inputs": 12, "projected": -1, "seed": 0},
    ],
)
def test_wrong_banks_are_refused(small_graph, tmp_path, bank):
    path = tmp_path / "model.safetensors"
    algnn.ALGNN(device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1]).save(path)
    tensors, facts = checkpoint.read(path, "ALGNN")
    checkpoint.write(path, "ALGNN", tensors, {**facts, "bank": bank})
    with pytest.raises(CheckpointError):
        algnn.ALGNN.load(path)


def spoil_basis(tensors):
    tensors["span.basis"] = tensors["span.basis"] * 2


def spoil_sums(tensors):
    tensors["statistics.Q"][0, 0] = torch.nan


def spoil_counts(tensors):
    tensors["statistics.n"][0] = 0


def spoil_half(tensors):
    tensors["second1.n"][0] = 99


@pytest.mark.parametrize("spoil", [spoil_basis, spoil_sums, spoil_counts, spoil_half])
def test_values_that_cannot_be_are_refused(small_graph, tmp_path, spoil):
    path = tmp_path / "model.safetensors"
    algnn.ALGNN(device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1]).save(path)
    tensors, facts = checkpoint.read(path, "ALGNN")
    spoil(tensors)
    checkpoint.write(path, "ALGNN", tensors, facts)
    with pytest.raises(CheckpointError, match="whole checkpoint"):
        algnn.ALGNN.load(path)


@pytest.mark.parametrize(
    "facts",
    [
        {"classes": [0, 0]},
        {"classes": [1, 0]},
        {"classes": [0, "a"]},
        {"gamma": -1.0},
        {"gamma": float("nan")},
    ],
)
def test_facts_that_cannot_be_are_refused(small_graph, tmp_path, facts):
    path = tmp_path / "model.safetensors"
    algnn.ALGNN(device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1]).save(path)
    tensors, old = checkpoint.read(path, "ALGNN")
    checkpoint.write(path, "ALGNN", tensors, {**old, **facts})
    with pytest.raises(CheckpointError):
        algnn.ALGNN.load(path)


def test_a_small_file_cannot_ask_for_much_memory(small_graph, tmp_path):
    path = tmp_path / "model.safetensors"
    algnn.ALGNN(device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1]).save(path)
    tensors, facts = checkpoint.read(path, "ALGNN")
    facts["bank"] = {"name": "raw", "inputs": 10**12, "projected": 0, "seed": 0}
    tensors["span.basis"] = torch.zeros(0, 10**12, dtype=torch.float64)
    checkpoint.write(path, "ALGNN", tensors, facts)
    with pytest.raises(CheckpointError, match="inputs"):
        algnn.ALGNN.load(path)


@pytest.mark.parametrize("claim", [{"inputs": 10**6}, {"expanded": 10**6}])
def test_a_small_file_cannot_ask_for_much_memory_later(small_graph, tmp_path, claim):
    """Without any direction in its span a file shows no width, and may claim any."""
    path = tmp_path / "model.safetensors"
    small_graph.x = torch.zeros_like(small_graph.x)
    algnn.ALGNN(device="cpu").fit(small_graph, [0, 1, 2, 3], [0, 1, 0, 1]).save(path)
    assert algnn.ALGNN.load(path).predict(small_graph).shape == (60,)
    tensors, facts = checkpoint.read(path, "ALGNN")
    assert tensors["span.basis"].shape == (0, 12)
    facts["bank"] |= claim
    tensors["span.basis"] = torch.zeros(0, HopEncoder(**facts["bank"]).width, dtype=torch.float64)
    checkpoint.write(path, "ALGNN", tensors, facts)
    with pytest.raises(CheckpointError, match=r"width|expanded"):
        algnn.ALGNN.load(path)


def test_a_checkpoint_can_be_read_by_whoever_may_read_other_files(tmp_path):
    (tmp_path / "other").write_text("")
    checkpoint.write(tmp_path / "model.safetensors", "Example", {"a": torch.ones(2)}, {})
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1
