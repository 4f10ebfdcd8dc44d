"""The figures that the benchmark of connectors refuses."""

from __future__ import annotations

from bench.connectors.latency import reason_against


def test_a_loop_that_does_not_keep_up_gives_no_latency() -> None:
    assert "does not keep up" in reason_against(ours=1.2, theirs=295.0)


def test_aflow_cannot_be_much_faster_than_its_client() -> None:
    assert "impossible" in reason_against(ours=1.0, theirs=8.0)


def test_delays_that_differ_by_the_noise_of_the_machine_are_a_measurement() -> None:
    assert reason_against(ours=0.6, theirs=0.9) == ""
    assert reason_against(ours=6.0, theirs=9.0) == ""
    assert reason_against(ours=12.0, theirs=1.0) == ""
