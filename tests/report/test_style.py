from __future__ import annotations

import pytest

from algnn.methods import METHODS
from algnn.report.style import HUES, INKS, SERIES, SPARE, STYLES, styles


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_methods_differ_by_more_than_colour():
    found = styles([*METHODS, *(f"mine:Own{i}" for i in range(20))]).values()
    assert len({(style.marker, style.filled, style.dashes) for style in found}) == len(found)
    assert len({(style.marker, style.filled) for style in STYLES.values()}) == len(STYLES)


def test_a_users_method_never_looks_like_a_known_one():
    known = {(style.marker, style.filled) for style in STYLES.values()}
    assert not known & {(style.marker, style.filled) for style in SPARE}


def test_a_style_does_not_depend_on_who_else_is_there():
    assert styles(["gem"])["gem"] == styles(["z:Own", "gem", "a:Own"])["gem"]
    assert styles(["b:Own", "a:Own"]) == styles(["a:Own", "b:Own"])


def test_a_method_without_a_style_has_the_colour_of_its_family():
    assert styles(["pignn-paper"])["pignn-paper"].hue == STYLES["pignn"].hue
    assert styles(["joint-balanced"])["joint-balanced"].hue == STYLES["joint"].hue


def test_more_methods_than_styles():
    assert len(styles(f"mine:Own{i}" for i in range(len(SPARE) + 3))) == len(SPARE) + 3


def test_lines_of_graphs_differ_too():
    assert len({(style.marker, style.dashes) for style in SERIES}) == len(SERIES)


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_stand_out_from_the_page(scheme):
    page = INKS["page"][scheme]
    assert all(contrast(hue[scheme], page) >= 3 for hue in HUES.values())
    assert contrast(INKS["ink"][scheme], page) >= 7
    assert contrast(INKS["soft"][scheme], page) >= 4.5
