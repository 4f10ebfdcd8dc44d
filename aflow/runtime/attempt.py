"""One attempt to run a job: everything is opened, runs in one task group, and is closed again.

A job without restarts is one attempt. With them, each starts anew from the last completed checkpoint: only storage and
sinks keep anything of the preceding one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Final

from aflow.errors import CheckpointError, InternalError
from aflow.graph.plan import Plan
from aflow.machines.mail_order import Lane
from aflow.model.elements import CheckpointKind
from aflow.runtime.calls.reports import Reports
from aflow.runtime.calls.resources import OpenResources
from aflow.runtime.cancellation import JobTaskGroup
from aflow.runtime.checkpoints.coordinator import CheckpointCoordinator
from aflow.runtime.checkpoints.inflight import InFlightCodec
from aflow.runtime.checkpoints.reader_notices import ReaderNotices
from aflow.runtime.checkpoints.restoration import Restoration
from aflow.runtime.checkpoints.settings import Checkpointing, Unaligned
from aflow.runtime.checkpoints.statistics import CheckpointInfo
from aflow.runtime.checkpoints.storage import CheckpointStorage, Restored, watch_claim
from aflow.runtime.failures import closing, closing_async
from aflow.runtime.job_builder import Built, Checkpointed, JobBuilder
from aflow.runtime.limited_budget import loop_budget
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.options import Options
from aflow.runtime.sink_writers import open_writers, recover_sinks
from aflow.runtime.task import StreamTask

#: Attempts to take the last checkpoint, which commits the output of the sinks, before the job fails; fewer if
#: ``tolerable_failures`` is exceeded.
_FINAL_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpointing of one attempt, and the checkpoint that it continues from."""

    settings: Checkpointing
    storage: CheckpointStorage
    restored: Restored | None
    own: bool
    """True if ``restored`` is in ``storage``."""
    allow_dropped_state: bool
    """True if stored state without a place in the pipeline may be dropped."""
    draw: float
    """Random number from 0 to 1: the time of the first checkpoint in the interval."""
    on_ended: Callable[[CheckpointInfo], None]
    """Called with the outcome of each checkpoint."""


class JobAttempt:
    """Runs the tasks of a plan until they have processed everything or one of them fails."""

    def __init__(
        self, plan: Plan, options: Options, reports: Reports, checkpoints: Checkpoints | None = None
    ) -> None:
        self._plan = plan
        self._reports = reports
        self._options = options
        self._checkpoints = checkpoints
        self.built = Built()
        self.coordinator: CheckpointCoordinator | None = None
        #: The argument ``drain`` of a ``stop`` that preceded the tasks; None without one.
        self._stop_early: bool | None = None
        #: The folder of a savepoint that the last checkpoint is also written to.
        self.last_savepoint: str | None = None
        #: True once resources and writers are being closed, which cannot be cancelled.
        self.closing = False

    def stop(self, *, drain: bool) -> None:
        """Stop the sources; the tasks process the records in flight."""
        if not self.built.tasks:
            self._stop_early = drain
        self._mail_all(lambda task: partial(task.stop, drain=drain))

    def begin_closing(self) -> None:
        """Nothing runs any more: what follows cannot be cancelled."""
        self.closing = True

    async def run(self, on_started: Callable[[], None]) -> None:
        """Run to the end. ``on_started`` is called once the tasks run."""
        closers: list[Callable[[], Awaitable[None]]] = []
        resources = OpenResources(self._plan, self._reports)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(resources.open())
            await stack.enter_async_context(closing_async(closers))
            stack.callback(self.begin_closing)
            await self._build(stack, closers, resources)
            await self._run_tasks(on_started, resources)

    async def _build(
        self,
        stack: AsyncExitStack,
        closers: list[Callable[[], Awaitable[None]]],
        resources: OpenResources,
    ) -> None:
        """Build the tasks, at the restored checkpoint. Afterwards nothing refers to the content of that."""
        checkpointed = await self._coordinate(stack, closers)
        writers = await open_writers(self._plan, closers, checkpoints=checkpointed is not None)
        builder = JobBuilder(
            self._plan,
            self._options,
            checkpointed,
            loop_budget=self._loop_budget(),
            resources=resources,
            reports=self._reports,
        )
        self.built = await builder.build(writers)
        stack.enter_context(closing(task.abandon for task in self.built.tasks))
        stack.callback(self._close_timers)
        if checkpointed is not None:
            await self._copy_state(checkpointed)
        if self._checkpoints is not None:
            self._checkpoints = replace(self._checkpoints, restored=None)

    def _loop_budget(self) -> LoopBudget:
        threads = None if self.coordinator is None else self.coordinator.threads
        return loop_budget(self._options, asyncio.get_running_loop(), threads)

    async def _coordinate(
        self, stack: AsyncExitStack, closers: list[Callable[[], Awaitable[None]]]
    ) -> Checkpointed | None:
        """Create the coordinator, and let the sinks recover from the restored checkpoint."""
        using = self._checkpoints
        if using is None:
            return None
        barriers = using.settings.barriers
        codec = InFlightCodec.of(pickle=isinstance(barriers, Unaligned) and barriers.pickle)
        restoration = None
        if using.restored is not None:
            restoration = Restoration.of(
                self._plan,
                using.restored,
                codec,
                own=using.own,
                allow_dropped_state=using.allow_dropped_state,
            )
        restored = using.restored.manifest.id if using.restored is not None and using.own else None
        self.coordinator = CheckpointCoordinator(
            self._plan,
            using.settings,
            using.storage,
            self._options.clock,
            first_id=await self._first_id(using),
            completed=await using.storage.kept(),
            restored=restored,
            draw=using.draw,
            notices=ReaderNotices(restored, closers),
            on_ended=using.on_ended,
        )
        stack.callback(self.coordinator.close, "the job is not running any more")
        await recover_sinks(self._plan, restoration)
        return Checkpointed(using.settings, self.coordinator, codec, restoration)

    async def _copy_state(self, checkpointed: Checkpointed) -> None:
        """Copy restored state into the storage of this job, so that its checkpoints need only add changes."""
        restoration, using = checkpointed.restoration, self._checkpoints
        if restoration is None or using is None or not using.settings.incremental:
            return
        number = restoration.restored.manifest.id
        for task in self.built.tasks:
            names = [operator.name for operator in task.chain.operators]
            state = restoration.to_copy(task.chains.groups, names)
            if state:
                file = await using.storage.write_part(number, task.id.step, task.id.subtask, state)
                task.chains.stored(file, state)

    async def _first_id(self, using: Checkpoints) -> int:
        """Return a number above all that exist and above the restored one: sinks identify their output by it."""
        before = 0 if using.restored is None else using.restored.manifest.id
        return max(await using.storage.next_id(), before + 1)

    async def _run_tasks(self, on_started: Callable[[], None], resources: OpenResources) -> None:
        async with JobTaskGroup() as group:
            beside = [
                group.create_task(one.keep_discovering()) for one in self.built.sources.values()
            ]
            beside.append(group.create_task(resources.watch()))
            tasks = [
                group.create_task(task.run(), name=f"{task.name}[{task.id.subtask}]")
                for task in self.built.tasks
            ]
            if self.coordinator is not None:
                self.coordinator.start(group, self.built.tasks)
                beside.append(group.create_task(watch_claim(self.coordinator.storage)))
            if self._stop_early is not None:
                self.stop(drain=self._stop_early)
            on_started()
            if self.coordinator is not None:
                drained = group.create_task(self._all_drained())
                await asyncio.wait([drained, *tasks], return_when=asyncio.FIRST_COMPLETED)
                _check_ended(task for task in tasks if task.done())
                await self._take_last_checkpoint(self.coordinator)
            await asyncio.wait(tasks)
            _check_ended(tasks)
            if self.coordinator is not None:
                await self.coordinator.finish()
            group.end()
            for one in beside:
                one.cancel()

    async def _all_drained(self) -> None:
        for task in self.built.tasks:
            await task.drained.wait()

    async def _take_last_checkpoint(self, coordinator: CheckpointCoordinator) -> None:
        """Take the checkpoint that commits everything processed, and let the tasks end."""
        for tries in count(1):
            try:
                await coordinator.request(CheckpointKind.FINAL, self.last_savepoint)
                break
            except CheckpointError as exc:
                if tries == _FINAL_TRIES or coordinator.failing:
                    times = f" {tries} times" if tries > 1 else ""
                    raise CheckpointError(
                        f"everything is processed, but the last checkpoint, which commits it, failed{times}: {exc}"
                    ) from exc
        self._mail_all(lambda task: task.finish)

    def _mail_all(self, mail: Callable[[StreamTask], Callable[[], None]]) -> None:
        for task in self.built.tasks:
            if task.loop.mailbox.order.is_open:
                task.loop.mailbox.post(mail(task), Lane.CONTROL)

    def _close_timers(self) -> None:
        for task in self.built.tasks:
            task.timers.close()


def _check_ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Raise ``InternalError`` if a task was cancelled, which must not count as the end of its input."""
    for task in tasks:
        if task.cancelled():
            raise InternalError(f"subtask {task.get_name()} was cancelled, and not by its job")
