"""Time and memory against the size of the graph, from memory and from disk.

    python benchmarks/scale.py run 1e4 1e5 1e6 --work FOLDER   # into docs/scale/runs.jsonl
    python benchmarks/scale.py document                            # docs/scale/table.md, scale.png

Planted graphs (`algnn.graph.synthetic.communities`): heavy-tailed degrees, ten directed edges a
node, 128 features, 100 classes. The base session has half of them, with 5% of all nodes labelled,
then one class is learned, then 100,000 nodes are predicted; with ``--all``, then all of them, so
many at a time. Each measurement is a process of its own. Memory is the peak of anonymous resident
pages (RssAnon), mapped files apart, without what Python and torch take before they do anything.
Beside each time stand the machine's rate of matrix products and of gathering rows, measured in the
same process just before, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
FOLDER = HERE / "docs" / "scale"
RECORDS = FOLDER / "runs.jsonl"  # one line for each size and road, the last measured
FEATURES, CLASSES, DEGREE, LABELLED = 128, 100, 10, 0.05
PREDICTED = 100_000
ROADS = ("memory", "disk", "1 worker", "2 workers", "gpu", "sgc+ridge", "gcn")
USUAL = "memory,disk,sgc+ridge"
GCN_EPOCHS, GCN_HIDDEN = 50, 64
SPANS = ("encoding", "base session", "whole")
STEPS = ("encode", "sums and weights", "one class", "predict")


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))


class Peak(threading.Thread):
    """Samples the anonymous resident memory of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        """Until the process ends."""
        while True:
            self.most = max(self.most, status("RssAnon"))
            time.sleep(0.02)


@contextmanager
def clock(into: dict, name: str, peak: Peak):
    peak.most = 0
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into[name] = {
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_anonymous_bytes": max(peak.most, status("RssAnon")),
    }


def rates() -> dict[str, float]:
    """What this machine does just now: GEMM in float64, and gathering rows of 32 float64."""
    import torch

    a = torch.rand(1024, 1024, dtype=torch.float64)
    table = torch.rand(500_000, 32, dtype=torch.float64)
    rows = torch.randint(500_000, (500_000,), generator=torch.Generator().manual_seed(0))

    def best(run) -> float:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times[1:])

    gemm = best(lambda: a @ a)
    gather = best(lambda: table[rows])
    return {
        "gemm_gflops": round(2 * 1024**3 / gemm / 1e9, 2),
        "gather_gbytes": round(2 * rows.numel() * 32 * 8 / gather / 1e9, 2),
    }


def sessions(y, nodes: int):
    """Labelled nodes of the base session, and of one later class."""
    import numpy as np

    some = np.random.default_rng(0).permutation(nodes)
    base = some[y[some] < CLASSES // 2][: int(LABELLED * nodes)]
    later = some[y[some] == CLASSES // 2][: max(20, int(LABELLED * nodes / CLASSES))]
    return np.sort(base), np.sort(later)


def on_disk(road: str) -> bool:
    return road == "disk" or "worker" in road


def make(nodes: int, work: Path) -> Path:
    """The graph on disk, in as many partitions as millions of nodes, at least four."""
    folder = work / f"planted-{nodes}"
    if not (folder / "manifest.json").exists():
        import algnn
        from algnn.graph.synthetic import communities

        graph = communities(nodes, nodes * DEGREE // 2, FEATURES, CLASSES)
        algnn.write_graph(graph, folder, parts=max(4, 2 * nodes // 10**6))
    return folder


def measure(nodes: int, road: str, work: Path) -> dict:
    import torch

    import algnn
    from algnn.graph.synthetic import communities

    if on_disk(road):
        graph = algnn.open_graph(work / f"planted-{nodes}", memory="4GiB")
        y = graph.labels().numpy()
    else:
        graph = communities(nodes, nodes * DEGREE // 2, FEATURES, CLASSES)
        y = graph.y.numpy()
    base, later = sessions(y, nodes)
    record = {"nodes": nodes, "edges": graph.num_edges, "road": road, "rates": rates()}
    record["graph_bytes"] = nodes * FEATURES * 4 + graph.num_edges * 16
    peak = Peak()
    if "worker" not in road:  # whose memory is not this process's, and who have both cores
        peak.start()
    record["rest_bytes"] = status("RssAnon")
    if road in ("sgc+ridge", "gcn"):
        return record | {"steps": (sgc if road != "gcn" else gcn)(graph, y, base, later, peak)}
    if "worker" in road:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=int(road[0]), threads_per_worker=1, dashboard_address=None)
        client = Client(cluster)
        client.run(import_module, "algnn.analytic.model")  # as this process has done
        graph = algnn.on_cluster(graph, client)
    steps: dict = {}
    on_gpu = road == "gpu"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    model = algnn.ALGNN(device="cuda" if on_gpu else "cpu")
    if on_gpu:  # the first use of a GPU loads libraries
        small = communities(10_000, 50_000, FEATURES, CLASSES)
        algnn.ALGNN(device="cuda").fit(small, range(5000), small.y[:5000])
        torch.cuda.reset_peak_memory_stats()
    with clock(steps, "encode", peak):
        encoder = model._hop_encoder(graph)
        model._prepared(graph, encoder)
        wait()
    # the same encoder object, so that the base session finds its views
    model._hop_encoder = lambda _: encoder
    with clock(steps, "sums and weights", peak):
        model.fit(graph, base, y[base])
        wait()
    with clock(steps, "one class", peak):
        model.partial_fit(graph, later, y[later])
        wait()
    asked = torch.arange(min(nodes, PREDICTED))
    with clock(steps, "predict", peak):
        found = model.predict(graph, asked)
    if "all" in sys.argv[5:]:
        with clock(steps, "predict all", peak):
            for start in range(0, nodes, PREDICTED):
                model.predict(graph, torch.arange(start, min(start + PREDICTED, nodes)))
    truth = y[asked.numpy()]
    record["predicted"] = asked.numel()
    record["accuracy"] = round(float((found == truth)[truth <= CLASSES // 2].mean()), 4)
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    record["bytes_read"] = int(io["rchar"])
    if on_gpu:
        record["gpu"] = torch.cuda.get_device_name()
        record["gpu_peak_bytes"] = torch.cuda.max_memory_allocated()
    return record | {"steps": steps}


def gcn(graph, y, base, later, peak: Peak) -> dict:
    """PyG's two-layer GCN, trained on all labels in full batches, and anew for one more class."""
    import numpy as np
    import torch
    from torch_geometric.nn import GCN

    def train(nodes) -> GCN:
        net = GCN(FEATURES, GCN_HIDDEN, 2, CLASSES)
        optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
        chosen, labels = torch.from_numpy(nodes), torch.from_numpy(y[nodes])
        for _ in range(GCN_EPOCHS):
            optimiser.zero_grad()
            scores = net(graph.x, graph.edge_index)[chosen]
            torch.nn.functional.cross_entropy(scores, labels).backward()
            optimiser.step()
        return net

    steps: dict = {}
    with clock(steps, "encode", peak):
        pass  # training is all that it does
    with clock(steps, "sums and weights", peak):
        train(base)
    with clock(steps, "one class", peak):
        net = train(np.concatenate([base, later]))
    with clock(steps, "predict", peak), torch.no_grad():
        net(graph.x, graph.edge_index).argmax(1)
    return steps


def sgc(graph, y, base, later, peak: Peak) -> dict:
    """PyG's SGC transform (two hops) and scikit-learn's RidgeClassifier, fitted anew."""
    import numpy as np
    import torch
    from sklearn.linear_model import RidgeClassifier, SGDClassifier
    from torch_geometric.nn import SGConv

    steps: dict = {}
    with clock(steps, "encode", peak), torch.no_grad():
        conv = SGConv(FEATURES, FEATURES, K=2, bias=False)
        conv.lin.weight.copy_(torch.eye(FEATURES))
        Z = conv(graph.x, graph.edge_index).numpy()
    with clock(steps, "sums and weights", peak):
        RidgeClassifier().fit(Z[base], y[base])
    both = np.concatenate([base, later])
    with clock(steps, "one class", peak):
        model = RidgeClassifier().fit(Z[both], y[both])
    with clock(steps, "one class, SGDClassifier.partial_fit", peak):
        SGDClassifier().partial_fit(Z[both], y[both], classes=np.unique(y[both]))
    with clock(steps, "predict", peak):
        model.predict(Z[:: max(1, len(Z) // PREDICTED)])
    return steps


def records() -> list[dict]:
    return [json.loads(line) for line in RECORDS.read_text("utf-8").splitlines()]


def keep(record: dict) -> None:
    """Write a record in the place of an older one of the same size and road."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = {(r["road"], r["nodes"]): r for r in (records() if RECORDS.exists() else [])}
    found[record["road"], record["nodes"]] = record
    lines = [json.dumps(found[key]) + "\n" for key in sorted(found)]
    RECORDS.write_text("".join(lines), "utf-8")


def run(args: argparse.Namespace) -> None:
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    for size in args.sizes:
        nodes = int(float(size))
        for road in args.roads.split(","):
            found = [once(nodes, road, work, args.all) for _ in range(args.times)]
            found.sort(key=lambda one: one["steps"]["encode"]["seconds"])
            record = found[len(found) // 2]
            again = f" --times {args.times}" * (args.times > 1) + " --all" * args.all
            record["command"] = f"python benchmarks/scale.py run {size} --roads {road}{again}"
            keep(record | {"encode_seconds": [one["steps"]["encode"]["seconds"] for one in found]})


def once(nodes: int, road: str, work: Path, everyone: bool) -> dict:
    """One measurement, in a process of its own."""
    if on_disk(road):
        # views that an earlier run has left would be found, not made
        shutil.rmtree(work / f"planted-{nodes}.cache", ignore_errors=True)
        subprocess.run([sys.executable, __file__, "make", str(nodes), str(work)], check=True)
    before = os.getloadavg()[0]
    command = [sys.executable, __file__, "measure", str(nodes), road, str(work)]
    command += ["all"] * everyone
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    record = json.loads(done.stdout.splitlines()[-1])
    print(nodes, road, {k: v["seconds"] for k, v in record["steps"].items()}, flush=True)
    machine = {"processor": platform.machine(), "cores": os.cpu_count()}
    machine |= {"load before": round(before, 2), "python": platform.python_version()}
    return record | {"machine": machine}


def columns(work: Path) -> None:
    """CPU seconds of one hop at a million nodes, for each column, by the width of a block."""
    import torch

    import algnn
    from algnn.analytic.features.blocked import Here, hop

    run = Here(algnn.open_graph(work / "planted-1000000"))
    run(hop, False, run.array("x", 1).zero_(), run.array("a", 1), None)
    found = {}
    for width in (1, 2, 8, 32, 64):
        x, out = torch.rand(10**6, width, dtype=torch.float64), run.array("a", width).zero_()
        start = time.process_time()
        run(hop, False, x, out, None)
        found[width] = round((time.process_time() - start) / width, 4)
    record = {
        "command": "python benchmarks/scale.py columns --work FOLDER",
        "nodes": 10**6,
        "load before": round(os.getloadavg()[0], 2),
        "cpu_seconds_per_column_and_hop": found,
    }
    (FOLDER / "columns.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(found)


def cold(work: Path) -> None:
    """Seconds to read views of 5,000 of ten million nodes from disk; empties the page cache."""
    import torch

    import algnn
    from algnn.analytic.features import blocked
    from algnn.graph.propagate import blocks

    graph = algnn.open_graph(work / "planted-10000000", memory="4GiB")
    model = algnn.ALGNN(device="cpu")
    encoder = model._hop_encoder(graph)
    views = model._prepared(graph, encoder)
    ways = {
        "one thread, reading ahead": (1, 10**12),
        "one thread": (1, blocked.SCATTERED),
        "as it is": (blocked.READERS, blocked.SCATTERED),
    }
    found: dict = {name: [] for name in ways}
    for seed in range(3):  # other nodes each time: the disk may have a cache of its own
        for number, (name, setting) in enumerate(ways.items()):
            blocked.READERS, blocked.SCATTERED = setting
            views._mapped.cache_clear()
            generator = torch.Generator().manual_seed(10 * seed + number)
            rows = torch.randint(10**7, (5000,), generator=generator).sort().values
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
            start = time.perf_counter()
            for block in blocks(rows.numel(), 8 * encoder.width, torch.device("cpu")):
                views[rows[block]]
            found[name].append(round(time.perf_counter() - start, 2))
    record = {
        "command": "python benchmarks/scale.py cold --work FOLDER",
        "nodes": 10**7,
        "asked": 5000,
        "load before": round(os.getloadavg()[0], 2),
        "seconds": found,
    }
    (FOLDER / "cold.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(found)


def one_class(work: Path) -> None:
    """A class of 1,000 nodes at width 2,048, beside one SYRK and one Cholesky of these sizes."""
    import numpy as np
    import torch
    from scipy.linalg.blas import dsyrk

    import algnn
    from algnn.graph.synthetic import communities

    width, nodes = 2048, 1000
    graph = communities(200_000, 10**6, FEATURES, CLASSES)
    y = graph.y.numpy()
    base, _ = sessions(y, 200_000)
    later = np.flatnonzero(y == CLASSES // 2)[:nodes]
    assert len(later) == nodes
    Z = np.asfortranarray(np.random.default_rng(0).random((width, nodes)))
    G = np.zeros((width, width), order="F")
    matrix = torch.eye(width, dtype=torch.float64) + 0.5
    found: dict = {"one SYRK": [], "one Cholesky": []}
    models = {}
    for name, gamma in (("gamma given", 1e-5), ("gamma chosen", 0.0)):
        model = algnn.ALGNN(width=width, gamma=gamma, device="cpu").fit(graph, base, y[base])
        models[name], found[name] = (model, model._learned), []

    def clocked(name: str, run) -> None:
        start = time.perf_counter()
        run()
        found[name].append(round(time.perf_counter() - start, 4))

    for _ in range(7):
        clocked("one SYRK", lambda: dsyrk(1.0, Z, beta=1.0, c=G, overwrite_c=True))
        clocked("one Cholesky", lambda: torch.linalg.cholesky(matrix))
        for name, (model, state) in models.items():
            model._replace(state)
            clocked(name, lambda model=model: model.partial_fit(graph, later, y[later]))
    usual = {name: float(np.median(times)) for name, times in found.items()}
    both = usual["one SYRK"] + usual["one Cholesky"]
    record = {
        "command": "python benchmarks/scale.py class --work FOLDER",
        "nodes": nodes,
        "width": width,
        "processor": platform.machine(),
        "load before": round(os.getloadavg()[0], 2),
        "median seconds": usual,
        "over SYRK and Cholesky": {name: round(usual[name] / both, 2) for name in models},
    }
    (FOLDER / "class.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(record)


def own_bytes(record: dict) -> int:
    """The peak over all steps: the graph, where it is in memory, and what is made of it."""
    if record["road"] == "gpu":
        return record["gpu_peak_bytes"]
    most = max(step["peak_anonymous_bytes"] for step in record["steps"].values())
    return most - record["rest_bytes"] + (record["graph_bytes"] if record["road"] != "disk" else 0)


def seconds(record: dict, what: str) -> float:
    """Seconds of encoding, of the base session or of the whole: with one class and all answers."""
    steps = {name: step["seconds"] for name, step in record["steps"].items()}
    each = steps["predict"] * record["nodes"] / min(record["nodes"], PREDICTED)
    parts = {"encoding": 0.0, "base session": steps["sums and weights"]}
    parts["whole"] = parts["base session"] + steps["one class"] + steps.get("predict all", each)
    return steps["encode"] + parts[what]


def document() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    found = sorted(records(), key=lambda r: (ROADS.index(r["road"]), r["nodes"]))
    lines = [
        "| nodes | road | encode, s (CPU s) | sums and weights | one class | predict 100,000"
        " | peak memory, GiB | ÷ graph | GEMM, GFLOP/s | gather, GB/s | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        most, rates_ = own_bytes(r), r["rates"]
        cells = [
            f"{step['seconds']:.2g} ({step['cpu_seconds']:.2g})"
            if step["seconds"] < 10
            else f"{step['seconds']:.0f} ({step['cpu_seconds']:.0f})"
            for step in (r["steps"][n] for n in STEPS)
        ]
        # workers have memory of their own, which is not looked at
        size = f"{most / 2**30:.2f} | {most / r['graph_bytes']:.1f}"
        lines.append(
            f"| {r['nodes']:,} | {r['road']} | {' | '.join(cells)}"
            f" | {'– | –' if 'worker' in r['road'] else size} | {rates_['gemm_gflops']}"
            f" | {rates_['gather_gbytes']} | {r['machine']['load before'] or '–'} |"
        )
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for road in ROADS:
        mine = [r for r in found if r["road"] == road and "worker" not in road and road != "gcn"]
        if len(mine) < 2:
            continue
        sizes = np.array([r["nodes"] for r in mine])
        times = np.array([r["steps"]["encode"]["seconds"] for r in mine])
        most = [own_bytes(r) for r in mine]
        axes[0].loglog(sizes, times, "o-", label=road)
        axes[1].loglog(sizes, np.array(most) / 2**30, "o-", label=road)
        large = [r for r in mine if r["nodes"] >= 10**5]
        if len(large) > 1:
            span = f"{large[0]['nodes']:,} to {large[-1]['nodes']:,}"
            each = {what: np.log([seconds(r, what) for r in large]) for what in SPANS}
            grown = np.log([r["nodes"] for r in large])
            slopes = [f"{what} {np.polyfit(grown, of, 1)[0]:.2f}" for what, of in each.items()]
            lines.append(f"\nExponents, {road}, {span} nodes: {', '.join(slopes)}.")
    for r in found:
        if "predict all" in r["steps"]:
            took = r["steps"]["predict all"]["seconds"]
            lines.append(f"\nAll predictions of {r['nodes']:,} nodes, {r['road']}: {took:.0f} s.")
    ideal = np.array([10**4, 10**7])
    axes[0].loglog(ideal, 0.3 * ideal / 10**4, "k:", label="ideal slope")
    axes[0].set(xlabel="nodes", ylabel="seconds", title="encoding")
    axes[1].set(xlabel="nodes", ylabel="GiB", title="peak memory")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(FOLDER / "scale.png", dpi=110)
    (FOLDER / "table.md").write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(int(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:2] == ["measure"]:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        print(json.dumps(measure(int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        commands = parser.add_subparsers(dest="command", required=True)
        runs = commands.add_parser("run")
        runs.add_argument("sizes", nargs="+")
        runs.add_argument("--work", type=Path, required=True)
        runs.add_argument("--roads", default=USUAL, help=", ".join(ROADS))
        runs.add_argument("--times", type=int, default=1, help="Keep the median by encoding.")
        runs.add_argument("--all", action="store_true", help="Predict all nodes, too.")
        commands.add_parser("document")
        studies = {"columns": columns, "cold": cold, "class": one_class}
        for name in studies:
            commands.add_parser(name).add_argument("--work", type=Path, required=True)
        chosen = parser.parse_args()
        if chosen.command in studies:
            studies[chosen.command](chosen.work)
        else:
            run(chosen) if chosen.command == "run" else document()
