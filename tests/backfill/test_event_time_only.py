"""Windows of processing time can fire in event time over history; the live job continues by its clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow import triggers
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.refusals import refuse_unsupported
from aflow.errors import FlowDefinitionError
from aflow.testing import FlowDriver
from aflow.testing.virtual_time import run
from tests.backfill.locally import Backfilled, backfill_locally

TEN, CLOCK = timedelta(milliseconds=10), af.TimeDomain.PROCESSING

WINDOWS: dict[str, Any] = {
    "tumbling": af.Tumbling(TEN),
    "staggered": af.Tumbling(TEN, stagger=af.windows.WindowStagger.NATURAL),
    "sliding": af.Sliding(2 * TEN, TEN),
    "session": af.Session(TEN),
    "dynamic session": af.windows.DynamicSession[int](lambda number: TEN),
}

NUMBERS = [0, 3, 12, 13, 29, 45, 46, 47]


class OfAUser(triggers.Trigger[int]):
    """A class whose behaviour is unknown."""

    def on_element(
        self,
        value: int,
        timestamp: int,
        window: af.TimeWindow,
        ctx: triggers.TriggerContext,
    ) -> triggers.TriggerResult:
        return triggers.TriggerResult.CONTINUE


def over_history(flow: af.Flow, sources: dict[str, Sequence[int]], **more: Any) -> Backfilled:
    return run(backfill_locally(flow, sources, **more))


def windowed(
    windows: Any, *, trigger: af.triggers.Trigger[int] | None = None, source: Any = ()
) -> tuple[af.Flow, af.CollectSink[Any]]:
    """Numbers by window, as a flow."""
    flow, sink = af.Flow("windows"), af.CollectSink[Any]()
    keyed = flow.source(source, name="numbers").event_time(lambda n: n).key_by(lambda n: n % 2)
    keyed.window(windows, trigger=trigger).apply(list, name="lists").to(sink, name="out")
    return flow, sink


def lists(results: Iterable[Any]) -> list[tuple[int, int, list[int]]]:
    """Results in a fixed order: windows of different keys are emitted in any order."""
    return sorted((one.key, one.window.start, one.value) for one in results)


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_of_processing_time_can_fire_in_event_time(kind: str) -> None:
    by_event = over_history(windowed(WINDOWS[kind])[0], {"numbers": NUMBERS})
    clocked, _ = windowed(replace(WINDOWS[kind], domain=CLOCK))

    done = over_history(clocked, {"numbers": NUMBERS}, event_time_for_processing_time=True)

    assert len(by_event.results["out"]) > 4
    assert lists(done.results["out"]) == lists(by_event.results["out"])


def test_windows_with_a_stagger_are_aligned_over_history() -> None:
    aligned = over_history(windowed(WINDOWS["tumbling"])[0], {"numbers": NUMBERS})

    done = over_history(windowed(WINDOWS["staggered"])[0], {"numbers": NUMBERS})

    assert lists(done.results["out"]) == lists(aligned.results["out"])


@pytest.mark.parametrize("kind", WINDOWS)
def test_the_live_job_fires_open_and_new_windows_by_its_clock(kind: str, tmp_path: Path) -> None:
    by_event = over_history(windowed(WINDOWS[kind])[0], {"numbers": NUMBERS})
    past, _ = windowed(replace(WINDOWS[kind], domain=CLOCK))
    before = over_history(
        past,
        {"numbers": NUMBERS},
        until=48,
        savepoint=tmp_path / "savepoint",
        event_time_for_processing_time=True,
    )
    live, sink = windowed(replace(WINDOWS[kind], domain=CLOCK), source=af.PushSource[int]())

    async def job() -> None:
        driver = FlowDriver(
            live,
            parallelism=2,
            checkpointing=af.Checkpointing(every=None, storage=tmp_path / "live"),
            restore=tmp_path / "savepoint",
        )
        async with driver:
            await driver.advance(timedelta(seconds=1))

    run(job)

    assert sink.values
    assert lists([*before.results["out"], *sink.values]) == lists(by_event.results["out"])


@pytest.mark.parametrize(
    ("trigger", "can"),
    [
        (triggers.ProcessingTime(), True),
        (triggers.Count(2), True),
        (triggers.Purging(triggers.ProcessingTime()), True),
        (triggers.ContinuousProcessingTime(TEN), False),
        (triggers.Purging(triggers.ContinuousProcessingTime(TEN)), False),
        (OfAUser(), False),
    ],
)
def test_only_windows_that_determine_their_end_can_fire_in_event_time(
    trigger: af.triggers.Trigger[int], can: bool
) -> None:
    flow, _ = windowed(af.Tumbling(TEN, domain=CLOCK), trigger=trigger)

    with pytest.raises(FlowDefinitionError) as untold:
        refuse_unsupported(flow.graph)

    assert ("event_time_for_processing_time=True" in str(untold.value)) is can
    if can:
        plan_fragments(flow.graph, event_time_for_processing_time=True)
        return
    with pytest.raises(FlowDefinitionError, match="cannot be made to fire in event time"):
        plan_fragments(flow.graph, event_time_for_processing_time=True)


def test_joins_by_the_clock_cannot_fire_in_event_time() -> None:
    flow = af.Flow("join")
    keyed = flow.source([1]).event_time(lambda n: n).key_by(lambda n: n)
    joined = keyed.window_join(keyed, af.Tumbling(TEN, domain=CLOCK)).inner(max, name="join")
    joined.to(af.CollectSink[int]())

    with pytest.raises(FlowDefinitionError, match="cannot be made to fire in event time"):
        plan_fragments(flow.graph, event_time_for_processing_time=True)


def test_windows_that_fire_in_event_time_still_need_event_time() -> None:
    flow = af.Flow("timeless")
    timeless = flow.source([1]).key_by(lambda n: n).window(af.Tumbling(TEN, domain=CLOCK))
    timeless.reduce(max, name="most").to(af.CollectSink[Any]())

    with pytest.raises(FlowDefinitionError, match="goes by the order of arrival"):
        plan_fragments(flow.graph, event_time_for_processing_time=True)


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
def test_history_may_be_continued_from_a_savepoint(windows: Any, tmp_path: Path) -> None:
    def up_to(until: int | None, name: str, restore: Path | None = None) -> list[str]:
        flow, _ = windowed(windows)
        savepoint = None if until is None else tmp_path / name
        done = over_history(
            flow,
            {"numbers": NUMBERS},
            until=until,
            savepoint=savepoint,
            restore=restore,
            event_time_for_processing_time=True,
        )
        return [repr(one) for one in done.results.get("out", [])]

    once = up_to(None, "at once")
    first = up_to(13, "first")
    rest = up_to(None, "rest", tmp_path / "first")

    assert first
    assert rest
    assert sorted(first + rest) == sorted(once)
