"""The source of an open or closed loop, which replaces a source of the pipeline.

*Open loop*: the reader returns all records that are due, and waits with a precise timer if none is. A pipeline with
backpressure reads later, and then gets all records that became due meanwhile, each with its intended time.
*Closed loop*: a fixed number of records is in the pipeline; each one that is processed lets the next one in.

A chunk has a ``RecordBatch`` as its correlation (``aflow.model.questions``): what the pipeline makes of its records
belongs to it until a recorder reads the intended times. Steps with calls emit results with a correlation one by one, so
in a pipeline with such steps only a random part of the chunks has one.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import uuid4

from aflow.bench.arrivals import ArrivalSchedule, OfferedCount, ScheduleCursor
from aflow.bench.precise_timer import PreciseTimer
from aflow.bench.record_supply import RecordSupply
from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.model.questions import Correlation
from aflow.model.time import Clock
from aflow.runtime.builtin_connectors.asked_chunk import AskedChunk

#: Seconds. A record is due a little early, since sums of times are rounded: a loop of virtual time may stop just before
#: an intended time.
_ROUNDING: Final = 1e-6

#: Seconds for which records are made without yielding to the pipeline.
_MAKING: Final = 0.002


class RecordBatch(Correlation):
    """Records that were returned together, with their intended times."""

    __slots__ = ("intended", "source", "taken")

    def __init__(
        self,
        source: str,
        intended: list[float],
        on_released: Callable[[], object] | None = None,
    ) -> None:
        """``intended`` are seconds of the steady clock."""
        super().__init__(None, None, on_released)
        self.source: Final = source
        self.intended: Final = intended
        #: The number of results that each recorder has received.
        self.taken: dict[int, int] = {}


class LoadSource(Source[Any]):
    """Records at intended times. All readers take from one schedule."""

    replayable = False

    def __init__(
        self,
        name: str,
        replaced: Source[Any],
        supply: RecordSupply,
        schedule: ArrivalSchedule,
        *,
        end: float,
        patience: float,
        in_flight: int | None = None,
        traced_rate: float | None = None,
        timestamps: bool = False,
        splits: int = 1,
    ) -> None:
        """``end`` is the end of the schedule (s), and ``patience`` the time after it in which records are still read.

        ``in_flight`` is the number of records of a closed loop; None: an open one. ``traced_rate`` is the number of
        records per second that get a correlation at the highest rate of the schedule; at lower rates it is less. None:
        all. ``replaced`` is the source of the pipeline.
        """
        self.name: Final = name
        self.dead_letters = replaced.dead_letters
        self.max_parallelism = replaced.max_parallelism
        self._supply = supply
        #: The most records per second that the schedule asks for.
        self.highest_rate: Final = schedule.highest_rate
        self.schedule: Final = schedule
        self._cursor = ScheduleCursor(schedule, end)
        self._offered = OfferedCount(schedule, end)
        self._end = end
        self._patience = patience
        self._most_in_flight = in_flight
        self._in_flight = None if in_flight is None else asyncio.Semaphore(in_flight)
        #: The chance of a chunk to get a correlation. It is the same for the whole load: a chance that followed the
        #: present rate would give records of slow parts a greater weight in the percentiles.
        self._traced = 1.0 if traced_rate is None else traced_rate / max(self.highest_rate, 1.0)
        self._timestamps = timestamps
        #: Unique to the run, and the same after restarts of the job: a checkpoint of another run says that the splits
        #: of that run have ended.
        run = uuid4().hex
        self._splits = [Split(f"load {run} {number}") for number in range(splits)]
        self._random = random.Random(7)
        self._begin = asyncio.Event()
        self._stopped = asyncio.Event()
        #: Set once all readers have ended.
        self.finished = asyncio.Event()
        self._reading = splits
        self._clock: Clock | None = None
        #: The start of the load (s, steady clock).
        self.origin = 0.0
        self._steady: Callable[[], float] = lambda: 0.0
        #: The time of ``stop`` or of the end of the supply (s since the origin), after which no record is due.
        self._ended_at = math.inf
        #: Records that readers have returned.
        self.accepted = 0

    def begin(self, origin: float, steady: Callable[[], float], clock: Clock) -> None:
        """Start the load at ``origin`` (s of ``steady``)."""
        self.origin, self._steady, self._clock = origin, steady, clock
        self._begin.set()

    def stop(self) -> None:
        """End the load now."""
        if not self._stopped.is_set():
            self._note_end(self._steady() - self.origin if self._begin.is_set() else -1.0)
            if self._in_flight is not None:
                self._in_flight.release()  # a reader that waits; it wakes the next one
        self._stopped.set()
        self._begin.set()

    def restart_figures(self) -> None:
        """Begin the figures about the generator anew."""
        self._supply.seconds = 0.0

    def on_job_restarted(self) -> None:
        """Forget the records in flight of the failed attempt, which would never admit others."""
        if self._most_in_flight is not None:
            stopped = self._stopped.is_set()
            self._in_flight = asyncio.Semaphore(self._most_in_flight + stopped)

    @property
    def is_stopped(self) -> bool:
        """True if the load was ended early."""
        return self._stopped.is_set()

    def offered(self) -> int:
        """Return the number of records that are due, whether they were accepted or not."""
        if self._in_flight is not None or not self._begin.is_set():
            return self.accepted
        seconds = self._steady() - self.origin
        return max(self.accepted, self._offered.until(min(seconds, self._end, self._ended_at)))

    @property
    def supply(self) -> RecordSupply:
        """The supply of the records."""
        return self._supply

    async def splits(self) -> Sequence[Split]:
        return self._splits

    async def reader(self, split: Split, position: Position | None) -> Reader[Any]:
        return _LoadReader(self, PreciseTimer())

    async def next_chunk(self, limit: int, timer: PreciseTimer) -> Chunk[Any] | None:
        """Return the records that are due, at most ``limit``; wait if there are none. None at the end."""
        chunk = await self._next_chunk(limit, timer)
        if chunk is None:
            self._reading -= 1
            if self._reading <= 0:
                self.finished.set()
        return chunk

    async def _next_chunk(self, limit: int, timer: PreciseTimer) -> Chunk[Any] | None:
        await self._begin.wait()
        if self._in_flight is not None:
            return await self._next_in_closed_loop(self._in_flight)
        while not self._stopped.is_set() and not self._supply.ended:
            seconds = self._steady() - self.origin
            due = self._cursor.next_at
            if seconds > self._end + self._patience or (due is None and seconds >= self._end):
                return None
            if due is None:
                due = self._end  # the load lasts until then
            elif due <= seconds + _ROUNDING:
                most = min(limit, self._supply.most_in(_MAKING))
                return self._chunk(self._cursor.take(seconds + _ROUNDING, most))
            await timer.wait(min(due - seconds, 0.5))  # a stop is noticed after half a second
        return None

    async def _next_in_closed_loop(self, in_flight: asyncio.Semaphore) -> Chunk[Any] | None:
        await in_flight.acquire()
        now = self._steady()
        if self._stopped.is_set() or now - self.origin >= self._end:
            in_flight.release()  # for other readers
            return None
        values = self._supply.take(1)
        if not values:
            in_flight.release()
            return None
        self.accepted += 1
        batch = RecordBatch(self.name, [now], in_flight.release)
        return AskedChunk(
            values, self.accepted, self._times([now]), correlation=batch, arrived_at=now
        )

    def _note_end(self, seconds: float) -> None:
        self._ended_at = min(self._ended_at, seconds)

    def _chunk(self, times: list[float]) -> Chunk[Any] | None:
        # Hot path (benchmark `generator`): once for each chunk; the comprehension once for each record.
        values = self._supply.take(len(times))
        if self._supply.ended:
            self._note_end(self._steady() - self.origin)
        if not values:
            return None
        origin = self.origin
        intended = [origin + one for one in times]
        if len(values) < len(intended):
            del intended[len(values) :]
        self.accepted += len(values)
        traced = self._traced >= 1 or self._random.random() < self._traced
        batch = RecordBatch(self.name, intended) if traced else None
        return AskedChunk(
            values,
            self.accepted,
            self._times(intended),
            correlation=batch,
            arrived_at=intended[0],
        )

    def _times(self, intended: list[float]) -> list[int] | None:
        if not self._timestamps or self._clock is None:
            return None
        offset = self._clock.now() - self._steady() * 1000
        return [int(offset + one * 1000) for one in intended]


class _LoadReader(Reader[Any]):
    def __init__(self, source: LoadSource, timer: PreciseTimer) -> None:
        self._source = source
        self._timer = timer

    async def read(self, limit: int) -> Chunk[Any] | None:
        return await self._source.next_chunk(limit, self._timer)

    async def close(self) -> None:
        self._timer.close()
