"""A pipeline that runs: one task group, and the handle by which the host follows and stops it.

The job's coroutines live in one task of their own, so a failure never cancels the host's code; the host learns of
it from ``wait``, from the end of the ``async with`` block, and from what it awaits at the job's ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from aflow.connect import Writer
from aflow.errors import FlowDefinitionError, InternalError, JobStopped
from aflow.graph.plan import Plan
from aflow.machines.mail_order import Lane
from aflow.runtime.build import Builder, Built, open_writers
from aflow.runtime.ends.result_sink import Results, ResultSink
from aflow.runtime.failures import closing_async, first_cause
from aflow.runtime.mailbox_loop import Why
from aflow.runtime.metrics import JobMetrics, StepMetrics, TaskMetrics, step_metrics
from aflow.runtime.options import Options
from aflow.runtime.task import StreamTask

T = TypeVar("T")

#: The job in whose tasks the present code runs; inherited by all tasks of the job.
_RUNNING: ContextVar[Job | None] = ContextVar("aflow_running", default=None)


class Job:
    """A running pipeline, to be used with ``async with``.

    Entering starts it, and raises what keeps it from starting. Leaving the block stops it if it still runs: with
    what is in flight processed after a normal end of the block, at once after an exception. Leaving raises the
    job's failure unless ``wait`` has already raised it; after an exception only in place of a ``JobStopped``, which is
    how the failure shows at the job's ends.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self._plan = plan
        self._options = options
        self._built = Built()
        self._running: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        #: True once the failure was raised to the host, so that it is not raised twice.
        self._told = False
        #: What ``stop`` was asked for before there were tasks to stop: to drain, or not.
        self._stop_early: bool | None = None
        self._cancelled = False
        #: True once writers are being closed, which no cancellation interrupts.
        self._closing = False

    @property
    def name(self) -> str:
        """The flow's name."""
        return self._plan.flow

    @property
    def running(self) -> bool:
        """True while records may still be processed."""
        return self._running is not None and not self._running.done()

    async def __aenter__(self) -> Job:
        if self._running is not None:
            raise FlowDefinitionError(
                f"job {self.name!r} was started already; start the flow again for another run"
            )
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(started), name=f"aflow {self.name}")
        try:
            await asyncio.wait([started, self._running], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if self._running.done():
            await self.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            told = self._told
            await self.cancel()
            if isinstance(error, JobStopped) and self._failure is not None and not told:
                raise self._failure  # what the block stumbled over is only its consequence
            return
        try:
            self._release_results()
            await self.stop()
        except asyncio.CancelledError:
            await self.cancel()
            raise

    async def wait(self) -> None:
        """Wait until the job has ended by itself or was stopped. Raises its failure, once.

        Being cancelled while waiting does not stop the job; leaving the ``async with`` block does.
        """
        running = self._started()
        await asyncio.wait([running])
        self._tell()

    async def stop(self, *, drain: bool = False) -> None:
        """Stop the sources, process everything in flight up to the sinks, and wait until that is done.

        ``drain=True`` also ends event time: all windows and event timers fire, as at the end of a bounded input.
        Without it they stay unfired. Does nothing if the job has ended. Raises its failure, once. Called from
        within the pipeline (a callback of a sink, say) it returns at once, since the job cannot end before the
        caller has.
        """
        if self._running is None:
            raise self._not_started()
        if not self._built.tasks:
            self._stop_early = drain
        self._post_stop(drain=drain)
        if _RUNNING.get() is not self:
            await self.wait()

    async def cancel(self) -> None:
        """End the job at once: what is in flight is lost; everything that was opened is closed. Raises nothing."""
        running = self._started()
        if not self._cancelled and not self._closing:
            self._cancelled = True
            running.cancel()
        while not running.done():
            await asyncio.wait([running])
        self._told = True

    def metrics(self) -> JobMetrics:
        """What the job has done so far and what it is doing; can also be asked after its end."""
        now = self._options.clock.now()
        steps: dict[str, StepMetrics] = {
            name: step_metrics(name, counters, now)
            for name, counters in self._built.counters.items()
        }
        return JobMetrics(
            steps=steps, tasks=[self._task_metrics(task) for task in self._built.tasks]
        )

    def results(self, sink: ResultSink[T]) -> Results[T]:
        """The records that arrive in ``sink``, as they come; ends with the job, raises ``JobStopped`` when it fails."""
        return aiter(sink)

    def _started(self) -> asyncio.Task[None]:
        if self._running is None:
            raise self._not_started()
        return self._running

    def _not_started(self) -> JobStopped:
        return JobStopped(
            f"job {self.name!r} was not started; use 'async with flow.start() as job:'"
        )

    def _tell(self) -> None:
        if self._failure is not None and not self._told:
            self._told = True
            raise self._failure

    def _post_stop(self, *, drain: bool) -> None:
        for task in self._built.tasks:
            if task.loop.mailbox.order.is_open:
                task.loop.mailbox.post(partial(task.stop, drain=drain), Lane.CONTROL)

    def _task_metrics(self, task: StreamTask) -> TaskMetrics:
        end = self._options.clock.steady() if task.stopped_at is None else task.stopped_at
        waited = {why: task.loop.waited_so_far(why) for why in Why}
        return TaskMetrics(
            name=task.name,
            subtask=task.subtask,
            busy_s=max(0.0, end - task.started_at - sum(waited.values())),
            idle_s=waited[Why.IDLE],
            backpressured_s=waited[Why.BACKPRESSURED],
            aligning_s=waited[Why.ALIGNING],
            queued_records=task.input.queued_records,
        )

    async def _run(self, started: asyncio.Future[None]) -> None:
        """The job's own task: remembers a failure instead of raising it, since nobody may be there to see it."""
        _RUNNING.set(self)
        try:
            await self._run_tasks(started)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            self._failure = first_cause(exc)
            if not isinstance(self._failure, Exception):
                raise  # KeyboardInterrupt and SystemExit are the program's, not the job's

    async def _run_tasks(self, started: asyncio.Future[None]) -> None:
        opened: list[Writer[Any]] = []
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(closing_async(writer.close for writer in opened))
            stack.callback(self._begin_closing)
            writers = await open_writers(self._plan, opened)
            self._built = await Builder(self._plan, self._options).build(writers)
            stack.callback(self._cancel_alarms)
            stack.push(self._tell_result_sinks)
            async with asyncio.TaskGroup() as group:
                discovering = [
                    group.create_task(one.keep_discovering())
                    for one in self._built.sources.values()
                ]
                tasks = [
                    group.create_task(task.run(), name=f"{task.name}[{task.subtask}]")
                    for task in self._built.tasks
                ]
                if self._stop_early is not None:
                    self._post_stop(drain=self._stop_early)
                if not started.done():
                    started.set_result(None)
                await asyncio.wait(tasks)
                _check_ended(tasks)
                for one in discovering:
                    one.cancel()

    def _begin_closing(self) -> None:
        self._closing = True

    def _release_results(self) -> None:
        """Whoever leaves the block takes no more results: those in flight are kept, and the job need not wait."""
        for sink in self._result_sinks():
            sink.release()

    def _result_sinks(self) -> Iterator[ResultSink[Any]]:
        for task in self._plan.tasks:
            for node in task.nodes:
                if isinstance(node.sink, ResultSink):
                    yield node.sink

    def _tell_result_sinks(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let those who iterate over results know why they end, before the writers are closed."""
        if error is None:
            return
        for sink in self._result_sinks():
            sink.fail(first_cause(error))

    def _cancel_alarms(self) -> None:
        for alarm in self._built.alarms:
            alarm.cancel()


def _check_ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Refuse to take a subtask that vanished for one that has processed all its input."""
    for task in tasks:
        if task.cancelled():
            raise InternalError(f"subtask {task.get_name()} was cancelled, and not by its job")
