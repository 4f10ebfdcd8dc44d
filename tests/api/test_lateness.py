"""Lateness and results of windows depend on the order of the records, not on batches, subtasks or chains."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.testing import ScriptedSource

Record = tuple[str, int]
Rows = list[tuple[str, int, tuple[int, ...]]]

records = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(min_value=-50, max_value=150)), max_size=60
)


def expected(
    arrived: list[Record], *, size: int, delay: int, lateness: int
) -> tuple[Rows, list[Record]]:
    """The specification, record by record: firings of each window, corrections included, and the late records."""
    firings: Rows = []
    late: list[Record] = []
    contents: dict[tuple[int, str], list[int]] = defaultdict(list)
    fired: set[int] = set()
    watermark = -(2**63)

    def fire(start: int) -> None:
        fired.add(start)
        firings.extend((k, s, tuple(v)) for (s, k), v in contents.items() if s == start)

    for key, time in arrived:
        start = time - time % size
        last = start + size - 1
        if last + lateness <= watermark:
            late.append((key, time))
        else:
            contents[start, key].append(time)
            if last <= watermark:
                fired.add(start)
                firings.append((key, start, tuple(contents[start, key])))
        watermark = max(watermark, time - delay - 1)
        for start in {s for s, _ in contents} - fired:
            if start + size - 1 <= watermark:
                fire(start)
    for start in {s for s, _ in contents} - fired:
        fire(start)
    return sorted(firings), sorted(late)


async def results(
    arrived: list[Record],
    *,
    size: int,
    delay: int,
    lateness: int,
    parallelism: int = 1,
    batch: int = 1024,
    chaining: bool = True,
    divisible: bool = False,
) -> tuple[Rows, list[Record]]:
    """``divisible``: read by as many subtasks as there are, of which all but one have no split."""
    source = ScriptedSource(*arrived) if divisible else af.IterableSource(arrived)

    flow = af.Flow("lateness")
    rows = af.CollectSink[af.Windowed[str, tuple[int, ...]]]()
    too_late = af.CollectSink[Record]()
    windowed = (
        flow.source(source)
        .event_time(lambda r: r[1], max_delay=timedelta(milliseconds=delay))
        .key_by(lambda r: r[0])
        .window(
            af.Tumbling(timedelta(milliseconds=size)), lateness=timedelta(milliseconds=lateness)
        )
        .fold(tuple[int, ...], lambda times, r: (*times, r[1]), name="times")
    )
    windowed.to(rows)
    windowed.late.to(too_late)
    await flow.run(
        parallelism=parallelism, options=af.Options(batch_records=batch, chaining=chaining)
    )
    return sorted((r.key, r.window.start, r.value) for r in rows.values), sorted(too_late.values)


@pytest.mark.slow
@given(
    arrived=records,
    size=st.integers(1, 40),
    delay=st.integers(0, 30),
    lateness=st.integers(0, 30),
    parallelism=st.sampled_from([1, 2, 3, 7]),
    batch=st.sampled_from([1, 2, 3, 7, 1024]),
    chaining=st.booleans(),
    divisible=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_results_and_late_records_follow_the_order_of_arrival_alone(
    arrived: list[Record],
    size: int,
    delay: int,
    lateness: int,
    parallelism: int,
    batch: int,
    chaining: bool,
    divisible: bool,
) -> None:
    wanted = expected(arrived, size=size, delay=delay, lateness=lateness)

    found = asyncio.run(
        results(
            arrived,
            size=size,
            delay=delay,
            lateness=lateness,
            parallelism=parallelism,
            batch=batch,
            chaining=chaining,
            divisible=divisible,
        )
    )

    assert found == wanted


@pytest.mark.parametrize("batch", [1, 2, 1024])
def test_a_record_before_the_watermark_of_its_own_batch_is_late(batch: int) -> None:
    arrived = [("a", 5), ("a", 25), ("a", 6), ("a", 26)]

    rows, late = asyncio.run(results(arrived, size=10, delay=0, lateness=0, batch=batch))

    assert rows == [("a", 0, (5,)), ("a", 20, (25, 26))]
    assert late == [("a", 6)]


def test_sliding_windows_hold_each_record_in_all_of_their_windows() -> None:
    flow, rows = af.Flow("sliding"), af.CollectSink[af.Windowed[str, int]]()
    (
        flow.source([1, 12, 25])
        .event_time(lambda at: at)
        .key_by(lambda _: "all")
        .window(af.Sliding(timedelta(milliseconds=20), timedelta(milliseconds=10)))
        .fold(int, lambda count, _: count + 1, name="count")
        .to(rows)
    )

    asyncio.run(flow.run())

    assert [(r.window.start, r.window.end, r.value) for r in rows.values] == [
        (-10, 10, 1),
        (0, 20, 2),
        (10, 30, 2),
        (20, 40, 1),
    ]


def test_a_record_in_the_gap_between_sliding_windows_is_in_none_and_late_only_by_its_own_time() -> (
    None
):
    flow = af.Flow("gaps")
    rows, late = af.CollectSink[af.Windowed[str, int]](), af.CollectSink[int]()
    windowed = (
        flow.source([1, 7, 50, 8])
        .event_time(lambda at: at)
        .key_by(lambda _: "all")
        .window(af.Sliding(timedelta(milliseconds=5), timedelta(milliseconds=10)))
        .fold(int, lambda count, _: count + 1, name="count")
    )
    windowed.to(rows)
    windowed.late.to(late)

    asyncio.run(flow.run())

    assert [(r.window.start, r.value) for r in rows.values] == [(0, 1), (50, 1)]
    assert late.values == [8]


def test_an_error_on_the_correction_of_a_window_names_the_downstream_step() -> None:
    flow = af.Flow("corrected")

    def refuse_the_correction(result: af.Windowed[str, int]) -> int:
        if result.value > 1:
            raise ValueError("corrected")
        return result.value

    (
        flow.source([("a", 1), ("a", 20), ("a", 2)])
        .event_time(lambda record: record[1])
        .key_by(lambda record: record[0])
        .window(af.Tumbling(timedelta(milliseconds=10)), lateness=timedelta(seconds=1))
        .fold(int, lambda count, _: count + 1, name="count")
        .map(refuse_the_correction, name="behind")
        .to(af.CollectSink[int]())
    )

    with pytest.raises(af.OperatorError, match="corrected") as error:
        asyncio.run(flow.run())

    assert error.value.operator == "behind"
    assert isinstance(error.value.__cause__, ValueError)
