"""What runs say: `algnn report`."""

from __future__ import annotations

import typer

commands = typer.Typer()
