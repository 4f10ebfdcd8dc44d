"""A durable push source refuses datetimes without a time zone: a job would fail on them after each restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import aflow as af
from aflow import CollectSink, DurablePushSource, Flow, ReplySink
from aflow.errors import FlowDefinitionError

NAIVE = datetime.fromisoformat("2026-01-01T12:00")
AWARE = NAIVE.replace(tzinfo=UTC)


@dataclass
class Payment:
    card: str
    at: datetime


@dataclass
class Shop:
    opens: Annotated[datetime, msgspec.Meta(tz=False)]


async def _nowait(source: DurablePushSource[Any], value: object) -> None:
    source.send_nowait(value)


SENDS: list[Callable[[DurablePushSource[Any], Any], Awaitable[object]]] = [
    lambda source, value: source.send(value),
    lambda source, value: source.send(value, id="one"),
    lambda source, value: source.send_many([value]),
    _nowait,
]


@pytest.mark.parametrize("send", SENDS, ids=["send", "with an id", "many", "nowait"])
@pytest.mark.parametrize(
    ("of", "value", "path"),
    [(Payment, Payment("c1", NAIVE), r"record\.at"), (None, {"at": NAIVE}, r"record\['at'\]")],
    ids=["typed", "plain"],
)
@pytest.mark.asyncio
async def test_a_datetime_without_a_zone_is_refused_and_not_logged(
    tmp_path: Path,
    of: Any,
    value: object,
    path: str,
    send: Callable[[DurablePushSource[Any], Any], Awaitable[object]],
) -> None:
    async with DurablePushSource[Any](tmp_path / "log", of=of) as source:
        with pytest.raises(FlowDefinitionError, match=f"{path} is a datetime without a time zone"):
            await send(source, value)

    assert list((tmp_path / "log").glob("*.log")) == []


@pytest.mark.asyncio
async def test_a_question_with_a_datetime_without_a_zone_is_refused(tmp_path: Path) -> None:
    source = DurablePushSource(tmp_path / "log", of=Payment)
    flow = Flow("ask")
    flow.source(source, name="in").to(ReplySink[Payment](), name="reply")
    async with flow.start(checkpointing=af.Checkpointing(storage=tmp_path / "state")) as job:
        with pytest.raises(FlowDefinitionError, match="without a time zone"):
            await job.ask(source, Payment("c1", NAIVE))


@pytest.mark.asyncio
async def test_aware_and_declared_datetimes_are_read_again_by_the_next_process(
    tmp_path: Path,
) -> None:
    for number, (of, value) in enumerate(
        [(Payment, Payment("c1", AWARE)), (None, {"at": AWARE}), (Shop, Shop(NAIVE))]
    ):
        folder = tmp_path / str(number)
        async with DurablePushSource[Any](folder / "log", of=of) as source:
            await source.send(value)

        flow, sink = Flow("read"), CollectSink[Any]()
        source = DurablePushSource[Any](folder / "log", of=of)
        flow.source(source, name="in").to(sink, name="out")
        async with flow.start(checkpointing=af.Checkpointing(storage=folder / "state")) as job:
            await source.end()
            await job.wait()

        assert sink.values == [value]
