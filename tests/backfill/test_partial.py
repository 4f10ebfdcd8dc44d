"""Partial aggregation of windows upstream of the exchange. Results are in ``test_each_step``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

import aflow as af
from aflow import aggregates, evictors, triggers
from aflow.backfill.explanation import explain
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.partial import PartialWindowOperator
from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.windows.assigners import TumblingWindows
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.operators.accumulation import Accumulation, aggregating
from aflow.testing import At, OperatorHarness
from tests.backfill.items import Item, Items, keyed, millis
from tests.backfill.locally import Backfilled, backfill_locally
from tests.backfill.steps import of_window, plus

Windows = af.WindowedStream[int, Item]


class Own(af.Aggregate[Item, int, int]):
    def create(self) -> int:
        return 0

    def add(self, acc: int, value: Item) -> int:
        return acc + value.n

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


class OwnInAnyOrder(Own):
    commutative = True


def together(**values: object) -> dict[str, object]:
    return values


def counted(windows: Windows) -> af.Stream[Any]:
    return windows.aggregate(aggregates.count(), name="sums")


def flow_of(make: Callable[[Items], af.Stream[Any]], *, name: str = "keys") -> af.Flow:
    flow = af.Flow("parts")
    items = flow.source(list[Item](), name="items").event_time(lambda item: item.at)
    make(items.filter(lambda item: True, name=name)).to(af.CollectSink[Any](), name="out")
    return flow


def of_windows(
    windows: Callable[[af.KeyedStream[int, Item]], Windows],
    make: Callable[[Windows], af.Stream[Any]] = counted,
) -> af.Flow:
    return flow_of(lambda items: make(windows(keyed(items))))


def tumbling(stream: af.KeyedStream[int, Item]) -> Windows:
    return stream.window(af.Tumbling(millis(100)))


def parts(flow: af.Flow, *, can_be_late: bool = False) -> list[str]:
    """The aggregating steps upstream of exchanges."""
    plan = plan_fragments(flow.graph, can_be_late=can_be_late)
    return [
        node.name for one in plan.fragments for node in one.nodes if node.what == "window.partial"
    ]


@pytest.mark.parametrize(
    "flow",
    [
        of_windows(tumbling),
        of_windows(lambda keys: keys.window(af.Tumbling(millis(100)), lateness=millis(50))),
        of_windows(lambda keys: keys.window(af.Sliding(millis(120), millis(40)))),
        of_windows(tumbling, lambda some: some.aggregate(OwnInAnyOrder(), name="sums")),
        of_windows(
            tumbling,
            lambda some: some.aggregate(
                aggregates.fields(
                    together, n=aggregates.count(), mean=aggregates.mean(lambda item: item.n)
                ),
                name="sums",
            ),
        ),
        flow_of(
            lambda items: items.window_all(af.Tumbling(millis(9))).aggregate(
                aggregates.count(), name="sums"
            )
        ),
    ],
    ids=["tumbling", "lenient", "sliding", "own", "fields", "window_all"],
)
def test_windows_with_a_commutative_aggregate_are_aggregated_upstream_of_the_exchange(
    flow: af.Flow,
) -> None:
    assert parts(flow) == ["sums (partial)"]


@pytest.mark.parametrize(
    "flow",
    [
        of_windows(tumbling, lambda some: some.aggregate(Own(), name="sums")),
        of_windows(
            tumbling, lambda some: some.aggregate(aggregates.collect(stored_as=Item), name="sums")
        ),
        of_windows(
            tumbling,
            lambda some: some.aggregate(
                aggregates.fields(
                    together, n=aggregates.count(), first=aggregates.first(lambda item: item.n)
                ),
                name="sums",
            ),
        ),
        of_windows(
            tumbling, lambda some: some.reduce(lambda one, other: one, name="sums", of=Item)
        ),
        of_windows(tumbling, lambda some: some.apply(len, name="sums", of=Item)),
        of_windows(lambda keys: keys.window(af.Sliding(millis(100), millis(40)))),
        of_windows(lambda keys: keys.window(af.Sliding(millis(40), millis(100)))),
        of_windows(lambda keys: keys.window(af.Session(millis(100)))),
        of_windows(
            lambda keys: keys.window(
                af.Tumbling(millis(100)), trigger=triggers.EventTime(early=triggers.Count(3))
            )
        ),
        of_windows(
            lambda keys: keys.window(af.Tumbling(millis(100)), evictor=evictors.Count(3)),
            lambda some: some.aggregate(aggregates.count(), name="sums", of=Item),
        ),
        flow_of(lambda items: keyed(items).fold(int, plus, name="sums")),
    ],
    ids=[
        "does not say so",
        "in order",
        "one of the fields in order",
        "reduce",
        "apply",
        "panes of two lengths",
        "gaps",
        "sessions",
        "early",
        "evictor",
        "no windows",
    ],
)
def test_others_get_all_records(flow: af.Flow) -> None:
    assert parts(flow) == []


def with_late_records(items: Items) -> Items:
    sums = tumbling(keyed(items)).aggregate(aggregates.count(), name="sums")
    return sums.map(of_window).union(sums.late)


def test_windows_get_all_records_if_each_late_one_has_an_effect() -> None:
    lenient = of_windows(lambda keys: keys.window(af.Tumbling(millis(100)), lateness=millis(50)))
    late = flow_of(with_late_records)

    assert parts(lenient) == parts(late) == ["sums (partial)"]  # none is late over history
    assert parts(lenient, can_be_late=True) == []
    assert parts(late, can_be_late=True) == []
    assert parts(of_windows(tumbling), can_be_late=True) == ["sums (partial)"]


def test_windows_of_processing_time_get_all_records_over_history_too() -> None:
    flow = of_windows(
        lambda keys: keys.window(af.Tumbling(millis(100), domain=af.TimeDomain.PROCESSING))
    )

    plan = plan_fragments(flow.graph, event_time_for_processing_time=True)

    assert "window.partial" not in {node.what for one in plan.fragments for node in one.nodes}


def test_the_partial_step_has_a_unique_name() -> None:
    flow = flow_of(lambda items: counted(tumbling(keyed(items))), name="sums (partial)")

    assert parts(flow) == ["sums (partial) 0"]


def test_it_is_drawn_as_a_step() -> None:
    flow = of_windows(tumbling)

    drawn = explain(plan_fragments(flow.graph))

    assert "sums (partial)  window.partial merged by sums" in drawn
    assert "reads sums (partial) of fragment 0" in drawn


def test_as_many_accumulators_as_windows_cross_the_exchange() -> None:
    """1,000 records of 5 keys in 10 windows, in two partitions that have half of the windows each."""
    items = [Item(n % 5, n, n) for n in range(1000)]

    ran = over(of_windows(tumbling), items)

    steps = {name: counts for _, _, left in ran.left for name, counts in left.steps.items()}
    assert steps["sums (partial)"] == (500, 25)
    went = [left.exits for fragment, _, left in ran.left if not fragment.keyed]
    assert [sum(one.values()) for one in went] == [25, 25]
    assert sum(one.value for one in ran.results["out"]) == 1000
    assert len(ran.results["out"]) == 50


def over(flow: af.Flow, items: Sequence[Item]) -> Backfilled:
    return asyncio.run(backfill_locally(flow, {"items": items}))


COUNT = aggregating(aggregates.count())


def harness(
    accumulation: Accumulation = COUNT, *, held: int = 100, size: int = 10
) -> OperatorHarness[Any, Any]:
    return OperatorHarness(
        lambda: PartialWindowOperator(TumblingWindows(size), accumulation, held=held)
    )


def push(step: OperatorHarness[Any, Any], *records: tuple[int, int]) -> None:
    """Records by key and time."""
    keys, times = [key for key, _ in records], [at for _, at in records]
    step.operator.process(Batch([Item(key, 1, at) for key, at in records], times, keys))


def sent(step: OperatorHarness[Any, Any]) -> list[tuple[Any, Any]]:
    return [(one.timestamp, one.value) for one in step.output if isinstance(one, At)]


def test_accumulators_are_emitted_at_the_end_with_the_start_time_of_their_part() -> None:
    step = harness()
    push(step, (1, 12), (2, 13), (1, 19))
    push(step, (1, 3), (2, 25))

    assert sent(step) == []
    step.operator.end_input()
    assert sent(step) == [(0, 1), (10, 2), (10, 1), (20, 1)]


def test_accumulators_are_emitted_when_there_are_too_many() -> None:
    step = harness(held=2)
    push(step, *[(n % 2, 1) for n in range(9)])

    assert sent(step) == [(0, 5), (0, 4)]
    push(step, (1, 2))
    step.operator.end_input()
    assert sent(step)[2:] == [(0, 1)]


def test_where_each_record_has_an_accumulator_of_its_own_none_is_held() -> None:
    step = harness(held=4)
    push(step, *[(n, 1) for n in range(5)])
    assert sent(step) == [(0, 1)] * 5

    push(step, (1, 12), (1, 13))
    assert sent(step)[5:] == [(10, 1), (10, 1)]

    for _ in range(16):
        push(step, *[(1, 30)] * 5)
    assert len(sent(step)) == 7 + 16 * 5  # until there were sixteen times as many
    push(step, (1, 41), (1, 42))
    step.operator.end_input()
    assert sent(step)[-1] == (40, 2)


def test_an_invalid_key_is_reported_with_its_record() -> None:
    for times in ([1, 2], [1, 99]):
        step = harness()
        with pytest.raises(OperatorError, match="cannot be a key") as info:
            step.operator.process(Batch(["good", "bad"], times, [1, datetime(2013, 1, 1)]))  # noqa: DTZ001

        assert info.value.record == "bad"


def test_accumulators_of_many_records_are_emitted() -> None:
    """The accumulators may have grown."""
    step = harness()
    for _ in range(1000):
        push(step, *[(1, 1)] * 1000)
        if sent(step):
            break

    assert sent(step) == [(0, 1_000_000)]


def test_a_part_that_begins_before_time_does_is_at_its_beginning() -> None:
    step = harness(size=1000)
    push(step, (1, MIN_TIMESTAMP), (1, MAX_TIMESTAMP))
    step.operator.end_input()

    (first, _), (last, _) = sent(step)
    assert first == MIN_TIMESTAMP
    assert MAX_TIMESTAMP - 1000 < last <= MAX_TIMESTAMP


@pytest.mark.parametrize("times", [(1, 2, 3), (1, 12, 3)], ids=["one part", "several"])
@pytest.mark.parametrize("held", [100, 1], ids=["held", "passed on"])
def test_a_record_that_cannot_be_added_is_named(times: tuple[int, ...], held: int) -> None:
    step = harness(aggregating(aggregates.sum(_not_seven)), held=held)
    push(step, (0, 0))
    records = [(key, at) for key, at in zip((1, 7, 2), times, strict=True)]

    with pytest.raises(OperatorError, match="seven") as info:
        push(step, *records)

    assert info.value.record == Item(7, 1, times[1])


def _not_seven(item: Item) -> int:
    if item.key == 7:
        raise ValueError("seven")
    return 1


def test_records_without_time_are_refused_as_at_any_exchange() -> None:
    step = harness()

    with pytest.raises(OperatorError, match=r"without a timestamp .* call \.event_time\(…\)"):
        step.operator.process(Batch([1], None, [1]))


def test_an_aggregate_that_says_something_else_by_that_name_is_refused() -> None:
    class Odd(Own):
        commutative = "yes"

    with pytest.raises(FlowDefinitionError, match=r"Odd.commutative must be True or False"):
        aggregating(Odd())


def test_a_window_of_a_day_is_aggregated_in_any_order_of_the_history() -> None:
    day = 86_400_000
    items = [Item(n % 3, n, n * 7919 % 10 * day + n) for n in range(3000)]
    flow = of_windows(lambda keys: keys.window(af.Tumbling(timedelta(days=1))))

    found = {(one.key, one.window.start): one.value for one in over(flow, items).results["out"]}

    expected: dict[tuple[int, int], int] = {}
    for item in items:
        place = item.key, item.at // day * day
        expected[place] = expected.get(place, 0) + 1
    assert found == expected


def test_sums_of_parts_in_one_batch_are_added() -> None:
    flow = of_windows(
        tumbling, lambda windows: windows.aggregate(aggregates.sum(lambda one: one.n), name="sums")
    )
    head = plan_fragments(flow.graph).fragments[1].head
    assert head.operator is not None
    step = OperatorHarness[Any, Any](head.operator)

    for totals in ([[2], [3]], [[5], [0, 0.5]]):
        step.operator.process(Batch(list[Any](totals), [100, 100], [7, 7]))
    step.watermark(250)

    assert [one.value.value for one in step.output if isinstance(one, At)] == [10.5]
