"""A keyed process function keeps state and sets timers for each key."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError, InternalError, OperatorError, RestoreError
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, TimeDomain
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedProcess, KeyedProcessOperator, check_keyed_process
from aflow.state.snapshot import merge
from aflow.state.specs import ListState, ValueState
from tests.operators.driver import Drive, Driver, emitted_values, subtasks

SEEN: Tag[str] = Tag("seen")


class Changes(KeyedProcess[str, int, tuple[str, int]]):
    """By how much each key's value has changed."""

    last = ValueState("last", of=int)

    def process(self, value: int, ctx: Context[str]) -> Iterable[tuple[str, int]]:
        cell = ctx.state(self.last)
        before = cell.get()
        cell.set(value)
        return [] if before is None else [(ctx.key, value - before)]


class Scripted(KeyedProcess[str, str, tuple[str, int]]):
    """Sets and deletes timers by records such as ``event 10``, ``-event 10``, ``processing 10``, ``-processing 10``.

    A timer emits key and time, and does the action of ``again`` for its time.
    """

    again: dict[int, str] = {}  # noqa: RUF012 - read only

    def process(self, value: str, ctx: Context[str]) -> None:
        what, _, at = value.partition(" ")
        {
            "event": ctx.set_event_timer,
            "-event": ctx.delete_event_timer,
            "processing": ctx.set_processing_timer,
            "-processing": ctx.delete_processing_timer,
        }[what](int(at))

    def on_timer(self, at: int, ctx: Context[str]) -> list[tuple[str, int]]:
        if at in self.again:
            self.process(self.again[at], ctx)
        return [(ctx.key, at)]


class Silence(KeyedProcess[str, int, str]):
    """Emits a key without records for 10 ms of event time, and the number of its records before."""

    seen = ListState("seen", of=int)

    def process(self, value: int, ctx: Context[str]) -> None:
        assert ctx.timestamp is not None
        seen = ctx.state(self.seen)
        for before in seen:
            ctx.delete_event_timer(before + 10)
        seen.add(ctx.timestamp)
        ctx.set_event_timer(ctx.timestamp + 10)

    def on_timer(self, at: int, ctx: Context[str]) -> Iterator[str]:
        seen = ctx.state(self.seen)
        yield f"{ctx.key} after {len(seen)}"
        seen.clear()


def scripted(again: dict[int, str] | None = None) -> KeyedProcessOperator:
    function = Scripted()
    function.again = again or {}
    return KeyedProcessOperator(function)


def test_each_key_has_its_own_state(drive: Drive) -> None:
    step = drive(lambda: KeyedProcessOperator(Changes()))

    step.push(1, 10, 3, at=[100, 101, 102], keys=["a", "b", "a"])
    step.push(20, 30, at=[103, 104], keys=["b", "c"])

    assert step.batches() == [Batch([("a", 2)], [102]), Batch([("b", 10)], [103])]


def test_results_without_event_time_have_no_timestamps_and_never_keys(drive: Drive) -> None:
    step = drive(lambda: KeyedProcessOperator(Changes()))

    step.push(1, 3, keys=["a", "a"])

    assert step.batches() == [Batch([("a", 2)])]


def test_a_generator_runs_to_its_end_while_its_key_is_the_current_one(drive: Drive) -> None:
    class Around(KeyedProcess[str, int, tuple[str, int | None]]):
        last = ValueState("last", of=int)

        def process(self, value: int, ctx: Context[str]) -> Iterator[tuple[str, int | None]]:
            yield ctx.key, ctx.state(self.last).get()
            ctx.state(self.last).set(value)
            yield ctx.key, ctx.state(self.last).get()

    step = drive(lambda: KeyedProcessOperator(Around()))

    step.push(1, 2, 3, keys=["a", "b", "a"])

    assert step.new_values() == [("a", None), ("a", 1), ("b", None), ("b", 2), ("a", 1), ("a", 3)]


def test_event_timers_fire_in_time_order_before_the_watermark_is_emitted(drive: Drive) -> None:
    step = drive(scripted)

    step.push("event 30", "event 10", "event 20", keys=["a", "b", "a"])
    step.watermark(9).watermark(20).watermark(40)

    assert step.batches() == [
        Watermark(9),
        Batch([("b", 10), ("a", 20)], [10, 20]),
        Watermark(20),
        Batch([("a", 30)], [30]),
        Watermark(40),
    ]


def test_one_key_and_moment_is_one_timer(drive: Drive) -> None:
    step = drive(scripted)

    step.push("event 10", "event 10", "event 10", keys=["a", "a", "b"])
    step.watermark(10)

    assert sorted(step.new_values()) == [("a", 10), ("b", 10)]


def test_the_domains_have_their_own_timers(drive: Drive) -> None:
    step = drive(scripted)

    step.push("event 10", "processing 10", keys=["a", "a"])
    step.watermark(10)
    by_event_time = step.new_records()
    step.clock(10)

    assert by_event_time == [(("a", 10), 10)]
    assert step.new_records() == [(("a", 10), None)]


def test_a_deleted_timer_does_not_fire(drive: Drive) -> None:
    step = drive(scripted)

    step.push("event 10", "event 10", "event 20", "-event 10", keys=["a", "b", "a", "a"])
    step.push("processing 10", "-processing 10", "-event 99", keys=["a", "a", "a"])
    step.watermark(20).clock(20)

    assert step.new_values() == [("b", 10), ("a", 20)]


def test_a_timer_that_the_watermark_has_passed_fires_when_it_next_advances(drive: Drive) -> None:
    step = drive(scripted)

    step.watermark(50)
    step.push("event 10", "event 50", keys=["a", "a"])
    before = step.batches()
    step.watermark(51)

    assert before == [Watermark(50)]
    assert step.batches() == [Batch([("a", 10), ("a", 50)], [10, 50]), Watermark(51)]


def test_a_timer_set_in_a_timer_fires_in_time_order(drive: Drive) -> None:
    step = drive(lambda: scripted({10: "event 15", 15: "event 100"}))

    step.push("event 10", "event 20", keys=["a", "b"])
    step.watermark(20)
    at_20 = step.new_values()
    step.watermark(100)

    assert at_20 == [("a", 10), ("a", 15), ("b", 20)]
    assert step.new_values() == [("a", 100)]


@pytest.mark.parametrize("at", [MAX_TIMESTAMP, MAX_TIMESTAMP + 1, 2**70])
def test_all_event_timers_fire_at_the_last_watermark(drive: Drive, at: int) -> None:
    step = drive(scripted)

    step.push(f"event {at}", "event 10", keys=["a", "b"])
    step.watermark(MAX_TIMESTAMP)

    assert step.new_values() == [("b", 10), ("a", MAX_TIMESTAMP)]


def test_processing_timers_fire_by_the_clock_with_results_without_timestamp(
    drive: Drive,
) -> None:
    step = drive(scripted)

    step.push("processing 30", "processing 10", at=[1, 2], keys=["a", "b"])
    step.clock(9)
    early = step.batches()
    step.clock(10)
    first = step.batches()
    step.clock(50)

    assert early == []
    assert first == [Batch([("b", 10)])]
    assert step.batches() == [Batch([("a", 30)])]


def test_only_the_earliest_processing_timer_is_on_the_clock(drive: Drive) -> None:
    step = drive(scripted)
    alarms: list[int | None] = []

    for command in ("processing 20", "processing 10", "processing 30", "-processing 10"):
        step.push(command, keys=["a"])
        alarms.append(step.time.alarm)
    step.clock(20)
    alarms.append(step.time.alarm)
    step.clock(30)
    alarms.append(step.time.alarm)

    assert alarms == [20, 10, 10, 20, 30, None]


def test_the_alarm_is_set_only_when_the_earliest_timer_changes() -> None:
    step = Driver(scripted)
    step.push("processing 10", keys=["a"])
    step.time.alarm = None

    step.push("processing 20", "event 5", keys=["a", "a"])

    assert step.time.alarm is None


def test_an_alarm_that_fires_early_is_set_again() -> None:
    step = Driver(scripted).push("processing 10", keys=["a"])
    step.time.alarm = None

    step.operator.on_processing_time(9)

    assert step.time.alarm == 10
    assert step.batches() == []


def test_a_processing_timer_set_in_a_processing_timer_is_on_the_clock(drive: Drive) -> None:
    step = drive(lambda: scripted({10: "processing 20", 20: "processing 30"}))

    step.push("processing 10", keys=["a"])
    step.clock(10)

    assert step.time.alarm == 20
    step.clock(25)
    assert step.new_values() == [("a", 10), ("a", 20)]
    assert step.time.alarm == 30


def test_processing_timers_do_not_fire_after_the_end_of_the_input(drive: Drive) -> None:
    step = drive(scripted)

    step.push("processing 10", keys=["a"])
    step.watermark(MAX_TIMESTAMP)
    step.operator.end_input()

    assert step.new_values() == []


def test_state_and_timers_work_together(drive: Drive) -> None:
    step = drive(lambda: KeyedProcessOperator(Silence()))

    step.push(1, 1, 1, at=[0, 5, 7], keys=["a", "b", "a"])
    step.watermark(14).watermark(15).watermark(17)
    step.push(1, at=[20], keys=["a"])
    step.watermark(MAX_TIMESTAMP)

    assert step.new_records() == [("b after 1", 15), ("a after 2", 17), ("a after 1", 30)]


def test_the_context_has_the_clock_of_a_timer_and_its_time(drive: Drive) -> None:
    class Tell(KeyedProcess[str, int, Any]):
        def process(self, value: int, ctx: Context[str]) -> list[Any]:
            ctx.set_event_timer(10)
            ctx.set_processing_timer(20)
            return [(ctx.timer_domain, ctx.timestamp)]

        def on_timer(self, at: int, ctx: Context[str]) -> list[Any]:
            return [(ctx.timer_domain, ctx.timestamp, ctx.watermark, ctx.processing_time)]

    step = drive(lambda: KeyedProcessOperator(Tell()))

    step.push(1, at=[5], keys=["a"])
    step.operator.on_watermark(12)
    step.operator.process(Batch([1], [6], ["a"]))
    step.clock(25)

    assert step.new_values() == [
        (None, 5),
        (TimeDomain.EVENT, 10, 12, 0),
        (None, 6),
        (TimeDomain.PROCESSING, None, 12, 25),
    ]


def test_side_outputs_of_a_timer_have_its_time_and_are_emitted_before_the_watermark() -> None:
    class Sided(Scripted):
        def on_timer(self, at: int, ctx: Context[str]) -> list[tuple[str, int]]:
            ctx.side(SEEN, f"{ctx.key} {ctx.watermark}")
            return []

    step = Driver(lambda: KeyedProcessOperator(Sided()))
    sides_at_watermark: list[int] = []
    step.recorder.watermark = lambda timestamp: sides_at_watermark.append(len(step.recorder.sides))  # type: ignore[method-assign]

    step.push("event 10", "event 12", keys=["a", "b"]).watermark(20)

    assert step.side_records("seen") == [("a 20", 10), ("b 20", 12)]
    assert sides_at_watermark == [1]


@pytest.mark.parametrize("at", [10, datetime.fromtimestamp(0.010, UTC)], ids=["int", "datetime"])
def test_a_timer_s_moment_is_epoch_milliseconds_or_an_aware_datetime(
    drive: Drive, at: Instant
) -> None:
    class Once(KeyedProcess[str, int, int]):
        def process(self, value: int, ctx: Context[str]) -> None:
            ctx.set_event_timer(at)

        def on_timer(self, at: int, ctx: Context[str]) -> list[int]:
            return [at]

    step = drive(lambda: KeyedProcessOperator(Once()))

    step.push(1, keys=["a"]).watermark(10)

    assert step.new_values() == [10]


def test_a_naive_moment_is_refused() -> None:
    class Naive(KeyedProcess[str, int, int]):
        def process(self, value: int, ctx: Context[str]) -> None:
            ctx.set_event_timer(datetime(2024, 1, 1))  # noqa: DTZ001 - the mistake

    with pytest.raises(OperatorError, match=r"the time of a timer .* has no time zone"):
        Driver(lambda: KeyedProcessOperator(Naive())).push(1, keys=["a"])


def test_a_function_that_sets_timers_needs_on_timer() -> None:
    class Forgetful(KeyedProcess[str, int, int]):
        def process(self, value: int, ctx: Context[str]) -> None:
            ctx.set_event_timer(10)

    step = Driver(lambda: KeyedProcessOperator(Forgetful())).push(1, keys=["a"])

    with pytest.raises(OperatorError, match="Forgetful sets timers and needs an on_timer method"):
        step.watermark(10)


def test_an_error_of_the_function_names_step_key_record_and_timestamp() -> None:
    class Divide(KeyedProcess[str, int, float]):
        def process(self, value: int, ctx: Context[str]) -> list[float]:
            return [1 / value]

    step = Driver(lambda: KeyedProcessOperator(Divide()))

    with pytest.raises(OperatorError) as e:
        step.push(1, 0, 2, at=[10, 20, 30], keys=["a", "b", "c"])

    assert (e.value.record, e.value.key, e.value.timestamp) == (0, "b", 20)
    assert isinstance(e.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("domain", ["event", "processing"])
def test_an_error_of_a_timer_names_step_time_domain_time_and_key(domain: str) -> None:
    class Broken(Scripted):
        def on_timer(self, at: int, ctx: Context[str]) -> list[tuple[str, int]]:
            raise ValueError("no rate")

    step = Driver(lambda: KeyedProcessOperator(Broken())).push(f"{domain} 10", keys=["a"])

    with pytest.raises(OperatorError) as e:
        step.watermark(10).clock(10)

    assert str(e.value) == (
        f"step 'step' failed in the {domain} time timer at 10 (1970-01-01T00:00:00.010+00:00) of key 'a': "
        "ValueError: no rate"
    )
    assert (e.value.key, e.value.timestamp) == ("a", 10)
    assert isinstance(e.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "cause",
    [CancelledError("given up"), OperatorError("no rate", operator="rates")],
    ids=["CancelledError", "OperatorError"],
)
@pytest.mark.parametrize("where", ["process", "on_timer"])
def test_whatever_the_function_raises_is_its_failure_and_kept_as_the_cause(
    where: str, cause: BaseException
) -> None:
    class Raising(KeyedProcess[str, int, int]):
        def process(self, value: int, ctx: Context[str]) -> None:
            ctx.set_event_timer(10)
            if where == "process":
                raise cause

        def on_timer(self, at: int, ctx: Context[str]) -> None:
            raise cause

    with pytest.raises(OperatorError, match=f"'step' failed .*key 'a'.*{cause}") as error:
        Driver(lambda: KeyedProcessOperator(Raising())).push(1, at=[5], keys=["a"]).watermark(10)

    assert (error.value.operator, error.value.key) == ("step", "a")
    assert error.value.__cause__ is cause
    assert cause.__cause__ is None


def test_a_single_result_of_a_timer_that_is_no_list_is_refused() -> None:
    class Texts(Scripted):
        def on_timer(self, at: int, ctx: Context[str]) -> Any:
            return "alert"

    step = Driver(lambda: KeyedProcessOperator(Texts())).push("event 10", keys=["a"])

    with pytest.raises(OperatorError, match=r"return \[result\]"):
        step.watermark(10)


def test_state_that_is_no_attribute_is_refused_with_the_remedy() -> None:
    elsewhere = ValueState("elsewhere", of=int)

    class Borrowing(Changes):
        def process(self, value: int, ctx: Context[str]) -> Any:
            return ctx.state(elsewhere).get()

    with pytest.raises(OperatorError, match=r"make it an attribute .*declared: 'last'"):
        Driver(lambda: KeyedProcessOperator(Borrowing())).push(1, keys=["a"])


def test_context_and_cells_are_of_no_use_outside_of_the_handler() -> None:
    kept: list[Context[str]] = []

    class Keeping(Changes):
        def process(self, value: int, ctx: Context[str]) -> list[tuple[str, int]]:
            kept.append(ctx)
            return []

    step = Driver(lambda: KeyedProcessOperator(Keeping())).push(1, keys=["a"]).watermark(10)

    outside = "outside of its handlers"
    with pytest.raises(OperatorError, match=outside):
        assert kept[0].key
    with pytest.raises(OperatorError, match=outside):
        kept[0].state(Changes.last).set(1)
    with pytest.raises(OperatorError, match=outside):
        kept[0].set_event_timer(10)
    with pytest.raises(OperatorError, match=outside):
        kept[0].side(SEEN, "late")
    assert not step.snapshot().keyed


def test_a_batch_without_keys_is_our_mistake() -> None:
    with pytest.raises(InternalError, match="'step' is keyed and got a batch without keys"):
        Driver(lambda: KeyedProcessOperator(Changes())).push(1)


def test_a_snapshot_holds_no_removed_state() -> None:
    step = Driver(lambda: KeyedProcessOperator(Silence()))

    step.push(1, at=[0], keys=["a"]).watermark(10)

    assert not step.snapshot().keyed


def test_state_and_timers_of_a_key_are_filed_in_its_key_group() -> None:
    step = Driver(lambda: KeyedProcessOperator(Silence()))

    step.push(1, 1, at=[0, 1], keys=["a", "b"])

    keyed = step.snapshot().keyed
    assert set(keyed) == {key_group("a"), key_group("b")}
    assert {"seen", "@event timers"} <= set(keyed[key_group("a")])


def test_a_snapshot_with_unknown_state_is_refused() -> None:
    old = Driver(lambda: KeyedProcessOperator(Changes())).push(1, keys=["a"])
    new = Driver(lambda: KeyedProcessOperator(Silence()))

    with pytest.raises(RestoreError, match=r"holds state 'last', .* declared: 'seen'"):
        new.restore(old.snapshot())


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_keys_with_timers_of_three_subtasks_are_restored_in_any_number(parallelism: int) -> None:
    keys = [f"key {number}" for number in range(50)]
    three = subtasks(lambda: KeyedProcessOperator(Silence()), 3)
    for number, key in enumerate(keys):
        three[key_group(key) * 3 // 128].push(number, at=[number], keys=[key])

    everything = merge(old.snapshot() for old in three)
    new = subtasks(lambda: KeyedProcessOperator(Silence()), parallelism, everything)
    for subtask in new:
        subtask.watermark(MAX_TIMESTAMP)

    assert sorted(emitted_values(new)) == sorted(f"{key} after 1" for key in keys)


class TellsWatermark(KeyedProcess[str, int, int]):
    def process(self, value: int, ctx: Context[str]) -> list[int]:
        return [ctx.watermark]


def test_the_context_has_the_watermark_also_after_a_restore(drive: Drive) -> None:
    step = drive(lambda: KeyedProcessOperator(TellsWatermark()))
    step.push(1, at=[5], keys=["a"]).watermark(40)

    step.push(2, at=[50], keys=["a"])

    assert step.new_values() == [MIN_TIMESTAMP, 40]


@pytest.mark.parametrize("order", [1, -1])
def test_two_subtasks_that_become_one_continue_at_the_smaller_watermark(order: int) -> None:
    first, second = subtasks(lambda: KeyedProcessOperator(TellsWatermark()), 2)
    first.watermark(40)
    second.watermark(30)
    snapshots = [first.snapshot(), second.snapshot()]

    (step,) = subtasks(lambda: KeyedProcessOperator(TellsWatermark()), 1, merge(snapshots[::order]))
    step.push(1, at=[50], keys=["a"])

    assert step.new_values() == [30]


def test_processing_timers_are_on_the_clock_again_after_a_restore() -> None:
    old = Driver(scripted).push("processing 30", "processing 10", keys=["a", "b"])

    new = Driver(scripted).restored(old.snapshot())

    assert new.time.alarm == 10
    assert new.clock(30).new_values() == [("b", 10), ("a", 30)]


class AsyncTimer(KeyedProcess[str, int, int]):
    def process(self, value: int, ctx: Context[str]) -> None: ...

    async def on_timer(self, at: int, ctx: Context[str]) -> list[int]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return [at]


class TwoOfOneName(Changes):
    again = ValueState("last", of=int)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        pytest.param(AsyncTimer(), r"AsyncTimer\.on_timer is a coroutine function", id="async"),
        pytest.param(TwoOfOneName(), "TwoOfOneName.again: another state", id="name taken"),
        pytest.param(Changes, r"write Changes\(\)", id="class"),
        pytest.param(5, "a KeyedProcess is needed, not 5", id="no function"),
    ],
)
def test_an_invalid_function_is_refused(function: object, reason: str) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        check_keyed_process(function)


def test_a_keyed_process_function_is_accepted() -> None:
    check_keyed_process(cast("object", Silence()))
