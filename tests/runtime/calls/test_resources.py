"""Resources of calls: what is opened is closed, once, behind the last call, whatever ends the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.model.resource import Resource
from aflow.runtime.calls.reports import CallAbandoned
from aflow.runtime.recovery import JobEvent
from aflow.testing import CollectSink, Crash, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import virtual_time
from tests.runtime.ledger import Broken, failing

HOUR = Pause(timedelta(hours=1))


@dataclass
class Story:
    """The events of resources and calls, in order; ``fail`` is called at each and may raise."""

    fail: Callable[[str], None] = lambda place: None
    told: list[str] = field(default_factory=list[str])
    opened: int = 0

    def tell(self, what: str) -> None:
        self.told.append(what)
        self.fail(what)

    def resource(self, name: str, *, shared: str | None = None) -> Resource[str]:
        @asynccontextmanager
        async def opening() -> AsyncGenerator[str]:
            await asyncio.sleep(0)
            self.tell(f"open {name}")
            self.opened += 1
            try:
                yield f"{name} {self.opened}"
            finally:
                await asyncio.sleep(0)
                self.tell(f"close {name}")

        return Resource(opening, shared=shared, name=name)

    async def call(self, value: int, resource: str) -> str:
        await asyncio.sleep(1)
        self.tell(f"call {value}")
        return resource


def one_step(story: Story, *lines: int | Pause | Crash, sink: CollectSink[str]) -> af.Flow:
    flow = af.Flow("calls")
    called = flow.source(ScriptedSource[int](*lines), name="in").map_async(
        story.call, name="score", using=story.resource("http")
    )
    called.to(sink, name="out")
    return flow


def two_steps(story: Story, *lines: int | Pause, shared: str | None = None) -> af.Flow:
    """Two steps, each with a resource: one for both if it is ``shared``, each its own otherwise."""
    flow = af.Flow("calls")
    first = story.resource("first", shared=shared)
    second = first if shared else story.resource("second")

    async def again(before: str, resource: str) -> str:
        story.tell("call again")
        return f"{before}, {resource}"

    (
        flow.source(ScriptedSource[int](*lines), name="in")
        .rebalance()
        .map_async(story.call, name="score", using=first)
        .map_async(again, name="again", using=second)
        .to(CollectSink[str](), name="out")
    )
    return flow


def test_a_resource_is_open_for_the_calls_of_its_step_and_is_closed_behind_the_last() -> None:
    story, sink = Story(), CollectSink[str]()

    run_flow(one_step(story, 1, 2, sink=sink))

    assert sink.values == ["http 1", "http 1"]
    assert story.told == ["open http", "call 1", "call 2", "close http"]


def test_each_subtask_has_its_own() -> None:
    story = Story()

    run_flow(two_steps(story, 1), parallelism=2)

    assert story.told.count("open first") == story.told.count("close first") == 2
    assert story.told.count("open second") == story.told.count("close second") == 2


def test_what_is_shared_is_opened_once_for_all_steps_and_subtasks() -> None:
    story = Story()

    run_flow(two_steps(story, 1, shared="both"), parallelism=2)

    assert story.told == ["open first", "call 1", "call again", "close first"]


def test_resources_are_opened_in_the_order_of_the_plan_and_closed_in_reverse() -> None:
    story = Story()

    run_flow(two_steps(story, 1))

    assert story.told[:2] == ["open first", "open second"]
    assert story.told[-2:] == ["close second", "close first"]


@pytest.mark.parametrize("place", ["open first", "open second", "call 1", "call again"])
def test_a_failure_anywhere_closes_all_that_was_opened_and_is_what_the_host_sees(
    place: str,
) -> None:
    story = Story(failing(place))

    with pytest.raises(af.OperatorError, match=place):
        run_flow(two_steps(story, 1))

    opened = [what for what in story.told if what.startswith("open") and what != place]
    closed = [what for what in story.told if what.startswith("close")]
    assert closed == [what.replace("open", "close") for what in reversed(opened)]


def test_one_that_cannot_be_opened_is_named_with_its_step() -> None:
    story, sink = Story(failing("open http")), CollectSink[str]()

    with pytest.raises(af.OperatorError) as caught:
        run_flow(one_step(story, 1, sink=sink))

    assert str(caught.value) == "step 'score' could not open its resource 'http': Broken: open http"
    assert caught.value.operator == "score"
    assert isinstance(caught.value.__cause__, Broken)


def test_one_that_cannot_be_closed_fails_a_job_that_went_well() -> None:
    story, sink = Story(failing("close http")), CollectSink[str]()

    with pytest.raises(
        af.OperatorError, match="'score' could not close its resource 'http': Broken: close http"
    ):
        run_flow(one_step(story, 1, sink=sink))

    assert sink.values == ["http 1"]


def test_a_close_that_fails_as_well_does_not_hide_the_failure() -> None:
    story, sink = Story(failing("call 1", "close http")), CollectSink[str]()

    with pytest.raises(af.OperatorError, match="call 1") as caught:
        run_flow(one_step(story, 1, sink=sink))

    assert any("close http" in note for note in caught.value.__notes__)


def test_what_is_no_context_manager_is_refused_when_it_is_opened() -> None:
    async def call(value: int, resource: object) -> int:
        return value

    flow = af.Flow("calls")
    three: Any = lambda: 3  # noqa: E731 — no context manager, which types would tell
    resource = Resource[object](three, name="three")
    source = flow.source(ScriptedSource(1), name="in")
    source.map_async(call, name="score", using=resource).to(CollectSink[int](), name="out")

    with pytest.raises(af.OperatorError, match="'three': TypeError: 3 is no async context manager"):
        run_flow(flow)


def test_a_class_whose_objects_are_context_managers_is_a_resource() -> None:
    class Session:
        async def __aenter__(self) -> Session:
            return self

        async def __aexit__(self, *args: object) -> None:
            closed.append(self)

        async def get(self, value: int) -> int:
            return value * 2

    async def call(value: int, session: Session) -> int:
        return await session.get(value)

    closed: list[Session] = []
    sink = CollectSink[int]()
    flow = af.Flow("calls")
    source = flow.source(ScriptedSource(1, 2), name="in")
    source.map_async(call, name="score", using=Resource(Session)).to(sink, name="out")

    run_flow(flow)

    assert sink.values == [2, 4]
    assert len(closed) == 1


def test_a_restart_opens_it_anew(tmp_path: Path) -> None:
    story, sink = Story(), CollectSink[str]()

    run_flow(
        one_step(story, 1, Pause(timedelta(minutes=1)), Crash(), 2, sink=sink),
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path),
        restart=af.restart.FixedDelay(attempts=1),
    )

    assert sink.values == ["http 1", "http 2"]
    assert story.told == ["open http", "call 1", "close http", "open http", "call 2", "close http"]


@virtual_time
async def test_it_is_closed_behind_calls_that_take_their_time_to_be_cancelled() -> None:
    story = Story()

    async def call(value: int, resource: str) -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            story.tell("call ended")
        return resource

    flow = af.Flow("calls")
    source = flow.source(ScriptedSource[int](1, HOUR), name="in")
    (
        source.map_async(call, name="score", using=story.resource("http")).to(
            CollectSink[str](), name="out"
        )
    )

    with no_leftovers("the job"):
        async with flow.start(options=af.Options(clock=VirtualClock())) as job:
            await asyncio.sleep(10)
            await job.cancel()

    assert story.told == ["open http", "call ended", "close http"]


@pytest.mark.parametrize("steps", range(25))
@pytest.mark.parametrize("seed", [None, 1], ids=repr)
def test_a_cancelled_run_closes_what_was_opened_however_early(steps: int, seed: int | None) -> None:
    story = Story()

    @virtual_time(seed=seed)
    async def cancel_after_some_steps() -> None:
        with no_leftovers("the job"):
            running = asyncio.ensure_future(
                two_steps(story, 1, HOUR).run(options=af.Options(clock=VirtualClock()))
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()

    cancel_after_some_steps()

    assert story.told.count("close first") == story.told.count("open first")
    assert story.told.count("close second") == story.told.count("open second")


def hanging(ends: Callable[[], bool]) -> Resource[str]:
    """Closing it takes an hour, and longer for each cancellation until ``ends`` says so."""

    @asynccontextmanager
    async def opening() -> AsyncGenerator[str]:
        yield "http"
        while True:
            try:
                await asyncio.sleep(3600)
                return
            except asyncio.CancelledError:
                if ends():
                    raise

    return Resource(opening, name="http")


@pytest.mark.parametrize("ends", [True, False])
@virtual_time
async def test_a_close_that_hangs_is_reported_and_given_up(ends: bool) -> None:
    story, events = Story(), list[JobEvent]()
    stubborn = [not ends]
    flow = af.Flow("calls")
    called = flow.source(ScriptedSource[int](1), name="in").map_async(
        story.call, name="score", using=hanging(lambda: not stubborn.pop() if stubborn else True)
    )
    called.to(CollectSink[str](), name="out")
    loop = asyncio.get_running_loop()

    async with flow.start(options=af.Options(clock=VirtualClock()), on_event=events.append) as job:
        await job.wait()

    assert loop.time() == (6.0 if ends else 7.0)
    [event] = events
    assert isinstance(event, CallAbandoned)
    assert str(event).startswith("step 'score': its resource 'http' does not close; given up")
    assert job.metrics().left_behind == 1
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@virtual_time
async def test_a_close_is_not_interrupted_by_a_cancellation() -> None:
    closed: list[float] = []
    loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def opening() -> AsyncGenerator[str]:
        yield "http"
        await asyncio.sleep(2)
        closed.append(loop.time())

    flow = af.Flow("calls")
    called = flow.source(ScriptedSource[int](1, HOUR), name="in").map_async(
        Story().call, name="score", using=Resource(opening)
    )
    called.to(CollectSink[str](), name="out")

    running = asyncio.ensure_future(flow.run(options=af.Options(clock=VirtualClock())))
    await asyncio.sleep(10)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0.5)
    await asyncio.sleep(5)

    assert running.cancelled()
    assert closed == [12.0]


@virtual_time
async def test_one_whose_background_task_fails_fails_the_job() -> None:
    async def refreshing() -> None:
        await asyncio.sleep(5)
        raise Broken("no more tokens")

    @asynccontextmanager
    async def opening() -> AsyncGenerator[str]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(refreshing())
            yield "http"
            task.cancel()

    flow = af.Flow("calls")
    called = flow.source(ScriptedSource[int](1, HOUR), name="in").map_async(
        Story().call, name="score", using=Resource(opening, name="http")
    )
    called.to(CollectSink[str](), name="out")
    loop = asyncio.get_running_loop()

    with (
        no_leftovers("the job"),
        pytest.raises(
            af.OperatorError, match="'score' lost its resource 'http' while it was in use: Broken"
        ) as caught,
    ):
        await flow.run(options=af.Options(clock=VirtualClock()))

    assert loop.time() == 5.0
    assert not hasattr(caught.value, "__notes__")
