"""A fragment that ends for any reason reports the reason, and leaves neither tasks nor alarms."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import aflow as af
from aflow.backfill.blocks import InputRows
from aflow.backfill.exchange import ExitEncoder
from tests.backfill.items import Item, Items, drawn, key_of, keyed, millis
from tests.backfill.keyed_steps import tumbling
from tests.backfill.one_fragment import (
    Results,
    Rows,
    after_a_while,
    at_once,
    fragments,
    keyed_rows,
    leaving_nothing,
    never,
    run_one,
    source_rows,
)
from tests.backfill.steps import asked, asked_together

ITEMS = drawn(Random(1), 100)
BAD = replace(ITEMS[50], n=-7)
WITH_BAD = [*ITEMS[:50], BAD, *ITEMS[51:]]


class Broken(Exception):
    """Raised by the failing part."""


def fail(item: Item) -> Item:
    if item == BAD:
        raise Broken("so it is")
    return item


async def fail_later(item: Item) -> Item:
    await asyncio.sleep(0.01)
    return fail(item)


class Failing(af.KeyedProcess[int, Item, Item]):
    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        ctx.set_event_timer(value.at + 1000)
        return [fail(value)]


class FailingTimer(af.KeyedProcess[int, Item, Item]):
    def process(self, value: Item, ctx: af.Context[int]) -> None:
        ctx.set_event_timer(value.at)

    def on_timer(self, at: int, ctx: af.Context[int]) -> None:
        if at == BAD.at and ctx.key == BAD.key:
            raise Broken("so it is")


class FailingHandler(af.AsyncKeyedProcess[int, Item, Item]):
    async def process(self, value: Item, ctx: af.AsyncContext[int]) -> list[Item]:
        return [await fail_later(value)]


def failing_window(items: Items) -> af.Stream[Any]:
    def plus(so_far: int, item: Item) -> int:
        return so_far + fail(item).n

    return keyed(items).window(af.Tumbling(millis(100))).fold(int, plus, name="broken")


def too_large(items: Items) -> af.Stream[Any]:
    """Seconds in place of milliseconds: beyond the range of timestamps."""
    return items.event_time(lambda item: item.at + (item == BAD) * 2**70, name="broken")


Build = Callable[[Items], af.Stream[Any]]

#: By failing part, a flow with the step ``broken``, whether it is in the second fragment, and the known details.
FAILURES: dict[str, tuple[Build, bool, object, object]] = {
    "map": (lambda items: items.map(fail, name="broken"), False, BAD, None),
    "map_async": (
        lambda items: items.map_async(fail_later, name="broken", capacity=3),
        False,
        BAD,
        None,
    ),
    "behind a step that calls": (
        lambda items: items.map_async(asked, name="asked").map(
            lambda item: item.n // (item.at - BAD.at), name="broken"
        ),
        False,
        None,
        None,
    ),
    "event_time": (too_large, False, BAD, None),
    "window": (failing_window, True, BAD, BAD.key),
    "process": (lambda items: keyed(items).process(Failing(), name="broken"), True, BAD, BAD.key),
    "timer": (
        lambda items: keyed(items).process(FailingTimer(), name="broken"),
        True,
        None,
        BAD.key,
    ),
    "process_async": (
        lambda items: keyed(items).process_async(FailingHandler(), name="broken"),
        True,
        BAD,
        BAD.key,
    ),
    "behind a keyed step": (
        lambda items: tumbling(items, "windows").map(
            lambda item: item.n // (item.key - BAD.key), name="broken"
        ),
        True,
        None,
        None,
    ),
}


def rows_of(items: list[Item], *, by_key: bool) -> list[InputRows]:
    return keyed_rows(items) if by_key else source_rows(items)


@pytest.mark.parametrize("batch", [1, 1024])
@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_of_user_code_is_named_with_step_record_and_key(what: str, batch: int) -> None:
    build, by_key, record, key = FAILURES[what]
    fragment = fragments(build)[int(by_key)]
    inbox = Rows(rows_of(WITH_BAD, by_key=by_key), end=never)

    with pytest.raises(af.OperatorError, match="'broken' failed") as raised:
        leaving_nothing(lambda: run_one(fragment, inbox, Results(), batch=batch))

    assert raised.value.operator == "broken"
    assert record is None or raised.value.record == record
    assert raised.value.key == key
    assert isinstance(raised.value.__cause__, Broken | ZeroDivisionError | af.FlowDefinitionError)


def between(items: Items) -> af.Stream[Any]:
    """Calls in both fragments, with time limits, which are alarms."""
    minute = millis(60_000)
    before = items.map_async(asked, name="asked", capacity=4, timeout=minute)
    called = before.key_by(key_of).map_async(asked, name="by key", capacity=4, timeout=minute)
    return called.map_batch_async(asked_together, name="together", size=50, delay=minute)


@pytest.mark.parametrize("by_key", [False, True])
def test_an_error_of_the_inbox_ends_the_fragment(by_key: bool) -> None:
    async def broken() -> None:
        raise Broken("no more rows")

    inbox = Rows(rows_of(ITEMS, by_key=by_key), end=broken)

    with pytest.raises(Broken, match="no more rows"):
        leaving_nothing(lambda: run_one(fragments(between)[int(by_key)], inbox, Results()))


@pytest.mark.parametrize("by_key", [False, True])
def test_an_error_of_the_outbox_ends_the_fragment(by_key: bool) -> None:
    async def broken() -> None:
        await asyncio.sleep(0.01)
        raise Broken("nobody reads on")

    inbox = Rows(rows_of(ITEMS * 10, by_key=by_key), end=never)

    with pytest.raises(Broken, match="nobody reads on"):
        leaving_nothing(lambda: run_one(fragments(between)[int(by_key)], inbox, Results(broken)))


@pytest.mark.parametrize("by_key", [False, True])
def test_an_inbox_that_is_cancelled_by_others_ends_the_fragment(by_key: bool) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    inbox = Rows(rows_of(ITEMS, by_key=by_key), end=cancelled)

    with pytest.raises(af.errors.InternalError, match="rows"):
        leaving_nothing(lambda: run_one(fragments(between)[int(by_key)], inbox, Results()))


def test_an_error_of_the_outbox_at_the_very_end_ends_the_fragment() -> None:
    async def broken() -> None:
        raise Broken("the disk is full")

    inbox = Rows(source_rows(ITEMS))

    with pytest.raises(Broken, match="the disk is full"):
        leaving_nothing(lambda: run_one(fragments(between)[0], inbox, Results(broken)))


def test_a_record_that_cannot_be_sent_to_another_executor_is_named() -> None:
    first = fragments(lambda items: keyed(items.map(_locked)).reduce(_newest, name="newest"))[0]

    class Encoding(Results):
        async def put(self, exit_batch: Any, /) -> None:
            list(
                ExitEncoder(exit_batch.exit, key_groups=128, readers=1).record_blocks(
                    exit_batch.batch
                )
            )

    with pytest.raises(af.OperatorError, match="cannot go from one executor to another"):
        leaving_nothing(lambda: run_one(first, Rows(source_rows(ITEMS)), Encoding()))


class Locked(Item):
    """Holds an object that cannot be pickled."""

    def __reduce__(self) -> Any:
        return threading.Lock, (threading.Lock(),)


def _locked(item: Item) -> Item:
    return Locked(item.key, item.n, item.at)


@pytest.mark.parametrize("steps", range(30))
@pytest.mark.parametrize("by_key", [False, True])
def test_cancelled_at_any_moment_a_fragment_leaves_no_tasks(by_key: bool, steps: int) -> None:
    fragment = fragments(between)[int(by_key)]
    inbox = Rows(rows_of(ITEMS * 10, by_key=by_key), end=never)

    async def main() -> None:
        running = asyncio.create_task(run_one(fragment, inbox, Results(after_a_while), batch=16))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    leaving_nothing(main)


@pytest.mark.parametrize("seconds", [0.0005, 0.004, 0.9, 1.0, 2.5])
@pytest.mark.parametrize("by_key", [False, True])
def test_cancelled_with_calls_and_writes_in_flight_it_leaves_no_tasks(
    by_key: bool, seconds: float
) -> None:
    fragment = fragments(between)[int(by_key)]
    inbox = Rows(rows_of(ITEMS * 10, by_key=by_key), end=never)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await run_one(fragment, inbox, Results(after_a_while))

    leaving_nothing(main)


@pytest.mark.parametrize("by_key", [False, True])
def test_a_fragment_that_has_ended_leaves_no_tasks(by_key: bool) -> None:
    inbox, outbox = Rows(rows_of(ITEMS, by_key=by_key)), Results()

    left = leaving_nothing(lambda: run_one(fragments(between)[int(by_key)], inbox, outbox))

    assert left.left_out == 0
    assert len(outbox.values) >= len(ITEMS)


@pytest.mark.parametrize("by_key", [False, True])
def test_while_no_results_are_fetched_little_input_is_taken(by_key: bool) -> None:
    fragment = fragments(lambda items: keyed(items).reduce(_newest, name="newest").map(_same))
    inbox = Rows(rows_of(ITEMS * 100, by_key=by_key))
    outbox = Results(never)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await run_one(fragment[int(by_key)], inbox, outbox)

    leaving_nothing(main)

    # Records being emitted, as many waiting for that, those buffered by the sink, and fetched inputs.
    assert 64 * 2 + 2048 + 64 + 30 >= inbox.taken > 64


def _newest(_: Item, item: Item) -> Item:
    return item


def _same(item: Item) -> Item:
    return item


def test_calls_continue_while_no_rows_arrive() -> None:
    answered = asyncio.Event()

    async def ask(item: Item) -> Item:
        await asyncio.sleep(5)
        if item == ITEMS[2]:
            answered.set()
        return item

    async def answered_before() -> None:
        await answered.wait()

    fragment = fragments(lambda items: items.map_async(ask, name="asked", capacity=1))[0]
    inbox, outbox = Rows(source_rows(ITEMS[:3]), end=answered_before), Results()

    leaving_nothing(lambda: run_one(fragment, inbox, outbox))

    assert outbox.values == ITEMS[:3]


def test_calls_are_made_for_rows_of_many_blocks_at_once() -> None:
    fragment = fragments(lambda items: items.map_async(_slow, name="asked", capacity=100))[0]
    inbox, outbox = Rows(source_rows(ITEMS, 1)), Results()

    async def main() -> float:
        await run_one(fragment, inbox, outbox)
        return asyncio.get_running_loop().time()

    assert leaving_nothing(main) < 1.5
    assert len(outbox.values) == 100


async def _slow(item: Item) -> Item:
    await asyncio.sleep(1)
    return item


class RecordingOperator(af.KeyedProcess[int, Item, Item]):
    """Fails at a bad record; notes what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        return [fail(value)]


@pytest.mark.parametrize("end", ["by itself", "a failure", "a cancellation"])
def test_users_functions_are_opened_and_closed_once(end: str) -> None:
    function = RecordingOperator()
    fragment = fragments(lambda items: keyed(items).process(function, name="opened"))[1]
    rows = keyed_rows(WITH_BAD if end == "a failure" else ITEMS)
    inbox = Rows(rows, end=never if end == "a cancellation" else at_once)

    async def main() -> None:
        with suppress(af.OperatorError, TimeoutError):
            async with asyncio.timeout(1):
                await run_one(fragment, inbox, Results())

    leaving_nothing(main)

    assert function.calls == ["open", "close"]
