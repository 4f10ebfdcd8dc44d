"""Records of requests are in the log of a durable push source before they are answered."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp import web
from starlette.applications import Starlette
from starlette.routing import Route

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow.web import aiohttp_ingest, ingest

pytestmark = pytest.mark.asyncio

LINES = {"Content-Type": "application/x-ndjson"}


@dataclass
class Order:
    id: str
    cents: int


def order(id: str, cents: int = 1) -> dict[str, Any]:
    return {"id": id, "cents": cents}


def id_of(one: Order) -> str:
    return one.id


@asynccontextmanager
async def accepting(
    source: af.DurablePushSource[Any], **options: Any
) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve ``ingest`` with a log that is open, and no job."""
    application = Starlette(routes=[Route("/orders", ingest(source, **options))])
    transport = httpx.ASGITransport(application)
    async with (
        source,
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


def orders(tmp_path: Path, **options: Any) -> af.DurablePushSource[Order]:
    return af.DurablePushSource(tmp_path / "log", of=Order, **options)


async def logged(tmp_path: Path) -> list[Order]:
    """Return the records that the next job reads, in their order."""
    source, out = orders(tmp_path), af.CollectSink[Order]()
    flow = af.Flow("orders")
    flow.source(source, name="orders").to(out)
    async with flow.start(checkpointing=af.Checkpointing(storage=tmp_path / "state")) as job:
        await source.end()
        await job.wait()
    return out.values


async def test_a_record_is_logged_before_the_answer(tmp_path: Path) -> None:
    async with accepting(orders(tmp_path), of=Order) as client:
        answer = await client.post("/orders", json=order("a"))

    assert (answer.status_code, answer.json()) == (202, {"status": "accepted"})
    assert await logged(tmp_path) == [Order("a", 1)]


@pytest.mark.parametrize("headers", [{}, LINES], ids=["array", "lines"])
async def test_records_of_one_request_have_a_result_each(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    records: list[Any] = [order("a"), {"id": "b"}, order("c"), 7]
    lines = b"\n".join(json.dumps(one).encode() for one in records) + b"\n\n"
    body = lines if headers else json.dumps(records).encode()
    async with accepting(orders(tmp_path), of=Order) as client:
        answer = await client.post("/orders", content=body, headers=headers)

    found = answer.json()
    assert (answer.status_code, found["accepted"], found["invalid"]) == (207, 2, 2)
    assert [one["status"] for one in found["results"]] == [
        *("accepted", "invalid"),
        *("accepted", "invalid"),
    ]
    assert "cents" in found["results"][1]["reason"]
    assert await logged(tmp_path) == [Order("a", 1), Order("c", 1)]


async def test_a_repeated_request_adds_nothing(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "request 1"}
    async with accepting(orders(tmp_path), of=Order) as client:
        single = [await client.post("/orders", json=order("a"), headers=key) for _ in range(2)]
        key = {"Idempotency-Key": "request 2"}
        both = [order("b"), order("c")]
        several = [await client.post("/orders", json=both, headers=key) for _ in range(2)]

    assert [answer.status_code for answer in (*single, *several)] == [202] * 4
    assert [answer.json()["status"] for answer in single] == ["accepted", "duplicate"]
    assert [answer.json().get("duplicate") for answer in several] == [None, 2]
    assert await logged(tmp_path) == [Order("a", 1), Order("b", 1), Order("c", 1)]


async def test_an_id_can_be_that_of_the_record(tmp_path: Path) -> None:
    async with accepting(orders(tmp_path), of=Order, id=id_of) as client:
        answer = await client.post("/orders", json=[order("a"), order("b"), order("a")])

    results = [one["status"] for one in answer.json()["results"]]
    assert results == ["accepted", "accepted", "duplicate"]


async def test_a_thousand_records_with_ids_are_logged_in_order(tmp_path: Path) -> None:
    many = [order(str(n)) for n in range(1000)]
    async with accepting(orders(tmp_path), of=Order) as client:
        answer = await client.post("/orders", json=many, headers={"Idempotency-Key": "many"})

    assert answer.json()["accepted"] == 1000
    assert [one.id for one in await logged(tmp_path)] == [one["id"] for one in many]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "malformed|truncated|empty|Input"),
        (b"{", "truncated"),
        (b'{"id": 1, "cents": 1}', "Expected `str`"),
        (b"[1, 2", "not a JSON array"),
        (b"\xff", "malformed|invalid|utf"),
    ],
    ids=str,
)
async def test_what_cannot_be_decoded_is_refused_with_the_reason(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    async with accepting(orders(tmp_path), of=Order) as client:
        answer = await client.post("/orders", content=body)

    assert answer.status_code == 400
    text = answer.json().get("reason") or answer.json()["error"]["message"]
    assert re.search(reason, text)
    assert await logged(tmp_path) == []


async def test_a_value_of_another_type_than_the_log_has_is_invalid(tmp_path: Path) -> None:
    async with accepting(orders(tmp_path)) as client:  # without of=, any JSON
        single = await client.post("/orders", json={"id": "a"})
        several = await client.post("/orders", json=[{"id": "a"}, 1])

    assert (single.status_code, several.status_code) == (400, 400)
    assert "cannot log the record" in single.json()["reason"]
    assert several.json()["invalid"] == 2


async def test_a_full_log_is_answered_with_503_and_the_records_are_not_in_it(
    tmp_path: Path,
) -> None:
    source = orders(tmp_path, max_bytes=1000, full_timeout=timedelta(0))
    async with accepting(source, of=Order) as client:
        answers = [await client.post("/orders", json=order(str(n) * 50)) for n in range(30)]
        several = await client.post("/orders", json=[order("x" * 500), order("y" * 500)])

    statuses = [answer.status_code for answer in answers]
    accepted = statuses.count(202)
    assert statuses == [202] * accepted + [503] * (30 - accepted)
    assert answers[-1].json()["status"] == "refused"
    assert answers[-1].headers["retry-after"] == "1"
    assert (several.status_code, several.json()["refused"]) == (503, 2)
    assert len(await logged(tmp_path)) == accepted


async def test_larger_requests_are_refused(tmp_path: Path) -> None:
    async with accepting(orders(tmp_path), of=Order, max_bytes=100, max_records=2) as client:
        bytes_ = await client.post("/orders", json=order("x" * 100))
        records = await client.post("/orders", json=[order("a"), order("b"), order("c")])

    assert (bytes_.status_code, records.status_code) == (413, 413)


async def test_a_token_is_asked_for(tmp_path: Path) -> None:
    async with accepting(orders(tmp_path), of=Order, token="t0ken") as client:
        without = await client.post("/orders", json=order("a"))
        wrong = await client.post("/orders", json=order("a"), headers={"Authorization": "Bearer x"})
        right = await client.post(
            "/orders", json=order("a"), headers={"Authorization": "Bearer t0ken"}
        )

    assert [one.status_code for one in (without, wrong, right)] == [401, 401, 202]


async def test_other_methods_encodings_and_promises_are_refused(tmp_path: Path) -> None:
    async with accepting(orders(tmp_path), of=Order) as client:
        read = await client.get("/orders")
        packed = await client.post(
            "/orders", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}
        )
        unknown = await client.post("/orders?ack=memory", json=order("a"))

    assert [one.status_code for one in (read, packed, unknown)] == [405, 415, 400]
    assert read.headers["allow"] == "POST"


async def test_another_decoder_is_used_and_its_errors_are_reasons(tmp_path: Path) -> None:
    def decode(data: bytes) -> Order:
        id, cents = data.decode().split(",")
        return Order(id, int(cents))

    async with accepting(orders(tmp_path), decode=decode) as client:
        good = await client.post("/orders", content=b"a,5")
        lines = await client.post("/orders", content=b"b,6\nc\n", headers=LINES)

    assert good.status_code == 202
    assert [one["status"] for one in lines.json()["results"]] == ["accepted", "invalid"]
    assert await logged(tmp_path) == [Order("a", 5), Order("b", 6)]


async def test_a_request_can_wait_until_its_record_is_processed(tmp_path: Path) -> None:
    source, out = orders(tmp_path), af.CollectSink[Order]()
    flow = af.Flow("orders")
    flow.source(source, name="orders").to(out)
    every = timedelta(milliseconds=20)
    checkpointing = af.Checkpointing(storage=tmp_path / "state", every=every)
    async with (
        accepting(source, of=Order, ack_timeout=timedelta(seconds=5)) as client,
        flow.start(checkpointing=checkpointing) as job,
    ):
        answers = [
            await client.post(f"/orders?ack={ack}", json=order(ack))
            for ack in ("checkpointed", "processed")
        ]
        processed = [one.id for one in out.values]
        await job.stop()

    assert [answer.status_code for answer in answers] == [200, 200]
    assert processed == ["checkpointed", "processed"]


async def test_a_promise_that_takes_too_long_is_answered_with_504(tmp_path: Path) -> None:
    timeout = timedelta(milliseconds=30)
    async with accepting(orders(tmp_path), of=Order, ack_timeout=timeout) as client:
        answer = await client.post("/orders?ack=processed", json=order("a"))

    assert answer.status_code == 504
    assert "send them again" in answer.json()["error"]["message"]


async def test_an_ended_input_is_answered_with_503(tmp_path: Path) -> None:
    source = orders(tmp_path)
    async with accepting(source, of=Order) as client:
        await source.end()
        single = await client.post("/orders", json=order("a"))
        several = await client.post("/orders", json=[order("a"), order("b")])

    assert (single.status_code, single.json()["status"]) == (503, "unknown")
    assert (several.status_code, several.json()["unknown"]) == (503, 2)


async def test_the_handler_for_aiohttp_answers_alike_over_a_socket(tmp_path: Path) -> None:
    source = orders(tmp_path)
    application = web.Application()
    application.router.add_post("/orders", aiohttp_ingest(source, of=Order, max_bytes=100))
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}/orders".format(*runner.addresses[0])
    key = {"Idempotency-Key": "1"}
    try:
        async with source, aiohttp.ClientSession() as session:
            statuses = [
                (await session.post(url, json=order("a"), headers=key)).status,
                (await session.post(url, json=order("a"), headers=key)).status,
                (await session.post(url, json={"id": 1})).status,
                (await session.post(url, json=order("x" * 1_000_000))).status,
                (await session.post(f"{url}?ack=never", json=order("a"))).status,
            ]
    finally:
        await runner.cleanup()

    assert statuses == [202, 202, 400, 413, 400]
    assert await logged(tmp_path) == [Order("a", 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": Order, "decode": bytes}, "leave it out"),
        ({"id": 7}, "id= must be a function"),
        ({"max_bytes": 0}, "max_bytes= must be a positive int"),
        ({"ack_timeout": 5}, "ack_timeout= must be a positive timedelta"),
        ({"token": "with space"}, "token must be"),
        ({"of": list[int] | set[int]}, "cannot decode JSON into"),
    ],
    ids=str,
)
async def test_a_wrong_argument_is_refused_by_name(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        ingest(orders(tmp_path), **options)


async def test_only_a_durable_source_keeps_the_promise() -> None:
    source: Any = af.PushSource[Order]()

    with pytest.raises(FlowDefinitionError, match="takes a DurablePushSource"):
        ingest(source)


def fails_for_x(one: Order) -> str:
    return {"a": "1", "b": "2"}[one.id]


async def test_a_record_without_an_id_is_invalid_and_the_others_are_accepted(
    tmp_path: Path,
) -> None:
    async with accepting(orders(tmp_path), of=Order, id=fails_for_x) as client:
        answer = await client.post("/orders", json=[order("a"), order("x"), order("b")])

    assert answer.status_code == 207
    results = answer.json()["results"]
    assert [one["status"] for one in results] == ["accepted", "invalid", "accepted"]
    assert results[1]["reason"] == "id= failed: KeyError: 'x'"


async def test_any_error_of_a_decoder_is_that_of_its_record(tmp_path: Path) -> None:
    def decode(data: bytes) -> Order:
        return {b"1": Order("a", 1)}[data]

    async with accepting(orders(tmp_path), decode=decode) as client:
        answer = await client.post("/orders", content=b"1\n2\n", headers=LINES)

    assert answer.status_code == 207
    assert answer.json()["results"][1]["reason"] == "decode= failed: KeyError: b'2'"
