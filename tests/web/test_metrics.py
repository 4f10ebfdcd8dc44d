"""The exposition for Prometheus."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import parser

import aflow as af
from aflow import Checkpointing, CollectSink, Flow, PushSource
from aflow.metrics import TaskMetrics
from aflow.runtime.metric_table import MetricMemory
from aflow.testing.virtual_time import settle, virtual_time
from aflow.web import JobCollector
from aflow.web import collector as collector_module
from tests.web.requests import FAIL, families, requesting, restarts, samples, visits

PROJECT: Final = Path(__file__).parents[2]
GUIDE: Final = PROJECT / "docs" / "guide" / "watching.md"
GRAFANA: Final = PROJECT / "docs" / "grafana"


@virtual_time
async def test_steps_tasks_and_the_status_are_exported() -> None:
    source = PushSource[str]()
    async with visits(source).start(parallelism=2) as job, requesting(job) as client:
        await source.send_many(["/home", "/prices", "/home"])
        await settle()
        response = await client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(response.text)
    assert found["aflow_step_records_out_total", "visits", "pages"] == 3
    assert found["aflow_step_records_in_total", "visits", "count"] == 3
    assert found["aflow_job_status", "visits", "running"] == 1
    assert found["aflow_job_status", "visits", "failed"] == 0
    tasks = {key[2:] for key in found if key[0] == "aflow_task_queued_records"}
    assert tasks == {("0", "pages → check → page"), ("0", "count → out"), ("1", "count → out")}


async def _echo(n: int) -> int:
    if n == 2:
        raise ValueError("as planned")
    return n


@virtual_time
async def test_watermarks_sides_and_calls_are_exported_in_seconds_and_records() -> None:
    source = PushSource[int]()
    flow = Flow("calls")
    failed = af.Tag[af.calls.FailedRecord[int]]("failed")
    called = (
        flow.source(source, name="numbers")
        .event_time(lambda n: n * 1000, name="time")
        .map_async(_echo, name="echo", capacity=5, on_error=af.calls.DeadLetter(failed))
    )
    called.to(CollectSink[int](), name="out")
    called.side(failed).to(CollectSink(), name="failures")
    async with flow.start() as job, requesting(job) as client:
        await source.send_many([1, 2, 3])
        await asyncio.sleep(1)
        found = samples((await client.get("/metrics")).text)
        await job.stop(drain=True)
        ended = samples((await client.get("/metrics")).text)

    assert found["aflow_step_watermark_timestamp_seconds", "calls", "time"] == 2.999
    assert found["aflow_step_watermark_lag_seconds", "calls", "time"] == pytest.approx(
        -2.0, abs=0.1
    )
    assert found["aflow_calls_total", "calls", "echo"] == 3
    assert found["aflow_call_dead_letters_total", "calls", "echo"] == 1
    assert found["aflow_step_side_records_total", "calls", "failed", "echo"] == 1
    assert found["aflow_calls_in_flight", "calls", "echo"] == 0
    assert ("aflow_step_watermark_lag_seconds", "calls", "time") not in ended


@virtual_time
async def test_checkpoints_are_exported_for_jobs_with_checkpointing_only(tmp_path: Path) -> None:
    settings = Checkpointing(storage=tmp_path / "state", every=None)
    with_, without = (
        visits(PushSource[str](), name="with").start(checkpointing=settings),
        visits(PushSource[str](), name="without").start(),
    )
    async with with_, without, requesting([with_, without]) as client:
        none = samples((await client.get("/metrics")).text)
        await asyncio.sleep(100)
        await with_.checkpoint()
        one = samples((await client.get("/metrics")).text)
        await asyncio.sleep(100)
        await with_.savepoint(tmp_path / "savepoint")
        two = samples((await client.get("/metrics")).text)

    last = "aflow_checkpoint_last_completed_timestamp_seconds"
    assert none["aflow_checkpoints_completed_total", "with"] == 0
    assert (last, "with") not in none
    assert ("aflow_checkpoint_last_size_bytes", "with") not in none
    assert one["aflow_checkpoint_last_size_bytes", "with"] > 0
    assert one[last, "with"] == pytest.approx(100, abs=1)
    assert two["aflow_checkpoints_completed_total", "with"] == 2
    assert two[last, "with"] == one[last, "with"]
    assert not [key for key in two if key[0].startswith("aflow_checkpoint") and "without" in key]


@virtual_time
async def test_counters_of_the_job_go_on_over_a_restart_and_those_of_steps_start_again() -> None:
    source = PushSource[str]()
    async with visits(source).start(restart=restarts()) as job, requesting(job) as client:
        seen: list[dict[tuple[str, ...], float]] = []

        async def scrape() -> None:
            seen.append(samples((await client.get("/metrics")).text))

        await scrape()
        await source.send_many(["a", "b", "c"])
        await settle()
        await scrape()
        await source.send(FAIL)
        await settle()
        await scrape()
        await asyncio.sleep(1)
        await settle()
        await scrape()
        await source.send("d")
        await settle()
        await scrape()

    assert [one["aflow_job_restarts_total", "visits"] for one in seen] == [0, 0, 1, 1, 1]
    records = [one["aflow_step_records_in_total", "visits", "count"] for one in seen]
    assert records == [0, 3, 3, 0, 1]
    # Apart from the reset to zero, no counter ever decreases.
    counters = [key for key in seen[0] if key[0].endswith("_total")]
    for before, after in [(0, 1), (1, 2), (3, 4)]:
        assert [key for key in counters if seen[after][key] < seen[before][key]] == []


def test_a_rounding_error_of_a_busy_time_does_not_look_like_a_reset() -> None:
    memory = MetricMemory()

    def busy(seconds: float) -> float:
        return memory.busy(
            TaskMetrics(
                name="task",
                subtask=0,
                busy_s=seconds,
                idle_s=0,
                backpressured_s=0,
                calling_s=0,
                aligning_s=0,
                queued_records=0,
            )
        )

    assert [busy(one) for one in (5.0, 5.0 - 1e-9, 5.1, 0.2)] == [5.0, 5.0, 5.1, 0.2]


@virtual_time
async def test_a_collector_is_registered_in_a_registry_of_the_program() -> None:
    registry = CollectorRegistry()
    job = visits(PushSource[str]()).start()
    registry.register(JobCollector(job))
    async with job:
        found = samples(generate_latest(registry).decode())

        with pytest.raises(ValueError, match="Duplicated timeseries"):
            registry.register(JobCollector(job))

    assert found["aflow_job_status", "visits", "running"] == 1


@virtual_time
async def test_open_metrics_are_returned_to_scrapers_that_ask_for_them() -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        response = await client.get("/metrics", headers=accept)

    assert response.headers["content-type"].startswith("application/openmetrics-text")
    open_metrics: Any = parser  # has no types
    names = {one.name for one in open_metrics.text_string_to_metric_families(response.text)}
    assert "aflow_step_records_in" in names


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=x", "text/plain;version=a"]
)
@virtual_time
async def test_a_scraper_that_asks_for_an_invalid_version_gets_the_text_format(accept: str) -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        response = await client.get("/metrics", headers={"accept": accept})

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")


def exported() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the kind and labels of each metric."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for family in JobCollector([]).describe():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = (family.type, collector_module.labels_of(name))
    return found


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, (kind, _) in exported().items():
        assert re.fullmatch(r"aflow_[a-z]+(_[a-z0-9]+)+", name)
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"_(ms|millis|minutes|kb)(_|$)", name)


def test_the_table_of_the_guide_has_all_metrics_with_their_kinds_and_labels() -> None:
    row = re.compile(r"^\| `(aflow_\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in row.findall(GUIDE.read_text(encoding="utf-8"))
    }

    assert documented == exported()


@virtual_time
async def test_samples_have_the_labels_of_their_metrics(tmp_path: Path) -> None:
    settings = Checkpointing(storage=tmp_path, every=timedelta(seconds=1))
    async with (
        visits(PushSource[str]()).start(checkpointing=settings) as job,
        requesting(job) as client,
    ):
        await asyncio.sleep(3)
        text = (await client.get("/metrics")).text

    expected = exported()
    for family in families(text):
        for sample in family.samples:
            assert set(sample.labels) == set(expected[sample.name][1])


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\baflow_\w+", text))


def test_the_dashboard_shows_exported_metrics_only() -> None:
    text = (GRAFANA / "dashboard.json").read_text(encoding="utf-8")
    dashboard: dict[str, Any] = json.loads(text)
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]
    variables = [
        one["query"]["query"]
        for one in dashboard["templating"]["list"]
        if "query" in one and one["type"] == "query"
    ]

    used = metrics_in(" ".join([*expressions, *variables]))

    assert len(used) >= 15
    assert used - set(exported()) == set()
    assert metrics_in(text) == used
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)


def test_the_alerts_use_exported_metrics_and_statuses_only() -> None:
    yaml = pytest.importorskip("yaml", reason="the tools of the documentation contain it")
    text = (GRAFANA / "alerts.yml").read_text(encoding="utf-8")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]

    assert len(rules) >= 6
    for rule in rules:
        assert set(rule) >= {"alert", "expr", "labels", "annotations"}
        assert metrics_in(rule["expr"])
        assert rule["annotations"]["summary"]
    assert metrics_in(text) - set(exported()) == set()
    statuses = re.findall(r'status=~?"([^"]+)"', text)
    assert {one for status in statuses for one in status.split("|")} <= {
        one.value for one in af.metrics.JobStatus
    }


def test_an_unknown_metric_in_a_text_is_found() -> None:
    assert metrics_in("rate(aflow_step_records_total[1m])") - set(exported()) == {
        "aflow_step_records_total"
    }
