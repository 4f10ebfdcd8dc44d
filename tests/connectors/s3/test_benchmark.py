"""The benchmarks of buckets and Delta tables run, and verify their results."""

from __future__ import annotations

import pytest

from bench.connectors import delta, s3


@pytest.mark.slow
def test_the_benchmarks_verify_the_sources_and_the_sinks() -> None:
    figures = {one.name: one.figures for case in (s3, delta) for one in case.measure(3000, 1)}

    assert list(figures) == ["s3_source", "s3_sink", "delta_source", "delta_sink"]
    assert {one["verified"] for one in figures.values()} == {True}
