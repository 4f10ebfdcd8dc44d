"""``HttpSink`` posts records to a service, and repeats what may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import aflow as af
from aflow.connect import Batch, Delivery, SinkError, Writer, WriterContext
from aflow.errors import RestoreError
from aflow_connectors.formats import Raw, Text
from aflow_connectors.http import HttpSink, RefusedRequest
from aflow_connectors.message import Message
from tests.connectors.http.reading import FAST, HASTY
from tests.connectors.http.service import Ledger, answering, serving
from tests.connectors.proxy import Proxy
from tests.runtime.builtin_connectors.helpers import eventually

pytestmark = pytest.mark.asyncio


def numbers(count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(count)]


@asynccontextmanager
async def opened(sink: HttpSink[Any], *, checkpoints: bool = False) -> AsyncGenerator[Writer[Any]]:
    writer = await sink.writer(WriterContext("out", checkpoints=checkpoints))
    try:
        yield writer
    finally:
        await writer.close()


async def write(writer: Writer[Any], records: Sequence[Any]) -> None:
    writing = writer.write(Batch(list(records)))
    if writing is not None:
        await writing


async def written(sink: HttpSink[Any], records: Sequence[Any]) -> None:
    async with opened(sink) as writer:
        await write(writer, records)
        await writer.flush()


async def test_requests_have_at_most_so_many_records_and_bytes() -> None:
    by_count, by_bytes = Ledger(), Ledger()
    records = numbers(10)  # 7 bytes each, and a separator
    async with serving(by_count.handle) as url:
        await written(HttpSink(url, max_records=4), records)
    async with serving(by_bytes.handle) as url:
        await written(HttpSink(url, max_bytes=24), [*records, {"n": "x" * 50}])

    assert [count for _, count in by_count.requests] == [4, 4, 2]
    assert [count for _, count in by_bytes.requests] == [3, 3, 3, 1, 1]
    assert by_count.records == records
    assert len(set(by_count.applied)) == 3


@pytest.mark.parametrize(
    ("options", "content_type", "requests"),
    [
        ({}, "application/json", [[1, 2]]),
        ({"body": "lines"}, "application/x-ndjson", [[1, 2]]),
        ({"body": "single"}, "application/json", [[1], [2]]),
    ],
    ids=str,
)
async def test_a_body_is_an_array_lines_or_a_record(
    options: dict[str, Any], content_type: str, requests: list[list[int]]
) -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        await written(HttpSink(url, **options), [1, Message(b"key", 2)])

    assert list(ledger.applied.values()) == requests
    assert {headers["Content-Type"] for headers in ledger.headers} == {content_type}


async def test_single_records_of_other_formats_have_their_types() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        await written(HttpSink(url, format=Raw(), body="single"), [b"\xff"])
        await written(HttpSink(url, format=Text(), body="single"), ["ä"])

    assert [headers["Content-Type"] for headers in ledger.headers] == [
        "application/octet-stream",
        "text/plain; charset=utf-8",
    ]
    assert ledger.records == [b"\xff", "ä".encode()]


@pytest.mark.parametrize(
    ("options", "record", "message"),
    [
        ({}, object, "JSON cannot hold it"),
        ({"format": Text(), "body": "lines"}, "a\nb", "has a line break"),
        ({}, Message[bytes, int](b"key", None), "is a tombstone"),
    ],
    ids=["no JSON", "line break", "tombstone"],
)
async def test_a_record_without_a_form_is_an_error_that_shows_it(
    options: dict[str, Any], record: Any, message: str
) -> None:
    with pytest.raises(SinkError, match=message):
        await written(HttpSink("http://127.0.0.1:1/", **options), [record])


async def test_records_linger_until_the_request_is_full_or_the_time_is_over() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        async with opened(HttpSink[int](url, max_records=3, linger=timedelta(hours=1))) as writer:
            for n in range(4):
                await write(writer, [n])
            await eventually(lambda: bool(ledger.requests))
        async with opened(
            HttpSink[int](url, max_records=3, linger=timedelta(milliseconds=5))
        ) as writer:
            await write(writer, [4])
            await eventually(lambda: len(ledger.requests) == 2)

    assert [count for _, count in ledger.requests] == [3, 1]


async def test_so_many_requests_are_in_flight_and_writes_wait_for_them() -> None:
    most, now = 0, 0
    gate = asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1
        return web.Response()

    async with serving(handle) as url, opened(HttpSink(url, max_records=1, in_flight=3)) as writer:
        await write(writer, numbers(5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await write(writer, numbers(5))
        waiting = most
        gate.set()
        await writer.flush()

    assert (waiting, most) == (3, 3)


async def test_a_request_is_repeated_with_its_key_until_the_service_takes_it() -> None:
    ledger = Ledger()
    ledger.answers = [503, 429, 500, 408]
    ledger.cuts = 1
    async with serving(ledger.handle) as url:
        await written(HttpSink(url, reconnect=FAST), numbers(3))

    assert len(ledger.requests) == 6
    assert len({key for key, _ in ledger.requests}) == 1
    assert ledger.records == numbers(3)


async def test_a_conflict_after_a_lost_answer_means_that_the_request_is_under_way() -> None:
    ledger = Ledger()

    async def handle(request: web.Request) -> web.StreamResponse:
        if len(ledger.requests) == 1:  # the first one is still being processed
            ledger.answers = [409]
        return await ledger.handle(request)

    ledger.cuts = 1
    async with serving(handle) as url:
        await written(HttpSink(url, reconnect=FAST), numbers(1))
        ledger.answers = [409]
        with pytest.raises(SinkError, match="answers 409"):
            await written(HttpSink(url, reconnect=FAST), numbers(1))

    assert [count for _, count in ledger.requests] == [1, 1, 1, 1]


async def test_requests_pass_through_connections_that_are_cut() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        host, port = url.removeprefix("http://").split(":")
        async with Proxy(host, int(port)) as proxy:
            sink = HttpSink[Any](
                "http://{}:{}".format(*proxy.address), max_records=5, reconnect=FAST
            )
            async with opened(sink) as writer:
                for start in range(0, 60, 10):
                    proxy.cut_after = 400
                    await write(writer, numbers(60)[start : start + 10])
                await writer.flush()

    assert ledger.records == numbers(60)


async def test_a_refused_request_fails_the_job_and_shows_its_beginning() -> None:
    ledger = Ledger()
    ledger.answers = [422]
    async with serving(ledger.handle) as url:
        with pytest.raises(SinkError, match=r"422 .* begins with .*n.*on_refused="):
            await written(HttpSink(f"{url}/?key=secret"), numbers(2))


async def test_a_refused_request_can_be_taken_and_the_others_are_sent() -> None:
    ledger = Ledger()
    ledger.answers = [web.Response(status=400, text="n is too small")]
    refused: list[RefusedRequest[Any]] = []

    def failing(request: RefusedRequest[Any]) -> None:
        raise ZeroDivisionError

    async def take(request: RefusedRequest[Any]) -> None:
        await asyncio.sleep(0)
        refused.append(request)

    async with serving(ledger.handle) as url:
        await written(HttpSink(url, max_records=2, on_refused=take), numbers(4))
        broken = HttpSink[Any](url, on_refused=failing)
        ledger.answers = [400]
        with pytest.raises(SinkError, match="on_refused= failed: ZeroDivisionError"):
            await written(broken, numbers(1))

    (one,) = refused
    assert (one.status, one.records, one.body) == (400, numbers(2), b'[{"n":0},{"n":1}]')
    assert "n is too small" in one.reason
    assert one.key == ledger.requests[0][0]
    assert ledger.records == numbers(4)[2:]


@pytest.mark.parametrize("status", [401, 403, 404, 405])
async def test_wrong_credentials_and_addresses_fail_though_refused_requests_are_taken(
    status: int,
) -> None:
    ledger = Ledger()
    ledger.answers = [status]
    taken: list[object] = []
    async with serving(ledger.handle) as url:
        with pytest.raises(SinkError, match=f"answers {status}"):
            await written(HttpSink(url, on_refused=taken.append), numbers(1))

    assert (taken, len(ledger.requests)) == ([], 1)


async def test_credentials_are_sent_and_in_no_message() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=400, text=f"not with {request.headers['Authorization']}")

    client = {"headers": {"Authorization": "Bearer s3cr3t-token"}}
    async with serving(echo) as url:
        with pytest.raises(SinkError, match="not with") as caught:
            await written(HttpSink(url, client=client), numbers(1))

    assert "s3cr3t" not in str(caught.value)


async def test_a_redirect_keeps_the_records_or_is_an_error() -> None:
    ledger = Ledger()
    status = 307

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/new":
            return await ledger.handle(request)
        return web.Response(status=status, headers={"Location": "/new"})

    async with serving(handle) as url:
        await written(HttpSink(f"{url}/old"), numbers(1))
        status = 302
        with pytest.raises(SinkError, match=r"redirect 302 .* would drop the records"):
            await written(HttpSink(f"{url}/old"), numbers(1))

    assert ledger.records == numbers(1)


@pytest.mark.parametrize("hold", [False, True])
async def test_a_service_that_answers_garbage_or_stalls_fails_the_job_after_the_bound(
    hold: bool,
) -> None:
    async with answering(b"" if hold else b"garbage\r\n\r\n", hold=hold) as url:
        sink = HttpSink[Any](url, reconnect=HASTY, timeout=timedelta(milliseconds=60))
        with pytest.raises(SinkError, match="no connection for"):
            await written(sink, numbers(1))


async def test_a_record_of_10_mb_is_sent_alone() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        await written(HttpSink(url), ["x" * 10_000_000, "y"])

    assert [count for _, count in ledger.requests] == [1, 1]
    assert len(ledger.records[0]) == 10_000_000


async def test_with_checkpoints_requests_are_sent_when_they_are_complete() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        sink = HttpSink[Any](url, max_records=2, exactly_once=True, in_flight=2)
        async with opened(sink, checkpoints=True) as writer:
            await write(writer, numbers(5))
            prepared = await _prepared(writer, 3)
            before = list(ledger.requests)
            await writer.commit(prepared)
            await writer.flush()

    assert before == []
    assert sorted(count for _, count in ledger.requests) == [1, 2, 2]
    assert {key.split("-", 2)[2] for key in ledger.applied} == {"0-3-0", "0-3-1", "0-3-2"}


async def test_after_a_crash_requests_are_sent_again_with_their_keys() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        sink = HttpSink[Any](url, max_records=2, exactly_once=True)
        async with opened(sink, checkpoints=True) as writer:
            await write(writer, numbers(3))
            prepared = await _prepared(writer, 1)
            await writer.commit(prepared)
        resumed = HttpSink[Any](url, exactly_once=True)
        await resumed.recover("out", [prepared])
        async with opened(resumed, checkpoints=True) as writer:
            await write(writer, numbers(1))
            await writer.commit(await _prepared(writer, 2))

    assert len(ledger.requests) == 5
    assert ledger.records == [*numbers(3), *numbers(1)]
    assert len({key.split("-")[1] for key in ledger.applied}) == 1  # of one owner


async def test_a_sink_that_is_no_longer_exactly_once_sends_what_its_checkpoint_has() -> None:
    ledger = Ledger()
    async with serving(ledger.handle) as url:
        async with opened(HttpSink[Any](url, exactly_once=True), checkpoints=True) as writer:
            await write(writer, numbers(3))
            prepared = await _prepared(writer, 1)
        await HttpSink[Any](url, exactly_once=False).recover("out", [prepared])

    assert ledger.records == numbers(3)


async def test_a_foreign_committable_is_refused() -> None:
    sink = HttpSink[Any]("http://127.0.0.1:1/", exactly_once=True)
    good = {"owner": "0" * 16, "subtask": 0, "checkpoint": 1, "bodies": [b"x"]}
    for change in ({"owner": "me"}, {"subtask": -1}, {"checkpoint": "1"}, {"bodies": ["x"]}):
        with pytest.raises(RestoreError, match="another kind of sink"):
            await sink.recover("out", [{**good, **change}])
    with pytest.raises(RestoreError, match="several owners"):
        await sink.recover("out", [good, {**good, "owner": "1" * 16}])


async def test_a_job_posts_each_record_once(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.cuts = 2
    async with serving(ledger.handle) as url:
        flow = af.Flow("post")
        sink = HttpSink[Any](url, exactly_once=True, max_records=100, reconnect=FAST)
        flow.source(numbers(1000), name="in").to(sink, name="out")
        await flow.run(checkpointing=af.Checkpointing(storage=tmp_path))

    assert ledger.records == numbers(1000)


async def test_delivery_follows_the_choice() -> None:
    assert HttpSink("http://host/").delivery is Delivery.AT_LEAST_ONCE
    assert HttpSink("http://host/", exactly_once=True).delivery is Delivery.TRANSACTIONAL


async def _prepared(writer: Writer[Any], checkpoint: int) -> Any:
    return await writer.prepare(checkpoint)


@pytest.mark.parametrize("status", [408, 500, 502, 504])
async def test_a_conflict_after_an_unclear_status_means_that_the_request_is_under_way(
    status: int,
) -> None:
    ledger = Ledger()
    ledger.answers = [status, 409]
    async with serving(ledger.handle) as url:
        await written(HttpSink(url, reconnect=FAST), numbers(1))

    assert ledger.records == numbers(1)


async def test_a_conflict_after_a_busy_service_is_a_refusal() -> None:
    ledger = Ledger()
    ledger.answers = [503, 429, 409]
    async with serving(ledger.handle) as url:
        with pytest.raises(SinkError, match="answers 409"):
            await written(HttpSink(url, reconnect=FAST), numbers(1))


async def _recovered(ledger: Ledger, *, refused: list[RefusedRequest[Any]] | None = None) -> None:
    """Prepare a request, and send it in the recovery of another run."""
    async with serving(ledger.handle) as url:
        async with opened(HttpSink[Any](url, exactly_once=True), checkpoints=True) as writer:
            await write(writer, numbers(1))
            prepared = await _prepared(writer, 1)
        on_refused = None if refused is None else refused.append
        sink = HttpSink[Any](url, exactly_once=True, reconnect=HASTY, on_refused=on_refused)
        await sink.recover("out", [prepared])


async def test_a_conflict_of_a_recovered_request_means_that_it_is_under_way() -> None:
    ledger = Ledger()
    ledger.answers = [409, 409]
    refused: list[RefusedRequest[Any]] = []
    await _recovered(ledger, refused=refused)

    assert (ledger.records, refused) == (numbers(1), [])


async def test_a_conflict_that_lasts_is_a_refusal() -> None:
    ledger = Ledger()
    ledger.answers = [409] * 10_000
    refused: list[RefusedRequest[Any]] = []
    await _recovered(ledger, refused=refused)
    with pytest.raises(SinkError, match="answers 409"):
        await _recovered(ledger)

    assert [one.status for one in refused] == [409]
