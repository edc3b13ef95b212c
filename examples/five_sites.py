"""Five sites, each with its own part of a graph: no data leaves a site, and nothing is lost.

Run it: python examples/five_sites.py (docs/two-hospitals-one-model.md tells the story).
"""

import itertools

import torch

import algnn

SITES = 5

# A graph in five parts. Edges between parts are known to no site, and ids are a site's own.
digits = algnn.load("digits").subgraph(torch.arange(400))
part = torch.randint(SITES, (digits.num_nodes,), generator=torch.Generator().manual_seed(0))
graphs = [digits.subgraph(part == site) for site in range(SITES)]
labels = [(graph.train_mask.nonzero().squeeze(1), graph.y[graph.train_mask]) for graph in graphs]

# One site decides on the encoder; each learns what it has.
start = algnn.ALGNN(width=256).fit(graphs[0], *labels[0]).blank()
models = [start.blank().partial_fit(graphs[i], *labels[i]) for i in range(SITES)]


def joined(order):
    """All sites' models in one, merged in some order."""
    result = start.blank()
    for site in order:
        result.merge(models[site])
    return result


def apart(one, other):
    """The largest relative difference between two learners' weights and sums."""
    pairs = [(one.weights_, other.weights_)]
    pairs += [(getattr(one.statistics_, name), getattr(other.statistics_, name)) for name in "GQ"]
    return max(float((a - b).norm() / b.norm()) for a, b in pairs)


def accuracy(model):
    """Over the test nodes of all sites."""
    right = [
        torch.from_numpy(model.predict(graph, graph.test_mask)) == graph.y[graph.test_mask]
        for graph in graphs
    ]
    return float(torch.cat(right).float().mean())


together = joined(range(SITES))

# The same as one learner that went from site to site
one = start.blank()
for graph, (nodes, classes) in zip(graphs, labels, strict=True):
    # each site numbers its own nodes, so ids say nothing about who was learned before
    one.partial_fit(graph, nodes, classes, repeat="count")
print(f"Merged against one learner at all sites: {apart(together, one):.0e} apart.")
assert apart(together, one) < 1e-9
assert all((together.predict(graph) == one.predict(graph)).all() for graph in graphs)

# in whatever order the sites are joined
orders = list(itertools.permutations(range(SITES)))[50::50]
worst = max(apart(joined(order), one) for order in orders)
print(f"In other orders: {worst:.0e} apart at most.")
assert worst < 1e-9

alone, all_of_them = [accuracy(model) for model in models], accuracy(together)
print(f"Right on test nodes: {min(alone):.1%} to {max(alone):.1%} alone, {all_of_them:.1%} joined.")
assert all_of_them > max(alone)
