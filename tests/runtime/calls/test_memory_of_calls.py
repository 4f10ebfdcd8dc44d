"""No record stays in memory once its call has ended, whatever became of it.

The garbage collector does not look at calls (``aflow.machines.calls.call``), so a cycle through one would stay.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

import aflow as af


class Record:
    """A record that can be watched."""

    def __init__(self, number: int) -> None:
        self.number = number


_WATCHED: list[weakref.ref[Record]] = []
_RECORDS = 60


async def _records() -> AsyncIterator[Record]:
    for number in range(_RECORDS):
        record = Record(number)
        _WATCHED.append(weakref.ref(record))
        yield record
        del record


async def _call(record: Record) -> Record:
    await asyncio.sleep(0.001 * (record.number % 3))
    if record.number % 5 == 0:
        raise ValueError(record.number)
    return record


async def _call_group(records: list[Record]) -> list[Record | Exception]:
    if records[0].number % 7 == 0:
        raise ValueError(records[0].number)
    await asyncio.sleep(0.001)
    return [ValueError(one.number) if one.number % 5 == 0 else one for one in records]


async def _call_many(record: Record) -> list[Record]:
    if record.number % 2:
        return None  # type: ignore[return-value] # no list: the conversion fails
    return [record, record]


class _Handler(af.AsyncKeyedProcess[int, Record, Record]):
    async def process(self, value: Record, ctx: af.AsyncContext[int]) -> list[Record]:
        return [await _call(value)]


_FAILED = af.Tag[af.calls.FailedCall[Record]]("failed")
_DEAD_LETTER = af.calls.DeadLetter(_FAILED)
_Step = Callable[[af.Stream[Record]], af.Stream[Record]]


def _timed(records: af.Stream[Record]) -> af.Stream[Record]:
    return records.event_time(lambda one: one.number, max_delay=timedelta(0))


def _fallback(record: Record, error: BaseException) -> Record:
    return record


_STEPS: dict[str, _Step] = {
    "in order": lambda it: it.map_async(_call, capacity=8, on_error=_DEAD_LETTER),
    "unordered": lambda it: it.map_async(_call, capacity=8, ordered=False, on_error=_DEAD_LETTER),
    "behind watermarks": lambda it: _timed(it).map_async(
        _call, capacity=8, ordered=False, on_error=_DEAD_LETTER
    ),
    "by key": lambda it: it.key_by(lambda one: one.number % 3).map_async(
        _call, name="call", on_error=_DEAD_LETTER
    ),
    "dropped": lambda it: it.map_async(_call, capacity=8, on_error=af.calls.Drop()),
    "fallback": lambda it: it.map_async(_call, capacity=8, on_error=af.calls.Fallback(_fallback)),
    "retried": lambda it: it.map_async(
        _call,
        capacity=8,
        retry=af.Retry(attempts=3, delay=timedelta(milliseconds=1)),
        on_error=_DEAD_LETTER,
    ),
    "timed": lambda it: it.map_async(
        _call, capacity=8, timeout=timedelta(milliseconds=1), on_error=_DEAD_LETTER
    ),
    "attempts timed": lambda it: it.map_async(
        _call, capacity=8, attempt_timeout=timedelta(milliseconds=1), on_error=_DEAD_LETTER
    ),
    "in groups": lambda it: it.map_batch_async(
        _call_group, size=4, delay=timedelta(milliseconds=1), on_error=_DEAD_LETTER
    ),
    "many results": lambda it: it.flat_map_async(_call_many, capacity=8, on_error=_DEAD_LETTER),
    "cached": lambda it: it.map_async(
        _call,
        capacity=8,
        cache=af.calls.Cache(size=2, key=lambda one: one.number % 4),
        on_error=_DEAD_LETTER,
    ),
    "adaptive": lambda it: it.map_async(_call, capacity=af.calls.Adaptive(), on_error=_DEAD_LETTER),
    "handlers": lambda it: it.key_by(lambda one: one.number % 3).process_async(
        _Handler(), name="handle", on_error=_DEAD_LETTER
    ),
}


async def _run(name: str, *, cancel_after: float | None) -> None:
    flow = af.Flow("memory")
    done = _STEPS[name](flow.source(af.AsyncIterableSource(_records())))
    done.map(lambda one: one.number).to(af.CollectSink[int]())
    if name not in ("dropped", "fallback"):
        done.side(_FAILED).map(lambda failed: failed.value.number).to(af.CollectSink[int]())
    async with flow.start(options=af.Options(batch_records=8)) as job:
        if cancel_after is None:
            await job.wait()
        else:
            while not _WATCHED:  # noqa: ASYNC110 - records are read in other tasks
                await asyncio.sleep(0)
            await asyncio.sleep(cancel_after)
            await job.cancel()


@pytest.mark.parametrize("cancel_after", [None, 0.005])
@pytest.mark.parametrize("name", _STEPS)
def test_no_record_is_left_when_the_job_has_ended(name: str, cancel_after: float | None) -> None:
    _WATCHED.clear()

    asyncio.run(_run(name, cancel_after=cancel_after))
    gc.collect()

    assert _WATCHED
    assert sum(one() is not None for one in _WATCHED) == 0
