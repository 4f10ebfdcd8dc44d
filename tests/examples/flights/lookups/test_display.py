"""Sparklines of the limit over time."""

from __future__ import annotations

import pytest

from flights.lookups.display import sparkline


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([], ""),
        ([0], "▁"),
        ([8], "█"),
        ([1, 2, 4, 8], "▂▃▅█"),
        ([1, 1, 7, 7, 3, 5], "▂█▅"),  # means of two
        ([8] * 7, "███"),
    ],
)
def test_values_are_drawn_as_a_bounded_number_of_bars(values: list[int], bars: str) -> None:
    width = 4 if len(values) <= 4 else 3

    assert sparkline(values, width=width, maximum=8) == bars
