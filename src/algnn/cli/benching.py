"""Many runs: `algnn bench | sweep | tune | records pack`."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from algnn.cli.arguments import load_torch, parse_order, parse_seeds, say
from algnn.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from algnn.bench.plan import Plan
    from algnn.bench.scheduler import Tally

SHOWN = 20  # failures that are listed one by one
# what can be swept: the setting behind it, its values, and those that are too much for a CPU
SWEEPS: dict[str, tuple[str, list[str], list[str]]] = {
    "gamma": ("gamma", [f"1e{power}" for power in range(-4, 4)], []),
    "expansion": ("width", [str(2**power) for power in range(7, 14)], ["8192"]),
}

commands = typer.Typer()

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change a setting where it exists; may be repeated."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Worker processes; as many as there is room for by default. 1 to compare times."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Records = Annotated[Path, typer.Option(help="Folder for a record of each run.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder with datasets; ALGNN_DATA by default.")]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Try again what failed before.")]
Splits = Annotated[
    int, typer.Option(help="Random splits of a graph that comes without one; crossed with seeds.")
]
Orders = Annotated[
    int, typer.Option(help="Orders of classes: --order, then random ones; crossed with seeds.")
]
Draws = Annotated[
    int, typer.Option(help="Runs that each have a split, an order and a seed of their own.")
]
Trials = Annotated[int, typer.Option(help="Settings that are tried for each method and graph.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@commands.command()
def bench(
    datasets: Annotated[
        str | None,
        typer.Option(
            help="Names, or paths of .npz files; by default the small ones that are at hand."
        ),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="As `algnn methods` lists them, or module:Class; or all.")
    ] = "all",
    base: Annotated[
        int | None, typer.Option(help="Classes of the first session; half of them by default.")
    ] = None,
    steps: Annotated[str, typer.Option(help="Classes of each later session.")] = "1",
    seeds: Annotated[str, typer.Option(help="One run for each.")] = "42,43,44,45,46",
    jobs: Jobs = None,
    device: Device = "auto",
    records: Records = Path("records"),
    changes: Changes = None,
    edges: Annotated[
        str, typer.Option(help="full: the whole graph is visible; seen: that of seen classes.")
    ] = "full",
    order: Annotated[str, typer.Option(help="label, random, or every class: 3,1,0,2.")] = "label",
    splits: Splits = 1,
    orders: Orders = 1,
    draws: Draws = 1,
    data: DataRoot = None,
    retry_failed: Retry = False,
    as_json: AsJson = False,
) -> None:
    """Run methods on datasets in worker processes; what has been done is not done again."""
    numbers, order_of_classes = parse_seeds(seeds), parse_order(order)
    start_workers_early()
    from algnn.bench.plan import at_hand, cross, varied

    graphs = at_hand(data) if datasets is None else _parts(datasets)
    if datasets is None:
        print("datasets at hand:", ", ".join(graphs), file=sys.stderr)
    plans = cross(
        graphs,
        _fitting(_named(methods), changes or []),
        _parse_steps(steps),
        numbers,
        base=base,
        edges=edges,
        order=order_of_classes,
        device=device,
        data=data,
    )
    plans = varied(plans, splits, orders, draws)
    tally = carry_out(plans, records, jobs, retry_failed)
    if as_json:
        _print_json(tally, records)
    else:
        console = Console(highlight=False)
        for step in dict.fromkeys(plan.step for plan in plans):
            show_table(console, tally, [plan for plan in plans if plan.step == step])
        _show_counts(console, tally, records)
    _leave(tally)


@commands.command()
def tune(
    datasets: Annotated[str, typer.Argument(help="Names, or paths of .npz files.")],
    methods: Annotated[str, typer.Option(help="As `algnn methods` lists them; or all.")] = "all",
    trials: Trials = 6,
    steps: Annotated[str, typer.Option(help="Classes of each later session.")] = "1",
    seeds: Annotated[
        str, typer.Option(help="Of the runs with the chosen settings; trials have the first.")
    ] = "42,43,44,45,46",
    edges: Annotated[str, typer.Option(help="full or seen, as for bench.")] = "full",
    splits: Splits = 1,
    orders: Orders = 1,
    draws: Draws = 1,
    only_trials: Annotated[
        bool, typer.Option("--only-trials", help="Choose settings, and do not run them.")
    ] = False,
    jobs: Jobs = None,
    device: Device = "auto",
    records: Records = Path("records"),
    data: DataRoot = None,
    retry_failed: Retry = False,
) -> None:
    """Choose each method's settings on validation nodes, then run them on test nodes.

    All methods have as many trials; one without a grid, as algnn, has none and is left out.
    """
    numbers = parse_seeds(seeds)
    start_workers_early()
    from algnn.bench import tuning
    from algnn.bench.plan import cross, varied

    names: dict[str, dict[str, Any]] = {name: {} for name in _named(methods)}
    common = {"edges": edges, "device": device, "data": data}
    plans = cross(_parts(datasets), names, _parse_steps(steps), numbers, **common)
    tried = [trial for plan in plans for trial in tuning.trials(plan, trials)]
    console = Console(highlight=False)
    without = [n for n in names if not any(trial.method == n for trial in tried)]
    if without:
        say(console, f"no grid, nothing to tune: {', '.join(without)}")
    if not tried:
        return
    tally = carry_out(tried, records, jobs, retry_failed)
    best = tuning.chosen(tally.of(*tried))
    _show_chosen(console, best)
    _show_counts(console, tally, records)
    if not only_trials:
        again = varied(tuning.changed(plans, best), splits, orders, draws)
        tally = carry_out(again, records, jobs, retry_failed)
        for step in dict.fromkeys(plan.step for plan in again):
            show_table(console, tally, [plan for plan in again if plan.step == step])
        _show_counts(console, tally, records)
    _leave(tally)


@commands.command()
def sweep(
    what: Annotated[str, typer.Argument(help="gamma, or expansion (its width).")],
    dataset: Annotated[str, typer.Argument(help="A dataset's name, or the path of an .npz.")],
    values: Annotated[
        str | None,
        typer.Option(help="By default 1e-4 … 1e3, or 128 … 8192 (4096 on a CPU)."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="As `algnn methods` lists them, or module:Class.")
    ] = "algnn-paper",
    step: Annotated[int, typer.Option(help="Classes of each later session.")] = 1,
    seeds: Annotated[str, typer.Option(help="One run for each.")] = "42,43,44",
    jobs: Jobs = None,
    device: Device = "auto",
    records: Records = Path("records"),
    changes: Changes = None,
    data: DataRoot = None,
    retry_failed: Retry = False,
    as_json: AsJson = False,
) -> None:
    """Run a method with one setting after another; each run leaves an ordinary record."""
    numbers = parse_seeds(seeds)
    if what not in SWEEPS:
        raise InputError(f"{what!r} cannot be swept: use one of {', '.join(SWEEPS)}")
    start_workers_early()
    from algnn.bench.plan import Plan
    from algnn.checks import resolve_device
    from algnn.methods import parse

    setting, usual, too_much = SWEEPS[what]
    on_cpu = resolve_device(device).type == "cpu"
    usual = [value for value in usual if not (on_cpu and value in too_much)]
    given = usual if values is None else [part for part in _parts(values) if part]
    if not given:
        raise InputError(f"--values is empty: give some, such as {','.join(usual[:3])}")
    settings = [parse(method, [*(changes or []), f"{setting}={value}"]) for value in given]
    plans = [
        Plan(dataset, method, numbers, one, step=step, device=device, data=data)
        # 1 and 1.0 are one value
        for one in {found[setting]: found for found in settings}.values()
    ]
    tally = carry_out(plans, records, jobs, retry_failed)
    if as_json:
        _print_json(tally, records)
    else:
        console = Console(highlight=False)
        _show_sweep(console, tally, plans, setting)
        _show_counts(console, tally, records)
    _leave(tally)


# -- what the options say -------------------------------------------------------------------------


def _parts(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


def _named(text: str) -> list[str]:
    """The methods that are named, without repeats; ``all`` are those of the registry."""
    from algnn.methods import METHODS

    wanted = [list(METHODS) if name == "all" else [name] for name in _parts(text)]
    return list(dict.fromkeys(name for part in wanted for name in part))


def _parse_steps(text: str) -> list[int]:
    try:
        return [int(part) for part in _parts(text)]
    except ValueError:
        raise InputError(f"--steps {text!r} must be whole numbers, such as 1,5,10") from None


def _fitting(names: Sequence[str], pairs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each method those of the changes that it has, read as the types that it needs."""
    from algnn.bench.plan import fit_changes
    from algnn.methods import parse, split

    fitting = fit_changes(names, dict(split(pair) for pair in pairs))
    return {
        name: parse(name, [pair for pair in pairs if split(pair)[0] in fitting[name]])
        for name in names
    }


def start_workers_early() -> None:
    """Let the workers' imports go on beside ours."""
    from algnn.bench.processes import start_forkserver

    start_forkserver()
    load_torch()


# -- the work -------------------------------------------------------------------------------------


def carry_out(plans: Sequence[Plan], folder: Path, jobs: int | None, retry: bool) -> Tally:
    """Do the runs of some plans; interrupted, say that nothing is lost."""
    from algnn.bench import scheduler

    try:
        with _terminated():
            return scheduler.carry_out(plans, folder, jobs, retry)
    except (KeyboardInterrupt, SystemExit):
        goes_on = "what is done is kept; the same command goes on from there"
        print(f"stopped: {goes_on}", file=sys.stderr)
        raise


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Leave in good order when terminated, as after Ctrl-C: the cursor comes back."""

    def leave(number: int, _: Any) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(tally: Tally) -> None:
    if tally.failed or tally.skipped:
        raise typer.Exit(1)


# -- what is shown --------------------------------------------------------------------------------


def _alike(plans: Sequence[Plan]) -> set[str]:
    """The names that several datasets would have in their records."""
    from algnn.bench.plan import recorded_name

    count = Counter(recorded_name(dataset) for dataset in {plan.dataset for plan in plans})
    return {name for name, times in count.items() if times > 1}


def show_table(console: Console, tally: Tally, plans: Sequence[Plan]) -> None:
    """Print AP of every method (row) on every dataset (column); plans of one step."""
    from algnn.bench.plan import recorded_name

    alike = _alike(plans)
    graphs = list(dict.fromkeys(plan.dataset for plan in plans))
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for graph in graphs:
        name = recorded_name(graph)
        table.add_column(graph if name in alike else name, justify="right")
    for method in dict.fromkeys(plan.method for plan in plans):
        row = []
        for graph in graphs:
            some = [p for p in plans if (p.method, p.dataset) == (method, graph)]
            row.append(_figure(tally.of(*some), tally.wanted(*some)) if some else "–")
        table.add_row(method, *row)
    count = sum(len(p.seeds) for p in plans if p.method == plans[0].method) // len(graphs)
    noun = "runs" if count > len(plans[0].seeds) else "seeds"
    over = f"mean of {count} {noun} ± 95%" if count > 1 else f"seed {plans[0].seeds[0]}"
    heading = f"AP, average performance (%) · step {plans[0].step} · {over}"
    console.print()
    console.print(heading, style="bold", soft_wrap=True)
    console.print()
    console.print(table)


def _show_sweep(console: Console, tally: Tally, plans: Sequence[Plan], setting: str) -> None:
    from algnn.bench.plan import recorded_name
    from algnn.cli.terminal import summaries

    table = Table(box=None, pad_edge=False)
    for name in (setting, "AP (%)", "AF (%)", "learning (s)", "retained (MB)"):
        table.add_column(name, justify="right")
    for plan in plans:
        value, runs = f"{plan.changes[setting]:g}", tally.of(plan)
        if runs.empty:
            table.add_row(value, "–")
            continue
        figures = summaries(runs)
        seconds = f"{figures['learn_seconds'].mean:.2f}"
        retained = f"{runs['retained_bytes'].max() / 1e6:.2f}"
        ap = _figure(runs, len(plan.seeds))
        table.add_row(value, ap, str(figures["af"]), seconds, retained)
    count = len(plans[0].seeds)
    heading = f"{recorded_name(plans[0].dataset)} · {plans[0].method} · step {plans[0].step}"
    console.print()
    console.print(f"{heading} · {count} seed{'s' * (count > 1)}", style="bold", soft_wrap=True)
    console.print()
    console.print(table)


def _show_chosen(console: Console, best: pd.DataFrame) -> None:
    from algnn.settings import grid

    table = Table(box=None, pad_edge=False)
    for name in ("", "", "AP on validation nodes (%)", "trials", "chosen"):
        table.add_column(name, justify="right" if name in ("trials",) else "left")
    for _, row in best.iterrows():
        tried = dict.fromkeys(name for trial in grid(row["method"]) for name in trial)
        words = ", ".join(f"{name}={row['settings'][name]}" for name in tried)
        table.add_row(row["dataset"], row["method"], f"{row['ap']:.2f}", str(row["trials"]), words)
    console.print()
    console.print(table)


def _figure(runs: pd.DataFrame, wanted: int) -> str:
    from algnn.bench.runs import summarise

    if runs.empty:
        return "–"
    lacking = f" ({len(runs)} of {wanted})" if len(runs) < wanted else ""
    return f"{summarise(runs['ap'])}{lacking}"


def _show_counts(console: Console, tally: Tally, folder: Path) -> None:
    from algnn.bench.progress import label

    console.print()
    failures = tally.failed + tally.skipped
    for failure in failures[:SHOWN]:
        say(console, f"failed: {label(failure)}: {failure.reason}")
    if len(failures) > SHOWN:
        say(console, f"failed: {len(failures) - SHOWN} more")
    if tally.skipped:
        count, was = len(tally.skipped), "was" if len(tally.skipped) == 1 else "were"
        say(console, f"{count} of them failed before and {was} not tried again: --retry-failed")
    counts = f"{len(tally.done)} done, {len(tally.reused)} reused, {len(failures)} failed"
    say(console, f"{counts}; records below {folder}")


def _print_json(tally: Tally, folder: Path) -> None:
    from algnn.bench.runs import frame
    from algnn.cli.terminal import as_object

    names = ("dataset", "method", "step", "seed", "reason")
    failures = [(failure, True) for failure in tally.failed]
    failures += [(failure, False) for failure in tally.skipped]
    cells = frame(tally.records).groupby("configuration", sort=False)
    found = {
        "records": str(folder),
        "done": len(tally.done),
        "reused": len(tally.reused),
        "failed": [
            {**{name: getattr(failure, name) for name in names}, "tried_now": now}
            for failure, now in failures
        ],
        "results": [as_object(runs) for _, runs in cells],
    }
    print(json.dumps(found, allow_nan=False))


# -- records --------------------------------------------------------------------------------------

records_commands = typer.Typer(help="Folders of records.", no_args_is_help=True)
commands.add_typer(records_commands, name="records")


@records_commands.command("pack")
def pack_records(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="With records.")],
) -> None:
    """Turn the files below a folder into one packed file, which every command reads as well."""
    from algnn.bench.runs import pack

    console = Console(highlight=False)
    for folder in folders:
        packed = pack(folder)
        for path, count in packed:
            say(console, f"{count} file{'s' * (count != 1)} packed into {path}")
        if not packed:
            say(console, f"nothing to pack below {folder}")
