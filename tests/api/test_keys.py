"""Values that cannot be keys are refused alike by all keyed steps at any parallelism."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

import aflow as af

BAD = {
    "a list": ([1], "a list is mutable"),
    "NaN": (float("nan"), "NaN"),
    "a frozenset": (frozenset({1}), "frozenset"),
    "a naive datetime": (datetime(2026, 1, 1), "without a zone"),  # noqa: DTZ001 - on purpose
    "an object": (object(), "object"),
}


class Pass(af.KeyedProcess[Any, int, int]):
    def process(self, value: int, ctx: af.Context[Any]) -> Iterable[int]:
        return [value]


STEPS: dict[str, Callable[[af.KeyedStream[Any, int]], af.Stream[Any]]] = {
    "fold": lambda keyed: keyed.fold(int, lambda count, _: count + 1, name="step"),
    "reduce": lambda keyed: keyed.reduce(lambda a, b: a + b, name="step"),
    "process": lambda keyed: keyed.process(Pass(), name="step"),
    "window": lambda keyed: keyed.window(af.Tumbling(timedelta(seconds=1))).reduce(
        lambda a, b: a + b, name="step"
    ),
}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_cannot_be_a_key_is_refused_with_the_reason_and_the_record(
    bad: str, step: str, parallelism: int
) -> None:
    key, reason = BAD[bad]
    flow = af.Flow("keys")
    keyed = flow.source([7]).event_time(lambda n: n).key_by(lambda _: key, name="by")
    STEPS[step](keyed).to(af.CollectSink[Any]())

    with pytest.raises(af.OperatorError, match=reason) as info:
        asyncio.run(flow.run(parallelism=parallelism))

    assert info.value.record == 7
