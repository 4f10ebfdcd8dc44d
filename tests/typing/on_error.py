"""Types of error policies. Nothing here runs: `make types` checks it."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import aflow as af


def policies_have_the_type_of_the_record(numbers: af.Stream[int]) -> None:
    failed = af.Tag[af.calls.FailedRecord[int]]("failed")
    texts = numbers.map(str, on_error=af.calls.DeadLetter(failed))
    assert_type(texts, af.Stream[str])
    assert_type(texts.side(failed), af.Stream[af.calls.FailedRecord[int]])
    assert_type(numbers.map(str, on_error=af.calls.Fallback(lambda n, error: "")), af.Stream[str])
    assert_type(numbers.filter(bool, on_error=af.calls.Drop()), af.Stream[int])
    keyed = numbers.event_time(int, on_error=af.calls.Drop()).key_by(
        lambda n: n % 2, on_error=af.calls.Fallback(lambda n, error: 0)
    )
    assert_type(keyed, af.KeyedStream[int, int])


def a_window_is_the_record_of_its_function(keyed: af.KeyedStream[int, int]) -> None:
    failed = af.Tag[af.calls.FailedRecord[af.Windowed[int, list[int]]]]("failed")
    windows = keyed.window(af.Tumbling(timedelta(seconds=1)))
    sums = windows.apply(sum, name="sum", on_error=af.calls.DeadLetter(failed))
    assert_type(sums, af.streams.WindowResults[int, af.Windowed[int, int]])


def a_flow_has_dead_letters_of_any_record() -> None:
    flow = af.Flow("all", on_error=af.calls.DeadLetter(af.Tag("failed")))
    assert_type(flow.dead_letters(), af.Stream[af.calls.FailedRecord[object]])
