"""What a saved learner gives away, and what hiding it costs, measured.

    python benchmarks/privacy.py measure [GRAPH …]    # docs/privacy/GRAPH.json, a few minutes each
    python benchmarks/privacy.py document             # docs/privacy.md and its picture, from these

The attacker has a file that `save` wrote, or two of the same learner, and knows the graph: features
and edges of every node, but not which nodes were labelled, or how. Attacks are the plainest there
are; others may do better.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr
from scipy.stats import rankdata

import algnn
from algnn.analytic.privacy.accountant import noise_scale
from algnn.analytic.privacy.model import PrivateALGNN
from algnn.analytic.selection import MOST_HALVINGS, half_masks
from algnn.bench.environment import machine, now, versions
from algnn.bench.protocol import run
from algnn.bench.runs import summarise
from algnn.files import replacing
from algnn.graph.propagate import normalised_adjacency

DOCS = Path(__file__).parent.parent / "docs"
GRAPHS = ("cora", "computers")
SEEDS = (42, 43, 44, 45, 46)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
WIDTHS = (32, 64, 128)
DELTA = 1e-6
VICTIMS = 20  # single nodes that an attack is tried on
PER_CLASS = (1, 2, 3, 4, 5, 6, 8, 10, 20)
DRAWS = 200


# -- what a file gives away -------------------------------------------------------------------


def auroc(positives, negatives):
    """The chance that one of the first is above one of the second, ties counted half."""
    ranks = rankdata(np.concatenate([positives, negatives]))
    count = len(positives)
    return float((ranks[:count].mean() - (count + 1) / 2) / len(negatives))


def familiarity(G, Z):
    """−zᵀ(G + tiny I)⁻¹z: far below zero for a row that sticks out of the span of those in G."""
    tiny = 1e-8 * float(G.trace())
    factor = torch.linalg.cholesky(G + tiny * torch.eye(G.size(0), dtype=G.dtype))
    return -torch.linalg.solve_triangular(factor, Z.mT, upper=False).square().sum(0).numpy()


def rows_of(model, graph, nodes):
    """Z of some nodes, which whoever has the graph and the file can compute."""
    return torch.cat(list(model._features(graph, torch.as_tensor(nodes), model._learned.features)))


def membership(graph, stream):
    """Learned nodes against test nodes of the same classes, after each session of a stream."""
    model, before, sessions = algnn.ALGNN(device="cpu"), None, []
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        now_known = model.statistics_
        gram = now_known.G if before is None else now_known.G - before
        members = rows_of(model, graph, session.nodes)
        others = rows_of(model, graph, stream.nodes("test", session.index)[0])
        sessions.append(
            {
                "nodes": len(session.nodes),
                "auroc": auroc(familiarity(gram, members), familiarity(gram, others)),
            }
        )
        before = now_known.G
    learned = torch.cat([session.nodes for session in stream])
    tested = torch.cat([stream.nodes("test", index)[0] for index in range(len(stream))])
    scores = [familiarity(before, rows_of(model, graph, some)) for some in (learned, tested)]
    best = [model.decision_function(graph, some).max(1) for some in (learned, tested)]
    return model, {
        "width": before.size(0),
        "nodes": len(learned),
        "sessions": sessions,
        "at the end": auroc(*scores),
        "from scores": auroc(*best),
        "beside": beside(model, graph, learned, tested),
        "record": in_record(model, graph, learned),
    }


def beside(model, graph, learned, tested):
    """Neighbours of learned nodes, not learned themselves, against nodes that are neither.

    Some nodes are like many others and some are not, whatever was learned. How much that alone
    gives is shown by sums over other nodes, as many of them.
    """
    everyone = rows_of(model, graph, torch.arange(graph.num_nodes))
    mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    mask[learned] = True
    near = torch.zeros_like(mask)
    near[graph.edge_index[1][mask[graph.edge_index[0]]]] = True
    generator = np.random.default_rng(SEEDS[0])
    others = generator.choice(tested, min(len(tested), len(learned)), replace=False)
    mask[others] = True  # those are in the sums to compare with, and left out for both
    found = {}
    for name, some in (("learned", learned), ("others", others)):
        scores = familiarity(everyone[some].mT @ everyone[some], everyone)
        found[name] = auroc(scores[(near & ~mask).numpy()], scores[(~near & ~mask).numpy()])
    return found


def in_record(model, graph, learned):
    """Every id tried with every class: how many are found, and how many of them were learned."""
    everyone = torch.arange(graph.num_nodes)
    found = np.flatnonzero(model._learned.membership.known(everyone, model.classes_)[1])
    right = np.intersect1d(found, learned.numpy()).size
    return {"found": int(found.size), "right": int(right), "learned": len(learned)}


def error(guess, truth):
    return float(torch.linalg.vector_norm(guess - truth) / torch.linalg.vector_norm(truth))


def small_classes(graph, stream):
    """New classes of one and of two nodes, and one node forgotten: rows read from the sums."""
    generator = np.random.default_rng(SEEDS[0])
    base, new = stream[0], int(graph.y.max()) + 1
    model = algnn.ALGNN(device="cpu").fit(base.graph, base.nodes, base.labels)
    known, before, alone = model._learned, model.statistics_, own_features(model, graph)
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)
    free = np.setdiff1d(np.flatnonzero(degrees.numpy()), base.nodes.numpy())
    errors, neighbours = {"one": [], "two": [], "forgotten": []}, {"row": [], "own": []}
    for pair in generator.choice(free, (VICTIMS, 2), replace=False):
        truth = rows_of(model, graph, pair)
        model._learned = known
        guess = model.partial_fit(graph, pair[:1], [new]).statistics_.Q[:, -1]
        errors["one"].append(error(guess, truth[0]))
        for name, row in (("row", guess), ("own", alone[pair[0]])):
            neighbours[name].append(neighbour_auroc(graph, int(pair[0]), (alone @ row).numpy()))
        model._learned = known
        both = model.partial_fit(graph, pair, [new, new]).statistics_
        errors["two"].append(error(*two_rows(before, both, truth)))
        left = model.forget(graph, pair[:1], [new]).statistics_
        errors["forgotten"].append(error(both.Q[:, -1] - left.Q[:, -1], truth[0]))
    worst = {name: max(values) for name, values in errors.items()}
    mean = {name: float(np.mean(values)) for name, values in neighbours.items()}
    return {"victims": VICTIMS, "largest error": worst, "neighbours": mean}


def own_features(model, graph):
    """What each node's row would be if it had no neighbours."""
    nobody = normalised_adjacency(torch.zeros(2, 0, dtype=torch.int64), graph.num_nodes)
    features = model._learned.features
    return features(features.prepare(nobody, graph.x))


def neighbour_auroc(graph, node, likeness):
    """Its neighbours against all other nodes, by how much their own features are in its row."""
    mask = np.zeros(graph.num_nodes, dtype=bool)
    mask[graph.edge_index[0][graph.edge_index[1] == node].numpy()] = True
    others = ~mask
    mask[node] = others[node] = False
    return auroc(likeness[mask], likeness[others])


def two_rows(before, after, truth):
    """Both rows of a class of two from z₁ + z₂ and z₁z₁ᵀ + z₂z₂ᵀ, in the order that fits best."""
    both = after.Q[:, -1]
    # (z₁ − z₂)(z₁ − z₂)ᵀ
    apart = 2 * (after.G - before.G) - torch.outer(both, both)
    size, direction = eigsh(apart.numpy(), k=1, which="LA")
    step = torch.from_numpy(direction[:, 0]) * float(size[0]) ** 0.5
    guesses = [torch.stack([both + sign * step, both - sign * step]) / 2 for sign in (1, -1)]
    return min(guesses, key=lambda guess: error(guess, truth)), truth


def solvable(graph):
    """The share of nodes whose row follows from their class's sums over all and over halves.

    Someone who knows which nodes of a class were learned knows which sums each is in: so many
    equations, and a row for each node to solve for.
    """
    generator, shares = np.random.default_rng(SEEDS[0]), {}
    for count in PER_CLASS:
        found = 0
        for _ in range(DRAWS):
            nodes = torch.from_numpy(generator.choice(graph.num_nodes, count, replace=False))
            halves = torch.from_numpy(half_masks(nodes, 0, MOST_HALVINGS))
            system = torch.cat([torch.ones(1, count, dtype=torch.bool), halves]).double()
            # a node is solved for if it alone is a combination of the equations
            onto = torch.linalg.pinv(system) @ system
            found += int((onto.diagonal() > 1 - 1e-9).sum())
        shares[str(count)] = found / (DRAWS * count)
    return {"halvings": MOST_HALVINGS, "shares": shares}


# -- what hiding it costs ---------------------------------------------------------------------


def private_ap(stream, epsilon, width, seed):
    model = PrivateALGNN(epsilon=epsilon, delta=DELTA, width=width, seed=seed, device="cpu")
    # noise that can be made again: for a measurement, never for a promise
    model._entropy = np.random.default_rng([seed, width, round(10 * epsilon)]).bytes
    return run(model, stream, confidence=False).ap


def costs(stream):
    usual = (algnn.ALGNN(seed=seed, device="cpu") for seed in SEEDS)
    none = [run(model, stream, confidence=False).ap for model in usual]
    private = {
        str(width): {
            f"{epsilon:g}": [round(private_ap(stream, epsilon, width, seed), 3) for seed in SEEDS]
            for epsilon in EPSILONS
        }
        for width in WIDTHS
    }
    return {"delta": DELTA, "ALGNN": [round(ap, 3) for ap in none], "PrivateALGNN": private}


def measure(name):
    graph = algnn.load(name)
    stream = algnn.ClassStream(graph)
    model, found = membership(graph, stream)
    record = {
        "graph": name,
        "command": f"python benchmarks/privacy.py measure {name}",
        "time": now(),
        "seeds": list(SEEDS),
        "versions": versions(algnn.PrivateALGNN),
        "machine": machine(),
        "encoder": list(model._learned.features.views),
        "reveals": {**found, **small_classes(graph, stream), "solvable": solvable(graph)},
        "costs": costs(stream),
    }
    write(DOCS / "privacy" / f"{name}.json", json.dumps(record, indent=1) + "\n")


def write(path, text):
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")


# -- the document -----------------------------------------------------------------------------


def read_records():
    return {p.stem: json.loads(p.read_text("utf-8")) for p in (DOCS / "privacy").glob("*.json")}


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def between(values, form):
    """The least and the largest, or the one that they are."""
    return " to ".join(dict.fromkeys(f"{value:{form}}" for value in (min(values), max(values))))


def membership_table(records):
    rows = []
    for name in GRAPHS:
        found = records[name]["reveals"]
        first, *later = found["sessions"]
        sizes = [s["nodes"] for s in later]
        rows.append(
            [
                name,
                f"{found['width']:,}",
                f"{first['nodes']:,}: {first['auroc']:.3f}",
                f"{between(sizes, 'd')}: {between([s['auroc'] for s in later], '.3f')}",
                f"{found['nodes']:,}: {found['at the end']:.3f}",
                f"{found['from scores']:.3f}",
                f"{found['beside']['learned']:.3f} ({found['beside']['others']:.3f})",
            ]
        )
    head = ["graph", "d", "base session", "each later session, from two files", "all, from one"]
    return table([*head, "all, from scores alone", "unlabelled neighbours"], rows)


def rows_table(records):
    rows = []
    for name in GRAPHS:
        found = records[name]["reveals"]
        errors, known = found["largest error"], found["record"]
        rows.append(
            [
                name,
                *(f"{errors[kind] or 0:.0g}" for kind in ("one", "two", "forgotten")),
                f"{found['neighbours']['row']:.3f} ({found['neighbours']['own']:.3f})",
                f"{known['right']:,} of {known['learned']:,}; {known['found'] - known['right']}",
            ]
        )
    head = ["graph", "class of one", "class of two", "one node forgotten", "its neighbours"]
    return table([*head, "ids found; wrongly"], rows)


def halves_table(records):
    found = records[GRAPHS[0]]["reveals"]["solvable"]
    shares = found["shares"]
    cells = [f"{100 * share:.0f}%" for share in shares.values()]
    head = ["nodes of a class", *shares]
    return table(head, [[f"rows that follow from {found['halvings'] + 1} sums", *cells]])


def cost_table(records):
    rows = []
    for epsilon in EPSILONS:
        sigma = noise_scale(epsilon, DELTA)
        cells = [f"{epsilon:g}", f"{sigma:.2f}", f"{ndtr(1 / sigma / 2**0.5):.2f}"]
        for name in GRAPHS:
            private = records[name]["costs"]["PrivateALGNN"]
            cells += [shown(private[str(width)][f"{epsilon:g}"]) for width in WIDTHS]
        rows.append(cells)
    without = ["none", "0", "1.00"]
    for name in GRAPHS:
        without += [f"`ALGNN()`: {shown(records[name]['costs']['ALGNN'])}", "", ""]
    names = [f"{name}, {width} wide" for name in GRAPHS for width in WIDTHS]
    return table(["ε", "σ", "best attack", *names], [*rows, without])


def shown(values):
    summary = summarise(values)
    return f"{summary.mean:.1f} ± {summary.ci95:.1f}"


def provenance(records):
    lines = []
    for name in GRAPHS:
        one = records[name]
        where = one["machine"]
        lines.append(
            f"- `{one['command']}`: seeds {min(one['seeds'])} to {max(one['seeds'])},"
            f" {where['cores']} {where['architecture']} cores, torch {one['versions']['torch']},"
            f" version {one['versions']['algnn']}.\n"
        )
    return "".join(lines)


PARTS = {
    "membership": membership_table,
    "rows": rows_table,
    "halves": halves_table,
    "cost": cost_table,
    "provenance": provenance,
}


def document(text, records):
    """The document with every table in it written anew from the records."""

    def part(place):
        return f"{place[1]}{PARTS[place[2]](records)}{place[3]}"

    return re.sub(r"(<!-- privacy (\w+) -->\n).*?(<!-- end -->)", part, text, flags=re.DOTALL)


def draw(records, path):
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(GRAPHS)), GRAPHS, strict=True):
        found = records[name]["costs"]
        for width, style in zip(WIDTHS, ("o:", "s-", "^--"), strict=True):
            summaries = [summarise(aps) for aps in found["PrivateALGNN"][str(width)].values()]
            means = [summary.mean for summary in summaries]
            spread = [summary.ci95 for summary in summaries]
            axes.errorbar(EPSILONS, means, spread, fmt=style, capsize=2, label=f"{width} wide")
        level = summarise(found["ALGNN"]).mean
        axes.axhline(level, color="black", linewidth=1)
        axes.annotate("ALGNN(), no noise", (EPSILONS[0], level), (0, 3), textcoords="offset points")
        axes.set_xscale("log", base=2)
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.set(title=name, xlabel="ε of one labelled node (δ = 1e-6)", ylim=(0, 100))
    figure.axes[0].set_ylabel("AP (%), mean and 95% interval of 5 seeds")
    figure.axes[0].legend(loc="lower right", frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def main(action="", *names):
    if action == "measure":
        for name in names or GRAPHS:
            measure(name)
    elif action == "document":
        records, page = read_records(), DOCS / "privacy.md"
        write(page, document(page.read_text("utf-8"), records))
        draw(records, DOCS / "privacy" / "ap.png")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
