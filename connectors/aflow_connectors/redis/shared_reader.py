"""``SharedEntryReader``: reads a stream as a consumer of a group, and acknowledges what a completed checkpoint covers.

**Group.** The server delivers each new entry to one consumer of the group (``XREADGROUP``), and lists it as *pending*
for that consumer until it is acknowledged (``XACK``). So several jobs share the entries of a stream. The first one
creates the group. A reader that continues at a position and finds no group does not know what was read, and fails.

**Deliveries.** After a restart, or a lost connection, a reader first reads all entries that are pending for its
consumer. The id of an entry identifies it (``deliveries.py``): one that was read before the position is not read again,
and the next checkpoint acknowledges it.

**Consumers that do not return.** Entries that have been pending for another consumer for longer than ``claim_after``
are claimed by any reader of the group. Their former consumer may have counted them: a group is at least once. A script
claims (``XPENDING``, ``XCLAIM``), since ``XAUTOCLAIM`` removes pending entries that do not exist any more from the
lists of all consumers, also of those that have read them and wait for a checkpoint.

**Removed entries.** Trimming removes entries whether they were delivered or not. The server counts the entries that the
group has got (``entries-read``). If no entry up to the last delivered one is left, those that are left follow it, and

    entries-added - entries-read - length

have been removed undelivered. The script that reads compares these counters in the same step. Where the server does not
know ``entries-read``, as after a start in the middle, until the end is reached, the removal is not noticed. A pending
entry that was removed has no fields any more; it counts as lost unless this consumer has read it. With
``on_lost_entries="fail"`` it remains pending, so the error is the same after a restart.

**End.** With ``until="now"`` the reader ends as soon as the group has got the last id that the stream had when it was
opened, or when there is no new entry: the last ones may have been removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Chunk, Position, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.deliveries import DeliveryLedger
from aflow_connectors.delivery_pause import DeliveryPause
from aflow_connectors.redis.client import RedisLink, RedisUnavailable
from aflow_connectors.redis.entries import Entry
from aflow_connectors.redis.entry_format import EntriesDecoder
from aflow_connectors.redis.entry_ids import BEGINNING, EntryId, id_of_time
from aflow_connectors.redis.scripts import CLAIM, READ_SHARED, START_GROUP
from aflow_connectors.redis.stream import StreamSettings

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

#: Time (s) for which a read waits for entries before it looks at the limits of time.
_SLICE: Final = 0.2

#: Number of entries of a request.
_PAGE: Final = 4096
#: Number of entries that are acknowledged by one command.
_ACKNOWLEDGED: Final = 1000
#: Number of entries that are claimed at a time.
_CLAIMED: Final = 1000
#: Number of pending entries that the server lists at a time to find them.
_PENDING: Final = 1000


class SharedEntryReader(Reader[T], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        settings: StreamSettings,
        stream: str,
        link: RedisLink,
        decoder: EntriesDecoder,
        position: Position | None,
    ) -> None:
        sharing, group = settings.sharing, settings.group
        assert sharing is not None
        assert group is not None
        self._settings = settings
        self._sharing = sharing
        self._group = group
        self._stream = stream
        self._link = link
        self._decoder = decoder
        self._name = f"{settings.server.place}, stream {stream!r}, group {group!r}"
        self._ledger = DeliveryLedger(self._name, position, remember=0, prefetch=sharing.prefetch)
        self._pause = DeliveryPause(
            self._name, prefetch=sharing.prefetch, idle_after=settings.idle_after
        )
        #: True until a chunk tells a restart that there is a group.
        self._started_here = position is None
        #: The last id of the stream when it was opened, with ``until="now"``.
        self._end: EntryId | None = None
        self._is_over = False
        #: Entries that were delivered and not read.
        self._delivered: deque[Entry] = deque()
        #: True if entries may be pending for this consumer that are neither delivered nor in the ledger.
        self._must_look = True
        #: Number of times that they were looked for.
        self._looks = 0
        #: The id after which pending entries of this consumer are to be read; None: all were read.
        self._pending_after: EntryId | None = None
        #: The last id that the group has got.
        self._last = BEGINNING
        #: Loop time of the next claim.
        self._claims_at = 0.0

    async def open(self, *, later: bool) -> None:
        """Create the group on a fresh start. ``later``: the stream was found while the source was read.

        Raises ``SourceError``.
        """
        await self._link.check()
        start = self._start(later=later) if self._started_here else "continue"
        found = await self._link.script(START_GROUP, [self._stream], [self._group, start])
        self._refuse_missing(found)
        if self._settings.ends_now:
            self._end = EntryId.parse(_text(found[1]))

    async def read(self, limit: int) -> Chunk[T] | None:
        if self._started_here:
            self._started_here = False
            return Chunk([], self._ledger.position())
        while True:
            if self._delivered:
                chunk = await self._chunk(limit)
                if chunk is not None:
                    return chunk
            elif self._is_over:
                return None
            elif await self._link.repeat(self._fetch):
                return Chunk([], self._ledger.position(), idle=True)

    async def on_checkpoint_completed(self, position: Position) -> None:
        covered = self._ledger.number_at(position)
        # Else pending entries up to it may not be in the ledger.
        is_complete, looks = not self._must_look and self._pending_after is None, self._looks
        tags = [*self._ledger.take_covered(covered), *self._ledger.take_late(covered)]
        try:
            for start in range(0, len(tags), _ACKNOWLEDGED):
                await self._acknowledge(tags[start : start + _ACKNOWLEDGED])
        except RedisUnavailable:
            # `read` looks for pending entries again, and the next checkpoint acknowledges them.
            self._must_look = True
            return
        if is_complete and not self._must_look and looks == self._looks:
            self._ledger.settle(covered)

    async def close(self) -> None:
        await self._link.close()

    async def _acknowledge(self, tags: Sequence[int]) -> None:
        """Acknowledge entries. Raises ``RedisUnavailable`` if ``read`` will look for pending entries again."""
        command = ("XACK", self._stream, self._group, *(str(EntryId.of_tag(tag)) for tag in tags))
        if not self._is_over:
            try:
                await self._link.command_once(*command)
            except RedisUnavailable:
                if not self._is_over:
                    raise
            else:
                return
        await self._link.command(*command)

    def _start(self, *, later: bool) -> str:
        """Return the id after which a new group begins, "earliest" or "latest". Raises ``SourceError``."""
        start = self._settings.start
        if isinstance(start, datetime):
            return str(id_of_time(start).before())
        if isinstance(start, str):
            return "earliest" if later else start
        if self._stream in start:
            return str(EntryId.parse(start[self._stream]).before())
        if later:
            return "earliest"
        raise self._link.error(
            f"start= has no id for stream {self._stream!r}; it has {shown(start)}"
        )

    def _refuse_missing(self, found: Sequence[Any]) -> None:
        """Raise ``SourceError`` for the answer of a script that has found no stream or group."""
        match _text(found[0]):
            case "none":
                raise self._link.error("it does not exist any more")
            case "group":
                raise self._link.error(
                    f"the consumer group {self._group!r} does not exist any more, so it is unknown which entries were "
                    f"read. Was it removed, or has the server lost data? Create it with XGROUP CREATE and the id to "
                    f"continue after, or start fresh (restore='fresh')"
                )
            case "ok":
                pass
            case kind:
                raise self._link.error(f"the key {self._stream!r} is a {kind}, not a stream")

    async def _chunk(self, limit: int) -> Chunk[T] | None:
        """Return the records of at most ``limit`` entries; None if all were read before."""
        taken = list(islice(self._delivered, limit))
        ids = [EntryId.parse(_text(id)) for id, _ in taken]
        recognised = self._ledger.recognise([id.packed() for id in ids])
        fresh = [taken[place] for place in recognised.fresh]
        decoded = await self._decoder.decode(fresh)  # may be cancelled: then they are still there
        self._ledger.read(recognised, [id.tag() for id in ids])
        for _ in taken:
            self._delivered.popleft()
        self._pause.on_messages()
        if not fresh:
            return None
        return Chunk(decoded.values, self._ledger.position(), decoded.timestamps, decoded.rejected)

    async def _fetch(self) -> bool:
        """Fetch entries, or wait for some for a moment. Return True if the stream becomes idle.

        Raises ``RedisUnavailable``.
        """
        now = asyncio.get_running_loop().time()
        self._pause.begin(now)
        try:
            if self._must_look:
                self._must_look = False
                self._looks += 1
                self._pending_after = BEGINNING
                self._delivered.clear()
                self._ledger.on_connection_lost()
            if self._pending_after is not None:
                await self._fetch_pending(self._pending_after)
                return False
            has_ended = self._end is not None and self._last >= self._end
            room = self._sharing.prefetch - self._ledger.unacknowledged
            if room <= 0 and not (has_ended and self._sharing.claim_after is None):
                self._pause.warn_if_stalled(self._ledger.unacknowledged, now)
                await asyncio.sleep(_SLICE)
            elif await self._claim(room, now):
                pass
            elif has_ended:
                self._is_over = True
            elif not await self._fetch_new(room):
                return await self._on_no_entries()
        except RedisUnavailable:
            # The answer may have had entries, which are pending now. Others may have been added meanwhile.
            self._must_look = True
            self._pause.on_connected()
            raise
        return False

    async def _on_no_entries(self) -> bool:
        """End, or wait for a moment for a new entry. Return True, at once, if the stream becomes idle."""
        if self._end is not None:
            self._is_over = True
            return False
        now = asyncio.get_running_loop().time()
        if self._pause.becomes_idle(self._ledger.unacknowledged, now):
            return True
        await self._wait()
        return False

    async def _fetch_pending(self, after: EntryId) -> None:
        """Fetch entries that are pending for this consumer."""
        found = await self._link.command_once(
            *("XREADGROUP", "GROUP", self._group, self._sharing.consumer, "COUNT", _PAGE),
            *("STREAMS", self._stream, str(after)),
        )
        entries: Sequence[Entry] = found[0][1] if found else ()
        self._pending_after = EntryId.parse(_text(entries[-1][0])) if entries else None
        await self._deliver(entries)

    async def _claim(self, room: int, now: float) -> bool:
        """Claim entries of consumers that do not return. Return False if there are none."""
        idle = self._sharing.claim_after
        if idle is None or now < self._claims_at:
            return False
        found = await self._link.script_once(
            CLAIM,
            [self._stream],
            [
                *(self._group, self._sharing.consumer),
                *(max(1, int(idle * 1000)), min(room, _CLAIMED), _PENDING),
            ],
        )
        entries: Sequence[Entry] = found[0]
        removed: Sequence[str | bytes] = found[1]
        if not entries and not removed:
            self._claims_at = now + idle / 2
            return False
        lost = [id for id in removed if self._is_unread(id)]
        self._report_lost(len(lost), "were claimed")
        if removed:
            await self._link.command_once("XACK", self._stream, self._group, *removed)
        # Another consumer may have claimed entries of this one before.
        known = self._ledger.unacknowledged_tags()
        await self._deliver(
            [one for one in entries if EntryId.parse(_text(one[0])).tag() not in known]
        )
        return True

    async def _fetch_new(self, room: int) -> bool:
        """Fetch entries that no consumer has got. Return False if there are none."""
        consumer, policy = self._sharing.consumer, self._settings.on_lost_entries
        found = await self._link.script_once(
            READ_SHARED, [self._stream], [self._group, consumer, min(room, _PAGE), policy]
        )
        self._refuse_missing(found)
        _, lost, last, entries = found
        self._report_lost(int(lost), f"follow {_text(last)} and were delivered")
        self._last = EntryId.parse(_text(entries[-1][0] if entries else last))
        await self._deliver(entries)
        return bool(entries)

    async def _deliver(self, entries: Sequence[Entry]) -> None:
        """Add delivered entries. Acknowledge those that were removed before they were read."""
        gone = {id for id, fields in entries if not fields and self._is_unread(id)}
        self._report_lost(len(gone), "were pending")
        if gone:
            await self._link.command_once("XACK", self._stream, self._group, *gone)
            entries = [one for one in entries if one[0] not in gone]
        self._delivered.extend(entries)

    def _is_unread(self, id: str | bytes) -> bool:
        return bool(self._ledger.recognise([EntryId.parse(_text(id)).packed()]).fresh)

    def _report_lost(self, count: int, which: str) -> None:
        """Apply ``on_lost_entries``. Raises ``SourceError`` if it is "fail"."""
        if not count:
            return
        text = f"{self._name}: {count} entries that {which} were removed before they were read."
        policy = self._settings.on_lost_entries
        if policy == "fail":
            raise SourceError(
                f"{text} Was the stream trimmed? on_lost_entries='earliest' or 'latest' continues without them"
            )
        extra = {"event": "entries_lost", "place": self._name, "count": count}
        _logger.warning("%s It continues without them.", text, extra=extra)

    async def _wait(self) -> None:
        """Wait for a moment until there is an entry after the last one of the group."""
        seconds = min(_SLICE, self._settings.server.timeout.total_seconds() / 2)
        milliseconds = max(1, int(seconds * 1000))
        await self._link.command_once(
            *("XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", self._stream),
            str(self._last),
        )


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else data.decode()
