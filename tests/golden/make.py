"""Checkpoints of this version, for every later version to read.

    python tests/golden/make.py            # writes files for what this version has none of
    python tests/golden/make.py --again    # replaces those of this version, before it is released

Beside each checkpoint stands what its learner said when it was made; `tests/test_golden.py` loads
all of them. A file of a released version is never made again: if it can no longer be read, or its
learner says something else, then the code is wrong and not the file.
"""

import json
import sys
from pathlib import Path

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


def main(*options):
    for name, model in LEARNERS.items():
        path = HERE / f"{algnn.__version__}-{name}.safetensors"
        if path.exists() and "--again" not in options:
            continue
        taught(model).save(path)
        said = {
            "kind": f"{type(model).__module__}:{type(model).__name__}",
            "classes": model.classes_.tolist(),
            "scores": model.decision_function(graph()).tolist(),
        }
        path.with_suffix(".json").write_text(json.dumps(said) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
