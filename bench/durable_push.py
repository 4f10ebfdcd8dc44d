"""``durable_push``: records sent durably by 1, 16 and 256 senders at a time, beside a bare log and beside SQLite.

All three group what waits while the disk is busy: one write and one sync for each group, in a thread. The bare log is
what remains without checksums, positions, ids, types and limits: encode, append to a list, ``os.write``, ``os.fsync``.
SQLite inserts each group in one transaction with ``synchronous=FULL`` and a write-ahead log. Verified: what was written
is read again and compared.

The files are in the present directory, since a temporary directory may be in memory, where a sync costs nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

import msgspec

import aflow as af
from aflow.runtime.checkpoints.directory.files import DISK
from aflow.runtime.record_log.log import LogReader, RecordLog
from bench.harness import Budget, Measurement, percentile, run_async

SENDERS: Final = (1, 16, 256)


class Payment(msgspec.Struct, frozen=True):
    """A record of about 60 bytes."""

    number: int
    card: str
    cents: int
    note: str = "a payment that was sent by a test"


Send = Callable[[Payment], Awaitable[object]]
Write = Callable[[list[bytes]], None]


def measure(records: int, rounds: int) -> Measurement:
    """Measure each program in turn with each number of senders; ``records`` are those of 256 senders."""
    figures: dict[str, float | int | bool | str] = {"records": records}
    worst = float("inf")
    for senders in SENDERS:
        sent = max(senders, records * (senders + 16) // (SENDERS[-1] + 16))
        rates: dict[str, list[float]] = {"aflow": [], "bare": [], "sqlite": []}
        waits: dict[str, list[float]] = {"aflow": [], "bare": [], "sqlite": []}
        for _ in range(rounds):
            for name, program in (("bare", _bare), ("aflow", _aflow), ("sqlite", _sqlite)):
                with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
                    seconds, times = run_async(program(Path(folder), senders, sent))
                rates[name].append(sent / seconds)
                waits[name] += times
        ours, bare, sqlite = (statistics.median(rates[name]) for name in rates)
        worst = min(worst, ours / bare)
        figures[f"sends_per_s_{senders}"] = round(ours)
        figures[f"bare_sends_per_s_{senders}"] = round(bare)
        figures[f"sqlite_sends_per_s_{senders}"] = round(sqlite)
        figures[f"ratio_{senders}"] = round(ours / bare, 3)
        for name in waits:
            for share in (0.5, 0.99):
                value = round(percentile(waits[name], share) * 1000, 3)
                figures[f"{name}_p{round(share * 100)}_ms_{senders}"] = value
    figures |= {"ratio": round(worst, 3), "rounds": rounds, "verified": True}
    return Measurement("durable_push", figures, [Budget("ratio", at_least=0.7)])


async def _aflow(folder: Path, senders: int, records: int) -> tuple[float, list[float]]:
    async with af.DurablePushSource(folder / "log", of=Payment) as source:
        timed = await _send_all(source.send, senders, records)
    log = RecordLog(folder / "log", DISK, description=b"", identity="", owner=b"", segment_bytes=1)
    log.open()
    reader = LogReader(log, 0)
    found: list[bytes] = []
    while reader.position < log.end:
        found += [data for data, _, _ in reader.read()]
    log.close()
    _verify(found, records)
    return timed


async def _bare(folder: Path, senders: int, records: int) -> tuple[float, list[float]]:
    path = folder / "records"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    frames: list[bytes] = []

    def write(group: list[bytes]) -> None:
        os.write(file, b"".join(group))
        os.fsync(file)
        frames.extend(group)

    timed = await _by_hand(write, senders, records)
    os.close(file)
    if path.read_bytes() != b"".join(frames):
        raise SystemExit("durable_push: the bare log has other records; nothing was measured")
    _verify(frames, records)
    return timed


async def _sqlite(folder: Path, senders: int, records: int) -> tuple[float, list[float]]:
    connection = sqlite3.connect(folder / "records.db", check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE records (position INTEGER PRIMARY KEY, data BLOB)")

    def write(group: list[bytes]) -> None:
        with connection:
            connection.executemany(
                "INSERT INTO records (data) VALUES (?)", [(data,) for data in group]
            )

    timed = await _by_hand(write, senders, records)
    found = [row[0] for row in connection.execute("SELECT data FROM records")]
    connection.close()
    _verify(found, records)
    return timed


async def _by_hand(write: Write, senders: int, records: int) -> tuple[float, list[float]]:
    """Group what waits, and ``write`` each group in one thread."""
    loop = asyncio.get_running_loop()
    encode = msgspec.msgpack.Encoder().encode
    queue: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()

    def settle(group: list[asyncio.Future[None]]) -> None:
        for done in group:
            done.set_result(None)

    def run() -> None:
        while (first := queue.get()) is not None:
            group = [first]
            try:
                while (item := queue.get_nowait()) is not None:
                    group.append(item)
            except Empty:
                pass
            write([data for data, _ in group])
            loop.call_soon_threadsafe(settle, [done for _, done in group])

    async def send(payment: Payment) -> None:
        done: asyncio.Future[None] = loop.create_future()
        queue.put((encode(payment), done))
        await done

    thread = Thread(target=run)
    thread.start()
    timed = await _send_all(send, senders, records)
    queue.put(None)
    thread.join()
    return timed


async def _send_all(send: Send, senders: int, records: int) -> tuple[float, list[float]]:
    """Return the seconds for all records, and those of each ``send``."""
    waits: list[float] = []
    numbers = iter(range(records))
    clock = time.perf_counter

    async def one() -> None:
        for number in numbers:
            payment = Payment(number, f"card {number % 1000}", 100)
            begin = clock()
            await send(payment)
            waits.append(clock() - begin)

    await send(Payment(records, "first", 0))  # opens what is opened at the first record
    begin = clock()
    async with asyncio.TaskGroup() as group:
        for _ in range(senders):
            group.create_task(one())
    return clock() - begin, waits


def _verify(found: list[bytes], records: int) -> None:
    decode = msgspec.msgpack.Decoder(Payment).decode
    if sorted(decode(data).number for data in found) != list(range(records + 1)):
        raise SystemExit("durable_push: records are missing; nothing was measured")
