"""Each method's settings per dataset, as data.

``<method>.toml`` holds a table ``[default]`` and a table per dataset that is laid over it. A table
may say ``like = "other"`` to start from another dataset's settings, and a file may say
``inherits = "other"`` to start from another method's; ``variants.toml`` has methods that are little
more than that, a table each. The table ``[grid]`` has lists of values: the
settings that are tried where a method is tuned are all combinations of them.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from algnn.errors import InputError


def read(method: str, dataset: str, strict: bool = False) -> dict[str, Any]:
    """Parameters of a method's learner for a dataset; those left out keep their defaults.

    A dataset without a table of its own gets ``[default]``, or is refused where `strict`.
    """
    tables = dict(_tables(method))
    inherited = read(tables.pop("inherits"), dataset) if "inherits" in tables else {}
    known = sorted(tables.keys() - {"default", "grid"})
    if strict and dataset not in known:
        raise InputError(
            f"dataset={dataset!r} has no settings for {method}: use one of {', '.join(known)}"
        )
    # [default] may be looked up under its own name too, and holds no settings of a dataset
    own = dict(tables.get(dataset, {})) if dataset in known else {}
    like = tables[own.pop("like")] if "like" in own else {}
    return {**inherited, **tables["default"], **like, **own}


def grid(method: str) -> list[dict[str, Any]]:
    """The changes of settings that are tried where a method is tuned; none where it has no grid.

    Examples
    --------
    >>> len(grid("ewc")), grid("ewc")[0], grid("algnn")
    (6, {'strength': 1000000.0, 'lr': 0.001}, [])
    """
    tables = _tables(method)
    if "grid" not in tables:
        return grid(tables["inherits"]) if "inherits" in tables else []
    values = tables["grid"]
    return [dict(zip(values, some, strict=True)) for some in product(*values.values())]


@cache
def _tables(method: str) -> dict[str, Any]:
    # looked up in a listing, so that no name can lead out of this folder
    found = {e.name.removesuffix(".toml"): e for e in files(__name__).iterdir()}
    variants = tomllib.loads(found.pop("variants").read_text("utf-8"))
    known = {name for name, entry in found.items() if entry.name.endswith(".toml")}
    if method in variants:
        return dict(variants[method])
    if method not in known:
        every = ", ".join(sorted(known | variants.keys()))
        raise InputError(f"method={method!r} has no settings: use one of {every}")
    return tomllib.loads(found[method].read_text("utf-8"))
