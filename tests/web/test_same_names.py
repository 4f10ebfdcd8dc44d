"""Several jobs of one name, which a function may return while a service replaces a job."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import aflow.web
from aflow import Job, PushSource
from aflow.testing.virtual_time import settle, virtual_time
from aflow.web import JobCollector
from tests.web.event_client import reading
from tests.web.requests import WRITE, requesting, samples, visits


def started() -> tuple[Job, PushSource[str]]:
    source = PushSource[str]()
    return visits(source).start(), source


@virtual_time
async def test_jobs_of_one_name_that_have_not_ended_have_different_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (first, source), (second, _) = started(), started()
    async with first, second, requesting(lambda: [first, second]) as client:
        await source.send("/home")
        await settle()
        listed = (await client.get("/api/jobs")).json()["jobs"]
        read = [(await client.get(f"/api/jobs/{name}")).json() for name in ("visits", "visits~2")]
        health = (await client.get("/health/ready")).json()
        found = samples((await client.get("/metrics")).text)
        stopped = await client.post("/api/jobs/visits~2/stop", headers=WRITE)
        await second.wait()

        assert first.running

    assert [one["name"] for one in listed] == ["visits", "visits~2"]
    assert [one["name"] for one in read] == ["visits", "visits~2"]
    assert [one["metrics"]["steps"]["pages"]["records_out"] for one in read] == [1, 0]
    assert list(health["jobs"]) == ["visits", "visits~2"]
    assert found["aflow_step_records_out_total", "visits", "pages"] == 1
    assert found["aflow_step_records_out_total", "visits~2", "pages"] == 0
    assert stopped.json()["job"] == "visits~2"
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "several jobs are named 'visits'" in warnings[0].getMessage()


@virtual_time
async def test_a_job_that_has_ended_gives_its_address_to_its_successor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (former, _), (following, source) = started(), started()
    async with former:
        pass
    async with following, requesting(lambda: [former, following]) as client:
        await source.send("/home")
        await settle()
        listed = (await client.get("/api/jobs")).json()["jobs"]
        ready = await client.get("/health/ready")
        found = samples((await client.get("/metrics")).text)

    assert [(one["name"], one["restarts"]) for one in listed] == [("visits", 0)]
    assert ready.status_code == 200
    assert found["aflow_step_records_out_total", "visits", "pages"] == 1
    assert caplog.text == ""


@virtual_time
async def test_of_jobs_that_have_ended_the_last_one_has_the_address() -> None:
    (first, _), (last, source) = started(), started()
    async with first, last:
        await source.send("/home")
        await settle()
    async with requesting(lambda: [first, last]) as client:
        view = (await client.get("/api/jobs/visits")).json()
        listed = (await client.get("/api/jobs")).json()["jobs"]

    assert len(listed) == 1
    assert view["metrics"]["steps"]["pages"]["records_out"] == 1


@virtual_time
async def test_an_address_with_a_number_is_never_the_name_of_another_job() -> None:
    jobs = [
        visits(PushSource[str](), name=name).start() for name in ("visits", "visits", "visits~2")
    ]
    async with requesting(lambda: jobs) as client:
        listed = (await client.get("/api/jobs")).json()["jobs"]
    for job in jobs:
        async with job:
            pass

    assert sorted(one["name"] for one in listed) == ["visits", "visits~2", "visits~3"]


@virtual_time
async def test_one_job_returned_twice_is_one() -> None:
    job, _ = started()
    async with job, requesting(lambda: [job, job]) as client:
        listed = (await client.get("/api/jobs")).json()["jobs"]

    assert [one["name"] for one in listed] == ["visits"]


@virtual_time
async def test_a_registry_of_the_host_exports_jobs_of_one_name() -> None:
    (first, _), (second, _) = started(), started()
    registry = CollectorRegistry()
    registry.register(JobCollector(lambda: [first, second]))
    async with first, second:
        found = samples(generate_latest(registry).decode())

    assert found["aflow_job_status", "visits", "running"] == 1
    assert found["aflow_job_status", "visits~2", "running"] == 1


@virtual_time
async def test_the_page_follows_the_job_of_an_address() -> None:
    (first, source), (second, _) = started(), started()
    async with first, second:
        await source.send("/home")
        await settle()
        async with reading(aflow.web.app(lambda: [first, second]), "visits~2") as client:
            await settle()

            assert client.events[0][1]["name"] == "visits~2"
            assert client.snapshots[0]["metrics"]["steps"]["pages"]["records_out"] == 0
