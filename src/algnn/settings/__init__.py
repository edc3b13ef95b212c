"""Each method's settings per dataset, as data.

``<method>.toml`` holds a table ``[default]`` and a table per dataset that is laid over it. A table
may say ``like = "other"`` to start from another dataset's settings, and a file may say
``inherits = "other"`` to start from another method's.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from algnn.errors import InputError


def read(method: str, dataset: str, strict: bool = False) -> dict[str, Any]:
    """Parameters of a method's learner for a dataset; those left out keep their defaults.

    A dataset without a table of its own gets ``[default]``, or is refused where `strict`.
    """
    tables = dict(_tables(method))
    inherited = read(tables.pop("inherits"), dataset) if "inherits" in tables else {}
    known = sorted(tables.keys() - {"default"})
    if strict and dataset not in known:
        raise InputError(
            f"dataset={dataset!r} has no settings for {method}: use one of {', '.join(known)}"
        )
    # [default] may be looked up under its own name too, and holds no settings of a dataset
    own = dict(tables.get(dataset, {})) if dataset in known else {}
    like = tables[own.pop("like")] if "like" in own else {}
    return {**inherited, **tables["default"], **like, **own}


@cache
def _tables(method: str) -> dict[str, Any]:
    # looked up in a listing, so that no name can lead out of this folder
    found = {entry.name: entry for entry in files(__name__).iterdir()}
    if f"{method}.toml" not in found:
        known = sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))
        raise InputError(f"method={method!r} has no settings: use one of {', '.join(known)}")
    return tomllib.loads(found[f"{method}.toml"].read_text("utf-8"))
