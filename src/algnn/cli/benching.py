"""Runs of methods: `algnn run | bench | tune | sweep`."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument, Exit, Option, Typer

from algnn.cli import shared
from algnn.errors import InputError
from algnn.methods import METHODS, parse, split

if TYPE_CHECKING:
    from algnn.bench.plan import Plan
    from algnn.bench.scheduler import Tally

RECORDS = Path("records")
# what can be swept: the setting behind it, and its values
SWEEPS = {
    "gamma": ("gamma", [f"1e{power}" for power in range(-4, 4)]),
    "expansion": ("width", [str(2**power) for power in range(7, 14)]),
}

commands = Typer()

Draws = Annotated[int, Option(help="Runs with seeds from the first on, each its split and order.")]
Jobs = Annotated[int | None, Option(help="Workers, as many as fit by default; 1 to compare times.")]
Orders = Annotated[int, Option(help="Class orders: that of labels or --order, then random.")]
Retry = Annotated[bool, Option("--retry-failed", help="Try again what failed before.")]
Splits = Annotated[int, Option(help="Random splits, if a graph has none; crossed with seeds.")]
Steps = Annotated[str, Option(help="Classes of each later session.")]


@commands.command()
def run(
    dataset: shared.Dataset,
    method: str = Option("algnn", help="As `algnn methods` lists them."),
    changes: shared.Settings = None,
    base: shared.Base = None,
    step: shared.Step = 1,
    edges: shared.Edges = "full",
    order: shared.Order = "label",
    seeds: shared.Seeds = shared.SEEDS,
    device: shared.Device = "auto",
    records: shared.Records = RECORDS,
    plot: shared.Plot = None,
    as_json: shared.AsJson = False,
    data: shared.DataRoot = None,
) -> None:
    """Teach a graph's classes session by session, and measure what is remembered."""
    numbers = shared.parse_seeds(seeds)
    shared.check_inputs(graphs=[dataset], data=data)
    shared.load_torch()
    from algnn.bench.plan import Plan, carry_out, recorded_name
    from algnn.bench.runs import frame
    from algnn.cli.showing import as_object, draw, show

    chosen = parse(method, changes or [])
    stream = base, step, edges, shared.parse_order(order)
    plan = Plan(dataset, method, numbers, chosen, *stream, device, data)
    with shared.working(f"{recorded_name(dataset)} {method}") as tell:
        done = frame(carry_out(plan, records, tell))
    if plot is not None:
        draw(done, plot)
    if as_json:
        print(json.dumps(as_object(done), allow_nan=False))
        return
    show(Console(highlight=False), done)
    print(f"{shared.plural(len(done), 'record')} below {records}")
    if plot is not None:
        print(f"picture: {plot}")


@commands.command()
def bench(
    datasets: str | None = Option(
        None, help="Names, or paths of .npz files; by default the small ones that are at hand."
    ),
    methods: str = Option("all", help="As `algnn methods` lists them, or module:Class; or all."),
    base: shared.Base = None,
    steps: Steps = "1",
    seeds: shared.Seeds = "42,43,44,45,46",
    jobs: Jobs = None,
    device: shared.Device = "auto",
    records: shared.Records = RECORDS,
    changes: shared.Settings = None,
    edges: shared.Edges = "full",
    order: shared.Order = "label",
    splits: Splits = 1,
    orders: Orders = 1,
    draws: Draws = 1,
    data: shared.DataRoot = None,
    retry_failed: Retry = False,
    as_json: shared.AsJson = False,
    scheduler: str | None = Option(None, help="A Dask scheduler, tcp://…, for the runs."),
) -> None:
    """Run methods on datasets in worker processes; what has been done is not done again."""
    numbers = shared.parse_seeds(seeds)
    common = {"base": base, "edges": edges, "order": shared.parse_order(order)}
    graphs = [] if datasets is None else shared.parts(datasets)
    shared.check_inputs(graphs=graphs, data=data)
    (start_workers_early if scheduler is None else shared.load_torch)()
    from algnn.bench.plan import at_hand, cross, varied
    from algnn.cli import showing

    if datasets is None:
        graphs = at_hand(data)
        print("datasets at hand:", ", ".join(graphs), file=sys.stderr)
    chosen = _methods(methods, changes or [])
    plans = cross(graphs, chosen, _steps(steps), numbers, device=device, data=data, **common)
    plans = varied(plans, splits, orders, draws)
    tally = carry_out(plans, records, jobs, retry_failed, scheduler)
    if not as_json:
        showing.tables(tally, plans)
    _leave(tally, records, as_json)


@commands.command()
def tune(
    datasets: str = Argument(help="Names, or paths of .npz files."),
    methods: str = Option("all", help="As `algnn methods` lists them; or all."),
    trials: int = Option(6, help="Settings tried for each method and graph, on the first split."),
    base: shared.Base = None,
    steps: Steps = "1",
    seeds: str = Option("42,43,44,45,46", help="Of the final runs; trials have the first."),
    edges: shared.Edges = "full",
    splits: Splits = 1,
    orders: Orders = 1,
    draws: Draws = 1,
    only_trials: bool = Option(False, "--only-trials", help="Choose settings, do not run them."),
    jobs: Jobs = None,
    device: shared.Device = "auto",
    records: shared.Records = RECORDS,
    data: shared.DataRoot = None,
    retry_failed: Retry = False,
) -> None:
    """Choose each method's settings on validation nodes, then run them on test nodes.

    All methods have as many trials; one without a grid, as algnn, has none and is left out.
    """
    numbers = shared.parse_seeds(seeds)
    graphs = shared.parts(datasets)
    shared.check_inputs(graphs=graphs, data=data)
    start_workers_early()
    from algnn.bench import tuning
    from algnn.bench.plan import cross, recorded_name, varied
    from algnn.cli import showing

    name, count = Counter(map(recorded_name, graphs)).most_common(1)[0]
    if count > 1:
        remedy = "name each graph once, rename a file, or tune each with --records of its own"
        raise InputError(f"{count} datasets are named {name}, by which choices are made: {remedy}")
    names = _methods(methods)
    common = {"base": base, "edges": edges, "device": device, "data": data}
    plans = cross(graphs, names, _steps(steps), numbers, **common)
    tried = [trial for plan in plans for trial in tuning.trials(plan, trials)]
    if without := [n for n in names if not any(trial.method == n for trial in tried)]:
        print(f"no grid, nothing to tune: {', '.join(without)}")
    if not tried:
        return
    tally = trying = carry_out(tried, records, jobs, retry_failed)
    best = tuning.chosen(tally.of(*tried))
    if len(best):  # else each trial failed
        showing.chosen(best)
    if len(best) and not only_trials:
        showing.counts(tally, records)
        again = varied(tuning.changed(plans, best), splits, orders, draws)
        tally = carry_out(again, records, jobs, retry_failed)
        showing.tables(tally, again)
    _leave(tally, records)
    if trying.failed or trying.skipped:
        raise Exit(1)


@commands.command()
def sweep(
    what: Annotated[str, Argument(help="gamma, or expansion (its width).")],
    dataset: shared.Dataset,
    values: str | None = Option(None, help="By default 1e-4 … 1e3, or 128 … 8192 (4096 on a CPU)."),
    method: str = Option("algnn-paper", help="As `algnn methods` lists them, or module:Class."),
    step: shared.Step = 1,
    seeds: shared.Seeds = shared.SEEDS,
    jobs: Jobs = None,
    device: shared.Device = "auto",
    records: shared.Records = RECORDS,
    changes: shared.Settings = None,
    data: shared.DataRoot = None,
    retry_failed: Retry = False,
    as_json: shared.AsJson = False,
) -> None:
    """Run a method with one setting after another; each run leaves an ordinary record."""
    numbers = shared.parse_seeds(seeds)
    if what not in SWEEPS:
        raise InputError(f"{what!r} cannot be swept: use one of {', '.join(SWEEPS)}")
    shared.check_inputs(graphs=[dataset], data=data)
    start_workers_early()
    from algnn.bench.plan import Plan
    from algnn.checks import resolve_device
    from algnn.cli import showing

    setting, usual = SWEEPS[what]
    if setting == "width" and resolve_device(device).type == "cpu":
        usual = usual[:-1]  # 8192 would take too long
    given = usual if values is None else [part for part in shared.parts(values) if part]
    if not given:
        raise InputError(f"--values is empty: give some, such as {','.join(usual[:3])}")
    settings = [parse(method, [*(changes or []), f"{setting}={value}"]) for value in given]
    plans = [
        Plan(dataset, method, numbers, one, step=step, device=device, data=data)
        # 1 and 1.0 are one value
        for one in {found[setting]: found for found in settings}.values()
    ]
    tally = carry_out(plans, records, jobs, retry_failed)
    if not as_json:
        showing.swept(tally, plans, setting)
    _leave(tally, records, as_json)


def _steps(text: str) -> list[int]:
    return list(dict.fromkeys(shared.whole_numbers("--steps", text, "1,5,10")))


def _methods(text: str, pairs: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """For each method, by name or one of ``all``, those of the changes that it has."""
    from algnn.bench.plan import fit_changes

    wanted = (METHODS if name == "all" else [name] for name in shared.parts(text))
    names = list(dict.fromkeys(name for some in wanted for name in some))
    fitting = fit_changes(names, dict(map(split, pairs)))
    return {n: parse(n, [pair for pair in pairs if split(pair)[0] in fitting[n]]) for n in names}


def start_workers_early() -> None:
    """Let the workers' imports go on beside ours."""
    from algnn.bench.processes import start_forkserver

    start_forkserver()
    shared.load_torch()


def carry_out(
    plans: Sequence[Plan], folder: Path, jobs: int | None, retry: bool, address: str | None = None
) -> Tally:
    """Do the runs of some plans; interrupted or terminated, say that nothing is lost."""
    from algnn.bench import scheduler

    # in good order: the cursor comes back
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with nullcontext() if address is None else shared.cluster(address) as client:
            return scheduler.carry_out(plans, folder, jobs, retry, client=client)
    except (KeyboardInterrupt, SystemExit):
        print("stopped: what is done is kept; the same command goes on from there", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(tally: Tally, folder: Path, as_json: bool = False) -> None:
    """Say what became of all runs; one that failed is exit code 1."""
    from algnn.cli import showing

    (showing.print_json if as_json else showing.counts)(tally, folder)
    if tally.failed or tally.skipped:
        raise Exit(1)
