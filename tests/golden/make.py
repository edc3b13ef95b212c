"""Checkpoints of this version, for every later version to read.

    python tests/golden/make.py            # writes files for what this version has none of
    python tests/golden/make.py --again    # replaces those of this version, before it is released

One archive holds the files of a version: each checkpoint, and beside it what its learner said when
it was made; `tests/test_golden.py` loads all of them. A file of a released version is never made
again: if it can no longer be read, or its learner says something else, then the code is wrong and
not the file.
"""

import json
import sys
import tempfile
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import torch
from torch_geometric.data import Data

import algnn
from algnn.analytic.joint import JointRidge
from algnn.analytic.privacy.model import PrivateALGNN
from algnn.baselines.replay import ERGNN

HERE = Path(__file__).parent
PAPER = {"encoder": "gcn", "head": "ridge", "gamma": 0.1}
SMALL = {"hidden": 4, "width": 8, "epochs": 3}
LEARNERS = {
    # narrower than it comes, and still wider than the views: a few units
    "default": algnn.ALGNN(width=200, device="cpu"),
    "decaying": algnn.ALGNN(half_life=2.0, width=200, device="cpu"),
    "nodes": algnn.ALGNN(head="ridge", width=200, device="cpu"),
    "selfsupervised": algnn.ALGNN(encoder="self-supervised", width=200, hidden=4, device="cpu"),
    "halves": algnn.ALGNN(encoder="gcn", **SMALL, device="cpu"),
    "paper": algnn.ALGNN(**PAPER, **SMALL, device="cpu"),
    "joint": JointRidge(**PAPER, **SMALL, device="cpu"),
    "private": PrivateALGNN(epsilon=8.0, width=3, device="cpu"),
    "replay": ERGNN(hidden=4, epochs=3, budget=4, device="cpu"),
}
NODES = 36


def graph():
    """Three rings of twelve nodes; nothing random, so that it is the same for ever."""
    node = torch.arange(NODES)
    beside = node // 12 * 12 + (node + 1) % 12
    x = torch.stack([(node * k + node // 12) % 7 for k in range(1, 49)], dim=1).float()
    x[node, node // 12] += 50
    edge_index = torch.cat([torch.stack([node, beside]), torch.stack([beside, node])], dim=1)
    return Data(x=x, edge_index=edge_index)


def sessions():
    """Nodes and labels, as strings: two classes first, then one more and some of the first."""
    names = ["north", "south", "west"]
    first, second = range(0, 24, 2), [24, 26, 28, 30, 1, 3]
    return [(list(nodes), [names[node // 12] for node in nodes]) for nodes in (first, second)]


def taught(model):
    for nodes, labels in sessions():
        model.partial_fit(graph(), nodes, labels)
    return model


def files(model):
    """The checkpoint of a learner and what it says, as bytes by the ends of their names."""
    with tempfile.TemporaryDirectory() as folder:
        taught(model).save(path := Path(folder, "model.safetensors"))
        checkpoint = path.read_bytes()
    said = {
        "kind": f"{type(model).__module__}:{type(model).__name__}",
        "classes": model.classes_.tolist(),
        "scores": model.decision_function(graph()).tolist(),
    }
    return {".safetensors": checkpoint, ".json": f"{json.dumps(said)}\n".encode()}


def read(archive):
    """The files of an archive, as bytes by name."""
    with ZipFile(archive) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def write(content, archive):
    """Files by name, as one archive whose bytes depend on them alone."""
    with ZipFile(archive, "w", ZIP_DEFLATED) as packed:
        for name in sorted(content):
            packed.writestr(ZipInfo(name), content[name], ZIP_DEFLATED)


def main(*options):
    archive = HERE / f"{algnn.__version__}.zip"
    there = read(archive) if archive.exists() else {}
    made = {}
    for name, model in LEARNERS.items():
        stem = f"{algnn.__version__}-{name}"
        if f"{stem}.safetensors" not in there or "--again" in options:
            made |= {stem + end: data for end, data in files(model).items()}
    if made:
        write(there | made, archive)


if __name__ == "__main__":
    main(*sys.argv[1:])
