"""``JetStreamReader``: reads one stream of JetStream, and notices what was discarded before it was read.

**Position.** The sequence of the last message, and the time at which the stream was created: a stream that is created
again begins at 1. With ``until="now"`` also the last sequence of the stream.

**Consumer.** Each reader has an ephemeral pull consumer without acknowledgements, which begins after the position. It
is created again after each lost connection, and when the server has removed it. The server keeps nothing that a restart
needs. Its messages are numbered, so a missing one is noticed.

**Discarded messages.** Limits of a stream discard the oldest messages, so nothing after the position is discarded as
long as the first sequence of the stream is at most the next one. It is asked for when the consumer is created, when a
message does not follow the one before, and when there are none. Messages of other subjects leave gaps, too: if the
stream begins within such a gap, it is not known whether a message of the subject was discarded, and it counts as lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.nats.client import (
    NOT_FOUND,
    JetStreamError,
    NatsLink,
    NatsServers,
    NatsSession,
    NatsUnavailable,
)
from aflow_connectors.nats.publications import NO_MESSAGES
from aflow_connectors.nats.reply_subject import numbers_of
from aflow_connectors.silence import Silence

T = TypeVar("T")

StartSequence: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[str, int]
"""The first or the next message of each stream, the first one of a time, or the first sequences by stream."""

LostMessages: TypeAlias = Literal["fail", "earliest", "latest"]

_logger = logging.getLogger("aflow.connectors")

#: Maximum number of messages of a request.
_BATCH: Final = 1024

#: Maximum number of bytes of a request; more if a message has more.
_BYTES: Final = 16 << 20

#: Time (s) for which a request waits for messages.
_WAIT: Final = 1.0

#: Time (s) after which a request that has got no status is given up, and the consumer with it:
#: the server does not answer requests for a consumer that it has removed.
_LAPSED: Final = _WAIT + 1.0

#: Time (ns) without requests after which the server removes the consumer.
_INACTIVE: Final = 300 * 10**9


@dataclass(frozen=True)
class ConsumerSettings:
    """The settings of all readers of a source."""

    servers: NatsServers
    subject: str | None
    start: StartSequence
    ends_now: bool
    idle_after: float | None
    """Seconds."""
    on_lost_messages: LostMessages


class SequenceState(NamedTuple):
    """The sequences of a stream at one moment."""

    first: int
    last: int
    created: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> SequenceState:
        state = info["state"]
        # An empty stream has 0 as first sequence in some versions, and the next one in others.
        first = max(int(state["first_seq"]), 1)
        last = int(state["last_seq"])
        return cls(first if state["messages"] else last + 1, last, str(info["created"]))


class JetStreamReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: ConsumerSettings,
        stream: str,
        link: NatsLink,
        decoder: MessageDecoder[T],
        position: Position | None,
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._link = link
        self._decoder = decoder
        self._name = f"{settings.servers.place}, stream {stream!r}"
        #: The sequence of the last returned message, or a later one after which nothing was there.
        self._last, self._created, self._end = 0, "", cast("int | None", None)
        #: True until the start is in a chunk; also that after lost messages, or a restart would look for it again.
        self._started_here = position is None
        if position is not None:
            self._last, self._created, self._end = _decoded(position, self._name)
        if not settings.ends_now:
            self._end = None
        #: Messages that no chunk has returned yet.
        self._received = deque[RawMessage]()
        #: Set when there is a message, a status or a lost connection.
        self._arrived = asyncio.Event()
        link.on_closed = self._arrived.set
        self._consumer: str | None = None
        self._subscription: Any = None
        self._inbox = ""
        #: The number of the next message of the consumer.
        self._next_number = 1
        #: Messages that are under way for the last request; 0 if it has ended.
        self._requested = 0
        self._has_answer = False
        #: True if the server has answered the last request with: no messages, or no further ones.
        self._is_at_end = False
        self._most_bytes = _BYTES
        self._problem: str | None = None
        #: The connection to which the consumer belongs.
        self._session: NatsSession | None = None
        #: The time for which the stream is at its end.
        self._silence = Silence(settings.idle_after)
        #: Begin of the silence in an earlier connection, until the server says in this one whether there are messages.
        self._waited_since: float | None = None

    async def open(self, *, later: bool) -> None:
        """Look up the start. ``later``: the stream was found while the source was read. Raises ``SourceError``."""
        state = await self._state()
        if self._started_here:
            self._created = state.created
            self._last = await self._before_start(state, later=later)
        self._check_state(state)
        if self._settings.ends_now and self._end is None:
            self._end = max(self._last, state.last)

    async def read(self, limit: int) -> Chunk[T] | None:
        while self._started_here or not self._received:
            if self._started_here:
                self._started_here = False
                return Chunk([], self._position())
            if self._end is not None and self._last >= self._end:
                return None
            if self._silence.becomes_idle(asyncio.get_running_loop().time()):
                return Chunk([], self._position(), idle=True)
            before = self._last
            await self._link.run(self._fetch)
            if self._last > before and not self._received:
                self._started_here = False
                return Chunk([], self._position())  # what is before may be discarded now
        return await self._chunk(limit)

    async def close(self) -> None:
        self._consumer = None
        await self._link.close()

    async def _chunk(self, limit: int) -> Chunk[T]:
        taken: list[RawMessage] = []
        expected = self._last + 1
        first: int | None = None
        for one in list(self._received):
            sequence = cast(int, one.offset)
            if len(taken) == limit or (self._end is not None and sequence > self._end):
                break
            if sequence != expected:
                if first is None:
                    first = (await self._state()).first
                if first > expected:
                    if taken:
                        break  # they were not lost
                    return await self._after_loss(expected, sequence)
            taken.append(one)
            expected = sequence + 1
        self._waited_since = None
        self._silence.on_records()
        if not taken:  # all are after the end
            self._last = cast(int, self._end)
            self._received.clear()
            return Chunk([], self._position())
        decoded = await self._decoder.decode(taken)  # may be cancelled: then they are still there
        for _ in taken:
            self._received.popleft()
        self._last = expected - 1
        return Chunk(decoded.values, self._position(), decoded.timestamps, decoded.rejected)

    async def _after_loss(self, expected: int, found: int) -> Chunk[T]:
        """Apply ``on_lost_messages`` to a gap between messages."""
        state = await self._state()
        self._apply_policy(
            f"its messages from {expected} to {min(found, state.first) - 1} were discarded unread",
            state,
        )
        if self._settings.on_lost_messages == "earliest":
            self._last = found - 1
        else:
            self._forget_consumer()
        self._started_here = False
        return Chunk([], self._position())

    async def _fetch(self, session: NatsSession) -> None:
        """Wait for messages; at most for a moment."""
        if self._consumer is None or self._session is not session:
            await self._create_consumer(session)
        if self._requested == 0:
            state = None if self._silence.since is None else await self._state_of(session)
            if state is not None:
                self._check_state(state)
                if self._consumer is None:
                    await self._create_consumer(session)
            await self._request(session)
            if not await self._wait(session) and state is not None and self._is_at_end:
                # Nothing was there after the state was read: all up to its end is of other subjects, or removed.
                self._last = max(self._last, state.last)
                if self._end is not None:
                    self._last = min(self._last, self._end)
        else:
            await self._wait(session)
        if not self._received and self._requested == 0:
            # If the server has answered that there are none, the stream was at its end all the time.
            began = self._waited_since if self._is_at_end else None
            self._silence.begin(began or asyncio.get_running_loop().time())

    async def _wait(self, session: NatsSession) -> bool:
        """Wait until there is a message, or the request has ended. Return True for a message."""
        until_idle = self._silence.remaining(asyncio.get_running_loop().time())
        bound = _LAPSED if until_idle is None else min(_LAPSED, until_idle)
        try:
            async with asyncio.timeout(bound):
                while not self._received and self._requested and self._problem is None:
                    if session.is_closed or session.refusal is not None:
                        raise NatsUnavailable("the connection was lost")
                    await self._arrived.wait()
                    self._arrived.clear()
        except TimeoutError:
            if bound == _LAPSED:
                self._forget_consumer()
        if self._problem is not None:
            problem, self._problem = self._problem, None
            self._forget_consumer()
            raise NatsUnavailable(problem)
        return bool(self._received)

    async def _request(self, session: NatsSession) -> None:
        wait = b'"expires":%d' % int(_WAIT * 1e9)
        if self._end is not None or self._silence.since is None:
            wait = b'"no_wait":true'
        body = b'{"batch":%d,"max_bytes":%d,%s}' % (_BATCH, self._most_bytes, wait)
        self._requested, self._has_answer, self._is_at_end = _BATCH, False, False
        call = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await session.publish(call, body, f"{self._inbox}.x")

    async def _create_consumer(self, session: NatsSession) -> None:
        self._forget_consumer()
        if self._subscription is not None and self._session is session:
            await self._subscription.unsubscribe()
        if self._session is not session:
            # Messages of the time without a connection are on their way.
            self._waited_since = self._silence.since or self._waited_since
            self._silence.restart()
        self._session = session
        inbox = self._inbox = session.new_inbox()

        def received(message: Any) -> None:
            if inbox == self._inbox:
                self._on_message(message)

        state = await self._state_of(session)
        self._check_state(state)
        self._subscription = await session.subscribe(f"{inbox}.*", received)
        info = await session.request(
            f"CONSUMER.CREATE.{self._stream}",
            {
                "stream_name": self._stream,
                "config": {
                    **self._filter(),
                    "deliver_policy": "by_start_sequence",
                    "opt_start_seq": self._last + 1,
                    "ack_policy": "none",
                    "replay_policy": "instant",
                    "inactive_threshold": _INACTIVE,
                    "mem_storage": True,
                },
            },
        )
        self._consumer = info["name"]

    def _filter(self) -> dict[str, str]:
        subject = self._settings.subject
        return {} if subject is None else {"filter_subject": subject}

    def _forget_consumer(self) -> None:
        """Drop what belongs to the consumer. Its messages that were not returned are fetched again."""
        self._consumer, self._inbox = None, ""
        self._next_number, self._requested, self._is_at_end = 1, 0, False
        self._received.clear()

    def _on_message(self, message: Any) -> None:
        self._arrived.set()
        numbers = numbers_of(message.reply)
        if numbers is None:
            self._on_status(message.headers or {})
            return
        sequence, number, time = numbers
        if number != self._next_number:
            self._problem = f"message {self._next_number} of the consumer is missing"
            return
        self._next_number += 1
        self._requested, self._has_answer = max(0, self._requested - 1), True
        headers = message.headers
        raw = RawMessage(
            message.data,
            message.subject.encode(),
            ()
            if headers is None
            else tuple((name, text.encode()) for name, text in headers.items()),
            time // 1_000_000,
            sequence,
        )
        self._received.append(raw)

    def _on_status(self, headers: Mapping[str, str]) -> None:
        """A request has ended, or the consumer."""
        self._requested = 0
        status = headers.get("Status", "")
        self._is_at_end = status in NO_MESSAGES
        description = headers.get("Description", "").strip()
        if description.startswith("Message Size Exceeds"):
            if not self._has_answer:
                self._most_bytes *= 2
        elif not self._is_at_end:
            self._problem = f"the consumer has ended: {status} {description}"

    async def _state(self) -> SequenceState:
        return await self._link.run(self._state_of)

    async def _state_of(self, session: NatsSession) -> SequenceState:
        try:
            return SequenceState.of(await session.request(f"STREAM.INFO.{self._stream}"))
        except JetStreamError as exc:
            if exc.code == NOT_FOUND:
                raise self._link.error(f"stream {self._stream!r} does not exist any more") from exc
            raise self._link.error(f"stream {self._stream!r}: {exc}") from exc

    async def _before_start(self, state: SequenceState, *, later: bool) -> int:
        """Return the sequence before the first message. Raises ``SourceError`` if ``start`` does not name it."""
        start = self._settings.start
        if isinstance(start, Mapping):
            sequence = start.get(self._stream)
            if sequence is not None and sequence > state.last + 1:
                raise self._link.error(
                    f"start= has {sequence} for stream {self._stream!r}, which ends at {state.last}"
                )
            if sequence is not None:
                return sequence - 1
            if not later:
                raise self._link.error(
                    f"start= has no sequence for stream {self._stream!r}; it has {shown(start)}"
                )
        if start == "earliest" or later:
            return state.first - 1
        if isinstance(start, datetime):
            return await self._before_time(start, state)
        return state.last

    async def _before_time(self, moment: datetime, state: SequenceState) -> int:
        text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        config = {
            "deliver_policy": "by_start_time",
            "opt_start_time": text,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": 10**9,
            "mem_storage": True,
        }
        info = await self._link.request(
            f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
        )
        await self._link.request(f"CONSUMER.DELETE.{self._stream}.{info['name']}")
        return min(max(int(info["delivered"]["stream_seq"]), state.first - 1), state.last)

    def _check_state(self, state: SequenceState) -> None:
        """Apply ``on_lost_messages`` if the stream is another one, or begins after the position."""
        following = self._last + 1
        if state.created != self._created:
            loss = "the stream was created again"
        elif state.last < self._last:
            loss = f"it ends at {state.last}, before the position: the server has lost data"
        elif state.first > following and not self._received:
            loss = f"its messages from {following} to {state.first - 1} were discarded unread"
        else:
            return
        self._apply_policy(loss, state)
        self._forget_consumer()

    def _apply_policy(self, loss: str, state: SequenceState) -> None:
        """Apply ``on_lost_messages``. Raises ``SourceError`` if it is "fail"."""
        policy = self._settings.on_lost_messages
        text = f"{self._name}: it cannot continue after message {self._last}: {loss}."
        if policy == "fail":
            hint = ""
            if self._settings.subject is not None:
                hint = f" It is not known whether they include some of subject {self._settings.subject!r}."
            raise SourceError(
                f"{text}{hint} on_lost_messages='earliest' or 'latest' continues without the lost messages"
            )
        before = self._last
        has_lost_end = state.created == self._created and state.last < before
        if policy == "earliest" and not has_lost_end:
            self._last = state.first - 1
        else:
            self._last = state.last  # if it has lost its end, all up to there was read
        self._created = state.created
        self._started_here = True
        if self._end is not None:
            self._end = max(self._last, min(self._end, state.last))  # it may be shorter now
        extra = {"event": "messages_lost", "place": self._name, "asked": before}
        _logger.warning("%s It continues after %s.", text, self._last, extra=extra)

    def _position(self) -> Position:
        end = () if self._end is None else (self._end,)
        return (self._last, self._created, *end)


def _decoded(position: Position, name: str) -> tuple[int, str, int | None]:
    """Return the sequence, the creation time and the end. Raises ``SourceError`` for another kind of position."""
    if type(position) in (list, tuple):
        fields = cast("Sequence[Any]", position)
        if [type(one) for one in fields] in ([int, str], [int, str, int]):
            return fields[0], fields[1], fields[2] if len(fields) == 3 else None
    raise SourceError(
        f"{name} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )
