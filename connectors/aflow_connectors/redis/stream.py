"""``EntryReader``: reads one stream, and notices what was removed before it was read.

**Position.** The id of the last entry, and the number of entries that the stream had got up to it; with ``until="now"``
also the last id. An id alone does not tell whether entries after it were removed.

**Removed entries.** Trimming (``XTRIM``, ``MAXLEN``) removes the oldest entries. As long as the entry at the position,
or any older one, exists, nothing after it was trimmed. So each read begins *at* the position, and expects that entry
first. If it is not there, a script reads the counters of the stream together with the entries. A stream counts the
entries that it has ever got (``entries-added``, since Redis 7). With ``c`` of them up to the position, and ``length``
entries that are left after it,

    entries-added - c - length

have been removed unread. This is exact for trimming. Entries that ``XDEL`` removes count too if no older entry is left,
since they cannot be told apart. Where ``c`` is unknown, as at an id in the middle, it becomes known at the end of the
stream. Until then, entries may be missing if the stream begins after the position.

A last id before the position, or fewer entries than counted, mean that the server lost data, or that the stream was
created again. Producers may have written since: the entries after the position and those counted up to it are more than
the stream has ever got then. All of them are known at the end of the stream. So after a restart, and after the entry of
the position was not found, each read compares the counters until the end is reached once.

**Waiting.** ``XREAD BLOCK`` only tells that there is an entry; the next read fetches it, with the check above.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.redis.client import RedisLink, RedisServer
from aflow_connectors.redis.entries import Entry
from aflow_connectors.redis.entry_format import EntriesDecoder
from aflow_connectors.redis.entry_ids import (
    BEGINNING,
    EntryId,
    LostEntries,
    StartEntry,
    id_of_time,
)
from aflow_connectors.redis.scripts import LOOK
from aflow_connectors.silence import Silence

T = TypeVar("T")
U = TypeVar("U")

_logger = logging.getLogger("aflow.connectors")

#: Time (s) for which a read waits for entries before it looks at the end and idleness again.
_SLICE: Final = 1.0

#: Number of entries of a request.
_PAGE: Final = 4096


@dataclass(frozen=True)
class GroupSharing:
    """The settings of a source that shares the entries of its streams with other consumers of its group."""

    consumer: str
    prefetch: int
    claim_after: float | None
    """Seconds."""


@dataclass(frozen=True)
class StreamSettings:
    """The settings of all readers of a source."""

    server: RedisServer
    start: StartEntry
    ends_now: bool
    idle_after: float | None
    """Seconds."""
    on_lost_entries: LostEntries
    group: str | None
    sharing: GroupSharing | None


class StreamState(NamedTuple):
    """The counters of a stream, and some of its entries, at one moment."""

    added: int
    length: int
    last: EntryId
    first: EntryId | None
    entries: Sequence[Entry]


class EntryReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: StreamSettings,
        stream: str,
        link: RedisLink,
        decoder: EntriesDecoder,
        position: Position | None,
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._link = link
        self._decoder = decoder
        self._name = f"{settings.server.place}, stream {stream!r}"
        #: The id of the last returned entry.
        self._last = BEGINNING
        #: The number of entries that the stream had got up to ``_last``; None: unknown.
        self._count: int | None = None
        self._end: EntryId | None = None
        #: True if the entry ``_last`` was there at the last look, so that a read can begin with it.
        self._is_present = True
        #: True until the counters were compared at the end of the stream.
        self._is_unverified = position is not None
        #: Fetched entries that no chunk has returned yet, and the count after all of them.
        self._fetched: Sequence[Entry] = ()
        self._count_after: int | None = None
        #: True until the start is in a chunk; also that after lost entries, or a restart would look for it again.
        self._started_here = position is None
        self._silence = Silence(settings.idle_after)
        if position is not None:
            self._last, self._count, self._end = _decoded(position, self._name)
        if not settings.ends_now:
            self._end = None

    async def open(self, *, later: bool) -> None:
        """Look up the start. ``later``: the stream was found while the source was read. Raises ``SourceError``."""
        await self._link.check()
        state = await self._look(0)
        if self._started_here:
            if state is None:
                raise self._link.error("it does not exist any more")
            self._choose_start(state, later=later)
        if self._settings.ends_now and self._end is None:
            self._end = max(self._last, state.last if state is not None else self._last)

    async def read(self, limit: int) -> Chunk[T] | None:
        while self._started_here or not self._fetched:
            if self._started_here:
                self._started_here = False
                return Chunk([], self._position())
            if self._end is not None and self._last >= self._end:
                return None
            if not await self._outages_left_out(self._fetch(min(limit, _PAGE))):
                if self._end is not None:
                    return None  # the last entries were deleted
                now = asyncio.get_running_loop().time()
                if self._silence.becomes_idle(now):
                    return Chunk([], self._position(), idle=True)
                self._silence.begin(now)
                await self._outages_left_out(self._wait())
        self._silence.on_records()
        return await self._chunk(limit)

    async def close(self) -> None:
        await self._link.close()

    def _choose_start(self, state: StreamState, *, later: bool) -> None:
        start = self._settings.start
        removed = state.added - state.length
        if start == "earliest" or (later and not self._start_id()):
            self._last, self._count = BEGINNING, removed
        elif start == "latest":
            self._last, self._count = state.last, state.added
        elif isinstance(start, datetime):
            self._last = id_of_time(start).before()
            if state.first is None or self._last < state.first:
                self._count = removed  # what was removed before is not asked for
        else:
            id = self._start_id()
            if id is None:
                raise self._link.error(
                    f"start= has no id for stream {self._stream!r}; it has {shown(start)}"
                )
            self._last = EntryId.parse(id).before()
        if self._last == state.last:
            self._count = state.added

    def _start_id(self) -> str | None:
        start = self._settings.start
        if isinstance(start, (str, datetime)):
            return None
        return start.get(self._stream)

    async def _chunk(self, limit: int) -> Chunk[T]:
        taken, rest = self._fetched[:limit], self._fetched[limit:]
        decoded = await self._decoder.decode(taken)  # may be cancelled: then they are still there
        self._fetched = rest
        if not rest:
            self._count = self._count_after
        elif self._count is not None:
            self._count += len(taken)
        self._last = _id(taken[-1])
        return Chunk(decoded.values, self._position(), decoded.timestamps, decoded.rejected)

    async def _fetch(self, limit: int) -> bool:
        """Fetch up to ``limit`` entries. Return False if there are none."""
        if self._is_present and self._count is not None and not self._is_unverified:
            found = cast(
                "Sequence[Entry]",
                await self._link.command(
                    "XRANGE", self._stream, str(self._last), self._upper(), "COUNT", limit + 1
                ),
            )
            self._is_present = bool(found) and _id(found[0]) == self._last
            self._is_unverified = not self._is_present
            if self._is_present:
                self._fetched = found[1:]
                self._count_after = self._count + len(self._fetched)
                return len(found) > 1
        return await self._fetch_checked(limit)

    async def _fetch_checked(self, limit: int) -> bool:
        """Fetch in the same way, with the counters of the stream."""
        state = await self._look(limit + 1)
        loss = self._loss(state)
        if loss is not None:
            self._apply_policy(loss, state)
            return await self._fetch_checked(limit)
        if state is None:
            return False
        found = state.entries
        self._is_present = bool(found) and _id(found[0]) == self._last
        # It may be one more than the limit, which stays for the next chunk.
        self._fetched = found[1:] if self._is_present else found
        is_all = len(found) <= limit and self._end is None and state.last >= self._last
        if is_all:
            self._count_after = state.added
            self._is_unverified = False
        elif self._count is not None:
            self._count_after = self._count + len(self._fetched)
        else:
            self._count_after = None
        if not self._fetched:
            self._count = self._count_after
        return bool(self._fetched)

    def _loss(self, state: StreamState | None) -> str | None:
        """Return the description of lost entries; None if nothing after the position was lost."""
        last, count = self._last, self._count
        if state is None:
            return None if last == BEGINNING and not count else "the stream does not exist any more"
        if state.last < last and count is not None:
            return f"the stream ends at {state.last}, before the position: the server has lost data"
        if state.first is not None and state.first <= last:
            return self._lost_data(state)
        if count is not None:
            removed = state.added - count - state.length
            if removed < 0:
                return "the stream was created again"
            return f"{removed} entries after it were removed unread" if removed else None
        if state.last <= last or state.added == state.length:
            return None
        return "entries after it may have been removed unread"

    def _lost_data(self, state: StreamState) -> str | None:
        """Return the description of lost data of the server if entries up to the position, and later ones, exist."""
        if self._count is None:
            return None
        # They are in the order of their ids, from the position on.
        is_present = bool(state.entries) and _id(state.entries[0]) == self._last
        following = len(state.entries) - is_present
        if state.added >= self._count + following:
            return None
        return f"the stream has got fewer entries than were read: {state.added} in all, and the server has lost data"

    async def _look(self, count: int) -> StreamState | None:
        """Return the counters, and ``count`` entries from the position. None if there is no such stream."""
        found: Any = await self._link.script(
            LOOK, [self._stream], [str(self._last), self._upper(), count]
        )
        if found is None:
            return None
        if isinstance(found, (str, bytes)):
            kind = found if isinstance(found, str) else found.decode()
            raise self._link.error(f"the key {self._stream!r} is a {kind}, not a stream")
        added, length, last, first, entries = found
        first_id = EntryId.parse(_text(first))
        return StreamState(
            int(added),
            int(length),
            EntryId.parse(_text(last)),
            None if first_id == BEGINNING else first_id,
            entries,
        )

    def _apply_policy(self, loss: str, state: StreamState | None) -> None:
        """Apply ``on_lost_entries``. Raises ``SourceError`` if it is "fail"."""
        policy = self._settings.on_lost_entries
        text = f"{self._name}: it cannot continue after entry {self._last}: {loss}."
        if policy == "fail":
            raise SourceError(
                f"{text} Was it trimmed before it was read, or the server restarted with older data? "
                f"on_lost_entries='earliest' or 'latest' continues without the lost entries"
            )
        before = str(self._last)
        if state is None:
            self._last, self._count = BEGINNING, 0
        elif policy == "earliest" and state.last < self._last and self._count is not None:
            # The server has lost the end of the stream: all up to there was read.
            self._last, self._count = state.last, state.added
        elif policy == "earliest" and self._lost_data(state) is not None:
            self._count = None  # later entries have ids after the position
        elif policy == "earliest":
            self._last, self._count = BEGINNING, state.added - state.length
        else:
            self._last, self._count = state.last, state.added
        self._is_present = False
        self._started_here = True
        extra = {"event": "entries_lost", "place": self._name, "asked": before}
        _logger.warning("%s It continues after %s.", text, self._last, extra=extra)

    async def _wait(self) -> None:
        """Wait for a moment until there is an entry."""
        seconds = min(_SLICE, self._settings.server.timeout.total_seconds() / 2)
        until_idle = self._silence.remaining(asyncio.get_running_loop().time())
        if until_idle is not None:
            seconds = min(seconds, until_idle)
        milliseconds = max(1, int(seconds * 1000))
        await self._link.command(
            "XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", self._stream, str(self._last)
        )

    async def _outages_left_out(self, operation: Coroutine[Any, Any, U]) -> U:
        """Return the result of ``operation``. If the connection was lost meanwhile, its time is no silence."""
        now = asyncio.get_running_loop().time
        losses, began = self._link.losses, now()
        result = await operation
        if self._link.losses != losses:
            self._silence.on_outage(began, now())
        return result

    def _upper(self) -> str:
        return "+" if self._end is None else str(self._end)

    def _position(self) -> Position:
        end = () if self._end is None else (str(self._end),)
        return (str(self._last), -1 if self._count is None else self._count, *end)


class GroupedEntryReader(EntryReader[T], Generic[T]):
    """Also sets the last id of a consumer group after completed checkpoints, for tools that watch its lag."""

    async def on_checkpoint_completed(self, position: Position) -> None:
        last, count, _ = _decoded(position, self._name)
        group = self._settings.group
        assert group is not None
        arguments: list[str | bytes | int] = [group, str(last)]
        if count is not None:
            arguments += ("ENTRIESREAD", count)
        await self._link.script(SET_GROUP, [self._stream], arguments)


SET_GROUP: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2])
if type(made) == 'table' and made['err'] and not string.find(made['err'], 'BUSYGROUP') then return made end
redis.call('XGROUP', 'SETID', KEYS[1], unpack(ARGV))
return 1
"""
"""Set the last id of group ARGV[1] to ARGV[2], and create the group before if it does not exist."""


def _id(entry: Entry) -> EntryId:
    return EntryId.parse(_text(entry[0]))


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else data.decode()


def _decoded(position: Position, name: str) -> tuple[EntryId, int | None, EntryId | None]:
    """Return the id, the count and the end of a stored position. Raises ``SourceError`` for another kind of one."""
    try:
        last, count, *end = cast("Sequence[Any]", position)
        if type(position) in (list, tuple) and type(count) is int and len(end) < 2:
            ids = [EntryId.parse(one) for one in (last, *end)]
            return ids[0], None if count < 0 else count, ids[1] if end else None
    except (TypeError, ValueError):
        pass  # refused below
    raise SourceError(
        f"{name} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )
