"""The query of a stream on Spark is observed as a job is: its health and its metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from aflow import PushSource
from aflow.backfill.step_totals import StepCount, StepTotals
from aflow.backfill.stream_metrics import ObservedStream
from aflow.backfill.stream_progress import BatchReport, SourceProgress, StreamProgress
from aflow.machines.calls.counters import CallCounters
from aflow.metrics import JobStatus
from aflow.testing.virtual_time import virtual_time
from aflow.web import JobCollector
from tests.web.requests import error, families, requesting, samples, visits
from tests.web.test_metrics import exported

TOTALS = StepTotals(["times", "sum", "ask", "out"])
TOTALS.add(
    [
        {
            "sum": StepCount(40, 2, 9, 2_000, sides={"late": 3}),
            "ask": StepCount(9, 1, 8, calls=CallCounters(calls=11, retries=2, limit=5)),
        }
    ],
    {"times": 2_500},
)
TOTALS.add_received("out", 9)

KAFKA = SourceProgress(description="KafkaV2[a]", rows=40, behind={"records": 70.0}, end="{}")

PROGRESS = StreamProgress(
    flow="totals",
    epoch=12,
    batch=7,
    watermark=2_000,
    records=40,
    records_per_second=20.0,
    load=1.25,
    state_bytes=4_096,
    state_bytes_read=1_024,
    state_entries=17,
    results={"out": 9},
    seconds={"fragments": 1.0},
    total_seconds={"fragments": 5.5, "commit": 0.5},
    interval=2.0,
    epochs=4,
    epochs_without_rows=1,
    replays=1,
    committed_at=61_500,
    steps=TOTALS.metrics(5_000),
    last_batch=BatchReport(sources=(KAFKA,), seconds={"walCommit": 0.02}),
)


class Query(ObservedStream):
    """A query with this status and progress."""

    def __init__(
        self, status: JobStatus, progress: StreamProgress | None, name: str = "totals"
    ) -> None:
        self._status, self._progress, self._name = status, progress, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> JobStatus:
        return self._status

    def observed(self) -> StreamProgress | None:
        return self._progress


def exposition(progress: StreamProgress | None, status: JobStatus = JobStatus.RUNNING) -> str:
    registry = CollectorRegistry()
    registry.register(JobCollector(Query(status, progress)))
    return generate_latest(registry).decode()


def test_counters_of_steps_have_the_names_of_those_of_a_job() -> None:
    found = samples(exposition(PROGRESS))

    assert found["aflow_job_status", "totals", "running"] == 1
    assert found["aflow_step_records_in_total", "totals", "sum"] == 40
    assert found["aflow_step_records_out_total", "totals", "sum"] == 9
    assert found["aflow_step_records_in_total", "totals", "out"] == 9
    assert found["aflow_step_side_records_total", "totals", "late", "sum"] == 3
    assert found["aflow_step_watermark_timestamp_seconds", "totals", "times"] == 2.5
    assert found["aflow_step_watermark_lag_seconds", "totals", "sum"] == 3.0
    assert found["aflow_calls_total", "totals", "ask"] == 11
    # It would be 0 while calls are under way.
    assert ("aflow_calls_in_flight", "totals", "ask") not in found


def test_epochs_state_phases_and_sources_have_names_of_streams() -> None:
    found = samples(exposition(PROGRESS))

    assert found["aflow_stream_epochs_total", "totals"] == 4
    assert found["aflow_stream_epochs_without_rows_total", "totals"] == 1
    assert found["aflow_stream_replays_total", "totals"] == 1
    assert found["aflow_stream_last_epoch_timestamp_seconds", "totals"] == 61.5
    assert found["aflow_stream_load_ratio", "totals"] == 1.25
    assert found["aflow_stream_state_bytes", "totals"] == 4_096
    assert found["aflow_stream_state_entries", "totals"] == 17
    assert found["aflow_stream_phase_seconds_total", "totals", "fragments"] == 5.5
    assert found["aflow_stream_last_batch_seconds", "totals", "walCommit"] == 0.02
    assert found["aflow_stream_source_behind", "totals", "KafkaV2[a]", "records"] == 70


def test_two_sources_of_one_name_are_added_and_unknown_values_are_absent() -> None:
    batch = replace(PROGRESS.last_batch, sources=(KAFKA, KAFKA))
    found = samples(exposition(replace(PROGRESS, last_batch=batch, state_entries=None)))

    assert found["aflow_stream_source_behind", "totals", "KafkaV2[a]", "records"] == 140
    assert ("aflow_stream_state_entries", "totals") not in found


def test_samples_have_the_labels_of_their_metrics() -> None:
    expected = exported()
    for family in families(exposition(PROGRESS)):
        for sample in family.samples:
            assert set(sample.labels) == set(expected[sample.name][1])


@pytest.mark.parametrize(
    ("status", "live", "ready"),
    [(JobStatus.CREATED, 200, 503), (JobStatus.RUNNING, 200, 200), (JobStatus.FAILED, 503, 503)],
    ids=lambda value: getattr(value, "value", ""),
)
@virtual_time
async def test_a_query_has_health_and_metrics_beside_a_job(
    status: JobStatus, live: int, ready: int
) -> None:
    query = Query(status, None if status is JobStatus.CREATED else PROGRESS)
    job = visits(PushSource[str]()).start()
    async with job, requesting([job, query]) as client:
        found = [await client.get(f"/health/{one}") for one in ("live", "ready")]
        metrics = samples((await client.get("/metrics")).text)
        listed = (await client.get("/api/jobs")).json()["jobs"]
        refused = await error(await client.get("/api/jobs/totals"))

    assert [one.status_code for one in found] == [live, ready]
    assert found[0].json()["jobs"] == {"visits": "running", "totals": status.value}
    assert metrics["aflow_job_status", "totals", status.value] == 1
    assert metrics["aflow_job_status", "visits", "running"] == 1
    assert [one["name"] for one in listed] == ["visits"]
    assert refused[0] == 404
    assert "'totals' is a stream on Spark, of which this application has health" in refused[2]


@virtual_time
async def test_a_query_that_follows_one_of_its_name_has_its_address() -> None:
    first, second = Query(JobStatus.FAILED, PROGRESS), Query(JobStatus.RUNNING, PROGRESS)
    async with requesting(lambda: [first, second]) as client:
        ready = await client.get("/health/ready")

    assert ready.json() == {"status": "ready", "jobs": {"totals": "running"}}
