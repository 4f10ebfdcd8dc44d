"""Handlers that wait: one at a time for each key, and what one does happens at once, or not at all."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.calls.on_error import Drop
from aflow.machines.calls.queues import HELD
from aflow.machines.calls.retry import Retry
from aflow.model.time import MIN_TIMESTAMP
from aflow.operators.calls.async_process import (
    AsyncContext,
    AsyncKeyedProcess,
    check_async_keyed_process,
)
from aflow.state.backend_choice import DiskEngine, OnDisk
from aflow.state.specs import ValueState
from tests.operators.calls.handlers.processes import (
    ODD,
    Adding,
    Doing,
    Start,
    do,
    total,
)
from tests.operators.calls.harness import CallHarness

# ------------------------------------------------------------------------------------------------ transactions


def test_nothing_has_happened_before_a_handler_returns(start: Start) -> None:
    step = start(Adding()).push(3, keys=["a"])

    step.resume("a")

    assert (total(step, "a"), step.side_values("odd"), step.new_values()) == (None, [], [])


def test_all_of_it_happens_when_a_handler_returns(start: Start) -> None:
    step = start(Adding()).push(3, keys=["a"])

    step.finish()

    assert (total(step, "a"), step.side_values("odd"), step.new_values()) == (3, [3], ["a3"])


def test_handlers_of_a_key_run_one_after_the_other_and_those_of_others_meanwhile(
    start: Start,
) -> None:
    step = start(Adding()).push(1, 2, 5, keys=["a", "a", "b"])

    assert step.keys == ["a", "b"]
    step.resume("b").resume("b")
    assert step.new_values() == ["b5"]
    step.finish()
    assert step.new_values() == ["a1", "a3"]


def test_nothing_of_a_handler_that_failed_has_happened(start: Start) -> None:
    step = start(Adding(), on_error=Drop()).push(1, -3, 5, keys=["a", "a", "a"])

    step.finish()

    assert step.new_values() == ["a1", "a6"]
    assert step.state("seen", "a") == [1, 5]
    assert step.side_values("odd") == [1, 5]


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
    assert step.new_values() == [1]


def test_a_handler_whose_time_is_up_has_done_nothing_and_can_do_nothing(start: Start) -> None:
    step = start(Adding(), timeout=1000, on_error=Drop()).push(1, 2, keys=["a", "a"])
    step.resume("a")

    step.clock(1000)
    with pytest.raises(OperatorError, match="of a handler of key 'a' after its end"):
        step.cancelled_handlers[0].send(None)
    step.finish()

    assert step.new_values() == ["a2"]
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
    assert step.step.size().event_timers == 0


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

    assert step.new_items() == [5, (("a", 9, 5, 77, None), 9)]


def test_the_watermark_of_a_context_is_the_smallest_there_is_before_the_first(
    start: Start,
) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.watermark), keys=["a"]).finish()

    assert step.new_values() == [MIN_TIMESTAMP]


def test_a_handler_may_give_nothing(start: Start) -> None:
    class Silent(AsyncKeyedProcess[str, int, str]):
        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            return None

    step = start(Silent()).push(1, keys=["a"])

    assert (step.new_values(), step.step.busy) == ([], False)


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
            step.resume(str(number))
        step.finish()

    assert [total(step, str(number)) for number in range(10)] == [3 * n for n in range(10)]


def test_timers_on_disk_fire_in_the_order_of_time(start: Start, tmp_path: Path) -> None:
    class Setting(AsyncKeyedProcess[str, int, int]):
        """Sets a timer at a value, or deletes that at minus such."""

        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            if value > 0:
                ctx.set_event_timer(value)
            else:
                ctx.delete_event_timer(-value)

        async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[int]:
            return [at]

    step = start(Setting(), backend=OnDisk(DiskEngine.SQLITE, tmp_path, resident=4))
    for number in range(50):
        step.push(number * 7 % 50 + 1, keys=["a"]).finish()
    assert next(tmp_path.iterdir()).is_dir()

    step.watermark(30).finish()
    first = [item[0] for item in step.new_items()[:-1]]
    step.push(-40, 31, -41, keys=["a"] * 3).finish().watermark(60).finish()
    rest = [item[0] for item in step.new_items()[:-1]]

    assert first == list(range(1, 31))
    assert rest == [at for at in range(31, 51) if at not in (40, 41)]


def test_the_step_is_full_when_as_much_waits_as_is_under_way(start: Start) -> None:
    step = start(Adding(), capacity=2).push(1, 2, 3, keys=["a", "b", "c"]).watermark(4)
    assert not step.step.full

    step.push(4, keys=["d"])

    assert step.step.full
    assert step.keys == ["a", "b"]


def test_handlers_that_wait_for_an_earlier_watermark_do_not_stop_the_input(start: Start) -> None:
    step = start(Adding(), capacity=2).push(1, keys=["slow"]).watermark(1)
    pushed = 0

    while not step.step.full:
        step.push(1, keys=[f"key {pushed}"]).resume(f"key {pushed}").resume(f"key {pushed}")
        pushed += 1
    step.resume("slow").resume("slow")

    assert pushed == HELD * 2 * 2
    assert not step.step.full
    assert len(step.new_values()) == pushed + 1


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

    step = CallHarness(handlers=Opened())
    assert events == ["open"]
    step.close()
    assert events == ["open", "close"]


def test_an_error_of_open_is_named() -> None:
    class Broken(Adding):
        def open(self) -> None:
            raise ValueError("no table")

    with pytest.raises(OperatorError, match=r"failed in Broken\.open\(\): ValueError: no table"):
        CallHarness(handlers=Broken())
