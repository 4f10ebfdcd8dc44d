"""``PartitionReader``: reads one partition with a consumer of its own.

**Position.** The next offset; with ``until="now"`` the pair of it and the end, so that a restarted job ends at the same
record. Offsets have gaps, where a transaction has ended or aborted and where compaction has removed records. The
position advances over them, so a chunk may have no records. The first chunk of a reader that was opened without a
position has none: it only stores where the reader has started, so that a restart does not look for "latest" again.

**Consumers.** aiokafka fetches all partitions of a consumer from one broker together. One that is not read, because of
backpressure or the alignment of event time, delays the others by up to the time that the broker waits for records. So
each reader has its own consumer. It is assigned its partition: there is no group that rebalances.

**Lost connections.** aiokafka repeats its requests without end and without a sign. A reader that waits, and gets no
answer, empty ones included, for ``ANSWERS``, takes the connection for lost, and opens a new consumer at its position.
With a long ``fetch_max_wait_ms`` the broker may be silent for longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import described, shown
from aflow_connectors.kafka.client import (
    Connection,
    Unreachable,
    abandon,
    aiokafka,
    errors,
    patient,
)
from aflow_connectors.kafka.start import LostOffsets, Start, first_offset
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.reconnect import Retries
from aflow_connectors.silence import Silence

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

#: Time (s) for which a read waits for records before it looks at the connection and the end of the partition.
_SLICE: Final = 0.2

#: Time (s) without an answer of the broker after which the connection counts as lost.
ANSWERS: Final = 5.0

#: Time (s) by which an answer may come later than the broker waits for records.
_LATE: Final = 3.0


@dataclass(frozen=True)
class PartitionSettings:
    """The settings of all readers of a source."""

    connection: Connection
    start: Start
    ends_now: bool
    idle_after: float | None
    """Seconds."""
    on_lost_offsets: LostOffsets
    isolation: str
    group: str | None


class PartitionReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: PartitionSettings,
        place: Any,
        decoder: MessageDecoder[T],
        retries: Retries,
        position: Position | None,
    ) -> None:
        self._settings = settings
        #: The topic and the partition.
        self._place = place
        self._decoder = decoder
        self._retries = retries
        self._name = f"{settings.connection.place}, {place.topic}/{place.partition}"
        self._next, self._end = _decoded(position, self._name)
        if not settings.ends_now:
            self._end = None
        #: True until the start is in a chunk; also that after lost offsets, or a restart would look for it again.
        self._started_here = position is None
        #: Fetched messages that no chunk has returned yet, and the offset after them.
        self._fetched: Sequence[RawMessage] = ()
        self._fetched_to = self._next
        self._consumer: Any = None
        #: The wait for records; also while there are some of an open transaction.
        self._silence = Silence(settings.idle_after)
        #: The time of the broker's last answer, and the loop time at which the reader saw it.
        self._last_answer: tuple[int | None, float] = (None, 0.0)
        longest_wait: float = settings.connection.settings.get("fetch_max_wait_ms", 0) / 1000
        #: The longest time (s) without an answer.
        self._most_unanswered = max(ANSWERS, longest_wait + _LATE)

    async def open(self, *, later: bool) -> None:
        """Connect. ``later``: the partition was found while the source was read. Raises ``SourceError``."""
        await self._retries.run(partial(self._open, later))

    async def read(self, limit: int) -> Chunk[T] | None:
        while self._started_here or (not self._fetched and self._fetched_to == self._next):
            if self._started_here:
                self._started_here = False
                return Chunk([], self._position(self._next))
            if self._end is not None and self._next >= self._end:
                return None
            await self._retries.run(partial(self._fetch, limit), renew=self._renew)
            if self._becomes_idle():
                return Chunk([], self._position(self._next), idle=True)
        return await self._chunk(limit)

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await abandon(consumer)

    async def _chunk(self, limit: int) -> Chunk[T]:
        taken = self._fetched[:limit]
        rest = self._fetched[limit:]
        after = self._fetched_to
        if rest:
            after = cast(int, taken[-1].offset) + 1
        decoded = await self._decoder.decode(taken)  # may be cancelled: then they are still there
        self._fetched, self._next = rest, after
        return Chunk(decoded.values, self._position(after), decoded.timestamps, decoded.rejected)

    async def _fetch(self, limit: int) -> None:
        """Fetch messages, at most ``limit``; none if there are none for ``_SLICE``."""
        found = await self._messages(limit)
        if self._end is not None:
            found = [one for one in found if one.offset < self._end]
        # No await that waits between the fetch and here, or a cancelled read would lose the messages.
        self._fetched = cast("Sequence[RawMessage]", found)  # it has the same attributes
        after: int = await self._consumer.position(self._place)
        if found:
            after = max(after, found[-1].offset + 1)
        self._fetched_to = after if self._end is None else min(after, self._end)
        if found or self._fetched_to > self._next:
            self._silence.on_records()
        else:
            self._check_answers()

    async def _messages(self, limit: int) -> list[Any]:
        try:
            found = await self._consumer.getmany(
                self._place, timeout_ms=int(_SLICE * 1000), max_records=limit
            )
        except errors.OffsetOutOfRangeError:
            await self._go_on_after_loss()
            return []
        except errors.KafkaError as exc:
            raise self._explained(exc) from exc
        return cast(list[Any], found.get(self._place, []))

    def _check_answers(self) -> None:
        """Raise ``Unreachable`` if the broker has not answered for ``ANSWERS``."""
        now = asyncio.get_running_loop().time()
        if self._silence.since is None:
            self._silence.begin(now)
            self._last_answer = (None, now)
        answer = self._consumer.last_poll_timestamp(self._place)
        if answer != self._last_answer[0]:
            self._last_answer = (answer, now)
        elif now - self._last_answer[1] > self._most_unanswered:
            raise Unreachable(f"no answer of the broker for {self._most_unanswered:.0f} s")

    def _becomes_idle(self) -> bool:
        """Return True once the partition has been at its end for ``idle_after``."""
        highwater = self._consumer.highwater(self._place)
        # Records of an open transaction lie before the high watermark: they keep event time back, as they should.
        if highwater is None or self._next < highwater:
            return False
        return self._silence.becomes_idle(asyncio.get_running_loop().time())

    def _position(self, offset: int) -> Position:
        return offset if self._end is None else (offset, self._end)

    async def _open(self, later: bool) -> None:
        consumer = await self._started()
        try:
            if self._next < 0:
                start = self._settings.start
                self._next = await patient(first_offset(consumer, self._place, start, later=later))
                self._fetched_to = self._next
            if self._settings.ends_now and self._end is None:
                ends = await patient(consumer.end_offsets([self._place]))
                self._end = max(ends[self._place], self._next)
        except BaseException as exc:
            await abandon(consumer)
            if isinstance(exc, errors.KafkaError):
                raise self._explained(exc) from exc
            raise
        consumer.seek(self._place, self._next)
        consumer.resume(self._place)
        self._consumer = consumer

    async def _started(self) -> Any:
        settings = self._settings
        consumer = aiokafka.AIOKafkaConsumer(
            **settings.connection.options(),
            group_id=settings.group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=settings.isolation,
        )
        await settings.connection.start(consumer, SourceError)
        consumer.assign([self._place])
        # Without a position it would look for one, and without a pause fetch from this one, which may be wrong.
        consumer.seek(self._place, 0)
        consumer.pause(self._place)
        return consumer

    async def _renew(self) -> None:
        """Replace the consumer by one at the position after the last messages. Raises a lost connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await abandon(consumer)
        try:
            topics = await self._settings.connection.topics(SourceError)
            if self._place.partition not in topics.get(self._place.topic, ()):
                raise Unreachable(f"there is no {self._place.topic}/{self._place.partition} now")
            await self._open(later=False)
        except BaseException:
            # `_fetch` is not called without a consumer: `Retries` renews first.
            self._silence.restart()
            raise
        self._silence.restart()

    async def _go_on_after_loss(self) -> None:
        """Apply ``on_lost_offsets``. Raises ``SourceError`` if it is "fail"."""
        consumer, place, policy = self._consumer, self._place, self._settings.on_lost_offsets
        first: int = (await patient(consumer.beginning_offsets([place])))[place]
        end: int = (await patient(consumer.end_offsets([place])))[place]
        if first <= self._next <= end:
            return  # not any more: a leader that was behind
        lost = (
            f"{self._name}: offset {self._next} does not exist any more: the partition has {first} to {end}. Were its "
            f"records removed by retention before they were read, or the topic created again?"
        )
        if policy == "fail":
            raise SourceError(
                f"{lost} on_lost_offsets='earliest' or 'latest' continues without the lost records"
            )
        target = first if policy == "earliest" else end
        extra = {"event": "offsets_lost", "place": self._name, "asked": self._next, "next": target}
        _logger.warning("%s It continues at %s.", lost, target, extra=extra)
        consumer.seek(place, target)
        self._next = self._fetched_to = target
        self._started_here = True
        if self._end is not None:
            self._end = max(
                target, min(self._end, end)
            )  # a topic that was created again may be shorter

    def _explained(self, exc: BaseException) -> BaseException:
        """Return ``exc``, or a ``SourceError`` if no further attempt can help."""
        if isinstance(exc, errors.TopicAuthorizationFailedError):
            return SourceError(f"{self._name}: the user of client= may not read the topic")
        if isinstance(exc, errors.RecordTooLargeError):
            return SourceError(
                f"{self._name}, offset {self._next}: {described(exc)}; raise max_partition_fetch_bytes in client="
            )
        if isinstance(exc, errors.CorruptRecordException):
            return SourceError(f"{self._name}, offset {self._next}: {described(exc)}")
        return exc


class CommittingReader(PartitionReader[T], Generic[T]):
    """Also commits the offsets of completed checkpoints to a consumer group, for tools that watch its lag."""

    _has_warned = False

    async def on_checkpoint_completed(self, position: Position) -> None:
        offset, _ = _decoded(position, self._name)
        consumer = self._consumer
        if consumer is None:
            return  # between two connections; the next checkpoint commits more
        try:
            await patient(consumer.commit({self._place: offset}))
        except errors.GroupAuthorizationFailedError as exc:
            raise SourceError(
                f"{self._name}: the user of client= may not commit offsets of group {self._settings.group!r}"
            ) from exc
        except (errors.KafkaError, errors.ConsumerStoppedError, TimeoutError) as exc:
            # Only for monitoring: the job continues from its checkpoint in any case.
            if not self._has_warned:
                self._has_warned = True
                extra = {"event": "offsets_not_committed", "place": self._name}
                _logger.warning(
                    "%s: offset %d was not committed to group %r: %s",
                    self._name,
                    offset,
                    self._settings.group,
                    described(exc),
                    extra=extra,
                )


def _decoded(position: Position | None, name: str) -> tuple[int, int | None]:
    """Return the next offset, -1 if it must be looked up, and the end if there is one."""
    if position is None:
        return -1, None
    if isinstance(position, int) and position >= 0:
        return position, None
    if type(position) in (list, tuple):
        pair = cast("Sequence[object]", position)
        if len(pair) == 2 and all(isinstance(one, int) and one >= 0 for one in pair):
            return cast("tuple[int, int]", tuple(pair))
    raise SourceError(
        f"{name} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )
