"""A new class every week: the graph grows, something new is noticed, labelled a little, learned.

Run it: python examples/a_new_class_every_week.py (docs/a-new-class-every-week.md tells the story).
"""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import algnn

KNOWN, WEEKS, LOOKS = 5, 5, 10

# Who arrives when: at first, half of the digits 0 to 4. In each later week, half of a digit never
# seen before, and a tenth of every digit seen so far.
digits = algnn.load("digits").subgraph(torch.arange(900))
rng = np.random.default_rng(0)
of = [rng.permutation(np.flatnonzero(digits.y.numpy() == digit)) for digit in range(10)]
arrivals = [np.concatenate([ids[: ids.size // 2] for ids in of[:KNOWN]])]
for week in range(WEEKS):
    new, start = of[KNOWN + week], 0.5 + 0.1 * week
    old = [ids[int(start * ids.size) : int((start + 0.1) * ids.size)] for ids in of[:KNOWN]]
    arrivals.append(np.concatenate([new[: new.size // 2], *old]))
order = torch.from_numpy(np.concatenate(arrivals))
ends = np.cumsum([some.size for some in arrivals])
y = digits.y[order].numpy()  # in the order in which they arrive, which is their id


def graph_after(week):
    """The graph as it is then: whoever has arrived, and the edges among them."""
    here = order[: ends[week]]
    edges, _ = subgraph(here, digits.edge_index, relabel_nodes=True)
    return Data(x=digits.x[here], edge_index=edges)


def accuracy(model, graph, nodes):
    """The share of these nodes that get the right class."""
    return float((model.predict(graph, nodes) == y[nodes]).mean())


graph = graph_after(0)
model = algnn.ALGNN(width=512).fit(graph, range(0, ends[0], 2), y[: ends[0] : 2])
print(f"At first {graph.num_nodes} nodes and the classes {model.classes_.tolist()}.")

for week in range(1, WEEKS + 1):
    graph, digit = graph_after(week), KNOWN + week - 1
    nodes = np.arange(ends[week - 1], ends[week])

    # the strangest are looked at: is there something new?
    strangest = nodes[np.argsort(-model.novelty(graph, nodes))[:LOOKS]]
    new = int((y[strangest] == digit).sum())
    by_chance = LOOKS * float((y[nodes] == digit).mean())
    assert new > 1.5 * by_chance

    # they are labelled, and as many others: what is strangest of a class is not what it is like
    others = rng.choice(np.setdiff1d(nodes, strangest), LOOKS, replace=False)
    labelled = np.concatenate([strangest, others])
    model.partial_fit(graph, labelled, y[labelled])
    assert digit in model.classes_

    right = accuracy(model, graph, np.setdiff1d(nodes, labelled))
    print(
        f"Week {week}: {nodes.size} more nodes. Of the {LOOKS} strangest {new} are of a new class"
        f" ({by_chance:.1f} by chance). Once it is learned, {right:.0%} of the rest are right."
    )
    assert right > 0.8

early = np.arange(1, ends[0], 2)
print(f"Of the very first nodes, {accuracy(model, graph, early):.0%} are still right.")
assert accuracy(model, graph, early) > 0.9

newest = nodes[model.predict(graph, nodes) == digit][0]
why = model.explain(graph, int(newest))
print(f"Why, for one of the last: {why}")
assert abs(why.by_feature.sum() + why.bias - why.score) < 1e-9
