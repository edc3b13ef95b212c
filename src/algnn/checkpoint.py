"""Checkpoints: tensors in safetensors, everything else as JSON in the header; no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from algnn.errors import CheckpointError
from algnn.files import replacing

VERSION = 1
# errors raised by values of an unexpected type
MISFITS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError)
LONGEST = 200


def write(
    path: str | os.PathLike[str], kind: str, tensors: dict[str, Tensor], facts: dict[str, Any]
) -> None:
    """Write a checkpoint of a learner of class `kind`: whole, or not at all."""
    # one key for all facts: safetensors writes its own keys in no fixed order, and the same learner
    # shall give the same bytes
    header = {"format": "algnn", "version": VERSION, "kind": kind, "facts": facts}
    contents = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    with replacing(path) as temporary:
        # safetensors makes files that nobody else can read; who may is for the user's umask to say
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(contents, temporary, metadata={"algnn": json.dumps(header)})
        except SafetensorError as error:
            # 100 MB of header: a log of hundreds of thousands of events
            raise CheckpointError(f"{path} cannot be written: {in_short(error)}") from error
        temporary.chmod(mode)


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, on the CPU, and JSON values of a checkpoint of a learner of class `kind`."""
    if not Path(path).is_file():
        raise CheckpointError(f"{path} is not a file: give the path of a saved learner")
    try:
        with safe_open(path, framework="pt") as file:
            header = _header(path, file.metadata(), kind)
            # clone: a tensor must not change or vanish when the file does
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a checkpoint ({in_short(error)}): save the learner again"
        ) from error
    return tensors, header["facts"]


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor, if it is what a checkpoint should hold under that name."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise CheckpointError(
            f"{name} is {tensor.dtype} {list(tensor.shape)} where {dtype} {list(shape)} belongs"
        )
    return tensor


def in_short(error: BaseException) -> str:
    """One printable line of an error's message, which may quote anything from a foreign file."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    shown = "".join(c if c.isprintable() else "?" for c in line[: 2 * LONGEST])
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _header(
    path: str | os.PathLike[str], metadata: dict[str, str] | None, kind: str
) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {})["algnn"])
        ours = header["format"] == "algnn" and isinstance(header["facts"], dict)
        version, found = header["version"], header["kind"]
    except MISFITS:
        ours = False
    # a name, and a number that is not as long as the file
    ours = ours and isinstance(found, str) and found.isidentifier() and len(found) <= LONGEST
    if not ours or not isinstance(version, int) or abs(version) > 10**6:
        raise CheckpointError(f"{path} is a safetensors file but not one that algnn wrote")
    if version != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint version {version} and this algnn reads {VERSION}: use the"
            " algnn that wrote it, or a newer one"
        )
    if found != kind:
        raise CheckpointError(f"{path} holds a {found}, not a {kind}: load it with {found}.load")
    return dict(header)
