"""The log says each change of a job once, with the fields that the guide lists."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import aflow as af
from aflow.errors import InternalError, OperatorError, StopTimeout
from aflow.restart import FixedDelay
from aflow.runtime import log_events
from aflow.testing.virtual_time import settle, virtual_time
from tests.inline_threads import inline_threads

__all__ = ["inline_threads"]

pytestmark = pytest.mark.usefixtures("inline_threads")

PROJECT: Final = Path(__file__).parents[2]
GUIDE: Final = PROJECT / "docs" / "guide" / "watching.md"
SECOND = timedelta(seconds=1)


def test_the_table_of_the_guide_has_all_events_with_their_loggers_levels_and_fields() -> None:
    row = re.compile(r"^\| `(\w+)` \| `(aflow\.\w+)` \| ([A-Z]+) \| ([^|]*) \|", re.MULTILINE)
    documented = {
        name: (logger, level, frozenset(re.findall(r"`(\w+)`", fields)))
        for name, logger, level, fields in row.findall(GUIDE.read_text(encoding="utf-8"))
    }

    assert documented == {
        one.name: (one.logger, logging.getLevelName(one.level), one.fields)
        for one in log_events.EVENTS
    }


def test_all_events_are_in_the_list() -> None:
    defined = [one for one in vars(log_events).values() if isinstance(one, log_events.LogEvent)]
    assert sorted(one.name for one in defined) == sorted(one.name for one in log_events.EVENTS)
    assert len({one.name for one in defined}) == len(defined)


def test_no_field_hides_one_of_the_logging_module() -> None:
    own = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event"}
    for event in log_events.EVENTS:
        assert not event.fields & own


def test_the_runtime_logs_events_only() -> None:
    for path in sorted((PROJECT / "aflow" / "runtime").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "logging" not in names or path.name == "log_events.py", path


def test_an_event_with_other_fields_is_an_error() -> None:
    with pytest.raises(InternalError, match="'job_status' has the fields"):
        log_events.STATUS.log("text", job="sums")


def failing(source: af.Source[int], failures: int) -> af.Flow:
    left = [failures]

    def check(number: int) -> int:
        if number == 0 and left[0]:
            left[0] -= 1
            raise ValueError("as planned")
        return number

    flow = af.Flow("sums")
    flow.source(source, name="numbers").map(check, name="check").to(
        af.CollectSink[int](), name="out"
    )
    return flow


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    """The events, each with the field that tells most."""
    told = {"job_status": "status", "job_restart": "error", "job_failed": "error_type"}
    return [
        (name, getattr(one, told.get(name, "job")))
        for one in caplog.records
        if (name := getattr(one, "event", None)) is not None
    ]


@virtual_time
async def test_each_change_of_a_job_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aflow")
    source = af.PushSource[int]()
    settings = af.Checkpointing(storage=tmp_path, every=None)
    flow = failing(source, 1)
    async with flow.start(checkpointing=settings, restart=FixedDelay(2, SECOND)) as job:
        await source.send(1)
        await job.checkpoint()
        await source.send(0)
        await asyncio.sleep(2)
        await job.stop(drain=True)

    assert logged(caplog) == [
        ("job_status", "starting"),
        ("job_status", "running"),
        ("checkpoint_completed", "sums"),
        ("job_status", "restarting"),
        ("job_restart", "step 'check' failed on record 0: ValueError: as planned"),
        ("job_status", "restoring"),
        ("job_restored", "sums"),
        ("job_status", "running"),
        ("stop_requested", "sums"),
        ("job_status", "draining"),
        ("checkpoint_completed", "sums"),
        ("job_status", "finished"),
    ]


@virtual_time
async def test_a_failure_is_logged_with_the_class_of_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aflow")
    source = af.PushSource[int]()

    async def run() -> None:
        async with failing(source, 1).start() as job:
            await source.send(0)
            await job.wait()

    with pytest.raises(OperatorError):
        await run()

    assert logged(caplog)[-2:] == [("job_failed", "OperatorError"), ("job_status", "failed")]


class Gone(af.Source[int]):
    """Its system is not there."""

    bounded = True
    replayable = True
    max_parallelism = 1

    async def splits(self) -> list[af.connect.Split]:
        return [af.connect.Split("gone")]

    async def reader(self, split: af.connect.Split, position: object) -> Any:
        raise ConnectionError("nothing listens there")


def test_a_dead_connector_is_logged_as_such(caplog: pytest.LogCaptureFixture) -> None:
    flow = af.Flow("gone")
    flow.source(Gone(), name="numbers").to(af.CollectSink[int](), name="out")

    with pytest.raises(af.errors.SourceError):
        asyncio.run(flow.run())

    [failed] = [one for one in caplog.records if getattr(one, "event", "") == "job_failed"]
    assert getattr(failed, "error_type", "") == "SourceError"
    assert "nothing listens there" in getattr(failed, "error", "")
    assert failed.levelno == logging.ERROR


@virtual_time
async def test_a_stop_that_does_not_end_in_time_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    source = af.PushSource[int]()
    gate = asyncio.Event()

    async def wait(_: int) -> None:
        await gate.wait()

    flow = af.Flow("stuck")
    flow.source(source, name="numbers").to(af.CallbackSink(wait), name="out")
    async with flow.start() as job:
        await source.send(1)
        await settle()
        with pytest.raises(StopTimeout):
            await job.stop(deadline=SECOND)

    [event] = [one for one in caplog.records if getattr(one, "event", "") == "stop_timed_out"]
    assert vars(event)["deadline_s"] == 1
    assert "the writer of sink 'out'" in vars(event)["left"]
