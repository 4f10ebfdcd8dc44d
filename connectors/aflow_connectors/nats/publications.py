"""Publications to JetStream, with acknowledgements, and the ids of messages that a stream has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from aflow_connectors.nats.client import NatsSession, NatsUnavailable, checked_answer
from aflow_connectors.nats.reply_subject import numbers_of

NatsMessage = tuple[str, bytes, dict[str, str]]
"""Subject, data and headers."""

#: Maximum number and bytes of messages that wait for their acknowledgements.
_WINDOW: Final = 512
_WINDOW_BYTES: Final = 8 << 20

_ID: Final = "Nats-Msg-Id"

#: Messages of a request for ids.
_BATCH: Final = 4096

NO_MESSAGES: Final = ("404", "408")
"""Statuses of a request that has got all messages that there are."""


class _Answers:
    """The acknowledgements of some publications."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None
        self._changed = asyncio.Event()

    def on_message(self, message: Any) -> None:
        status = cast("dict[str, str]", message.headers or {}).get("Status")
        try:
            if status is not None:
                raise NatsUnavailable(f"JetStream does not answer ({status})")
            checked_answer(message.data)
        except Exception as exc:
            self.failure = self.failure or exc
        self.count += 1
        self._changed.set()

    async def wait(self, session: NatsSession, count: int) -> None:
        """Wait until there are ``count``. Raises the error of one, and ``NatsUnavailable``."""
        async with session.limit():
            while self.count < count:
                await self._changed.wait()
                self._changed.clear()
        if self.failure is not None:
            raise self.failure


async def publish(
    session: NatsSession, messages: Sequence[NatsMessage], *, until: float | None = None
) -> int:
    """Publish ``messages`` in order, and await their acknowledgements. Return the number of published ones.

    Those that are not sent before the loop time ``until`` are left out. Raises ``JetStreamError`` if one is refused,
    and ``NatsUnavailable``.
    """
    answers = _Answers()
    inbox = session.new_inbox()
    subscription = await session.subscribe(inbox, answers.on_message)
    now = asyncio.get_running_loop().time
    sent = size = 0
    try:
        for subject, data, headers in messages:
            if sent - answers.count >= _WINDOW or size >= _WINDOW_BYTES:
                await answers.wait(session, sent)
                size = 0
                if until is not None and now() > until:
                    break
            await session.publish(subject, data, inbox, headers or None)
            sent += 1
            size += len(data)
        await answers.wait(session, sent)
    finally:
        if not session.is_closed:
            await subscription.unsubscribe()
    return sent


async def ids_after(session: NatsSession, stream: str, after: int, last: int) -> frozenset[str]:
    """Return the ids of the messages of ``stream`` after sequence ``after``, up to ``last``."""
    found: set[str] = set()
    info = await session.request(
        f"CONSUMER.CREATE.{stream}",
        {
            "stream_name": stream,
            "config": {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": after + 1,
                "ack_policy": "none",
                "replay_policy": "instant",
                "headers_only": True,
                "inactive_threshold": 60 * 10**9,
                "mem_storage": True,
            },
        },
    )
    pages = _Pages()
    inbox = session.new_inbox()
    subscription = await session.subscribe(inbox, pages.on_message)
    call = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{info['name']}"
    try:
        while pages.last < last:
            before = pages.count
            await session.publish(call, b'{"batch":%d,"no_wait":true}' % _BATCH, inbox)
            await pages.wait(session, before + _BATCH)
            if pages.count == before:
                if pages.status not in NO_MESSAGES:
                    # Else messages that are there would be published again.
                    raise NatsUnavailable(f"JetStream does not answer ({pages.status})")
                break  # the last ones were deleted
        found |= pages.ids
    finally:
        if not session.is_closed:
            await subscription.unsubscribe()
    return frozenset(found)


class _Pages:
    """The messages of a consumer, as far as their ids."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.count = 0
        self.last = 0
        #: The status with which the last request has ended; None while it lasts.
        self.status: str | None = None
        self._changed = asyncio.Event()

    def on_message(self, message: Any) -> None:
        headers = cast("dict[str, str]", message.headers or {})
        numbers = numbers_of(message.reply)
        if numbers is None:
            self.status = headers.get("Status", "")
        else:
            self.count += 1
            self.last = numbers.sequence
            if _ID in headers:
                self.ids.add(headers[_ID])
        self._changed.set()

    async def wait(self, session: NatsSession, count: int) -> None:
        """Wait until there are ``count``, or the request has ended."""
        self.status = None
        async with session.limit():
            while self.count < count and self.status is None:
                await self._changed.wait()
                self._changed.clear()
