"""The same work as pipelines: a list, calls for its values, a sink that keeps the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import aflow as af
from bench.calls.programs import CallOne
from bench.harness import run_async


def called(values: Sequence[int], call: CallOne, in_flight: int, *, ordered: bool) -> list[int]:
    """Return the results of the calls, in the order of emission."""
    flow, results = af.Flow("calls"), af.CollectSink[int]()
    flow.source(values).map_async(call, capacity=in_flight, ordered=ordered).to(results)
    run_async(flow.run())
    return results.values


def called_in_small_batches(
    values: Sequence[int], call: CallOne, in_flight: int, *, watermarks: bool
) -> list[int]:
    """As ``called``, unordered; with ``watermarks`` there is one after each batch of 8 records."""
    flow, results = af.Flow("calls"), af.CollectSink[int]()
    numbers = flow.source(values)
    if watermarks:
        numbers = numbers.event_time(lambda value: value, max_delay=timedelta(seconds=5))
    numbers.map_async(call, capacity=in_flight, ordered=False).to(results)
    run_async(flow.run(options=af.Options(batch_records=8)))
    return results.values


def called_by_key(
    values: Sequence[int], key: Callable[[int], int], call: CallOne, in_flight: int
) -> list[int]:
    """As ``called``, one call at a time for each key."""
    flow, results = af.Flow("calls"), af.CollectSink[int]()
    flow.source(values).key_by(key).map_async(call, name="call", capacity=in_flight).to(results)
    run_async(flow.run())
    return results.values
