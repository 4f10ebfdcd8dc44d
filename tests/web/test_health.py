"""Health checks for process managers."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import cast

import pytest

import aflow as af
import aflow.web
from aflow import Job, PushSource
from aflow.errors import FlowDefinitionError, OperatorError
from aflow.metrics import JobStatus
from aflow.testing.virtual_time import settle, virtual_time
from tests.web.requests import FAIL, WRITE, error, requesting, restarts, samples, visits


@virtual_time
async def test_a_running_job_is_live_and_ready() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        live, ready = await client.get("/health/live"), await client.get("/health/ready")

    assert (live.status_code, live.json()) == (
        200,
        {"status": "live", "jobs": {"visits": "running"}},
    )
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


@virtual_time
async def test_a_job_that_was_not_started_is_live_and_not_ready() -> None:
    job = visits(PushSource[str]()).start()
    async with requesting(job) as client:
        live, ready = await client.get("/health/live"), await client.get("/health/ready")
        view = (await client.get("/api/jobs/visits")).json()
        metrics = await client.get("/metrics")
        stop = await error(
            await client.post("/api/jobs/visits/stop", headers={"authorization": "Bearer x"})
        )
    async with job:  # a job that is never started warns
        pass

    assert (live.status_code, ready.status_code) == (200, 503)
    assert ready.json() == {"status": "not ready", "jobs": {"visits": "created"}}
    assert (view["status"], view["metrics"]["steps"]) == ("created", {})
    assert 'aflow_job_status{job="visits",status="created"} 1.0' in metrics.text
    assert stop[0] == 401


@virtual_time
async def test_a_job_that_restarts_is_live_and_not_ready() -> None:
    source = PushSource[str]()
    async with visits(source).start(restart=restarts()) as job, requesting(job) as client:
        await source.send(FAIL)
        await settle()
        live, ready = await client.get("/health/live"), await client.get("/health/ready")
        view = (await client.get("/api/jobs/visits")).json()
        await asyncio.sleep(1)
        await job.ready()
        again = await client.get("/health/ready")

    assert (live.status_code, ready.status_code) == (200, 503)
    assert ready.json()["jobs"] == {"visits": "restarting"}
    assert view["status"] == "restarting"
    assert view["restarts"][0]["cause"]["type"] == "OperatorError"
    assert view["restarts"][0]["delay_ms"] == 1000
    assert again.status_code == 200


@virtual_time
async def test_a_failed_job_is_neither_live_nor_ready_and_shows_its_failure() -> None:
    source = PushSource[str]()
    job = visits(source).start()

    async def run() -> None:
        async with job:
            await source.send(FAIL)
            await job.wait()

    with pytest.raises(OperatorError):
        await run()

    async with requesting(job) as client:
        live, ready = await client.get("/health/live"), await client.get("/health/ready")
        view = (await client.get("/api/jobs/visits")).json()
        state = await error(await client.get("/api/jobs/visits/state/count/x"))

    assert (live.status_code, live.json()["status"]) == (503, "failed")
    assert ready.status_code == 503
    location = view["failure"].pop("location")
    assert view["failure"] == {
        "type": "OperatorError",
        "message": "step 'check' failed on record 'fail': ValueError: as planned",
        "step": "check",
        "record": "'fail'",
        "key": None,
        "timestamp": None,
        "cause": "ValueError: as planned",
        "notes": [],
    }
    assert location["function"].endswith("visits.<locals>.check")
    assert location["code"] == 'raise ValueError("as planned")'
    assert state[:2] == (409, "job_ended")


@virtual_time
async def test_several_jobs_are_ready_if_each_is() -> None:
    first = visits(PushSource[str](), name="first").start()
    second = visits(PushSource[str](), name="second").start()
    async with requesting([first, second]) as client, first:
        one = await client.get("/health/ready")
        async with second:
            both = await client.get("/health/ready")
            listed = (await client.get("/api/jobs")).json()

    assert (one.status_code, both.status_code) == (503, 200)
    assert one.json()["jobs"] == {"first": "running", "second": "created"}
    assert [job["name"] for job in listed["jobs"]] == ["first", "second"]


@virtual_time
async def test_a_function_returns_the_jobs_of_each_request() -> None:
    present: list[Job] = []
    async with requesting(lambda: present) as client:
        none = await client.get("/health/ready")
        async with visits(PushSource[str]()).start() as job:
            present.append(job)
            some = await client.get("/health/ready")
            await job.stop(deadline=timedelta(seconds=1))

    assert (none.status_code, some.status_code) == (503, 200)


@virtual_time
async def test_a_function_that_raises_is_an_internal_error_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def jobs() -> Job:
        raise RuntimeError("the password is 1234")

    async with requesting(jobs) as client:
        status, code, message = await error(await client.get("/api/jobs"))

    assert (status, code) == (500, "internal_error")
    assert "1234" not in message
    assert "1234" in caplog.text


@virtual_time
async def test_two_jobs_of_one_name_are_refused() -> None:
    jobs = [visits(PushSource[str]()).start() for _ in range(2)]
    with pytest.raises(FlowDefinitionError, match="two jobs are named 'visits'"):
        async with requesting(jobs):
            pass
    for job in jobs:
        async with job:
            pass


@pytest.mark.parametrize("value", ["visits", 7, None, ["visits"]], ids=repr)
def test_a_value_that_is_no_job_is_refused(value: object) -> None:
    with pytest.raises(FlowDefinitionError, match=r"takes a Job, a sequence of jobs or a function"):
        aflow.web.app(cast("Job", value))  # as a program without a type checker


def test_the_core_does_not_import_the_package() -> None:
    assert "web" not in af.__all__


@virtual_time
async def test_a_status_has_one_spelling_in_logs_health_checks_metrics_and_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aflow.job")
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        health = (await client.get("/health/ready")).json()["jobs"]["visits"]
        listed = (await client.get("/api/jobs")).json()["jobs"][0]["status"]
        one = (await client.get("/api/jobs/visits")).json()["status"]
        found = samples((await client.get("/metrics")).text)
        stopped = (await client.post("/api/jobs/visits/stop", headers=WRITE)).json()["status"]
    exported = {name[2] for name in found if name[0] == "aflow_job_status"}
    logged = [vars(record)["status"] for record in caplog.records if "status" in vars(record)]

    assert health == listed == one == logged[1] == "running"
    assert stopped == logged[2] == "draining"
    assert exported == {status.value for status in JobStatus}
