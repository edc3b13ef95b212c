"""What there is and what runs say: `algnn demo | report | records pack | datasets | methods`."""

from collections.abc import Iterable
from pathlib import Path
from time import time

from rich.console import Console
from rich.text import Text
from typer import Argument, Exit, Option, Typer

from algnn.cli.benching import carry_out, start_workers_early
from algnn.cli.shared import DataRoot, Seeds, parse_seeds, parts, plural, working
from algnn.errors import InputError
from algnn.files import make_folder, write_atomically
from algnn.graph import catalogue
from algnn.methods import METHODS

# what takes half a minute: ours, no defence, a penalty, and two ways of replaying old nodes
QUICK = ("algnn", "bare", "ewc", "ergnn", "gem")
SLOW = ("cat-long", "joint-appnp", "joint-sage", "joint-appnp-balanced", "joint-sage-balanced")
# what every report of this kind has held from the first version on
MARKS = {
    ".html": "<title>Class-incremental node classification on ",
    ".md": "<!-- made from records",
    ".tex": "% Tables of an algnn report",
    ".csv": "dataset,method,step,seed,",
}

commands = Typer()
records_commands = Typer(help="Folders of records.")
commands.add_typer(records_commands, name="records")


def demo(
    out: Path = Option("demo", help="Folder for the page, the chart and records."),
    seeds: Seeds = "42",
    methods: str | None = Option(None, help=f"{', '.join(QUICK)} by default; see algnn methods."),
    full: bool = Option(False, "--full", help="All methods, on Cora too if at hand: many minutes."),
) -> None:
    """Learn ten handwritten digits class after class, and compare with other methods."""
    numbers = parse_seeds(seeds)
    _check_ours(out / "index.html")
    start_workers_early()
    from algnn.bench.plan import cross
    from algnn.cli.showing import tables
    from algnn.graph.datasets import available
    from algnn.report import charts, data, export

    usual = [name for name in METHODS if name not in SLOW] if full else list(QUICK)
    names = usual if methods is None else parts(methods)
    graphs = ["digits", "cora"] if full and available("cora") else ["digits"]
    plans = cross(graphs, {name: {} for name in names}, [1], numbers, confidence=full)
    # the slowest methods stand last in the registry: started first, they keep no worker waiting
    tally = carry_out(plans[::-1] if full else plans, out / "records", None, True)
    tables(tally, plans)
    print()
    study = data.read([out / "records"])
    for graph in graphs:
        runs = study.runs[(study.runs["dataset"] == graph) & study.runs["method"].isin(names)]
        ap = runs.groupby("method")["ap"].mean()
        if shown := [name for name in names if name in ap]:
            classes = sum(map(len, runs["outcome"].iloc[0].sessions))
            lost = f"; fine-tuning kept {ap['bare']:.1f}%" if "bare" in shown[1:] else ""
            print(
                f"{graph}: {shown[0]} answers {ap[shown[0]]:.1f}% right over {classes} classes"
                f" learned one after another{lost} (average over sessions)."
            )
            chart = charts.of_graph(study, graph)
            write_atomically(out / f"{graph}.png", charts.render(chart))
            print("chart:", out / f"{graph}.png")
    with working("making the page"):
        page = export.write(study, out)
    print(f"page: {page}")
    if tally.failed:
        raise Exit(1)


@records_commands.command("pack")
def pack_records(folders: list[Path] = Argument(metavar="FOLDER...", help="With records.")) -> None:
    """Turn the files below a folder into one packed file, which every command reads as well."""
    from algnn.bench.runs import pack

    for folder in folders:
        with working(f"packing {folder}"):
            packed = pack(folder)
        for path, count in packed:
            print(f"{plural(count, 'file')} packed into {path}")
        if not packed:
            print(f"nothing to pack below {folder}")


@commands.command()
def report(
    records: list[Path] | None = Option(None, help="Folder of records; may be repeated."),
    out: Path = Option("report", help="Folder for the page."),
    markdown: Path | None = Option(None, help="Write this Markdown file and its pictures instead."),
    latex: Path | None = Option(None, help="Write the tables into this .tex file instead."),
    csv: Path | None = Option(None, help="Write runs and tables as CSV into this folder instead."),
) -> None:
    """Make a leaderboard of all runs, one page; when asked for, Markdown, LaTeX or CSV."""
    for name, path, ending in (("markdown", markdown, ".md"), ("latex", latex, ".tex")):
        if path is not None and path.suffix != ending:
            raise InputError(f"--{name} {path} is no name for such a file: end it in {ending}")
    if csv is not None and csv.suffix == ".csv":
        raise InputError(f"--csv {csv}: give a folder, which gets a file for each table")
    page = None if markdown or latex or csv else out / "index.html"
    _check_ours(markdown, latex, csv and csv / "runs.csv", page)
    if markdown:
        _check_free(markdown, markdown.with_suffix("").glob("*.png"))
    if csv:
        _check_free(csv / "runs.csv", csv.glob("*.csv"))
    began = time()
    with working("loading") as tell:
        from algnn.report import data, export

        tell(words="reading records")
        study = data.read(records or [Path("records")])
        runs = plural(len(study.runs), "run")
        tell(words=f"{runs}: making the report")
        files = {export.write_markdown: markdown, export.write_latex: latex, export.write_csv: csv}
        chosen = {write: path for write, path in files.items() if path is not None}
        written = []
        for write, path in (chosen or {export.write: out}).items():
            make_folder(path.parent if path in (markdown, latex) else path)
            written.append(write(study, path))
    print(runs + (f", {len(study.failures):,} failed" if len(study.failures) else ""))
    for path in written:
        print(f"report: {path}")
    old = [path.name for path in (csv.glob("*.csv") if csv else ()) if path.stat().st_mtime < began]
    if old:
        print(f"{csv} also holds what is older than this report: {', '.join(sorted(old))}")


def _check_ours(*paths: Path | None) -> None:
    """Before any work: a file that is no report is not replaced by one."""
    for path in paths:
        if path and path.is_file() and MARKS[path.suffix] not in path.read_text("utf-8", "replace"):
            raise InputError(f"{path} is no report of algnn's: move it away, or give another name")


def _check_free(mark: Path, files: Iterable[Path]) -> None:
    """Before any work: files beside a report that is not there are somebody's own."""
    own = None if mark.exists() else next(iter(files), None)
    if own:
        raise InputError(
            f"{own} was not made by a report, which would have left {mark} too: move it away, or"
            " give another name"
        )


@commands.command()
def datasets(data: DataRoot = None) -> None:
    """List the graphs that can be named, and whether they are at hand."""
    # a line of figures and one of words: no terminal is wide enough for both side by side
    console = Console(highlight=False)
    widths = {"nodes": 8, "edges": 12, "features": 10, "classes": 9}
    heading = "".join(f"{name:>{width}}" for name, width in widths.items())
    console.print(f"{'name':<17}{heading}", style="bold")
    for entry in catalogue.datasets():
        figures = "".join(f"{getattr(entry, name):>{w},}" for name, w in widths.items())
        ready = (status := entry.status(data)) == "ready"
        line = Text(f"{entry.name:<17}{figures}  ")
        line.append("at hand" if ready else status, "green" if ready else "")
        console.print(line, soft_wrap=True)
        console.print(f"  {entry.description}", style="dim", markup=False, soft_wrap=True)


@commands.command("methods")
def list_methods() -> None:
    """List the methods."""
    console = Console(highlight=False)
    console.print(f"{'name':<22}{'kind':<16}paper", style="bold")
    for entry in METHODS.values():
        console.print(f"{entry.name:<22}{entry.kind:<16}{entry.paper}", soft_wrap=True)
        console.print(f"  {entry.summary}\n  keeps {entry.retains}", style="dim", soft_wrap=True)
