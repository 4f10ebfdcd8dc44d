"""``HttpWebSocket`` reads the messages of a WebSocket, and resumes where the server can."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import WSCloseCode, web

from aflow.connect import BadRecord, SourceError, Tag
from aflow_connectors.formats import Raw
from aflow_connectors.http import HttpWebSocket
from tests.connectors.http.reading import (
    FAST,
    HASTY,
    opened,
    read,
    read_from,
    reason_after_a_crash,
)
from tests.connectors.http.service import Replaying, serving
from tests.connectors.proxy import Proxy

BAD = Tag[BadRecord]("bad")

pytestmark = pytest.mark.asyncio


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": n} for n in values]


def resuming(url: str, **options: Any) -> HttpWebSocket[Any]:
    return HttpWebSocket(
        f"{url}/socket",
        start=-1,
        position=lambda record: record["n"],
        resume=lambda n: {"after": n},
        reconnect=FAST,
        **options,
    )


class Talking:
    """Sends the same messages over each connection, and then closes it or keeps it open."""

    def __init__(self, *messages: str | bytes, code: int | None = None) -> None:
        self._messages = messages
        self._code = code
        self.connections = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.connections += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for message in self._messages:
            if isinstance(message, str):
                await socket.send_str(message)
            else:
                await socket.send_bytes(message)
        if self._code is not None:
            await socket.close(code=self._code, message=b"that is why")
        await socket.receive()
        return socket


async def test_messages_are_resumed_after_each_lost_connection() -> None:
    service = Replaying(30, pace=0.001)
    async with serving(service.handle) as url:
        host, port = url.removeprefix("http://").split(":")
        async with (
            Proxy(host, int(port)) as proxy,
            opened(resuming("http://{}:{}".format(*proxy.address))) as reader,
        ):
            found: list[Any] = []
            while len(found) < 30:
                chunk = await reader.read(10)
                assert chunk is not None
                found += chunk.values
                proxy.cut()

    assert found == numbers(*range(30))
    assert len(service.asked) > 2


async def test_a_restart_resumes_after_the_last_message_that_was_returned() -> None:
    service = Replaying(10)
    async with serving(service.handle) as url:
        async with opened(resuming(url)) as reader:
            first = await reader.read(3)
        assert first is not None

        rest = await read_from(resuming(url), 10 - len(first.values), first.position)

    assert list(first.values) + rest == numbers(*range(10))
    assert service.asked == [-1, first.values[-1]["n"]]


async def test_each_connection_is_subscribed() -> None:
    heard: list[list[Any]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        heard.append([(await socket.receive()).data for _ in range(4)])
        await socket.send_str("1")
        await socket.close(code=WSCloseCode.SERVICE_RESTART)
        return socket

    async with serving(handle) as url:
        subscribe: list[Any] = ["a", b"b", {"c": 1}, [2]]
        found = await read_from(HttpWebSocket(url, subscribe=subscribe, reconnect=FAST), 2)

    assert found == [1, 1]
    assert heard[:2] == [["a", b"b", '{"c":1}', "[2]"]] * 2


async def test_a_connection_that_the_server_ends_in_order_is_renewed_without_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow_connectors.http.pushed.PAUSE", 0.01)
    async with serving(Talking("1", code=1000).handle) as url:
        found = await read_from(HttpWebSocket(url, reconnect=FAST), 2)

    assert found == [1, 1]
    assert caplog.records == []


async def test_a_frozen_server_is_noticed_by_its_missing_pong() -> None:
    service = Replaying(10, pace=0.02)
    async with serving(service.handle) as url:
        host, port = url.removeprefix("http://").split(":")
        async with Proxy(host, int(port)) as proxy:
            source = resuming(
                "http://{}:{}".format(*proxy.address), heartbeat=timedelta(milliseconds=60)
            )
            async with opened(source) as reader:
                first = await read(reader, 2)
                proxy.freeze()
                thawing = asyncio.get_running_loop().call_later(0.2, proxy.thaw)

                rest = await read(reader, 8)
                thawing.cancel()

    assert first + rest == numbers(*range(10))
    assert len(service.asked) >= 2


@pytest.mark.parametrize("code", [WSCloseCode.POLICY_VIOLATION, 4401])
async def test_a_refusal_by_a_code_is_an_error_at_once(code: int) -> None:
    service = Talking(code=code)
    async with serving(service.handle) as url:
        with pytest.raises(
            SourceError, match=rf"code {int(code)} that is why; reconnect_on=\[{int(code)}\]"
        ):
            await read_from(HttpWebSocket(url), 1)

    assert service.connections == 1


async def test_a_code_can_be_taken_for_a_lost_connection() -> None:
    service = Talking("1", code=4000)
    async with serving(service.handle) as url:
        found = await read_from(HttpWebSocket(url, reconnect_on=[4000], reconnect=FAST), 2)

    assert found == [1, 1]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "refuses the WebSocket: 401 .*; credentials are settings"),
        (200, "refuses the WebSocket"),
    ],
)
async def test_a_refused_handshake_is_an_error_at_once(status: int, message: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serving(refuse) as url:
        with pytest.raises(SourceError, match=message):
            await read_from(HttpWebSocket(url), 1)


async def test_a_busy_server_is_asked_again() -> None:
    answers = [503, 503]
    service = Talking("1")

    async def busy(request: web.Request) -> web.StreamResponse:
        return web.Response(status=answers.pop()) if answers else await service.handle(request)

    async with serving(busy) as url:
        found = await read_from(HttpWebSocket(url, reconnect=FAST), 1)

    assert (found, answers) == ([1], [])


async def test_a_redirect_is_an_error_and_its_target_gets_no_header() -> None:
    elsewhere: list[web.Request] = []

    async def record(request: web.Request) -> web.Response:
        elsewhere.append(request)
        return web.Response()

    async with serving(record) as other:

        async def away(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{other}/?token=secret"})

        async with serving(away) as url:
            with pytest.raises(SourceError, match="redirect 307 to http://127") as caught:
                await read_from(HttpWebSocket(url, client={"headers": {"X-Key": "k"}}), 1)

    assert elsewhere == []
    assert "secret" not in str(caught.value)


async def test_a_message_of_10_mb_is_read_and_a_larger_one_than_allowed_is_an_error() -> None:
    service = Talking(b"x" * 10_000_000)
    async with serving(service.handle) as url:
        (found,) = await read_from(HttpWebSocket(url, format=Raw()), 1)
        with pytest.raises(SourceError, match="more than 1,000,000 bytes; raise max_bytes"):
            await read_from(HttpWebSocket(url, max_bytes=1_000_000), 1)

    assert len(found) == 10_000_000


async def test_bad_messages_are_dead_letters() -> None:
    async with serving(Talking("{", "7").handle) as url:
        source = HttpWebSocket(url, of=int, dead_letters=BAD)
        async with opened(source) as reader:
            values: list[int] = []
            rejected: list[BadRecord] = []
            while not values:
                chunk = await reader.read(10)
                assert chunk is not None
                values += chunk.values
                rejected += chunk.rejected

    assert values == [7]
    assert [bad.raw for bad in rejected] == [b"{"]


async def test_the_plan_says_that_messages_are_lost_without_a_position() -> None:
    assert "'source' cannot be read again" in reason_after_a_crash(HttpWebSocket("ws://host/"))
    assert "cannot be read again" not in reason_after_a_crash(resuming("ws://host"))


async def test_a_function_that_fails_is_an_error_with_its_name() -> None:
    async with serving(Talking("1").handle) as url:
        broken: Any = HttpWebSocket(url, position=lambda record: record["n"], resume=lambda n: n)
        with pytest.raises(SourceError, match="position= failed: TypeError"):
            await read_from(broken, 1)
        broken = HttpWebSocket(url, position=lambda record: 1, resume=lambda n: n["x"])
        with pytest.raises(SourceError, match="resume= failed for position 1: TypeError"):
            await read_from(broken, 1, position=1)


async def test_a_server_that_is_away_is_an_error_after_the_bound() -> None:
    with pytest.raises(SourceError, match="no connection for"):
        await read_from(HttpWebSocket("ws://127.0.0.1:1/", reconnect=HASTY), 1)
