"""Firings of continuous triggers depend on the order of the records, not on batches, subtasks or chains."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from tests.stable_ids import stable

Record = tuple[str, int]
Row = tuple[str, int, int, tuple[int, ...]]

EVERY = 7
SIZE = 20


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


CONTINUOUS = af.triggers.ContinuousEventTime(millis(EVERY))
EARLY = af.triggers.EventTime(early=CONTINUOUS)


def expected(arrived: list[Record], *, delay: int) -> list[Row]:
    """Return the firings by the specification, record by record, where no record is late."""
    firings: list[Row] = []
    contents: dict[tuple[str, int], list[int]] = {}
    due: dict[tuple[str, int], int] = {}
    counts: dict[tuple[str, int], int] = {}
    watermark: int | None = None

    def advance(to: int) -> None:
        for moment in range(-100 if watermark is None else watermark + 1, to + 1):
            for place in list(contents):
                last = place[1] + SIZE - 1
                if moment == last or due.get(place) == moment:
                    counts[place] = counts.get(place, 0) + 1
                    firings.append((*place, counts[place], tuple(contents[place])))
                    due.pop(place, None)
                if moment == last:
                    del contents[place]

    for key, time in arrived:
        place = key, time - time % SIZE
        contents.setdefault(place, []).append(time)
        moment = time if watermark is None else watermark
        multiple = moment - moment % EVERY + EVERY
        due[place] = min(due.get(place, multiple), multiple)
        earned = time - delay - 1
        if watermark is None or earned > watermark:
            advance(earned)
            watermark = earned
    advance(1000)
    return sorted(firings)


async def found(
    arrived: list[Record],
    trigger: af.triggers.Trigger[Record],
    *,
    delay: int,
    parallelism: int = 1,
    batch: int = 1024,
    chaining: bool = True,
) -> list[Row]:
    flow, sink = af.Flow("continuous"), af.CollectSink[af.Windowed[str, list[Record]]]()
    timed = flow.source(arrived).event_time(lambda r: r[1], max_delay=millis(delay))
    windows = timed.key_by(lambda r: r[0]).window(af.Tumbling(millis(SIZE)), trigger=trigger)
    windows.apply(list, name="windows").to(sink)
    await flow.run(
        parallelism=parallelism, options=af.Options(batch_records=batch, chaining=chaining)
    )
    return sorted(
        (one.key, one.window.start, one.firing, tuple(at for _, at in one.value))
        for one in sink.values
    )


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 12)), max_size=40
    ),
    trigger=st.sampled_from([CONTINUOUS, EARLY]),
    delay=st.integers(12, 40),
    parallelism=st.sampled_from([1, 2, 3]),
    batch=st.sampled_from([1, 2, 7, 1024]),
    chaining=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_firings_follow_the_order_of_arrival_alone(
    steps: list[tuple[str, int, int]],
    trigger: af.triggers.Trigger[Record],
    delay: int,
    parallelism: int,
    batch: int,
    chaining: bool,
) -> None:
    arrived: list[Record] = []
    newest = 0
    for key, ahead, behind in steps:
        newest += ahead
        arrived.append((key, newest - behind))

    rows = asyncio.run(
        found(
            arrived, trigger, delay=delay, parallelism=parallelism, batch=batch, chaining=chaining
        )
    )

    assert rows == expected(arrived, delay=delay)


@pytest.mark.parametrize("batch", [1, 7, 1024])
@pytest.mark.parametrize(
    "trigger", [CONTINUOUS, EARLY, af.triggers.Purging(CONTINUOUS)], ids=stable
)
def test_a_window_fires_at_each_multiple_whatever_the_lag_of_the_watermark(
    trigger: af.triggers.Trigger[Record], batch: int
) -> None:
    arrived = [("a", at) for at in range(60, 120)]

    rows = asyncio.run(found(arrived, trigger, delay=60, batch=batch))

    # The watermark advances from -1 to 58, past nine multiples; then to the end.
    assert len(rows) >= 9
    assert {at for *_, some in rows for at in some} == set(range(60, 120))
    assert rows == asyncio.run(found(arrived, trigger, delay=60, batch=1))
