"""Sources, sinks and steps that record what was opened and closed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import aflow as af
from aflow.connect import Batch, Position, Reader, Sink, Source, Split, Writer, WriterContext
from aflow.testing import Pause, ScriptedSource


class Broken(Exception):
    """A failure on purpose."""


@dataclass
class Ledger:
    """``fail`` is asked at each place, as ``"open sink"``, and may raise."""

    fail: Callable[[str], None] = lambda place: None
    opened: Counter[str] = field(default_factory=Counter[str])
    closed: Counter[str] = field(default_factory=Counter[str])

    def enter(self, name: str) -> None:
        self.fail(f"open {name}")
        self.opened[name] += 1

    def leave(self, name: str) -> None:
        self.closed[name] += 1
        self.fail(f"close {name}")

    def source(self, name: str, *lines: int | Pause) -> Source[int]:
        return _LedgerSource(self, name, ScriptedSource[int](*lines))

    def step(self, name: str) -> af.ProcessFunction[int, int]:
        return _LedgerStep(self, name)

    def sink(self, name: str, *, takes: timedelta = timedelta(0)) -> LedgerSink:
        return LedgerSink(self, name, takes)


def failing(*places: str) -> Callable[[str], None]:
    """Raises ``Broken`` at each of ``places``."""

    def fail(here: str) -> None:
        if here in places:
            raise Broken(here)

    return fail


class _LedgerSource(Source[int]):
    concurrency = None

    def __init__(self, ledger: Ledger, name: str, script: ScriptedSource[int]) -> None:
        self._ledger = ledger
        self._name = name
        self._script = script

    async def splits(self) -> Sequence[Split]:
        await asyncio.sleep(0)
        self._ledger.fail(f"list {self._name}")
        return await self._script.splits()

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        self._ledger.enter(self._name)
        return _LedgerReader(self._ledger, self._name, await self._script.reader(split, position))


class _LedgerReader(Reader[int]):
    def __init__(self, ledger: Ledger, name: str, reader: Reader[int]) -> None:
        self._ledger = ledger
        self._name = name
        self._reader = reader

    async def read(self, limit: int) -> Any:
        self._ledger.fail(f"read {self._name}")
        return await self._reader.read(limit)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._ledger.leave(self._name)


class _LedgerStep(af.ProcessFunction[int, int]):
    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    def open(self) -> None:
        self._ledger.enter(self._name)

    def process(self, value: int, ctx: af.ProcessContext) -> list[int]:
        self._ledger.fail(f"process {self._name}")
        return [value]

    def close(self) -> None:
        self._ledger.leave(self._name)


class LedgerSink(Sink[int]):
    """Takes ``takes`` for each batch; ``times`` says when each was taken (seconds of loop time)."""

    def __init__(self, ledger: Ledger, name: str, takes: timedelta) -> None:
        self.ledger = ledger
        self.name = name
        self.takes = takes.total_seconds()
        self.values: list[int] = []
        self.flushed = False

    async def writer(self, context: WriterContext) -> Writer[int]:
        await asyncio.sleep(0)
        self.ledger.enter(self.name)
        return _LedgerWriter(self)


class _LedgerWriter(Writer[int]):
    def __init__(self, sink: LedgerSink) -> None:
        self._sink = sink

    async def write(self, batch: Batch[int]) -> None:
        self._sink.ledger.fail(f"write {self._sink.name}")
        await asyncio.sleep(self._sink.takes)
        self._sink.values.extend(batch.values)

    async def flush(self) -> None:
        self._sink.ledger.fail(f"flush {self._sink.name}")
        self._sink.flushed = True

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._sink.ledger.leave(self._sink.name)
