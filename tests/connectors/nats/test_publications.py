"""Ids of published messages, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aflow_connectors.nats.client import NatsSession, NatsUnavailable
from aflow_connectors.nats.publications import ids_after

pytestmark = pytest.mark.asyncio


class AnsweringSession:
    """A connection to a server that ends each request for messages with ``status``."""

    is_closed = False

    def __init__(self, status: str) -> None:
        self._status = status
        self._on_message: Callable[[Any], None] | None = None

    async def request(self, call: str, body: object = None) -> dict[str, Any]:
        return {"name": "consumer"}

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, on_message: Callable[[Any], None]) -> Any:
        self._on_message = on_message

        async def unsubscribe() -> None:
            return None

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        assert self._on_message is not None
        answer = SimpleNamespace(reply="", headers={"Status": self._status})
        asyncio.get_running_loop().call_soon(self._on_message, answer)

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        yield


@pytest.mark.parametrize("status", ["404", "408"])
async def test_a_stream_without_further_messages_has_no_further_ids(status: str) -> None:
    session = cast("NatsSession", AnsweringSession(status))

    assert await ids_after(session, "orders", 3, 5) == frozenset()


@pytest.mark.parametrize("status", ["409", "503"])
async def test_a_server_that_cannot_answer_is_not_taken_for_a_stream_without_messages(
    status: str,
) -> None:
    session = cast("NatsSession", AnsweringSession(status))

    with pytest.raises(NatsUnavailable, match=status):
        await ids_after(session, "orders", 3, 5)
