"""How far learning one class is from its floor, as ratios measured in one run.

    python benchmarks/learn.py [GRAPH] [WIDTH] [NODES]

The floor counts what cannot be left out: widening n nodes (2·n·h·d operations), the rank-n update
of G (n·d²) and one Cholesky factorisation (d³/3), at the rate that this machine's matrix product in
float64 reaches in the same run.
"""

import sys
from time import perf_counter

import torch

import algnn


def best_of(repeats, action):
    def seconds():
        start = perf_counter()
        action()
        return perf_counter() - start

    return min(seconds() for _ in range(repeats))


def main(graph_name="digits", width="2048", nodes="20"):
    d, n = int(width), int(nodes)
    stream = algnn.ClassStream(algnn.load(graph_name))
    model = algnn.ALGNN.paper("cora", width=d, epochs=2, device="cpu")
    first = stream[0]
    model.fit(first.graph, first.nodes, first.labels)
    known = model._learned
    session = stream[1]
    chosen, labels = session.nodes[:n], session.labels[:n]
    n = chosen.numel()

    square = torch.randn(d, d, dtype=torch.float64)
    rate = 2 * d**3 / best_of(3, lambda: square @ square)
    floor = (2 * n * model.hidden * d + n * d**2 + d**3 / 3) / rate

    def learn():
        model._learned = known
        model.partial_fit(session.graph, chosen, labels)

    def learn_on_a_new_graph():
        model._learned = known
        model._encoded = None
        model._last_adjacency.clear()
        model.partial_fit(session.graph, chosen, labels)

    parts = {
        "floor": floor,
        "features": best_of(5, lambda: list(model._features(session.graph, chosen, known))),
        "statistics": best_of(
            5,
            lambda: known.statistics.plus(
                model._features(session.graph, chosen, known), labels.numpy()
            ),
        ),
        "factorisation": best_of(
            5, lambda: torch.linalg.cholesky(known.statistics.G + torch.eye(d).double())
        ),
        "learn": best_of(5, learn),
        "learn, graph never seen": best_of(3, learn_on_a_new_graph),
    }
    print(f"{graph_name}: one class of {n} nodes at width {d}, in units of the floor")
    for name, seconds in parts.items():
        print(f"  {name:24} {seconds / floor:6.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
