"""What the life of a learner costs, as ratios measured in one run.

    python benchmarks/life.py measure     # docs/life/costs.json
    python benchmarks/life.py document    # docs/life/costs.md from it
    python benchmarks/life.py near-equal  # docs/life/near-equal.json: how exact forgetting is

Learning one class is held against Bare's training on the same session and against a floor: what
cannot be left out is widening n nodes (2·n·h·d operations), the rank-n update of G (n·d²) and one
Cholesky factorisation (d³/3), at the rate that this machine's matrix product in float64 reaches in
the same run. A few nodes after a session that was factorised go without the last of these, so
learning them may be below that floor; a learner that comes from a file has no factor yet.
Everything else is held against what it must cost at least: forgetting against learning, a merge
against reading the files, one node against all.
"""

import json
import sys
import tempfile
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter

import torch
from torch_geometric.data import Data

import algnn
from algnn.bench.environment import machine, versions
from algnn.graphs import Memo
from algnn.methods import make

HERE = Path(__file__).parent.parent / "docs" / "life"
REPEATS = 5
DRAWS = 3


def best_of(action, before=lambda: None, repeats=REPEATS):
    """Seconds of the fastest of some calls; `before` is not on the clock."""
    times = []
    for _ in range(repeats):
        before()
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return min(times)


def keeping(model):
    """A way to put a learner back to what it knows now; what it remembers of the graph stays."""
    known = model._learned

    def back():
        model._learned = known

    return back


def one_class(width=2048, count=20):
    """A new class of 20 nodes on Cora, features and solution included."""
    stream = algnn.ClassStream(algnn.load("cora"), seed=42)
    first, session = stream[0], stream[1]
    nodes, labels = session.nodes[:count], session.labels[:count]
    model = algnn.ALGNN.paper("cora", width=width, seed=42, device="cpu")
    bare = make("bare", "cora", seed=42, device="cpu")
    square = torch.randn(width, width, dtype=torch.float64)
    rate = 2 * width**3 / best_of(lambda: square @ square)
    n = nodes.numel()
    floor = (2 * n * model.hidden * width + n * width**2 + width**3 / 3) / rate
    seconds = {}
    default = algnn.ALGNN(seed=42, device="cpu")
    for name, learner in (("learn", model), ("default", default), ("bare", bare)):
        learner.fit(first.graph, first.nodes, first.labels)
        back = keeping(learner)
        seconds[name] = best_of(
            lambda it=learner: it.partial_fit(session.graph, nodes, labels), back
        )
    # as a learner from a file is: with sums, and nothing that follows from them
    model.fit(first.graph, first.nodes, first.labels)
    model._learned = replace(model._learned, solved=None, factor=None)
    back = keeping(model)
    loaded = best_of(lambda: model.partial_fit(session.graph, nodes, labels), back)
    return {
        "learning over its floor, from a file": loaded / floor,
        "learning over its floor": seconds["learn"] / floor,
        "Bare over learning, from a file": seconds["bare"] / loaded,
        "Bare over learning": seconds["bare"] / seconds["learn"],
        "Bare over learning, default": seconds["bare"] / seconds["default"],
    }


def forgetting():
    """20 nodes of Cora forgotten, against the same 20 learned."""
    found = {}
    stream = algnn.ClassStream(algnn.load("cora"), seed=42)
    first, session = stream[0], stream[1]
    nodes, labels = session.nodes, session.labels
    for name, model in (
        ("default", algnn.ALGNN(seed=42, device="cpu")),
        ("paper's settings", algnn.ALGNN.paper("cora", seed=42, device="cpu")),
    ):
        model.fit(first.graph, first.nodes, first.labels)
        back = keeping(model)
        learn = best_of(lambda it=model: it.partial_fit(session.graph, nodes, labels), back)
        back = keeping(model)
        forget = best_of(lambda it=model: it.forget(session.graph, nodes, labels), back)
        found[f"forgetting over learning, {name}"] = forget / learn
    return found


def merging():
    """Two learners of the paper's width on Cora, from files."""
    stream = algnn.ClassStream(algnn.load("cora"), seed=42)
    first, session = stream[0], stream[1]
    here = algnn.ALGNN.paper("cora", seed=42, device="cpu")
    here.fit(first.graph, first.nodes, first.labels)
    there = here.blank().partial_fit(session.graph, session.nodes, session.labels)
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}.safetensors" for name in ("here", "there")]
        here.save(paths[0])
        there.save(paths[1])
        read = best_of(lambda: [algnn.ALGNN.load(path) for path in paths])

        def merge():
            ours, theirs = (algnn.ALGNN.load(path) for path in paths)
            ours.merge(theirs)

        both = best_of(merge)
    G = here.statistics_.G
    add = best_of(lambda: G + G)
    return {
        "merging two files over reading them": both / read,
        "merging two files over reading them and one addition": both / (read + add),
    }


def one_node():
    """One node of arxiv-graph classified, against all of them, encoded already or anew."""
    graph = algnn.load("arxiv-graph")
    session = algnn.ClassStream(graph, seed=42)[0]
    model = algnn.ALGNN(seed=42, device="cpu")
    model.fit(session.graph, session.nodes, session.labels)

    def unseen():
        model._memos["prepared"] = Memo()

    node = int(session.nodes[0])
    found = {}
    for when, before in (("encoded already", lambda: None), ("encoded anew", unseen)):
        alone = best_of(lambda: model.predict(graph, [node]), before)
        everything = best_of(lambda: model.predict(graph), before, repeats=2)
        found[f"one node of arxiv-graph over all, {when}, percent"] = 100 * alone / everything
    return found


def measure():
    found = {}
    for part in (one_class, forgetting, merging, one_node):
        found |= part()
        print(json.dumps(found, indent=1), flush=True)
    record = {
        "command": "python benchmarks/life.py measure",
        "machine": machine(1),
        "versions": versions(algnn.ALGNN),
        "seed": 42,
        "ratios": {name: round(value, 3) for name, value in found.items()},
    }
    HERE.mkdir(exist_ok=True)
    (HERE / "costs.json").write_text(json.dumps(record, indent=1) + "\n")


def page(record):
    place = ", ".join(f"{name} {value}" for name, value in record["machine"].items() if value)
    rows = "".join(f"| {name} | {value:g} |\n" for name, value in record["ratios"].items())
    return (
        "# What the life of a learner costs\n\n"
        f"Ratios measured in one run on the CPU by `{record['command']}`"
        f" (seed {record['seed']}; {place}); the script says how. Bare trains on what 20 nodes see"
        " of the graph alone, so its session is short. With the paper's settings a few nodes are"
        " learned by way of the last factorisation, without a new one of 2,048 columns; the first"
        " few after a learner was read from a file take one. Forgetting takes two: one checks that"
        " the sums can have held the nodes, and one gives the weights. A merge adds sums; weights"
        " are solved for when they are first needed. The default chooses γ in each of these. A"
        " changed graph is encoded anew, all of it, also for one node.\n\n"
        f"| what | ratio |\n|---|---|\n{rows}"
    )


def document():
    record = json.loads((HERE / "costs.json").read_text())
    (HERE / "costs.md").write_text(page(record))


def near_equal():
    """How far forgetting ten nodes is from never having seen them, among nearly equal ones."""
    rows = []
    for width, head, gamma in product((800, 100), ("balanced", "ridge"), (0.0, 1e-3, 1.0)):
        for size in (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0):
            off = [
                forgotten(seed, size, width=width, head=head, gamma=gamma) for seed in range(DRAWS)
            ]
            worst = dict(zip(("in one call", "one by one"), map(max, *off), strict=True))
            rows.append({"width": width, "head": head, "gamma": gamma, "size": size, **worst})
    record = {
        "what": "60 of 300 nodes are learned and ten of them forgotten. Off is the largest"
        " difference of a score from that of a learner that never saw the ten, over the largest"
        " score; the worst of three draws. Features are one of three rows of 20 normally"
        " distributed numbers, each times 1 + size times another; there are 20 random edges and"
        " four classes. Over a width of 100 the sums are over all features, over 800 over a span.",
        "command": "python benchmarks/life.py near-equal",
        "machine": machine(1),
        "versions": versions(algnn.ALGNN),
        "seeds": list(range(DRAWS)),
        "off": rows,
    }
    (HERE / "near-equal.json").write_text(json.dumps(record, indent=1) + "\n")


def forgotten(seed, size, **settings):
    """How far scores are off where ten nodes are forgotten in one call, and one by one."""
    drawn = torch.Generator().manual_seed(seed)
    three = torch.randn(3, 20, generator=drawn, dtype=torch.float64)
    which = torch.randint(0, 3, (300,), generator=drawn)
    noise = torch.randn(300, 20, generator=drawn, dtype=torch.float64)
    edges = torch.randint(0, 300, (2, 20), generator=drawn)
    graph = Data(x=three[which] * (1 + size * noise), edge_index=edges)
    y = torch.arange(300) % 4
    model = algnn.ALGNN(device="cpu", **settings).fit(graph, range(60), y[:60])
    never = model.blank().partial_fit(graph, range(10, 60), y[10:60])
    expected = never.decision_function(graph)
    off = []
    for calls in ([range(10)], [[node] for node in range(10)]):
        left = deepcopy(model)
        for nodes in calls:
            left.forget(graph, nodes, y[nodes])
        off.append(float(abs(left.decision_function(graph) - expected).max() / abs(expected).max()))
    return off


if __name__ == "__main__":
    {"measure": measure, "document": document, "near-equal": near_equal}[sys.argv[1]]()
