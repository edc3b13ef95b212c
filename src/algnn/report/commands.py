"""The commands that make runs like those of a table or a figure, told from the runs themselves."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from algnn.graph.datasets import datasets
from algnn.methods import METHODS
from algnn.report.evidence import STREAM, UNKNOWN, Result, in_order

# a sweep's word for the setting that it changes
SWEEPS = {"width": "expansion", "gamma": "gamma"}
# runs that had the machine to themselves need it again for times like theirs
ALONE = "--jobs 1"


def commands(runs: Iterable[Result]) -> list[str]:
    """As few commands as name exactly these runs.

    Parameters
    ----------
    runs : iterable of Result

    Returns
    -------
    list of str
        Ready for a shell.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> study = gather([example(seed=seed, step=step) for seed in (42, 43) for step in (1, 5)])
    >>> print(*commands(study.runs))
    algnn bench --datasets digits --methods algnn --steps 1,5 --seeds 42,43 --device cpu --jobs 1
    """
    sweeps: list[Result] = []
    others: list[Result] = []
    for run in runs:
        (sweeps if swept(run) and run.step == 1 else others).append(run)
    return [*_benches(others), *_sweeps(sweeps)]


def swept(run: Result) -> str | None:
    """The one setting in which a run differs from its method's, where `algnn sweep` changes it.

    Parameters
    ----------
    run : Result

    Returns
    -------
    str or None

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> swept(gather([example(settings={**example().settings, "width": 64})]).runs[0])
    'width'
    """
    if len(run.changes) != 1:
        return None
    ((name, value),) = run.changes.items()
    # what has no place on a logarithmic axis is no point of a sweep
    positive = isinstance(value, int | float) and value > 0
    return name if name in SWEEPS and positive else None


def _benches(runs: Sequence[Result]) -> list[str]:
    """Runs with the same options and seeds join in methods, then in steps, then in datasets."""
    seeds: dict[Any, set[int]] = defaultdict(set)
    for run in runs:
        seeds[_options(run), run.dataset, run.step, run.method].add(run.seed)
    with_methods: dict[Any, set[str]] = defaultdict(set)
    for (options, dataset, step, method), found in seeds.items():
        with_methods[options, dataset, step, frozenset(found)].add(method)
    with_steps: dict[Any, set[int]] = defaultdict(set)
    for (options, dataset, step, found), names in with_methods.items():
        with_steps[options, dataset, frozenset(names), found].add(step)
    with_datasets: dict[Any, list[str]] = defaultdict(list)
    for (options, dataset, names, found), steps in with_steps.items():
        with_datasets[options, names, frozenset(steps), found].append(dataset)
    lines = [
        _line(options, names, graphs, sorted(steps), sorted(found))
        for (options, names, steps, found), graphs in with_datasets.items()
    ]
    return list(dict.fromkeys(lines))


def _options(run: Result) -> tuple[str, ...]:
    """What the command must say beside datasets, methods, steps and seeds."""
    changes = run.changes
    # the defaults of a user's learner are not known here, so all its settings are said
    settings = changes if run.method in METHODS else run.record.settings
    said = {k: v for k, v in settings.items() if k not in STREAM and v != UNKNOWN}
    options = [ALONE] if run.alone else []
    options += [f"--set {_word(f'{name}={_plain(value)}')}" for name, value in said.items()]
    options += [f"--{name} {_word(changes[name])}" for name in STREAM[:3] if name in changes]
    return (run.record.device, *options)


def _line(
    options: Sequence[str],
    names: Iterable[str],
    graphs: Sequence[str],
    steps: Sequence[int],
    seeds: Sequence[int],
) -> str:
    device, *rest = options
    every = set(names) == set(METHODS)
    named = ["all"] if every else in_order(names, list(METHODS))
    tail = " ".join([f"--seeds {_joined(seeds)} --device {device}", *rest])
    known = [entry.name for entry in datasets()]
    return (
        f"algnn bench --datasets {_joined(in_order(graphs, known))} --methods {_joined(named)}"
        f" --steps {_joined(steps)} {tail}"
    )


def _sweeps(runs: Sequence[Result]) -> list[str]:
    values: dict[Any, set[Any]] = defaultdict(set)
    seeds: dict[Any, set[int]] = defaultdict(set)
    for run in runs:
        name = next(iter(run.changes))
        key = (name, run.dataset, run.method, run.record.device, f" {ALONE}" * run.alone)
        values[key].add(run.changes[name])
        seeds[key].add(run.seed)
    return [
        f"algnn sweep {SWEEPS[name]} {_word(dataset)} --method {_word(method)}"
        f" --values {_joined(sorted(found))} --seeds {_joined(sorted(seeds[key]))}"
        f" --device {device}{alone}"
        for key, found in values.items()
        for name, dataset, method, device, alone in [key]
    ]


def _joined(parts: Iterable[Any]) -> str:
    return _word(",".join(map(_plain, parts)))


def _plain(value: Any) -> str:
    """A value as the command line takes it: 10 for 10.0, true for True."""
    if isinstance(value, str):
        return value
    return f"{value:.12g}" if isinstance(value, float) else json.dumps(value, default=str)


def _word(value: Any) -> str:
    # a line of a document: what a name holds beside what can be printed is not for a shell either
    return shlex.quote("".join(c if c.isprintable() else "?" for c in str(value)))
