"""``HttpEvents`` reads server-sent events, and continues after the last one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from aflow.connect import BadRecord, SourceError, Tag
from aflow_connectors.http import HttpEvents, HttpPoll, HttpWebSocket
from aflow_connectors.message import Message
from aflow_connectors.reconnect import Reconnect
from tests.connectors.http.reading import FAST, HASTY, opened, read, read_from, reason_after_a_crash
from tests.connectors.http.service import Replaying, serving
from tests.connectors.proxy import Proxy
from tests.runtime.builtin_connectors.helpers import eventually

BAD = Tag[BadRecord]("bad")

pytestmark = pytest.mark.asyncio


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": n} for n in values]


class Stream:
    """Sends the same text over each connection, and keeps it open unless ``ends``."""

    def __init__(self, text: str, *, ends: bool = False, kind: str = "text/event-stream") -> None:
        self.text = text
        self._ends = ends
        self._kind = kind
        #: Headers of the requests.
        self.requests: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.headers))
        response = web.StreamResponse(headers={"Content-Type": self._kind})
        await response.prepare(request)
        await response.write(self.text.encode())
        if not self._ends:
            await asyncio.sleep(3600)
        return response


@asynccontextmanager
async def behind(url: str) -> AsyncGenerator[tuple[Proxy, str]]:
    host, port = url.removeprefix("http://").split(":")
    async with Proxy(host, int(port)) as proxy:
        yield proxy, "http://{}:{}".format(*proxy.address)


async def test_events_are_read_from_the_last_id_on_after_each_lost_connection() -> None:
    service = Replaying(15, pace=0.001)
    async with serving(service.handle) as url, behind(url) as (proxy, address):
        source: HttpEvents[Any] = HttpEvents(f"{address}/events", reconnect=FAST)
        async with opened(source) as reader:
            found: list[Any] = []
            while (chunk := await reader.read(100)) is not None:
                found += chunk.values
                proxy.cut()

    assert found == numbers(*range(15))
    assert len(service.asked) > 3


async def test_a_restart_continues_after_the_last_event_that_was_returned() -> None:
    service = Replaying(10)
    async with serving(service.handle) as url:
        source: HttpEvents[Any] = HttpEvents(f"{url}/events")
        async with opened(source) as reader:
            first = await reader.read(3)
        assert first is not None

        rest = await read_from(source, 100, first.position)

    assert list(first.values) + rest == numbers(*range(10))


async def test_a_frozen_connection_is_renewed_after_the_heartbeat() -> None:
    service = Replaying(10, pace=0.01)
    async with serving(service.handle) as url, behind(url) as (proxy, address):
        source: HttpEvents[Any] = HttpEvents(
            f"{address}/events", reconnect=FAST, heartbeat=timedelta(milliseconds=100)
        )
        async with opened(source) as reader:
            first = await read(reader, 2)
            proxy.freeze()
            thawing = asyncio.get_running_loop().call_later(0.25, proxy.thaw)

            rest = await read(reader, 100)
            thawing.cancel()

    assert first + rest == numbers(*range(10))
    assert len(service.asked) >= 3


async def test_a_stream_that_ends_is_opened_again_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stream("retry: 10\nid: 1\ndata: 1\n\n", ends=True)
    async with serving(stream.handle) as url:
        found = await read_from(HttpEvents(url, reconnect=FAST), 3)

    assert found == [1, 1, 1]
    assert [headers.get("Last-Event-ID") for headers in stream.requests[:3]] == [None, "1", "1"]
    assert caplog.records == []


async def test_types_are_chosen_and_messages_have_type_and_id() -> None:
    stream = Stream("event: a\nid: 1\ndata: 1\n\nid: 2\ndata: 2\n\nevent: b\nid: 3\ndata: 3\n\n")
    async with serving(stream.handle) as url:
        source = HttpEvents(url, of=int, messages=True, events=["a", "message"])
        async with opened(source) as reader:
            first, second = await read(reader, 2)
            skipped = await reader.read(1)

    assert first == Message(None, 1, (("event", b"a"),), None, url, None, "1")
    assert (second.value, second.headers) == (2, (("event", b"message"),))
    assert skipped is not None
    assert (list(skipped.values), skipped.position) == ([], "3")


async def test_the_first_id_is_sent_at_the_start_only() -> None:
    stream = Stream("id: 8\ndata: 1\n\n")
    async with serving(stream.handle) as url:
        source: HttpEvents[Any] = HttpEvents(url, start="7")
        async with opened(source) as reader:
            chunk = await reader.read(1)
        assert chunk is not None
        await read_from(source, 1, chunk.position)

    assert [headers["Last-Event-ID"] for headers in stream.requests] == ["7", "8"]


async def test_bad_events_are_dead_letters() -> None:
    text = "data: {\n\n" + f"data: {'x' * 300}\n\n" + "data: 5\n\n"
    async with serving(Stream(text).handle) as url:
        source = HttpEvents(url, of=int, dead_letters=BAD, max_bytes=200)
        async with opened(source) as reader:
            chunk = await reader.read(10)
            while chunk is not None and len(chunk.values) == 0 and not chunk.rejected:
                chunk = await reader.read(10)
    assert chunk is not None

    assert list(chunk.values) == [5]
    assert [bad.raw[:3] for bad in chunk.rejected] == [b"{", b"xxx"]
    assert "more than 200 bytes" in chunk.rejected[1].reason


async def test_an_event_of_10_mb_is_read() -> None:
    async with serving(Stream(f'data: "{"x" * 10_000_000}"\n\n').handle) as url:
        (found,) = await read_from(HttpEvents(url), 1)

    assert len(found) == 10_000_000


async def test_other_answers_are_errors_at_once() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=403)

    async with serving(Stream("data: 1\n\n", ends=True, kind="text/html").handle) as url:
        with pytest.raises(SourceError, match="has the type 'text/html', not 'text/event-stream'"):
            await read_from(HttpEvents(url), 1)
    async with serving(refuse) as url:
        with pytest.raises(SourceError, match="403 Forbidden; credentials are settings"):
            await read_from(HttpEvents(url), 1)


async def test_events_without_an_id_are_a_warning_unless_the_source_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Stream("data: 1\n\ndata: 2\n\n").handle) as url:
        with caplog.at_level(logging.WARNING, "aflow.connectors"):
            await read_from(HttpEvents(url, replays=False), 2)
            silent = list(caplog.records)
            await read_from(HttpEvents(url), 2)

    assert silent == []
    assert [vars(record)["event"] for record in caplog.records] == ["events_without_id"]


async def test_the_plan_says_what_is_lost_without_replays() -> None:
    unkept: HttpEvents[Any] = HttpEvents("http://host/", replays=False)
    kept: HttpEvents[Any] = HttpEvents("http://host/")

    assert "'source' cannot be read again" in reason_after_a_crash(unkept)
    assert "cannot be read again" not in reason_after_a_crash(kept)


async def test_a_silent_source_is_idle_and_its_next_event_is_read() -> None:
    pause = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await pause.wait()
        await response.write(b"data: 1\n\n")
        await asyncio.sleep(3600)
        return response

    async with serving(handle) as url:
        source = HttpEvents(url, replays=False, idle_after=timedelta(milliseconds=20))
        async with opened(source) as reader:
            idle = await reader.read(1)
            pause.set()
            found = await read(reader, 1)

    assert idle is not None
    assert idle.idle
    assert found == [1]


async def test_connections_without_events_are_renewed_with_growing_delays() -> None:
    times: list[float] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 4:
            return web.Response(status=204)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return response

    async with serving(handle) as url:
        await read_from(HttpEvents(url, reconnect=FAST), 1)

    delays = [later - earlier for earlier, later in pairwise(times)]
    assert delays[1] >= 0.1
    assert delays[2] >= 0.2


class Cutting:
    """Begins each response, and ends it at once: by a cut of the connection, or in order."""

    def __init__(self, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self.requests = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if self._in_order:
            await response.write(b"retry: 5\n\n")
        else:
            assert request.transport is not None
            request.transport.abort()
        return response


async def test_connections_that_are_always_cut_without_events_are_given_up() -> None:
    service = Cutting()
    reconnect = Reconnect(
        delay=FAST.delay, most=timedelta(seconds=5), give_up_after=timedelta(milliseconds=300)
    )
    async with serving(service.handle) as url, asyncio.timeout(300):
        with pytest.raises(SourceError, match=r"no connection for .* attempts \(give_up_after="):
            await read_from(HttpEvents(url, reconnect=reconnect), 1)

    assert service.requests > 2


async def test_a_server_that_ends_streams_in_order_is_never_given_up() -> None:
    service = Cutting(in_order=True)
    async with serving(service.handle) as url:
        reading = asyncio.create_task(read_from(HttpEvents(url, reconnect=HASTY), 1))
        await asyncio.sleep(0.1)  # HASTY gives up after 50 ms
        await eventually(lambda: service.requests > 5)
        was_done = reading.done()
        reading.cancel()
        await asyncio.wait([reading])

    assert not was_done


async def test_a_server_that_begins_no_response_is_asked_again_without_a_heartbeat_too() -> None:
    service = Replaying(2)
    requests: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        requests.append(request.path)
        if len(requests) == 1:
            await asyncio.sleep(3600)
        return await service.handle(request)

    async with serving(handle) as url, asyncio.timeout(300):
        source = HttpEvents(
            f"{url}/events", heartbeat=None, timeout=timedelta(milliseconds=100), reconnect=FAST
        )
        found = await read_from(source, 2)

    assert found == numbers(0, 1)


@pytest.mark.parametrize("make", [HttpEvents, HttpPoll, HttpWebSocket])
async def test_no_message_shows_the_query_of_a_service_that_accepts_no_connection(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*args: object, **settings: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", connect)
    scheme = "ws" if make is HttpWebSocket else "http"
    source = make(f"{scheme}://127.0.0.1:1/path?token=secret", reconnect=HASTY)
    with pytest.raises(SourceError, match=r"no connection to .*/path in time") as caught:
        await read_from(source, 1)

    assert "secret" not in str(caught.value)
