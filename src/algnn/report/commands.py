"""The shell commands that repeat the runs of a table or a figure."""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd

from algnn.graph.catalogue import datasets
from algnn.methods import METHODS
from algnn.report.data import SWEEPS, UNKNOWN, in_order

# runs that had the machine to themselves need it again for times like theirs
ALONE = "--jobs 1"


def commands(runs: pd.DataFrame) -> tuple[str, ...]:
    """As few commands as name exactly these runs."""
    plain, swept = runs[runs.swept == ""], runs[runs.swept != ""]
    # runs with the same options join in seeds, then in methods, steps and datasets
    rows = [(_options(r), r.dataset, r.step, r.method, r.seed) for r in plain.itertuples()]
    for axis in (4, 3, 2, 1):
        groups: dict[Any, list[Any]] = defaultdict(list)
        for row in rows:
            groups[row[:axis] + row[axis + 1 :]].append(row[axis])
        rows = [(*k[:axis], tuple(sorted(set(v))), *k[axis:]) for k, v in groups.items()]
    known = [entry.name for entry in datasets()]
    lines = []
    for options, graphs, steps, names, seeds in rows:
        methods = ["all"] if set(names) == set(METHODS) else in_order(names, list(METHODS))
        lines.append(
            f"algnn bench --datasets {_joined(in_order(graphs, known))}"
            f" --methods {_joined(methods)} --steps {_joined(steps)} --seeds {_joined(seeds)}"
            f" {' '.join(options)}"
        )
    by = ["swept", "dataset", "method", "device", "alone"]
    for (name, dataset, method, device, alone), group in swept.groupby(by, sort=False):
        values = sorted({changes[name] for changes in group.changes})
        lines.append(
            f"algnn sweep {SWEEPS[name]} {_word(dataset)} --method {_word(method)}"
            f" --values {_joined(values)} --seeds {_joined(sorted(set(group.seed)))}"
            f" --device {device}{f' {ALONE}' * alone}"
        )
    return tuple(dict.fromkeys(lines))


def _options(run: Any) -> tuple[str, ...]:
    """What the command must say beside datasets, methods, steps and seeds."""
    # the defaults of a user's learner are not known here, so all its settings are given
    given = run.changes if run.method in METHODS else run.settings
    return (
        f"--device {run.device}",
        *([ALONE] if run.alone else []),
        *(f"--set {_word(f'{k}={_plain(v)}')}" for k, v in given.items() if v != UNKNOWN),
        *(f"--{name} {_word(value)}" for name, value in run.stream.items() if name != "graph"),
    )


def tuning(best: pd.DataFrame, tuned: pd.DataFrame, dataset: str) -> tuple[str, ...]:
    """The command that tuned methods on a dataset: trials, and runs of what they chose."""
    seeds = sorted(set(tuned.seed[tuned.dataset == dataset]))
    runs = f"--seeds {_joined(seeds)}" if seeds else "--only-trials"
    names, trials = in_order(best.index, list(METHODS)), best.trials.max()
    options = f"--methods {_joined(names)} --trials {trials} {runs} --device {best.device.iloc[0]}"
    return (f"algnn tune {_word(dataset)} {options}",)


def _joined(parts: Iterable[Any]) -> str:
    return _word(",".join(map(_plain, parts)))


def _plain(value: Any) -> str:
    """A value as the command line takes it: 10 for 10.0, true for True."""
    if isinstance(value, str):
        return value
    return f"{value:.12g}" if isinstance(value, float) else json.dumps(value, default=str)


def _word(value: Any) -> str:
    """One word of a shell, on one line of a document."""
    return shlex.quote("".join(c if c.isprintable() else "?" for c in str(value)))
