"""The same work as pipelines: a list, calls for its values, a sink that keeps the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import aflow as af
from bench.calls.programs import CallOne
from bench.harness import run_async


def called(values: Sequence[int], call: CallOne, in_flight: int, *, ordered: bool) -> list[int]:
    """What the calls give, in the order in which it left the step."""
    flow, results = af.Flow("calls"), af.CollectSink[int]()
    flow.source(values).map_async(call, capacity=in_flight, ordered=ordered).to(results)
    run_async(flow.run())
    return results.values


def called_by_key(
    values: Sequence[int], key: Callable[[int], int], call: CallOne, in_flight: int
) -> list[int]:
    """As ``called``, one call at a time for each key."""
    flow, results = af.Flow("calls"), af.CollectSink[int]()
    flow.source(values).key_by(key).map_async(call, name="call", capacity=in_flight).to(results)
    run_async(flow.run())
    return results.values
