"""Two hospitals, one model: each learns from its own patients, and only sums are joined.

Run it: python examples/two_hospitals.py (docs/two-hospitals-one-model.md tells the story).
"""

import os
import tempfile

import torch

import algnn

# Two graphs that have nothing in common but the meaning of the features. The first hospital treats
# kinds 0 to 6, the second kinds 4 to 9. Each numbers its own patients from 0.
digits = algnn.load("digits").subgraph(torch.arange(600))
whose = torch.rand(digits.num_nodes, generator=torch.Generator().manual_seed(1)) < 0.5
north = digits.subgraph(whose & (digits.y <= 6))
south = digits.subgraph(~whose & (digits.y >= 4))


def labelled(graph):
    """What a hospital has: a graph, some patients, and their diagnoses."""
    nodes = graph.train_mask.nonzero().squeeze(1)
    return graph, nodes, graph.y[nodes]


def accuracy(model, graph):
    """On the patients whose diagnosis nobody has given to a model."""
    predicted = torch.from_numpy(model.predict(graph, graph.test_mask))
    return float((predicted == graph.y[graph.test_mask]).float().mean())


# North fits, and hands over its encoder: which views of a neighbourhood to look at, and no sum.
at_north = algnn.ALGNN().fit(*labelled(north))
at_south = at_north.blank().partial_fit(*labelled(south))
for name, model, graph in (("North", at_north, north), ("South", at_south, south)):
    count, kinds = int(model.statistics_.n.sum()), model.classes_.tolist()
    print(f"{name} has learned {count} of its {graph.num_nodes} patients, kinds {kinds}.")

# South sends its file. North joins the two.
folder = tempfile.mkdtemp()
at_south.save(f"{folder}/south.safetensors")
sent = os.path.getsize(f"{folder}/south.safetensors")
joined = at_north.blank().merge(at_north).merge(algnn.ALGNN.load(f"{folder}/south.safetensors"))

# One model at both: it is told that a number seen again is another patient.
one = at_north.blank().partial_fit(*labelled(north))
one.partial_fit(*labelled(south), repeat="count")
apart = float((joined.weights_ - one.weights_).norm() / one.weights_.norm())
print(f"Joined by {sent:,} bytes: {apart:.0e} away from one model that has been to both.")
assert apart < 1e-9
assert joined.classes_.tolist() == list(range(10))
assert (joined.predict(south) == one.predict(south)).all()

# Now North's patients could be told of kinds that only South has treated, and the other way round.
everyone = digits.subgraph(whose)
alone, together = accuracy(at_north, everyone), accuracy(joined, everyone)
print(f"On patients of all kinds: {alone:.0%} right with North's model, {together:.0%} joined.")
assert together > 0.9 > alone

# A model with another encoder cannot be joined, and says so.
stranger = algnn.ALGNN(encoder="gcn", gamma=0.1, hidden=16, width=64).fit(*labelled(south))
try:
    joined.merge(stranger)
except algnn.InputError as error:
    print(f"A stranger: {error}")
else:
    raise AssertionError("models with different encoders were joined")
