"""Handlers that wait: one at a time for each key, and what one does happens at once, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback, OnError
from aflow.machines.calls.retry import Retry, RetryPolicy
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from aflow.operators.calls.async_process import (
    AsyncContext,
    AsyncKeyedProcess,
    RungTimer,
    check_async_keyed_process,
)
from aflow.state.choice import DiskEngine, OnDisk, StateBackend
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.specs import ListState, ValueState
from tests.operators.calls.handlers.awaiting import Awaiting, Pause, settings

ODD = Tag[int]("odd")
FAILED = Tag[FailedCall[Any]]("failed")


class Adding(AsyncKeyedProcess[str, int, str]):
    """Adds up, and waits before and after it has written."""

    total = ValueState("total", of=int)
    seen = ListState("seen", of=int)

    async def process(self, value: int, ctx: AsyncContext[str]) -> list[str]:
        await Pause()
        total = ctx.state(self.total)
        total.set(total.get(0) + value)
        ctx.state(self.seen).add(value)
        if value % 2:
            ctx.side(ODD, value)
        await Pause()
        if value < 0:
            raise ValueError("below zero")
        return [f"{ctx.key}{total.get()}"]


class Ringing(AsyncKeyedProcess[str, Any, Any]):
    """A value is what is done to timers: set those at such moments, delete those at minus such."""

    log = ListState("log", of=str)

    async def process(self, value: list[int], ctx: AsyncContext[str]) -> list[Any]:
        await Pause()
        for at in value:
            if at < 0:
                ctx.delete_event_timer(-at)
            else:
                ctx.set_event_timer(at)
        return [(ctx.key, value, ctx.watermark)]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Any]:
        await Pause()
        assert ctx.timer_domain is TimeDomain.EVENT
        if at % 10 == 5:
            ctx.set_event_timer(at - 1)
        return [(ctx.key, at, ctx.watermark)]


Do = Callable[[AsyncContext[str]], Any]


def do(what: Do) -> Do:
    """``what``, and the type of it."""
    return what


class Doing(AsyncKeyedProcess[str, Do, Any]):
    """A value is what is done."""

    value = ValueState("value", of=int)
    count = ValueState("count", of=int)

    async def process(self, value: Do, ctx: AsyncContext[str]) -> list[Any]:
        result = value(ctx)
        await Pause()
        return [result]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Any]:
        if at == 13:
            raise ValueError("unlucky")
        await Pause()
        return [(ctx.timer_domain, at, ctx.timestamp)]


class OnBothClocks(AsyncKeyedProcess[str, str, str]):
    """Sets a timer on each clock for "both"."""

    async def process(self, value: str, ctx: AsyncContext[str]) -> list[str]:
        await Pause()
        if value == "both":
            ctx.set_processing_timer(50)
            ctx.set_event_timer(90)
        return [f"{ctx.key} {value}"]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[str]:
        await Pause()
        assert ctx.timer_domain is not None
        return [f"{ctx.key} {ctx.timer_domain.value} {at}"]


Start = Callable[..., Awaiting]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Awaiting] = []

    def begin(
        function: AsyncKeyedProcess[Any, Any, Any],
        restored: OperatorSnapshot | None = None,
        *,
        backend: StateBackend | None = None,
        capacity: int = 100,
        timeout: int | None = None,
        retry: RetryPolicy | None = None,
        on_error: OnError[Any] | None = None,
    ) -> Awaiting:
        how = settings(function, capacity=capacity, timeout=timeout, retry=retry, on_error=on_error)
        started.append(Awaiting(function, how, restored=restored, backend=backend))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def total(step: Awaiting, key: str) -> object:
    return step.state("total", key)


# ------------------------------------------------------------------------------------------------ transactions


def test_nothing_has_happened_before_a_handler_returns(start: Start) -> None:
    step = start(Adding()).push(3, keys=["a"])

    step.go_on("a")

    assert (total(step, "a"), step.side("odd"), step.values()) == (None, [], [])


def test_all_of_it_happens_when_a_handler_returns(start: Start) -> None:
    step = start(Adding()).push(3, keys=["a"])

    step.finish()

    assert (total(step, "a"), step.side("odd"), step.values()) == (3, [3], ["a3"])


def test_handlers_of_a_key_run_one_after_the_other_and_those_of_others_meanwhile(
    start: Start,
) -> None:
    step = start(Adding()).push(1, 2, 5, keys=["a", "a", "b"])

    assert step.keys == ["a", "b"]
    step.go_on("b").go_on("b")
    assert step.values() == ["b5"]
    step.finish()
    assert step.values() == ["a1", "a3"]


def test_nothing_of_a_handler_that_failed_has_happened(start: Start) -> None:
    step = start(Adding(), on_error=Drop()).push(1, -3, 5, keys=["a", "a", "a"])

    step.finish()

    assert step.values() == ["a1", "a6"]
    assert step.state("seen", "a") == [1, 5]
    assert step.side("odd") == [1, 5]


def test_each_attempt_begins_anew(start: Start) -> None:
    attempts: list[int | None] = []

    def fail_once(ctx: AsyncContext[str]) -> int:
        cell = ctx.state(Doing.value)
        attempts.append(cell.get())
        cell.set((cell.get() or 0) + 1)
        if len(attempts) == 1:
            raise ConnectionError("again, please")
        return cell.get() or 0

    step = start(Doing(), retry=Retry(delay=timedelta(seconds=1)))
    step.push(fail_once, keys=["a"])

    step.clock(1000).finish()

    assert attempts == [None, None]
    assert step.values() == [1]


def test_a_handler_whose_time_is_up_has_done_nothing_and_can_do_nothing(start: Start) -> None:
    step = start(Adding(), timeout=1000, on_error=Drop()).push(1, 2, keys=["a", "a"])
    step.go_on("a")

    step.clock(1000)
    with pytest.raises(OperatorError, match="of a handler of key 'a' after its end"):
        step.cancelled[0].send(None)
    step.finish()

    assert step.values() == ["a2"]
    assert step.state("seen", "a") == [2]


def test_what_is_kept_of_a_handler_is_of_no_use_after_it(start: Start) -> None:
    kept: list[AsyncContext[str]] = []
    step = start(Doing()).push(kept.append, keys=["a"]).finish()
    ctx = kept[0]

    for use in (
        lambda: ctx.key,
        lambda: ctx.timestamp,
        lambda: ctx.watermark,
        lambda: ctx.processing_time,
        lambda: ctx.timer_domain,
        lambda: ctx.side(ODD, 1),
        lambda: ctx.state(Doing.value),
        lambda: ctx.set_event_timer(1),
        lambda: ctx.set_processing_timer(1),
        lambda: ctx.delete_event_timer(1),
        lambda: ctx.delete_processing_timer(1),
    ):
        with pytest.raises(OperatorError, match=r"of a handler of key 'a' after|after the end"):
            use()
    assert step.operator.size().event_timers == 0


def test_a_state_that_is_not_declared_fails_the_job_whatever_the_policy(start: Start) -> None:
    step = start(Doing(), on_error=Drop())

    with pytest.raises(OperatorError, match=r"is not declared.*'value', 'count'"):
        step.push(do(lambda ctx: ctx.state(ValueState("other", of=int))), keys=["a"])


def test_the_name_of_a_state_is_refused(start: Start) -> None:
    name: Any = "value"

    with pytest.raises(OperatorError, match="takes a declaration, not its name"):
        start(Doing()).push(do(lambda ctx: str(ctx.state(name))), keys=["a"])


def test_the_context_tells_of_the_record(start: Start) -> None:
    step = start(Doing())
    step.time.at = 77
    step.watermark(5)

    step.push(
        do(
            lambda ctx: (
                *(ctx.key, ctx.timestamp, ctx.watermark),
                *(ctx.processing_time, ctx.timer_domain),
            )
        ),
        keys=["a"],
        at=[9],
    ).finish()

    assert step.items() == [5, (("a", 9, 5, 77, None), 9)]


def test_the_watermark_of_a_context_is_the_smallest_there_is_before_the_first(
    start: Start,
) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.watermark), keys=["a"]).finish()

    assert step.values() == [MIN_TIMESTAMP]


def test_a_handler_may_give_nothing(start: Start) -> None:
    class Silent(AsyncKeyedProcess[str, int, str]):
        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            return None

    step = start(Silent()).push(1, keys=["a"])

    assert (step.values(), step.operator.busy) == ([], False)


def test_a_handler_that_gives_no_list_fails(start: Start) -> None:
    class Wrong(AsyncKeyedProcess[str, int, str]):
        async def process(self, value: int, ctx: AsyncContext[str]) -> Any:
            return "text"

    with pytest.raises(OperatorError, match=r"return \[result\] for a single one"):
        start(Wrong()).push(1, keys=["a"])


def test_state_on_disk_is_found_although_other_keys_came_by(start: Start, tmp_path: Path) -> None:
    backend = OnDisk(DiskEngine.SQLITE, tmp_path, resident=1)
    step = start(Adding(), backend=backend)

    for _ in range(3):
        step.push(*range(10), keys=[str(number) for number in range(10)])
        for number in reversed(range(10)):
            step.go_on(str(number))
        step.finish()

    assert [total(step, str(number)) for number in range(10)] == [3 * n for n in range(10)]


# --------------------------------------------------------------------------------------- watermarks and timers


def test_a_key_is_held_until_the_results_of_its_handler_have_left(start: Start) -> None:
    step = start(Adding()).push(1, keys=["a"]).watermark(5).push(2, 4, keys=["b", "b"])

    step.go_on("b").go_on("b")

    assert step.keys == ["a"]
    assert (total(step, "b"), step.values()) == (None, [])
    step.finish()
    assert step.items() == [("a1", None), 5, ("b2", None), ("b6", None)]


def test_a_watermark_comes_behind_the_timers_that_are_due_at_it(start: Start) -> None:
    step = start(Ringing()).push([7, 3, 9], [5], keys=["a", "b"]).finish()
    step.items()

    step.watermark(8)
    assert (sorted(map(str, step.keys)), step.items()) == (["a", "b"], [])
    step.finish()

    items = step.items()
    assert [item for item in items if item != 8 and item[0][0] == "a"] == [
        (("a", 3, 8), 3),
        (("a", 7, 8), 7),
    ]
    assert items[-1] == 8


def test_a_timer_that_a_handler_sets_while_the_watermark_waits_rings_in_front_of_it(
    start: Start,
) -> None:
    step = start(Ringing()).push([3], keys=["a"]).watermark(8).push([20], keys=["a"])

    step.finish()

    assert step.items() == [
        (("a", [3], MIN_TIMESTAMP), None),
        (("a", 3, 8), 3),
        8,
        (("a", [20], 8), None),
    ]


def test_a_timer_that_a_timer_sets_rings_too(start: Start) -> None:
    step = start(Ringing()).push([5], keys=["a"]).finish()
    step.items()

    step.watermark(8).finish()

    assert step.items() == [(("a", 5, 8), 5), (("a", 4, 8), 4), 8]


def test_a_timer_that_sets_itself_again_rings_again(start: Start) -> None:
    class Twice(AsyncKeyedProcess[str, int, Any]):
        rung = ValueState("rung", of=int)

        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            ctx.set_event_timer(value)

        async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Any]:
            rung = ctx.state(self.rung).get(0) + 1
            ctx.state(self.rung).set(rung)
            if rung < 2:
                ctx.set_event_timer(at)
            return [(at, rung)]

    step = start(Twice()).push(3, keys=["a"]).watermark(8)

    assert step.items() == [((3, 1), 3), ((3, 2), 3), 8]


def test_a_timer_that_an_earlier_handler_deletes_does_not_ring(start: Start) -> None:
    step = start(Ringing()).push([3, 4], keys=["a"]).push([-3], keys=["a"]).watermark(8)

    step.finish()

    assert (("a", 4, 8), 4) in (items := step.items())
    assert (("a", 3, 8), 3) not in items
    assert step.operator.size().event_timers == 0


def test_records_of_other_keys_run_while_a_watermark_waits(start: Start) -> None:
    step = start(Ringing()).push([3], keys=["a"]).watermark(8).watermark(9)

    step.push([30], keys=["b"])

    assert step.keys == ["a", "b"]


def test_a_timer_set_for_a_moment_that_has_passed_rings_with_the_next_watermark(
    start: Start,
) -> None:
    step = start(Ringing()).watermark(8).push([3], keys=["a"]).finish()
    assert step.items() == [8, (("a", [3], 8), None)]

    step.watermark(9).finish()

    assert step.items() == [(("a", 3, 9), 3), 9]


def test_a_watermark_with_nothing_in_front_of_it_goes_on_at_once(start: Start) -> None:
    step = start(Ringing()).push([30], keys=["a"]).finish()
    step.items()

    step.watermark(8)

    assert step.items() == [8]
    assert not step.operator.busy


def test_a_watermark_that_is_not_news_is_not_sent_on(start: Start) -> None:
    assert start(Ringing()).watermark(8).watermark(8).watermark(7).items() == [8]


def test_an_end_of_time_rings_all_timers(start: Start) -> None:
    step = start(Ringing()).push([30, 20], keys=["a"]).finish()
    step.items()

    step.watermark(MAX_TIMESTAMP).finish()

    assert [item for item in step.items() if item != MAX_TIMESTAMP] == [
        (("a", 20, MAX_TIMESTAMP), 20),
        (("a", 30, MAX_TIMESTAMP), 30),
    ]


def test_idleness_keeps_its_place_among_records(start: Start) -> None:
    step = start(Adding()).push(1, keys=["a"])

    step.operator.on_idle()
    step.operator.on_active()
    assert step.emitted() == []
    step.finish()

    assert [type(one).__name__ for one in step.emitted()] == ["Batch", "Idle", "Active"]


def test_processing_timers_ring_by_the_clock(start: Start) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"], at=[4])
    step.finish().items()

    step.clock(49)
    assert step.keys == []
    step.clock(50).finish()

    assert step.items() == [((TimeDomain.PROCESSING, 50, None), None)]
    assert step.operator.size().processing_timers == 0


def test_a_processing_timer_that_is_deleted_while_it_waits_for_its_turn_does_not_ring(
    start: Start,
) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"]).finish()
    step.push(do(lambda ctx: ctx.delete_processing_timer(50)), keys=["a"]).clock(50).values()

    step.finish()

    assert (step.values(), step.operator.busy) == ([None], False)


def test_processing_timers_do_not_ring_after_the_end_of_the_input(start: Start) -> None:
    step = start(Doing(), timeout=1000)
    step.push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"]).finish()
    step.push(do(lambda ctx: None), keys=["b"])

    step.operator.hurry()
    step.clock(60)

    assert step.keys == ["b"]


def test_a_failed_timer_is_named(start: Start) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_event_timer(13)), keys=["a"]).finish()

    with pytest.raises(
        OperatorError, match=r"in the event time timer at 13 \(.*\) of key 'a'"
    ) as error:
        step.watermark(20)
    assert (error.value.key, error.value.timestamp) == ("a", 13)
    assert isinstance(error.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("policy", "values", "letters"),
    [
        pytest.param(Drop(), [], [], id="drop"),
        pytest.param(
            DeadLetter(FAILED),
            [],
            [FailedCall(RungTimer("a", 13, TimeDomain.EVENT), "ValueError", "unlucky", 1)],
            id="dead letter",
        ),
        pytest.param(
            Fallback[Any](lambda value, error: [value]),
            [RungTimer("a", 13, TimeDomain.EVENT)],
            [],
            id="fallback",
        ),
    ],
)
def test_a_timer_that_has_failed_for_good_is_gone(
    start: Start, policy: OnError[Any], values: list[Any], letters: list[Any]
) -> None:
    step = start(Doing(), on_error=policy)
    step.push(do(lambda ctx: ctx.set_event_timer(13)), keys=["a"]).finish().values()

    step.watermark(20)

    assert (step.values(), step.side("failed")) == (values, letters)
    assert step.operator.size().event_timers == 0


def test_a_process_that_sets_timers_needs_a_handler_for_them(start: Start) -> None:
    class Deaf(AsyncKeyedProcess[str, int, str]):
        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            ctx.set_event_timer(1)

    step = start(Deaf()).push(1, keys=["a"])

    with pytest.raises(OperatorError, match="Deaf sets timers and needs an on_timer method"):
        step.watermark(1)


# -------------------------------------------------------------------------------------------------- snapshots


def test_a_handler_under_way_runs_again_after_a_restore(start: Start) -> None:
    step = start(Adding()).push(1, 2, keys=["a", "a"])
    step.go_on("a")

    restored = start(Adding(), step.operator.snapshot())

    assert total(restored, "a") is None
    restored.finish()
    assert restored.values() == ["a1", "a3"]


def test_a_handler_that_waits_behind_a_fence_is_in_the_snapshot(start: Start) -> None:
    step = start(Adding()).push(1, keys=["a"]).watermark(5).push(2, keys=["b"])
    step.go_on("b").go_on("b")

    restored = start(Adding(), step.operator.snapshot()).finish()

    assert sorted(restored.values()) == ["a1", "b2"]


def test_what_has_left_is_not_in_the_snapshot(start: Start) -> None:
    step = start(Adding()).push(1, 2, keys=["a", "a"])
    step.go_on("a").go_on("a")

    restored = start(Adding(), step.operator.snapshot()).finish()

    assert restored.values() == ["a3"]


def test_a_timer_whose_handler_has_not_come_to_its_end_rings_again(start: Start) -> None:
    step = start(Ringing()).push([3, 5], keys=["a"]).finish().watermark(8)
    step.items()

    restored = start(Ringing(), step.operator.snapshot()).finish()

    assert restored.items() == [(("a", 3, 8), 3), (("a", 5, 8), 5), (("a", 4, 8), 4), 8]


def test_timers_keep_their_place_between_restored_records(start: Start) -> None:
    step = start(Ringing()).push([3], keys=["a"]).watermark(8).push([20], keys=["a"])

    restored = start(Ringing(), step.operator.snapshot())
    restored.push([30], keys=["a"]).finish()

    assert restored.values() == [
        ("a", [3], MIN_TIMESTAMP),
        ("a", 3, 8),
        ("a", [20], 8),
        ("a", [30], 8),
    ]


@pytest.mark.parametrize("behind", [True, False])
def test_event_timers_keep_their_place_in_a_snapshot_behind_a_processing_timer_under_way(
    start: Start, behind: bool
) -> None:
    step = start(OnBothClocks()).push("both", keys=["a"], at=[1]).finish()
    step.clock(50).watermark(100)
    step.push("other", keys=["b"], at=[120])
    if behind:
        step.push("behind", keys=["a"], at=[110])

    restored = start(OnBothClocks(), step.operator.snapshot()).watermark(130)
    restored.finish()

    late = ["a behind"] if behind else []
    values = [one for one in restored.items() if one != ("b other", 120)]
    assert [one[0] if isinstance(one, tuple) else one for one in values] == [
        "a event time 90",
        *late,
        100,
        130,
    ]


def test_a_subtask_that_is_restored_from_two_keeps_the_moment_of_each_key(start: Start) -> None:
    """One of them had come further than the other, whose watermark counts from now on."""
    ahead = start(Ringing()).push([9], keys=["a"]).watermark(10)
    behind = start(Ringing()).push([9], keys=["b"]).watermark(7)
    parts = [ahead.operator.snapshot(), behind.operator.snapshot()]
    both = OperatorSnapshot(
        operator={
            name: sum((part.operator[name] for part in parts), ()) for name in parts[0].operator
        }
    )

    restored = start(Ringing(), both).push([20], [20], keys=["a", "b"]).finish()

    values = restored.values()
    assert [value for value in values if value[0] == "a"] == [
        ("a", [9], MIN_TIMESTAMP),
        ("a", 9, 10),
        ("a", [20], 7),
    ]
    assert [value for value in values if value[0] == "b"] == [
        ("b", [9], MIN_TIMESTAMP),
        ("b", [20], 7),
    ]


def test_a_restored_step_with_nothing_under_way_is_not_busy(start: Start) -> None:
    step = start(Ringing()).push([30], keys=["a"]).finish().watermark(8)

    restored = start(Ringing(), step.operator.snapshot())

    assert not restored.operator.busy
    assert restored.watermark(7).items() == []
    assert restored.watermark(30).finish().items() == [(("a", 30, 30), 30), 30]


def test_processing_timers_are_restored(start: Start) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"]).finish()

    restored = start(Doing(), step.operator.snapshot()).clock(50).finish()

    assert restored.values() == [(TimeDomain.PROCESSING, 50, None)]


def test_the_step_is_full_when_as_much_waits_as_is_under_way(start: Start) -> None:
    step = start(Adding(), capacity=2).push(1, 2, 3, keys=["a", "b", "c"])
    assert not step.operator.full

    step.watermark(4)

    assert step.operator.full
    assert step.keys == ["a", "b"]


# --------------------------------------------------------------------------------------------------- refusals


def test_a_key_that_cannot_be_stored_is_refused(start: Start) -> None:
    with pytest.raises(OperatorError, match="key"):
        start(Adding()).push(1, keys=[object()])


def test_a_generator_is_refused() -> None:
    class Yielding(AsyncKeyedProcess[str, int, int]):
        async def process(self, value: int, ctx: AsyncContext[str]) -> Any:
            yield value

    with pytest.raises(FlowDefinitionError, match=r"Yielding\.process yields its results"):
        check_async_keyed_process(Yielding())


def test_an_open_that_would_have_to_be_awaited_is_refused() -> None:
    class Opening(Adding):
        async def open(self) -> None:  # type: ignore[override]  # as somebody may write it
            return None

    with pytest.raises(FlowDefinitionError, match=r"Opening\.open is a coroutine function"):
        check_async_keyed_process(Opening())


def test_a_class_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match=r"write Adding\(\)"):
        check_async_keyed_process(Adding)


def test_a_proper_one_is_not_refused() -> None:
    check_async_keyed_process(Adding())


def test_a_function_is_opened_and_closed(start: Start) -> None:
    events: list[str] = []

    class Opened(Adding):
        def open(self) -> None:
            events.append("open")

        def close(self) -> None:
            events.append("close")

    step = Awaiting(Opened())
    assert events == ["open"]
    step.close()
    assert events == ["open", "close"]


def test_an_error_of_open_is_named() -> None:
    class Broken(Adding):
        def open(self) -> None:
            raise ValueError("no table")

    with pytest.raises(OperatorError, match=r"failed in Broken\.open\(\): ValueError: no table"):
        Awaiting(Broken())
