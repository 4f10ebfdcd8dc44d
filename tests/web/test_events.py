"""Server-sent events of a job: what clients get, and that they cost a job nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

import aflow.web
from aflow import Job, PushSource
from aflow.testing.virtual_time import settle, virtual_time
from aflow.web.asgi import router_of
from aflow.web.routes import WebApi
from tests.web.event_client import reading
from tests.web.requests import FAIL, TOKEN, error, requesting, restarts, visits


@virtual_time
async def test_a_client_gets_a_description_and_then_a_snapshot_each_second() -> None:
    source = PushSource[str]()
    async with visits(source).start() as job, reading(aflow.web.app(job, token=TOKEN)) as client:
        await settle()
        await source.send_many(["/home", "/home"])
        await asyncio.sleep(3.5)

        assert client.status == 200
        assert client.headers[b"content-type"] == b"text/event-stream"
        assert client.headers[b"cache-control"] == b"no-store"
        assert b"content-length" not in client.headers
        assert client.names == ["job", *["snapshot"] * 4]
        assert [step["name"] for step in client.events[0][1]["graph"]["steps"]] == [
            "pages",
            "check",
            "page",
            "count",
            "out",
        ]
        assert client.events[0][1]["writes"] is True
        counted = [one["metrics"]["steps"]["count"]["records_in"] for one in client.snapshots]
        assert counted == [0, 2, 2, 2]
        moments = [one["steady"] for one in client.snapshots]
        assert [round(b - a, 6) for a, b in pairwise(moments)][1:] == [1, 1]


@virtual_time
async def test_clients_share_the_snapshot_of_a_second() -> None:
    source = PushSource[str]()
    async with visits(source).start() as job:
        application = aflow.web.app(job)
        async with reading(application) as first:
            await settle()
            await source.send("/home")
            await settle()
            async with reading(application) as second:
                await settle()
                await asyncio.sleep(1)

                assert first.snapshots == second.snapshots
                assert len(first.snapshots) == 2
                assert first.snapshots[0]["metrics"]["steps"]["count"]["records_in"] == 0


@virtual_time
async def test_a_client_that_accepts_no_data_is_dropped_and_holds_up_neither_job_nor_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = PushSource[str]()
    async with visits(source).start() as job:
        application = aflow.web.app(job)
        async with reading(application) as slow, reading(application) as other:
            await asyncio.sleep(1.5)
            received = len(slow.snapshots)
            slow.reads.clear()
            for _ in range(12):
                await source.send("/home")
                await asyncio.sleep(1)

            assert len(other.snapshots) == 14
            assert other.snapshots[-1]["metrics"]["steps"]["count"]["records_in"] == 12
            assert len(slow.snapshots) == received
            assert not slow.complete
            assert [record.getMessage() for record in caplog.records] == [
                "a client of the events of job 'visits' is dropped: it has accepted no data for 10 s"
            ]


@virtual_time
async def test_more_clients_than_allowed_are_refused_until_one_leaves() -> None:
    async with visits(PushSource[str]()).start() as job, AsyncExitStack() as stack:
        application = aflow.web.app(job)
        for _ in range(31):
            await stack.enter_async_context(reading(application))
        async with reading(application) as last, requesting(job) as others:
            await settle()
            async with reading(application) as refused:
                await settle()
                assert refused.status == 503
                assert refused.headers[b"retry-after"] == b"5"
                assert b'"too_many_clients"' in refused.body
            assert (await others.get("/health/live")).status_code == 200
            last.disconnect()
            await settle()
            async with reading(application) as next_one:
                await settle()
                assert next_one.status == 200


@virtual_time
async def test_the_stream_of_an_unknown_job_is_refused() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        refused = await error(await client.get("/api/jobs/other/events"))

    assert refused == (
        404,
        "unknown_job",
        "no job is named 'other'; this application has job 'visits'",
    )


@virtual_time
async def test_events_need_the_token_for_reads() -> None:
    async with visits(PushSource[str]()).start() as job:
        application = aflow.web.app(job, read_token="read")
        async with reading(application) as refused:
            await settle()
        async with reading(application, headers={"authorization": "Bearer read"}) as client:
            await settle()

    assert (refused.status, client.status) == (401, 200)
    assert client.events[0][1]["writes"] is False


@virtual_time
async def test_a_stream_ends_with_its_job() -> None:
    source = PushSource[str]()
    job = visits(source).start()
    async with reading(aflow.web.app(job)) as client:
        await settle()
        async with job:
            await asyncio.sleep(1)
        await asyncio.sleep(2)

        assert client.complete
    statuses = [one["status"] for one in client.snapshots]
    assert (statuses[0], statuses[-1]) == ("created", "finished")
    assert client.events[-1] == ("end", {"status": "finished"})
    assert client.names.count("job") == 1


@virtual_time
async def test_the_stream_of_an_ended_job_has_its_last_snapshot() -> None:
    async with visits(PushSource[str]()).start() as job:
        pass
    async with reading(aflow.web.app(job)) as client:
        await settle()

        assert client.names == ["job", "snapshot", "end"]
        assert client.complete


@virtual_time
async def test_a_stream_shows_the_job_that_replaces_another_and_ends_if_there_is_none() -> None:
    jobs: list[Job] = []
    application = aflow.web.app(lambda: jobs)
    async with visits(PushSource[str]()).start() as first, visits(PushSource[str]()).start() as two:
        jobs.append(first)
        async with reading(application) as client:
            await settle()
            jobs[:] = [two]
            await asyncio.sleep(1)
            jobs.clear()
            await asyncio.sleep(1)

    assert client.names == ["job", "snapshot", "job", "snapshot", "end"]
    assert client.events[-1] == ("end", {"status": None})


@virtual_time
async def test_a_stream_ends_after_half_a_minute_so_that_hosts_can_shut_down() -> None:
    async with visits(PushSource[str]()).start() as job, reading(aflow.web.app(job)) as client:
        await asyncio.sleep(29.9)
        before = client.complete
        await asyncio.sleep(2)

    assert (before, client.complete) == (False, True)
    assert "end" not in client.names


@virtual_time
async def test_a_snapshot_has_failures_with_the_record() -> None:
    source = PushSource[str]()
    async with (
        visits(source).start(restart=restarts()) as job,
        reading(aflow.web.app(job)) as client,
    ):
        await settle()
        await source.send(FAIL)
        await asyncio.sleep(2)

    cause = client.snapshots[-1]["restarts"][0]["cause"]
    assert (cause["step"], cause["record"]) == ("check", "'fail'")
    assert cause["cause"] == "ValueError: as planned"
    assert cause["location"]["code"] == 'raise ValueError("as planned")'


@virtual_time
async def test_an_error_of_the_function_that_returns_the_jobs_ends_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with visits(PushSource[str]()).start() as job:
        answers: list[Job] = [job, job]
        async with reading(aflow.web.app(lambda: answers.pop())) as client:
            await asyncio.sleep(2)

    assert client.complete
    assert "the events of job 'visits' failed" in caplog.text


@virtual_time
async def test_the_headers_of_a_stream_can_be_requested_alone() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        head = await client.head("/api/jobs/visits/events")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == "text/event-stream"


@virtual_time
async def test_a_closed_application_ends_its_streams_and_refuses_others() -> None:
    async with visits(PushSource[str]()).start() as job:
        api = WebApi(job, token=None, read_token=None)
        async with reading(router_of(api)) as client:
            await settle()
            api.close()
            await asyncio.sleep(1)
            assert client.complete
        async with reading(router_of(api)) as refused:
            await settle()

    assert refused.status == 503


@virtual_time
async def test_a_client_that_leaves_ends_its_request_at_once() -> None:
    async with visits(PushSource[str]()).start() as job:
        loop = asyncio.get_running_loop()
        async with reading(aflow.web.app(job)):
            await settle()
            before = loop.time()

        assert loop.time() == before


@virtual_time
async def test_the_last_snapshot_is_that_after_the_end_also_within_the_second_of_another() -> None:
    source = PushSource[str]()
    job = visits(source).start()
    application = aflow.web.app(job)
    async with job, reading(application) as early:
        await settle()
        assert early.snapshots[-1]["status"] == "running"
        await source.send_many(["/home", "/home"])
        await job.stop()
        async with reading(application) as late:
            await settle()
            await asyncio.sleep(1)

    for client in (early, late):
        assert client.names[-2:] == ["snapshot", "end"]
        assert client.snapshots[-1]["status"] == "finished"
        assert client.snapshots[-1]["metrics"]["steps"]["count"]["records_in"] == 2
    assert early.snapshots[-1] == late.snapshots[-1]


@virtual_time
async def test_a_job_that_is_removed_at_its_end_is_shown_as_it_has_ended() -> None:
    source = PushSource[str]()
    jobs = [visits(source).start()]
    async with jobs[0] as job, reading(aflow.web.app(lambda: jobs)) as client:
        await settle()
        await source.send("/home")
        await job.stop()
        jobs.clear()
        await asyncio.sleep(1)

    assert client.names == ["job", "snapshot", "snapshot", "end"]
    assert client.snapshots[-1]["metrics"]["steps"]["count"]["records_in"] == 1
    assert client.events[-1] == ("end", {"status": "finished"})
