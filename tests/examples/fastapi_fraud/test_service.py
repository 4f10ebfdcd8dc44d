"""The handlers of the service, called without a server, and the results of its job."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from aflow.errors import SourceInUse
from bench.crash.payments.results import read_results
from fastapi_fraud.fake_risk import score_of
from fastapi_fraud.service import create_app, shard_of
from fastapi_fraud.settings import Settings, from_environment

APPROVED = {"merchant": "books", "cents": 700}


def settings(folder: Path, **changes: Any) -> Settings:
    # A busy machine decides late.
    values: dict[str, Any] = {"checkpoint_seconds": 0.05, "ask_seconds": 300.0, **changes}
    return Settings(folder=str(folder), **values)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient]:
    """Run the application, and yield a client."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


@asynccontextmanager
async def service(folder: Path, **changes: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with running(create_app(settings(folder, **changes))) as client:
        yield client


async def post(
    client: httpx.AsyncClient, path: str, key: str, body: dict[str, Any] = APPROVED
) -> httpx.Response:
    return await client.post(path, json=body, headers={"Idempotency-Key": key})


def rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "shard-0-of-1" / "results.db")) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY number").fetchall()


@pytest.mark.asyncio
async def test_a_decision_is_answered_and_written(tmp_path: Path) -> None:
    async with service(tmp_path) as client:
        answer = await post(client, "/cards/c1/decisions", "a")

    assert answer.status_code == 200
    decision = answer.json()
    score = score_of("c1", "books", 700)
    assert decision | {"at": 0} == {
        "card": "c1",
        "id": "a",
        "cents": 700,
        "at": 0,
        "score": score,
        "verdict": "approve",
        "number": 1,
        "recent_cents": 700,
    }
    assert rows(tmp_path, "decisions") == [tuple(decision.values())]


@pytest.mark.asyncio
async def test_an_accepted_payment_is_decided_once_though_it_is_repeated_and_asked_for(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as client:
        statuses = [(await post(client, "/cards/c1/payments", "a")).status_code for _ in range(2)]
        answers = [(await post(client, "/cards/c1/decisions", "a")).json() for _ in range(2)]

    assert statuses == [202, 202]
    assert answers[0] == answers[1]
    assert rows(tmp_path, "decisions") == [tuple(answers[0].values())]


@pytest.mark.asyncio
async def test_the_keys_of_two_cards_do_not_meet(tmp_path: Path) -> None:
    async with service(tmp_path) as client:
        for card in ("c1", "c2"):
            await post(client, f"/cards/{card}/payments", "a")

    assert [row[:2] for row in rows(tmp_path, "decisions")] == [("c1", "a"), ("c2", "a")]


@pytest.mark.asyncio
async def test_a_card_that_pays_much_in_ten_minutes_is_reviewed(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    many = {"merchant": "books", "cents": 60_000}  # a low score
    async with service(tmp_path) as client:
        verdicts = [
            (await post(client, "/cards/c1/decisions", key, many | {"at": at})).json()["verdict"]
            for key, at in (("old", now - 599_000), ("new", now + 2_000), ("third", now + 2_001))
        ]

    assert verdicts == ["approve", "approve", "review"]


@pytest.mark.asyncio
async def test_a_payment_without_a_score_is_kept_once_and_says_so(tmp_path: Path) -> None:
    unknown = {"merchant": "unknown shop", "cents": 700}
    async with service(tmp_path) as client:
        answers = [await post(client, "/cards/c1/decisions", "a", unknown) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [502, 502]
    assert answers[0].json()["accepted"] is True
    results = read_results(tmp_path / "shard-0-of-1")
    assert results.decisions == []
    (row,) = results.unscored
    assert (row["id"], row["reason"], row["attempts"]) == ("a", "Refused", 1)


@pytest.mark.asyncio
async def test_a_decision_that_is_not_ready_in_time_is_given_when_it_is_asked_for_again(
    tmp_path: Path,
) -> None:
    app = create_app(settings(tmp_path, ask_seconds=0.001))
    async with running(app) as client:
        early = await post(client, "/cards/c1/decisions", "a")
        app.state.service.settings = settings(tmp_path)
        later = await post(client, "/cards/c1/decisions", "a")

    assert (early.status_code, early.json()["accepted"]) == (504, None)
    assert early.headers["Retry-After"] == "1"
    assert later.json()["number"] == 1
    assert len(rows(tmp_path, "decisions")) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["payments", "decisions"])
async def test_a_full_log_refuses_with_the_time_to_wait(tmp_path: Path, what: str) -> None:
    never = 3600.0  # a checkpoint would make room
    async with service(
        tmp_path, max_bytes=2_500, full_seconds=0.0, checkpoint_seconds=never
    ) as client:
        answers = [await post(client, f"/cards/c1/{what}", f"key {n}") for n in range(40)]
    async with service(tmp_path) as client:  # decides what was accepted, in order
        last = await post(client, "/cards/c1/decisions", "last")

    accepted = [answer for answer in answers if answer.status_code in (200, 202)]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(accepted) + len(refused) == 40
    assert refused[0].json()["accepted"] is False
    assert refused[0].headers["Retry-After"] == "1"
    assert last.json()["number"] == len(accepted) + 1
    assert len(rows(tmp_path, "decisions")) == len(accepted) + 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("card", "key", "body"),
    [
        ("c1", "", APPROVED),
        ("c1", "a" * 129, APPROVED),
        ("c%201", "a", APPROVED),
        ("c1", "a", {"merchant": "books", "cents": 0}),
        ("c1", "a", {"merchant": "books", "cents": "7"}),
        ("c1", "a", {"merchant": "books"}),
        ("c1", "a", {"merchant": "books", "cents": 7, "currency": "EUR"}),
        ("c1", "a", {"merchant": "books", "cents": 7, "at": 1}),
        ("c1", "a", {"merchant": "books", "cents": 7, "at": 99_999_999_999_999}),
    ],
)
async def test_an_invalid_payment_is_refused_and_not_kept(
    tmp_path: Path, card: str, key: str, body: dict[str, Any]
) -> None:
    async with service(tmp_path) as client:
        for what in ("payments", "decisions"):
            assert (await post(client, f"/cards/{card}/{what}", key, body)).status_code == 422

    assert rows(tmp_path, "decisions") == []


@pytest.mark.asyncio
async def test_a_card_of_another_shard_is_refused(tmp_path: Path) -> None:
    other = next(f"c{n}" for n in range(100) if shard_of(f"c{n}", 2) == 1)
    async with service(tmp_path, shards=2) as client:
        answer = await post(client, f"/cards/{other}/payments", "a")

    assert answer.status_code == 421
    assert answer.json()["detail"].endswith("belongs to shard 1; route its requests there")


@pytest.mark.asyncio
async def test_a_card_is_remembered_after_a_restart_of_the_service(tmp_path: Path) -> None:
    async with service(tmp_path) as client:
        assert (await client.get("/cards/c1")).status_code == 404
        decision = (await post(client, "/cards/c1/decisions", "a")).json()

    async with service(tmp_path) as client:
        card = await client.get("/cards/c1")
        again = await post(client, "/cards/c1/decisions", "a")

    assert card.json() == {"payments": 1, "recent": [decision]}
    assert again.json() == decision


@pytest.mark.asyncio
async def test_minutes_are_written_when_event_time_has_passed_them(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    async with service(tmp_path, window_seconds=1.0) as client:
        for key, at in (("a", now), ("b", now), ("last", now + 30_000), ("late", now - 60_000)):
            await post(client, "/cards/c1/decisions", key, APPROVED | {"at": at})

    results = read_results(tmp_path / "shard-0-of-1")
    assert results.minutes == [
        {"card": "c1", "start": now // 1000 * 1000, "payments": 2, "cents": 1_400}
    ]
    assert [row["id"] for row in results.late] == ["late"]
    assert len(results.decisions) == 4
    assert results.leftovers == []


@pytest.mark.asyncio
async def test_health_metrics_and_the_api_of_the_job_are_served(tmp_path: Path) -> None:
    async with service(tmp_path, token="secret", read_token="readers") as client:
        await post(client, "/cards/c1/decisions", "a")
        health = await client.get("/health")
        metrics = (await client.get("/metrics")).text
        stop = "/aflow/api/jobs/payments/stop"
        unread = await client.get("/aflow/api/jobs")
        read = await client.get("/aflow/api/jobs", headers={"Authorization": "Bearer readers"})
        refused = await client.post(stop, headers={"Authorization": "Bearer readers"})

    assert (health.status_code, health.json()) == (200, {"status": "running"})
    assert 'fraud_answers_total{answer="approve"} 1.0' in metrics
    assert 'aflow_job_status{job="payments",status="running"} 1.0' in metrics
    assert [unread.status_code, read.status_code, refused.status_code] == [401, 200, 401]


@pytest.mark.asyncio
async def test_before_the_start_requests_are_answered_with_503(tmp_path: Path) -> None:
    transport = httpx.ASGITransport(create_app(settings(tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answers = [
            await client.get("/health"),
            await client.get("/cards/c1"),
            await post(client, "/cards/c1/decisions", "a"),
        ]

    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert not list(tmp_path.iterdir())


@pytest.mark.asyncio
async def test_a_second_process_on_the_folder_is_refused_and_told_how_to_shard(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as client:
        with pytest.raises(SourceInUse, match="give each process a folder of its own"):
            async with service(tmp_path):
                pass

        assert (await post(client, "/cards/c1/decisions", "a")).status_code == 200


def test_settings_are_read_from_the_environment() -> None:
    found = from_environment({"FRAUD_SHARDS": "3", "FRAUD_ASK_SECONDS": "0.5", "PATH": "/bin"})

    assert (found.shards, found.ask_seconds, found.folder) == (3, 0.5, "data")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"FRAUD_SHARD": "2", "FRAUD_SHARDS": "2"}, "shards are numbered from 0 to 1"),
        ({"FRAUD_FOLDR": "x"}, "unknown field `foldr`"),
        ({"FRAUD_SHARDS": "many"}, r"at `\$.shards`"),
    ],
)
def test_wrong_settings_are_refused(environment: dict[str, str], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        from_environment(environment)
