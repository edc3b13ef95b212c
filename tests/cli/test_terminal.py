from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from algnn.bench.protocol import Outcome
from algnn.bench.record import Record
from algnn.bench.runs import frame
from algnn.cli.shared import plain_table, print_table
from algnn.cli.showing import as_object, beside, grid, show


def triangle(count: int) -> Any:
    matrix = np.full((count, count), np.nan)
    rows, columns = np.tril_indices(count)
    matrix[rows, columns] = np.linspace(0, 100, len(rows))
    return matrix


def a_record(seed: int = 1, **changes: Any) -> Record:
    # Cora's stream; two answers in a hundred differ by seed
    correct = np.array([[90] * 4 + [0] * 3, [80] * 5 + [0] * 2, [70] * 6 + [0], [70] * 6 + [60]])
    zeros = (0.0,) * 4
    outcome = Outcome(
        ((0, 1, 2, 3), (4,), (5,), (6,)), correct + seed * (correct > 0), np.full(7, 100),
        (1.0, 0.5, 0.5, 0.5), zeros, (10, 20, 30, 4_000_000),
    )  # fmt: skip
    facts: dict[str, Any] = {
        "dataset": "cora", "provenance": {}, "method": "algnn-paper", "settings": {}, "base": 4,
        "step": 1, "edges": "full", "order": "label", "seed": seed, "outcome": outcome,
        "device": "cpu",
    }  # fmt: skip
    return Record(**{**facts, **changes})


def shown(records: list[Record], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, frame(records))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 2, 4, 7, 12, 13, 21, 36, 41, 100, 300])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_grid_fits_its_terminal(count: int, width: int) -> None:
    legend, *lines = grid(triangle(count), width).plain.splitlines()
    assert max(map(len, lines)) <= width
    # the last session is always among those shown, and is the longest row
    assert lines[-1].split()[0] == str(count - 1)
    assert len(lines[-1]) == max(map(len, lines[1:]))
    assert "row" in legend


def test_cells_say_as_much_as_they_can() -> None:
    matrix = triangle(7)
    rows = grid(matrix, 80).plain.splitlines()[2:]
    for t, row in enumerate(rows):
        assert row.split() == [str(t), *(f"{v:.1f}" for v in matrix[t, : t + 1])]
    # too many for one decimal: whole per cents
    whole = grid(triangle(21), 80).plain.splitlines()[-2]
    assert whole.split()[1:] == [f"{v:.0f}" for v in triangle(21)[-2, :-1]]
    # and then tens, where 100 per cent is a nine
    assert grid(triangle(36), 80).plain.splitlines()[-1].split()[-1] == "9"
    assert "tens" in grid(triangle(36), 80).plain.splitlines()[0]


def test_every_cell_has_a_colour_that_can_be_read() -> None:
    drawn = grid(triangle(21), 80)
    cells = [span.style for span in drawn.spans if getattr(span.style, "bgcolor", None)]
    assert len(cells) == 21 * 22 // 2

    def light(colour: Any) -> float:
        linear = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
            for c in (v / 255 for v in colour.get_truecolor())
        ]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for style in cells:
        ink, paper = sorted((light(style.color), light(style.bgcolor)))
        assert (paper + 0.05) / (ink + 0.05) > 3.0


def test_our_figures_beside_the_papers() -> None:
    text = shown([a_record(1), a_record(2), a_record(3)])
    assert "69.50 ± 2.48" in text
    assert "75.86 ± 1.76" in text
    assert "9.81 ± 2.06" in text
    assert "1.08 ± 0.11" in text
    assert "retained (MB)" in text
    assert "4.00" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "change",
    [
        {"edges": "seen"},
        {"order": "random"},
        {"base": 3},
        {"step": 2},
        {"method": "algnn"},
        {"dataset": "cora.npz"},
        {"dataset": "digits"},
    ],
)
def test_another_run_has_no_figures_beside_it(change: dict[str, Any]) -> None:
    assert beside(frame([a_record()])) is not None
    assert beside(frame([a_record(**change)])) is None
    assert "the paper" not in shown([a_record(**change)])


def test_one_seed_has_no_interval() -> None:
    text = shown([a_record(1)])
    assert "seed 1" in text
    assert "68.50" in text
    assert "68.50 ±" not in text
    assert as_object(frame([a_record(1)]))["ap"] == {"mean": 68.5, "std": None, "ci95": None}


def test_calibration_and_novelty_where_they_were_measured() -> None:
    plain = a_record(1)
    measured = replace(
        plain.outcome,
        calibration_errors=(0.1, 0.2, 0.1, 0.0314),
        novelty_aurocs=(0.8, 0.9, 0.95),
        reliability=np.ones((15, 3)),
    )
    text = shown([a_record(1, outcome=measured)])
    assert "0.031" in text
    assert "0.883" in text
    assert as_object(frame([a_record(1, outcome=measured)]))["ece"]["mean"] == 0.0314
    # one seed did not: there is no mean over both
    for records in ([plain], [plain, a_record(2, outcome=measured)]):
        assert "ECE" not in shown(records)
        assert "ece" not in as_object(frame(records))


def test_a_name_is_not_markup() -> None:
    assert "[red]x[/red].npz" in shown([a_record(dataset="[red]x[/red].npz")])


def test_a_pipe_gets_whole_tables_and_a_terminal_all_digits() -> None:
    numbers = [f"{place}.123456789" for place in range(10, 30)]
    names = [f"a-graph-{place}.npz" for place in range(10, 30)]
    table = plain_table("", *names, right=slice(1, None))
    table.add_row("a method with a name", *numbers)
    told = {}
    for terminal in (False, True):
        console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
        print_table(table, console=console)
        told[terminal] = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in told[False]
    heading, row = told[False].splitlines()
    assert heading.split() == names
    assert row.split()[5:] == numbers
    assert max(map(len, told[True].splitlines())) <= 80
    assert sum(c.isdigit() for c in told[True]) == sum(c.isdigit() for c in told[False])
