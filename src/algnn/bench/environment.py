"""When and where a run took place: the time, the code, the packages and the hardware."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import algnn

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy")
# parts of the package that no figure depends on: who starts a run, and who shows what came out
DOORS = (
    *("__main__", "cli", "report", "serve", "cluster"),
    *(f"bench/{name}" for name in ("fleet", "nursery", "worker", "progress")),
    *(f"bench/{name}" for name in ("terminal", "figures", "tables", "paper", "report")),
)


def now() -> str:
    """The time in UTC, to the second.

    Returns
    -------
    str

    Examples
    --------
    >>> now().endswith("+00:00")
    True
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions(learner: type | None = None) -> dict[str, str]:
    """Versions of what a run's figures depend on.

    Parameters
    ----------
    learner : type, optional
        The learner's class, where it is a user's own.

    Returns
    -------
    dict

    Examples
    --------
    >>> sorted(versions())
    ['algnn', 'code', 'numpy', 'python', 'scipy', 'torch', 'torch_geometric']
    """
    ours = {"algnn": algnn.__version__, "code": code_version(learner)}
    return {**ours, "python": platform.python_version(), **_installed()}


def code_version(learner: type | None = None) -> str:
    """A short digest of the sources and settings files that a run's figures depend on.

    Parameters
    ----------
    learner : type, optional
        The learner's class. Where it is not of this package, a digest of its module follows after
        a ``+``, and of the modules of the classes that it is derived from; what else these import
        plays no part.

    Returns
    -------
    str
        The same wherever the package is installed.

    Examples
    --------
    >>> len(code_version()), code_version() == code_version(algnn.ALGNN)
    (12, True)
    """
    own = _package_digest(Path(algnn.__file__).parent)
    foreign = () if learner is None else _foreign_modules(learner)
    if not foreign:
        return own
    return f"{own}+{_short_digest(_source(name) for name in foreign)}"


def machine(jobs: int = 1) -> dict[str, Any]:
    """The hardware, without names of hosts or people.

    Parameters
    ----------
    jobs : int
        How many runs go on side by side, which is what their times must be read with.

    Returns
    -------
    dict
        ``architecture``, ``processor`` and ``gpu`` (None where unknown or absent), ``cores``,
        ``jobs``.

    Examples
    --------
    >>> sorted(machine())
    ['architecture', 'cores', 'gpu', 'jobs', 'processor']
    """
    return {
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "jobs": jobs,
    }


@cache
def _installed() -> dict[str, str]:
    return {package: metadata.version(package) for package in PACKAGES}


@cache
def _package_digest(root: Path) -> str:
    """A digest of the package's files that a figure may depend on."""
    paths = (path for path in root.rglob("*") if path.suffix in (".py", ".toml"))
    names = {path.relative_to(root).as_posix(): path for path in paths}
    chosen = [name for name in sorted(names) if not name.startswith(DOORS)]
    return _short_digest(part for n in chosen for part in (n.encode(), names[n].read_bytes()))


def _foreign_modules(learner: type) -> list[str]:
    """The modules of a class and its bases, without ours and those whose versions are recorded."""
    ours = {"algnn", *PACKAGES, *sys.stdlib_module_names} - {"__main__"}
    modules = {cls.__module__ for cls in learner.__mro__}
    return sorted(name for name in modules if name.partition(".")[0] not in ours)


def _source(module: str) -> bytes:
    try:
        return inspect.getsource(sys.modules[module]).encode()
    except (OSError, TypeError, KeyError):
        return module.encode()  # compiled, or typed in: its name is all there is


def _short_digest(parts: Iterable[bytes]) -> str:
    result = hashlib.sha256()
    for part in parts:
        unix = part.replace(b"\r\n", b"\n")  # a checkout may have changed the ends of lines
        result.update(f"{len(unix)} ".encode() + unix)
    return result.hexdigest()[:12]


@cache
def _processor() -> str | None:
    """The processor's name as the kernel prints it, where it prints one."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or None
