"""Savepoints and stops over HTTP, and the tokens that they need."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Flow, PushSource
from aflow.errors import FlowDefinitionError, OperatorError
from aflow.metrics import JobStatus
from aflow.testing.virtual_time import settle, virtual_time
from tests.web.requests import FAIL, TOKEN, WRITE, error, requesting, restarts, visits

STOP = "/api/jobs/visits/stop"
SAVEPOINTS = "/api/jobs/visits/savepoints"


@virtual_time
async def test_a_savepoint_is_written_while_the_job_continues(tmp_path: Path) -> None:
    settings = Checkpointing(storage=tmp_path / "state", every=None)
    source = PushSource[str]()
    async with visits(source).start(checkpointing=settings) as job, requesting(job) as client:
        await source.send("/home")
        await settle()
        path = str(tmp_path / "monday")
        response = await client.post(SAVEPOINTS, json={"path": path}, headers=WRITE)
        again = await error(await client.post(SAVEPOINTS, json={"path": path}, headers=WRITE))
        status = job.status

    assert response.status_code == 201
    assert response.json()["savepoint"]["kind"] == "savepoint"
    assert response.json()["savepoint"]["path"] == path
    assert (again[:2], status) == ((409, "savepoint_failed"), JobStatus.RUNNING)
    assert "monday" in again[2]
    counted: list[int] = []
    restored = PushSource[str]()
    flow = Flow("visits")
    pages = flow.source(restored, name="pages").map(str, name="check")
    pages.key_by(lambda page: page, name="page").fold(int, lambda n, _: n + 1, name="count").to(
        af.CallbackSink(counted.append), name="out"
    )
    fresh = Checkpointing(storage=tmp_path / "other", every=None)
    async with flow.start(checkpointing=fresh, restore=path):
        await restored.send("/home")
    assert counted == [2]


@virtual_time
async def test_a_stop_is_accepted_before_the_job_has_ended(tmp_path: Path) -> None:
    settings = Checkpointing(storage=tmp_path / "state", every=None)
    savepoint = str(tmp_path / "last")
    async with (
        visits(PushSource[str]()).start(checkpointing=settings) as job,
        requesting(job) as client,
    ):
        body = {"drain": True, "savepoint": savepoint, "deadline": 60}
        response = await client.post(STOP, json=body, headers=WRITE)
        await job.wait()
        ended = await error(await client.post(STOP, json={}, headers=WRITE))
        late = await error(await client.post(SAVEPOINTS, json={"path": "x"}, headers=WRITE))

    assert (response.status_code, response.json()) == (202, {"job": "visits", "status": "draining"})
    assert job.status is JobStatus.FINISHED
    assert (tmp_path / "last").exists()
    assert ended[:2] == late[:2] == (409, "job_ended")


@virtual_time
async def test_a_stop_without_a_body_has_the_defaults() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        response = await client.post(STOP, headers=WRITE)
        await job.wait()

    assert response.status_code == 202


@virtual_time
async def test_a_failure_after_a_stop_is_raised_to_the_host() -> None:
    source = PushSource[str]()

    async def run() -> None:
        async with visits(source).start() as job, requesting(job) as client:
            await source.send(FAIL)
            await client.post(STOP, headers=WRITE)
            await settle()
            assert job.status is JobStatus.FAILED

    with pytest.raises(OperatorError, match="as planned"):
        await run()


async def _slow(page: str) -> str:
    await asyncio.sleep(3600)
    return page


@virtual_time
async def test_a_job_that_does_not_end_by_the_deadline_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = PushSource[str]()
    flow = Flow("visits")
    flow.source(source, name="pages").map_async(_slow, name="slow", capacity=10).to(
        CollectSink[str](), name="out"
    )
    async with flow.start() as job, requesting(job) as client:
        await source.send("/home")
        await settle()
        await client.post(STOP, json={"deadline": 5}, headers=WRITE)
        await asyncio.sleep(4)
        before = job.status
        await job.wait()

    assert (before, job.status) == (JobStatus.DRAINING, JobStatus.CANCELLED)
    assert "did not end within 5 s; left: 1 call of 'slow'" in caplog.text


@virtual_time
async def test_a_job_that_restarts_can_be_stopped() -> None:
    source = PushSource[str]()

    async def run() -> int:
        async with visits(source).start(restart=restarts()) as job, requesting(job) as client:
            await source.send(FAIL)
            await settle()
            response = await client.post(STOP, headers=WRITE)
            await settle()
            assert job.status is JobStatus.FAILED
            return response.status_code

    with pytest.raises(OperatorError):
        await run()


@virtual_time
async def test_a_savepoint_during_a_restart_is_to_be_repeated(tmp_path: Path) -> None:
    source = PushSource[str]()
    settings = Checkpointing(storage=tmp_path / "state", every=None)
    async with (
        visits(source).start(checkpointing=settings, restart=restarts()) as job,
        requesting(job) as client,
    ):
        await source.send(FAIL)
        await settle()
        body = {"path": str(tmp_path / "x")}
        found = await error(await client.post(SAVEPOINTS, json=body, headers=WRITE))
        await asyncio.sleep(1)

    assert found[:2] == (503, "job_not_running")


@virtual_time
async def test_a_job_without_checkpoints_has_no_savepoints() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        taken = await error(await client.post(SAVEPOINTS, json={"path": "x"}, headers=WRITE))
        stop = await error(await client.post(STOP, json={"savepoint": "x"}, headers=WRITE))
        status = job.status

    assert taken[:2] == stop[:2] == (409, "no_checkpointing")
    assert status is JobStatus.RUNNING


@virtual_time
async def test_a_job_that_was_not_started_cannot_be_stopped() -> None:
    job = visits(PushSource[str]()).start()
    async with requesting(job) as client:
        found = await error(await client.post(STOP, headers=WRITE))
    async with job:
        pass

    assert found[:2] == (503, "job_not_running")


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_json"),
        (b"\xff", "application/json", 400, "invalid_json"),
        (b"[]", "application/json", 400, "invalid_body"),
        (b'{"drian": true}', "application/json", 400, "invalid_body"),
        (b'{"drain": "no"}', "application/json", 400, "invalid_body"),
        (b'{"deadline": 0}', "application/json", 400, "invalid_body"),
        (b'{"deadline": 1e300}', "application/json", 400, "invalid_body"),
        (b'{"savepoint": ""}', "application/json", 400, "invalid_body"),
        (b'{"savepoint": "a\\u0000b"}', "application/json", 400, "invalid_body"),
        (b"drain=true", "application/x-www-form-urlencoded", 415, "not_json"),
        (b" " * 65_537, "application/json", 413, "body_too_large"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_body_that_is_no_request_is_refused(
    body: bytes, content_type: str, status: int, code: str
) -> None:
    @virtual_time
    async def run() -> None:
        async with visits(PushSource[str]()).start() as job, requesting(job) as client:
            headers = {**WRITE, "content-type": content_type}
            found = await error(await client.post(STOP, content=body, headers=headers))
            assert (found[:2], job.status) == ((status, code), JobStatus.RUNNING)

    run()


@virtual_time
async def test_writes_need_the_token() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        missing = await client.post(STOP)
        wrong = await client.post(STOP, headers={"authorization": "Bearer wrong"})
        none = [
            await error(await client.post(STOP, headers={"authorization": value}))
            for value in ("Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}")
        ]
        status = job.status

    text = "the request has no token: send 'Authorization: Bearer <token>'"
    assert missing.headers["www-authenticate"] == "Bearer"
    assert [await error(missing), *none] == [(401, "unauthorized", text)] * 5
    assert (await error(wrong))[:2] == (401, "unauthorized")
    assert "the token of the request is wrong" in (await error(wrong))[2]
    assert status is JobStatus.RUNNING


@virtual_time
async def test_without_a_token_writes_are_refused_with_the_setting_that_allows_them() -> None:
    async with (
        visits(PushSource[str]()).start() as job,
        requesting(job, token=None) as client,
    ):
        found = [await error(await client.post(path, headers=WRITE)) for path in (STOP, SAVEPOINTS)]
        read = await client.get("/api/jobs")

    assert {one[:2] for one in found} == {(403, "writes_disabled")}
    assert "aflow.web.app(job, token=" in found[0][2]
    assert read.status_code == 200


@virtual_time
async def test_reads_can_need_a_token_of_their_own() -> None:
    async with (
        visits(PushSource[str]()).start() as job,
        requesting(job, read_token="reader") as client,
    ):
        paths = (
            "/metrics",
            "/api/jobs",
            "/api/jobs/visits",
            "/api/jobs/none",
            "/api/jobs/visits/checkpoints",
            "/api/jobs/visits/state/count/a",
        )
        reader = {"authorization": "Bearer reader"}
        without = [(await client.get(path)).status_code for path in paths]
        reads = [(await client.get(path, headers=reader)).status_code for path in paths]
        writer = await client.get("/api/jobs", headers=WRITE)
        write = await client.post(STOP, headers=reader)
        health = await client.get("/health/ready")

    assert without == [401] * 6
    assert reads == [200, 200, 200, 404, 200, 404]
    assert (writer.status_code, write.status_code, health.status_code) == (200, 401, 200)


@pytest.mark.parametrize("token", ["", "two words", "ü", "line\n", 7], ids=repr)
def test_a_token_that_no_header_can_contain_is_refused_and_not_shown(token: str) -> None:
    @virtual_time
    async def run() -> None:
        async with requesting([], token=token):
            pass

    with pytest.raises(FlowDefinitionError, match="token") as raised:
        run()

    assert not token or repr(token) not in str(raised.value)
