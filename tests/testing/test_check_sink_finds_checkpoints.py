"""``check_sink`` finds and names each breach of the contract of sinks with checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import cast

import pytest

from aflow.connect import (
    Batch,
    Committable,
    Delivery,
    Sink,
    SinkError,
    SourceError,
    Writer,
    WriterContext,
)
from aflow.testing import check_sink
from aflow.testing.virtual_time import virtual_time

RECORDS = [*"abcdefghijkl"]


class Fault(Enum):
    NONE = auto()
    SHOWS_AT_ONCE = auto()
    SHOWS_WHEN_PREPARED = auto()
    PREPARES_WHAT_NOBODY_CAN_STORE = auto()
    COMMITS_NOTHING = auto()
    COMMITS_AGAIN = auto()
    COMMITS_THE_LAST_ONLY = auto()
    COMMITS_WHAT_COMES_LATER = auto()
    RECOVERS_NOTHING = auto()
    RECOVERS_AGAIN = auto()
    RECOVERS_THE_FIRST_WRITER_ONLY = auto()
    RECOVERS_EVERYTHING = auto()
    RECOVERS_WHAT_IT_IS_NOT_TOLD = auto()
    ACCEPTS_FOREIGN_OUTPUT = auto()
    STUMBLES_OVER_FOREIGN_OUTPUT = auto()
    REFUSES_FOREIGN_OUTPUT_WITH_ANOTHER_ERROR = auto()


class Safe(Sink[str]):
    """Transactional, apart from its fault."""

    delivery = Delivery.TRANSACTIONAL

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen: list[str] = []
        #: Committed and waiting output, by writer and checkpoint.
        self.committed: set[tuple[int, int]] = set()
        self.waiting: dict[tuple[int, int], list[str]] = {}
        self.prepared: set[tuple[int, int]] = set()

    async def writer(self, context: WriterContext) -> Writer[str]:
        return _SafeWriter(self, context)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        if self.fault is Fault.RECOVERS_NOTHING:
            return
        told = [self.mine(one) for one in committables]
        if self.fault is Fault.RECOVERS_THE_FIRST_WRITER_ONLY:
            told = told[:1]
        if self.fault is Fault.RECOVERS_EVERYTHING and told:
            told = list(self.waiting)
        if self.fault is Fault.RECOVERS_WHAT_IT_IS_NOT_TOLD and not told:
            told = list(self.waiting)
        for one in told:
            self.show(one)
            if self.fault is Fault.RECOVERS_AGAIN:
                self.seen += self.waiting.get(one, [])
        if self.fault is not Fault.RECOVERS_AGAIN:
            self.waiting.clear()

    def mine(self, committable: Committable) -> tuple[int, int]:
        one = cast(tuple[int, int], committable)
        if self.fault is Fault.ACCEPTS_FOREIGN_OUTPUT:
            return one if one in self.waiting else (0, 0)
        if self.fault is Fault.STUMBLES_OVER_FOREIGN_OUTPUT:
            return one[0] + 0, one[1] + 0
        known = isinstance(committable, tuple) and one in self.prepared
        if self.fault is Fault.REFUSES_FOREIGN_OUTPUT_WITH_ANOTHER_ERROR and not known:
            raise SourceError(f"{committable!r} was not prepared here")
        if not known:
            raise SinkError(f"{committable!r} was not prepared here")
        return one

    def show(self, one: tuple[int, int]) -> None:
        again = one in self.committed and self.fault is not Fault.COMMITS_AGAIN
        if self.fault is Fault.COMMITS_NOTHING or again:
            return
        self.committed.add(one)
        self.seen += self.waiting.get(one, [])


class _SafeWriter(Writer[str]):
    def __init__(self, safe: Safe, context: WriterContext) -> None:
        self._safe = safe
        self._context = context
        self._records: list[str] = []

    def write(self, batch: Batch[str]) -> None:
        self._records += batch.values
        if self._safe.fault is Fault.SHOWS_AT_ONCE and self._context.checkpoints:
            self._safe.seen += batch.values

    async def prepare(self, checkpoint: int) -> Committable:
        safe, records = self._safe, self._records
        if safe.fault is not Fault.COMMITS_WHAT_COMES_LATER:
            self._records = []
        if safe.fault is Fault.COMMITS_THE_LAST_ONLY:
            safe.waiting.pop((self._context.subtask, checkpoint - 1), None)
        if safe.fault is Fault.SHOWS_WHEN_PREPARED:
            safe.seen += records
            records = []
        one = self._context.subtask, checkpoint
        safe.waiting[one] = records
        safe.prepared.add(one)
        return records and object() if safe.fault is Fault.PREPARES_WHAT_NOBODY_CAN_STORE else one

    async def commit(self, committable: Committable) -> None:
        self._safe.show(self._safe.mine(committable))
        if self._safe.fault is Fault.COMMITS_WHAT_COMES_LATER:
            self._records.clear()

    async def flush(self) -> None:
        self._safe.seen += self._records
        self._records = []


COMPLAINTS: dict[Fault, str] = {
    Fault.SHOWS_AT_ONCE: r"at the end of a job with checkpoints \['a', 'b', 'c', 'a', 'b', 'c'",
    Fault.SHOWS_WHEN_PREPARED: r"after prepare\(\) and before commit\(\) \['a', 'b', 'c'\]",
    Fault.PREPARES_WHAT_NOBODY_CAN_STORE: r"prepare\(\) returned <object .* cannot be stored in a",
    Fault.COMMITS_NOTHING: r"at the end of a job with checkpoints \[\]",
    Fault.COMMITS_AGAIN: r"after commit\(\) for the second time \['a', 'b', 'c', 'a', 'b', 'c'\]",
    Fault.COMMITS_THE_LAST_ONLY: r"after commit\(\) of two checkpoints, .* \['d', 'e', 'f'\]",
    Fault.COMMITS_WHAT_COMES_LATER: r"of one writer is missing|after commit\(\) .*'d'",
    Fault.RECOVERS_NOTHING: r"after a crash of 1 writers.* \['a', 'b', 'c'\] of one writer is miss",
    Fault.RECOVERS_AGAIN: r"after a crash of 1 writers, .* duplicated",
    Fault.RECOVERS_THE_FIRST_WRITER_ONLY: r"after a crash of 2 writers, continued with 1, \['b'\]",
    Fault.RECOVERS_EVERYTHING: r"after recover\(\) from two checkpoints",
    Fault.RECOVERS_WHAT_IT_IS_NOT_TOLD: r"after recover\(\) without a checkpoint to continue from",
    Fault.ACCEPTS_FOREIGN_OUTPUT: r"recover\(\) accepts '../foreign', which it has not prepared",
    Fault.REFUSES_FOREIGN_OUTPUT_WITH_ANOTHER_ERROR: r"'../foreign'.* fails with SourceError",
    Fault.STUMBLES_OVER_FOREIGN_OUTPUT: r"recover\(\) of '../foreign'.* fails with TypeError",
}


@pytest.mark.parametrize("fault", COMPLAINTS, ids=lambda one: one.name.lower())
@virtual_time
async def test_a_fault_of_a_transactional_sink_is_found(fault: Fault) -> None:
    with pytest.raises(AssertionError, match=f"^Safe breaks the contract .*({COMPLAINTS[fault]})"):
        await check_sink(lambda: Safe(fault), lambda sink: sink.seen, RECORDS)


@virtual_time
async def test_a_transactional_sink_without_fault_passes() -> None:
    await check_sink(lambda: Safe(Fault.NONE), lambda sink: sink.seen, RECORDS)


class Heap(Sink[str]):
    """Show records only after ``flush``."""

    def __init__(self, delivery: Delivery, *, prepares: bool = True) -> None:
        self.delivery = delivery
        self.prepares = prepares
        self.seen: list[str] = []

    async def writer(self, context: WriterContext) -> Writer[str]:
        return _HeapWriter(self)


class _HeapWriter(Writer[str]):
    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._records: list[str] = []

    def write(self, batch: Batch[str]) -> None:
        self._records += batch.values

    async def prepare(self, checkpoint: int) -> None:
        if self._heap.prepares:
            await self.flush()

    async def flush(self) -> None:
        self._heap.seen += self._records
        self._records = []


@virtual_time
async def test_lost_records_that_a_checkpoint_covers_are_found() -> None:
    with pytest.raises(AssertionError, match=r"after a crash .* \['a', 'b', 'c'\] is missing"):
        await check_sink(
            lambda: Heap(Delivery.AT_LEAST_ONCE, prepares=False),
            lambda sink: sink.seen,
            RECORDS,
        )


@virtual_time
async def test_a_sink_that_appends_is_not_idempotent() -> None:
    with pytest.raises(AssertionError, match=r"written again to an idempotent sink, .*\(24 rec"):
        await check_sink(lambda: Heap(Delivery.IDEMPOTENT), lambda sink: sink.seen, RECORDS)


@virtual_time
async def test_a_sink_that_appends_passes_as_at_least_once() -> None:
    await check_sink(lambda: Heap(Delivery.AT_LEAST_ONCE), lambda sink: sink.seen, RECORDS)
