"""``check_sink`` finds and names each breach of the contract of sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.testing import check_sink
from aflow.testing.virtual_time import virtual_time

RECORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a sink; the default has none."""

    write: Callable[[list[str], Batch[str]], object] = lambda kept, batch: kept.extend(batch.values)
    flush: Callable[[list[str], list[str]], None] = lambda kept, seen: seen.extend(kept)
    close: Callable[[list[str], list[str]], None] = lambda kept, seen: None
    reopens: bool = True
    shared: bool = False


class Shelf(Sink[str]):
    """Buffer records until ``flush``; ``fault`` may change them."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen: list[str] = []
        self.opened = 0
        self.kept: list[str] = []

    async def writer(self, context: WriterContext) -> Writer[str]:
        self.opened += 1
        if self.opened > context.parallelism and not self.fault.reopens:
            raise af.errors.SinkError("the shelf is opened already")
        return _ShelfWriter(self, self.kept if self.fault.shared else [])


class _ShelfWriter(Writer[str]):
    def __init__(self, shelf: Shelf, kept: list[str]) -> None:
        self._shelf = shelf
        self._kept = kept

    def write(self, batch: Batch[str]) -> Awaitable[None] | None:
        return self._shelf.fault.write(self._kept, batch)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async def flush(self) -> None:
        self._shelf.fault.flush(self._kept, self._shelf.seen)
        if not self._shelf.fault.shared:
            self._kept.clear()

    async def close(self) -> None:
        self._shelf.fault.close(self._kept, self._shelf.seen)


def _reverse(kept: list[str], batch: Batch[str]) -> None:
    kept.extend(reversed(batch.values))


def _drain(kept: list[str], batch: Batch[str]) -> None:
    kept.extend(batch.values)
    batch.values.clear()


def _count(kept: list[str], batch: Batch[str]) -> int:
    kept.extend(batch.values)
    return len(batch)


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


FAULTS: dict[str, tuple[Fault, str]] = {
    "records out of order": (Fault(write=_reverse), "is visible instead of the written records"),
    "records that are lost": (Fault(write=lambda kept, batch: None), r"after flush\(\) \[\]"),
    "a flush without effect": (Fault(flush=lambda kept, seen: None), r"after flush\(\) \[\]"),
    "a batch that is changed": (Fault(write=_drain), r"write\(\) changed its batch"),
    "an odd result": (Fault(write=_count), r"write\(\) returned 1; None or an awaitable"),
    "a write that hangs": (
        Fault(write=lambda kept, batch: _never()),
        r"Shelf: write\(\) did not return within 60.0 s",
    ),
    "something from nothing": (
        Fault(flush=lambda kept, seen: seen.extend(kept or ["?"])),
        r"no record was written, and \['\?'\] is visible",
    ),
    "the end of what failed": (
        Fault(close=lambda kept, seen: seen.extend(kept[3:]) if not seen else None),
        "not a prefix of the written records",
    ),
    "writers that share a buffer": (Fault(shared=True), "of two writers, one wrote .* duplicated"),
}


def make(fault: Fault) -> Shelf:
    return Shelf(fault)


@pytest.mark.parametrize(("fault", "complaint"), FAULTS.values(), ids=FAULTS)
@virtual_time
async def test_a_fault_is_found(fault: Fault, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_sink(lambda: make(fault), lambda sink: sink.seen, RECORDS)


@virtual_time
async def test_a_sink_without_fault_passes_also_if_visible_is_async() -> None:
    async def seen(sink: Shelf) -> list[str]:
        await asyncio.sleep(1)
        return sink.seen

    await check_sink(lambda: make(Fault()), seen, RECORDS)


@virtual_time
async def test_a_sink_that_shows_a_prefix_of_a_failed_attempt_passes() -> None:
    def close(kept: list[str], seen: list[str]) -> None:
        if not set(kept) <= set(seen):
            seen.extend(kept[:2])

    await check_sink(lambda: make(Fault(close=close)), lambda sink: sink.seen, RECORDS)


@virtual_time
async def test_a_sink_that_cannot_be_opened_again_does_not_pass() -> None:
    with pytest.raises(af.errors.SinkError, match="opened already"):
        await check_sink(lambda: make(Fault(reopens=False)), lambda sink: sink.seen, RECORDS)


@pytest.mark.parametrize("records", [["a"] * 6, ["a", "b"]], ids=["equal", "few"])
@virtual_time
async def test_records_that_could_hide_a_fault_are_refused(records: list[str]) -> None:
    with pytest.raises(af.FlowDefinitionError, match="at least six records that are all different"):
        await check_sink(lambda: make(Fault()), lambda sink: sink.seen, records)
