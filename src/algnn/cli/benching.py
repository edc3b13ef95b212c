"""Many runs: `algnn bench | sweep`."""

from __future__ import annotations

import typer

commands = typer.Typer()
