"""Histograms of latencies."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.bench.histogram import LatencyHistogram, percentile_of

latencies = st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200)


@given(latencies, st.sampled_from([50.0, 90.0, 99.0, 100.0]))
def test_a_percentile_is_within_a_thousandth_of_the_exact_one(
    micros: list[int], percent: float
) -> None:
    histogram = LatencyHistogram()
    histogram.add(Counter(micros))

    # Both neighbours of the rank are allowed, since the library rounds it.
    ordered = sorted(micros)
    rank = len(ordered) * percent / 100
    low, high = ordered[max(0, int(rank) - 1)], ordered[min(len(ordered) - 1, int(rank + 0.5))]

    assert histogram.count == len(micros)
    assert low * 0.999 - 1 <= histogram.percentile(percent) * 1000 <= high * 1.001 + 1


def test_a_percentile_of_counts_is_the_nearest_rank() -> None:
    counts = {1000: 50, 2000: 49, 9000: 1}

    assert [percentile_of(counts, one) for one in (50, 51, 99, 99.5)] == [1.0, 2.0, 2.0, 9.0]


def test_an_encoded_histogram_is_read_again() -> None:
    histogram = LatencyHistogram()
    histogram.add({150: 3, 20_000: 1})

    again = LatencyHistogram(histogram.encode())

    assert list(again.bars()) == list(histogram.bars())
    assert again.highest == pytest.approx(20, rel=0.001)


def test_a_percentile_is_known_if_five_latencies_are_above_it() -> None:
    histogram = LatencyHistogram()
    histogram.add({100: 5000})

    assert histogram.known(99.9)
    assert not histogram.known(99.99)


def test_without_latencies_all_figures_are_zero() -> None:
    empty = LatencyHistogram()

    assert (empty.count, empty.percentile(99), empty.highest, empty.mean) == (0, 0, 0, 0)


def test_latencies_above_an_hour_count_as_an_hour() -> None:
    histogram = LatencyHistogram()
    histogram.add({2**45: 1})

    assert histogram.highest == pytest.approx(3_600_000, rel=0.001)
