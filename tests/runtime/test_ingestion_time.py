"""Event time by arrival, in whole pipelines: windows fire while the source is silent."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import Pause, ScriptedSource, run_flow

START = 1_357_000_000_000


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_window_fires_on_time_while_the_source_is_silent(parallelism: int) -> None:
    flow, fired = af.Flow("arrivals"), list[tuple[int, float]]()
    minute = Pause(timedelta(minutes=1))
    (
        flow.source(ScriptedSource[str]("a", "b", minute, "c", minute), name="source")
        .ingestion_time()
        .key_by(lambda _: "all")
        .window(af.Tumbling(timedelta(seconds=1)))
        .fold(int, lambda count, _: count + 1, name="count")
        .to(
            af.CallbackSink(
                lambda window: fired.append((window.value, asyncio.get_running_loop().time()))
            )
        )
    )

    run_flow(flow, start=START, parallelism=parallelism)

    assert fired == [(2, 1.0), (1, 61.0)]
