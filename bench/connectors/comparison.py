"""The comparison of one direction of a connector with a bare loop, and the records of most cases."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from bench.harness import Measurement, compare, run_async


def numbered_record(n: int) -> dict[str, Any]:
    """Return record ``n``."""
    return {"n": n, "name": "a record of some bytes"}


def compare_directions(
    name: str,
    records: int,
    rounds: int,
    in_aflow: Callable[[], Coroutine[Any, Any, int]],
    by_hand: Callable[[], Coroutine[Any, Any, int]],
) -> Measurement:
    """Run both programs in turn. Each returns the number of its records or messages, which must be equal."""
    return compare(
        name,
        records,
        lambda: run_async(in_aflow()),
        lambda: run_async(by_hand()),
        at_least=0.6,
        rounds=rounds,
    )
