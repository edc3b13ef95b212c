"""An erasure request arrived: labels, then a whole node, leave a model as if never seen.

Run it: python examples/an_erasure_request.py (docs/an-erasure-request.md tells the story).
"""

import torch

import algnn

graph = algnn.load("digits").subgraph(torch.arange(400))
train = graph.train_mask.nonzero().squeeze(1)
first, second = train[graph.y[train] < 5], train[graph.y[train] >= 5]

model = algnn.ALGNN(width=256)
for session in (first, second):
    model.partial_fit(graph, session, graph.y[session])
print(f"The model has learned {train.numel()} nodes of {model.classes_.size} classes.")


def never_saw(gone, graph):
    """A learner with the same frozen encoder that was never shown some nodes."""
    other = model.blank()
    for session in (first, second):
        kept = session[~torch.isin(session, gone)]
        other.partial_fit(graph, kept, graph.y[kept])
    return other


def difference(one, other):
    """The largest relative difference between two learners' weights and sums."""
    pairs = [(one.weights_, other.weights_)]
    pairs += [(getattr(one.statistics_, name), getattr(other.statistics_, name)) for name in "GQ"]
    return max(float((a - b).norm() / b.norm()) for a, b in pairs)


# Somebody takes back the labels of three nodes.
theirs = train[[10, 60, 120]]
model.forget(graph, theirs, graph.y[theirs])
apart = difference(model, never_saw(theirs, graph))
print(f"Three labels forgotten: {apart:.0e} away from a learner that never saw them.")
assert apart < 1e-9
assert model.statistics_.n.sum() == train.numel() - 3

# The same request again, by mistake: refused, and nothing has changed.
before = model.weights_
try:
    model.forget(graph, theirs, graph.y[theirs])
except algnn.InputError as error:
    print(f"Asked again: {error}")
else:
    raise AssertionError("what is not there was forgotten")
assert torch.equal(before, model.weights_)

# A node shall go altogether: its features and edges too. Others see it, and look different without
# it, so the labels of those that were learned must be at hand.
node = int(train[0])
learned = train[~torch.isin(train, theirs)]
near = learned[torch.isin(learned, torch.from_numpy(model.reach(graph, node)))]
smaller = model.forget_node(graph, node, near, graph.y[near])
gone = torch.cat([theirs, torch.tensor([node])])
apart = difference(model, never_saw(gone, smaller))
print(f"Node {node} itself forgotten, {near.numel() - 1} others learned anew: {apart:.0e} away.")
assert apart < 1e-9
assert not smaller.x[node].any()

# A class goes with its last node.
sevens = learned[graph.y[learned] == 7]
sevens = sevens[sevens != node]
model.forget(smaller, sevens, graph.y[sevens])
assert 7 not in model.classes_
print(f"All sevens forgotten; the classes are now {model.classes_.tolist()}.")

print("The log of it all, which names no node:")
for event in model.events_:
    classes = " ".join(f"{label}:{count}" for label, count in event.nodes)
    print(f"  {event.time}  {event.what:<12}{classes}")
assert [event.what for event in model.events_] == [
    "learn", "learn", "forget", "forget node", "forget",
]  # fmt: skip
