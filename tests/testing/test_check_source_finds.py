"""``check_source`` finds and names each breach of the contract of sources."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

import aflow as af
from aflow.connect import BadRecord, Chunk, Position, Reader, Source, Split
from aflow.testing import check_source
from aflow.testing.virtual_time import virtual_time

RECORDS = ("a", "b", "c", "d", "e", "f", "g", "h", "i")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a source; the default has none."""

    split_ids: Callable[[], Sequence[str]] = lambda: ("one", "two")
    start: Callable[[Position | None], int] = lambda position: (
        position if isinstance(position, int) else 0
    )
    read: Callable[[Chunk[str], int], Chunk[str] | None] = lambda chunk, _: chunk
    wait: Callable[[], asyncio.Future[None]] | None = None
    close: Callable[[], None] = lambda: None
    bounded: bool = True
    replayable: bool = True
    records: tuple[str, ...] = RECORDS
    #: Shared by all readers, which a source must not do.
    shared: list[int] | None = None
    #: True if a reader counts from where it was opened.
    relative: bool = False


@dataclass
class Letters(Source[str]):
    """Emit the same records in both splits; ``fault`` may change them."""

    fault: Fault = field(default_factory=Fault)

    def __post_init__(self) -> None:
        self.bounded = self.fault.bounded
        self.replayable = self.fault.replayable

    async def splits(self) -> Sequence[Split]:
        return [Split(one) for one in self.fault.split_ids()]

    async def reader(self, split: Split, position: Position | None) -> Reader[str]:
        return _LetterReader(self.fault, self.fault.start(position))


class _LetterReader(Reader[str]):
    def __init__(self, fault: Fault, start: int) -> None:
        self._fault = fault
        self._place = [start] if fault.shared is None else fault.shared
        self._place[0] = start
        self._origin = start if fault.relative else 0

    async def read(self, limit: int) -> Chunk[str] | None:
        if self._fault.wait is not None:
            await self._fault.wait()
        start = self._place[0]
        values = self._fault.records[start : start + limit]
        if not values:
            return self._fault.read(Chunk([], start), limit) if _gives_empty(self._fault) else None
        self._place[0] += len(values)
        return self._fault.read(Chunk(values, self._place[0] - self._origin), limit)

    async def close(self) -> None:
        self._fault.close()


def _gives_empty(fault: Fault) -> bool:
    return fault.read is _empty_for_ever


def _empty_for_ever(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return chunk


def _too_many(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return replace(chunk, values=[*chunk.values, "more"])


def _lossy_with_small_limits(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return replace(chunk, values=chunk.values[:1]) if limit == 2 else chunk


def _one_timestamp(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return replace(chunk, timestamps=[1])


def _rejecting(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return replace(chunk, values=[], rejected=[BadRecord("line 1", "bad", b"?")])


def _unstorable_position(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return replace(chunk, position=object())


def _no_position(chunk: Chunk[str], limit: int) -> Chunk[str]:
    return replace(chunk, position=None)


def _position_ahead(chunk: Chunk[str], limit: int) -> Chunk[str]:
    assert isinstance(chunk.position, int)
    return replace(chunk, position=chunk.position + 1)


def _values_alone(chunk: Chunk[str], limit: int) -> Any:
    return chunk.values


def _never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _changing_ids() -> Callable[[], Sequence[str]]:
    numbers = count()
    return lambda: [f"split {next(numbers)}"]


def _failing_close() -> None:
    raise OSError("close failed")


FAULTS = {
    "unstable splits": (lambda: Fault(split_ids=_changing_ids()), "ids must be stable"),
    "equal splits": (lambda: Fault(split_ids=lambda: ("x", "x")), "names a split twice"),
    "an unnamed split": (lambda: Fault(split_ids=lambda: ("",)), "a non-empty str, not ''"),
    "values without a chunk": (
        lambda: Fault(read=_values_alone),
        r"read\(1\) of split 'one' returned \('a',\); it returns a Chunk",
    ),
    "too many records": (lambda: Fault(read=_too_many), r"read\(1\) returned 2 records"),
    "a limit that loses records": (
        lambda: Fault(read=_lossy_with_small_limits),
        "reading at most 2 at a time split 'one' gives",
    ),
    "no end": (lambda: Fault(read=_empty_for_ever), "chunks without records for ever"),
    "missing timestamps": (lambda: Fault(read=_one_timestamp), "2 records has 1 timestamps"),
    "rejected records": (lambda: Fault(read=_rejecting), "has no dead_letters"),
    "a position that cannot be stored": (
        lambda: Fault(read=_unstorable_position),
        "cannot be stored in a checkpoint",
    ),
    "no position": (lambda: Fault(read=_no_position), "which means the start of a split"),
    "a position too far": (lambda: Fault(read=_position_ahead), "continuing at position 2"),
    "positions that are ignored": (
        lambda: Fault(start=lambda _: 0),
        "continuing at position 1, after record 1, split 'one' gives",
    ),
    "positions that count from where a reader was opened": (
        lambda: Fault(relative=True),
        "with a new reader for each chunk split 'one' gives",
    ),
    "readers that share their place": (
        lambda: Fault(shared=[0]),
        "reading all splits at once split",
    ),
    "a read that hangs": (
        lambda: Fault(wait=_never),
        r"Letters: read\(1\) of split 'one' did not return within 60.0 s",
    ),
    "no record": (lambda: Fault(records=()), "it returns no record"),
}


@pytest.mark.parametrize(("make", "complaint"), FAULTS.values(), ids=FAULTS)
@virtual_time
async def test_a_fault_is_found(make: Callable[[], Fault], complaint: str) -> None:
    fault = make()

    with pytest.raises(AssertionError, match=complaint):
        await check_source(lambda: Letters(fault))


@virtual_time
async def test_a_source_without_fault_passes() -> None:
    await check_source(Letters, expected=RECORDS * 2)


@virtual_time
async def test_positions_of_a_source_that_is_not_replayable_are_not_checked() -> None:
    fault = Fault(start=lambda _: 0, replayable=False)

    await check_source(lambda: Letters(fault))


@virtual_time
async def test_other_records_than_expected_are_found() -> None:
    with pytest.raises(AssertionError, match=r"\(18 records\), expected was \['a'\]"):
        await check_source(Letters, expected=["a"])


@virtual_time
async def test_an_error_of_close_is_raised() -> None:
    fault = Fault(close=_failing_close)

    with pytest.raises(OSError, match="close failed"):
        await check_source(lambda: Letters(fault))


@virtual_time
async def test_patience_is_as_long_as_the_author_says() -> None:
    slow = Fault(wait=lambda: asyncio.ensure_future(_pause(90)))

    await check_source(lambda: Letters(slow), patience=timedelta(seconds=100))


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


@virtual_time
async def test_an_unbounded_source_is_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match="this Letters is unbounded"):
        await check_source(lambda: Letters(Fault(bounded=False)))


@pytest.fixture
def left_over() -> Iterator[list[Callable[[], object]]]:
    """Clean up after the source of a test."""
    clearing: list[Callable[[], object]] = []
    yield clearing
    for clear in clearing:
        clear()


@virtual_time
async def test_a_running_task_is_found(left_over: list[Callable[[], object]]) -> None:
    async def work() -> None:
        await asyncio.sleep(1_000_000)

    def leak_task() -> None:
        left_over.append(asyncio.ensure_future(work()).cancel)

    fault = Fault(close=leak_task)
    with pytest.raises(AssertionError, match="a reader closed before the first read leaks: task"):
        await check_source(lambda: Letters(fault))


@virtual_time
async def test_a_running_thread_is_found(
    left_over: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow.testing.leftovers._GRACE", 0.01)
    ended = threading.Event()
    left_over.append(ended.set)
    fault = Fault(close=lambda: threading.Thread(target=ended.wait, name="lost").start())

    with pytest.raises(AssertionError, match="leaks: thread 'lost'"):
        await check_source(lambda: Letters(fault))


@virtual_time
async def test_an_open_file_is_found(
    left_over: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow.testing.leftovers._GRACE", 0.01)

    def leak_file() -> None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        left_over.append(lambda: os.close(descriptor))

    fault = Fault(close=leak_file)
    with pytest.raises(AssertionError, match="leaks: open file /dev/null"):
        await check_source(lambda: Letters(fault))


class Cursor(Source[int]):
    """Continue at ``following(position, records)`` after each read."""

    def __init__(self, following: Callable[[int, int], int], *, replayable: bool = True) -> None:
        self._following = following
        self.replayable = replayable

    async def splits(self) -> Sequence[Split]:
        return [Split("items")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return _CursorReader(self._following, position if isinstance(position, int) else 0)


class _CursorReader(Reader[int]):
    def __init__(self, following: Callable[[int, int], int], start: int) -> None:
        self._following = following
        self._at = start

    async def read(self, limit: int) -> Chunk[int] | None:
        items = [1, 2, 3][self._at : self._at + limit]
        if not items:
            return None
        self._at = self._following(self._at, len(items))
        return Chunk(items, self._at)


def inclusive(at: int, count: int) -> int:
    return min(at + count, 2)


def from_the_start(at: int, count: int) -> int:
    return (at + count) % 3


@pytest.mark.parametrize("expected", [None, [1, 2, 3]])
@pytest.mark.parametrize(
    ("following", "repeated"),
    [
        (inclusive, "repeats positions, 2 after record 2 and after record 53"),
        (from_the_start, "repeats positions, 0 after record 3 and after record 54"),
    ],
)
@virtual_time
async def test_a_cursor_that_never_reaches_the_end_is_found(
    following: Callable[[int, int], int], repeated: str, expected: list[int] | None
) -> None:
    with pytest.raises(AssertionError, match=repeated):
        await check_source(lambda: Cursor(following), expected=expected)


@virtual_time
async def test_more_records_than_expected_are_found_although_the_split_does_not_end() -> None:
    with pytest.raises(
        AssertionError, match="returned 107 records and has not ended; 3 were expected"
    ):
        await check_source(lambda: Cursor(inclusive, replayable=False), expected=[1, 2, 3])


@virtual_time
async def test_a_check_of_a_reader_that_never_waits_can_be_cancelled() -> None:
    check = asyncio.create_task(check_source(lambda: Cursor(inclusive, replayable=False)))
    for _ in range(20):
        await asyncio.sleep(0)

    check.cancel()

    with pytest.raises(asyncio.CancelledError):
        await check


class Fetched(Source[bytes]):
    """Read a line from a server for each split."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def splits(self) -> Sequence[Split]:
        return [Split("line")]

    async def reader(self, split: Split, position: Position | None) -> Reader[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        return _FetchedReader(reader, writer, done=position is not None)


class _FetchedReader(Reader[bytes]):
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, done: bool
    ) -> None:
        self._reader, self._writer, self._done = reader, writer, done

    async def read(self, limit: int) -> Chunk[bytes] | None:
        if self._done:
            return None
        self._done = True
        return Chunk([await self._reader.readline()], 1)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def test_tasks_and_connections_of_a_test_server_on_the_same_loop_are_not_leaks_of_the_source() -> (
    None
):
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"line\n")
            await reader.read()  # until the client has disconnected
            for _ in range(5):
                await asyncio.sleep(0)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await check_source(lambda: Fetched(port), expected=[b"line\n"])

    asyncio.run(main())


@dataclass
class MarkedLetters(Letters):
    """Emit watermarks: the number of records read, of records with their numbers as timestamps."""

    emits_watermarks: bool = True


def _marked(
    watermark: Callable[[int], Any], idle: Any = False
) -> Callable[[Chunk[str], int], Chunk[str]]:
    def marked(chunk: Chunk[str], limit: int) -> Chunk[str]:
        end = chunk.position
        assert isinstance(end, int)
        times = list(range(end - len(chunk.values), end))
        return replace(chunk, timestamps=times, watermark=watermark(end), idle=idle)

    return marked


@virtual_time
async def test_watermarks_before_all_later_records_are_right() -> None:
    await check_source(lambda: MarkedLetters(Fault(read=_marked(lambda end: end - 1))))


MARKS: dict[str, tuple[Callable[[Chunk[str], int], Chunk[str]], bool, str]] = {
    "late record": (
        _marked(lambda end: end),
        True,
        "record 'b' of split 'one' has timestamp 1 and follows watermark 1; all records after",
    ),
    "backwards": (
        _marked(lambda end: -end),
        True,
        "watermark -2 of split 'one' follows watermark -1; watermarks never go back",
    ),
    "undeclared": (_marked(lambda end: end - 1), False, "does not declare emits_watermarks"),
    "none": (
        lambda chunk, _: chunk,
        True,
        "declares emits_watermarks, and no chunk has a watermark",
    ),
    "a float": (_marked(lambda end: end - 0.5), True, "must be an aware datetime or an int"),
    "the end of time": (_marked(lambda end: 2**63 - 1), True, "is the end of time"),
    "an unclear idle": (_marked(lambda end: end - 1, idle=1), True, "idle of a chunk is True or"),
}


@pytest.mark.parametrize(("read", "declared", "message"), MARKS.values(), ids=MARKS)
@virtual_time
async def test_it_names_a_breach_of_watermarks(
    read: Callable[[Chunk[str], int], Chunk[str]], declared: bool, message: str
) -> None:
    def make() -> Source[str]:
        return MarkedLetters(Fault(read=read), emits_watermarks=declared)

    with pytest.raises(AssertionError, match=message):
        await check_source(make)
