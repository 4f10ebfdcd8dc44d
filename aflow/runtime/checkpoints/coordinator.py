"""The shell around the checkpoint coordinator: triggers tasks, stores manifests, answers requests.

Everything here runs on the event loop of the job. Instructions are executed at once, except for those that wait for
storage: tasks of the job's group execute them, one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from aflow.errors import CheckpointError, JobStopped, MailboxClosed, RestoreError, message_of
from aflow.graph.plan import Plan
from aflow.machines.checkpoints import events
from aflow.machines.checkpoints.coordinator import Coordinator
from aflow.machines.checkpoints.kept import Generations
from aflow.machines.mail_order import Lane
from aflow.model.distribution import VERSION
from aflow.model.elements import Barrier, CheckpointKind
from aflow.model.time import Timestamp, to_millis
from aflow.runtime import log_events
from aflow.runtime.checkpoints.reader_notices import ReaderNotices
from aflow.runtime.checkpoints.settings import Checkpointing, Unaligned
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome, SubtaskCheckpoint
from aflow.runtime.checkpoints.storage import CheckpointStorage, is_permanent
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.loop_budget import WorkerActivity
from aflow.runtime.task import StreamTask
from aflow.runtime.task_environment import TaskId
from aflow.runtime.timer_service import LoopTimer
from aflow.state.manifest import Link, Manifest, StepState, SubtaskState

_ANY_NUMBER: Final = 2**31


@dataclass(slots=True)
class _PendingCheckpoint:
    """A pending checkpoint."""

    info: CheckpointInfo
    #: By task and step: the parts that the checkpoint needs.
    chains: dict[TaskId, Mapping[str, tuple[Link, ...]]] = field(
        default_factory=dict[TaskId, Mapping[str, tuple[Link, ...]]]
    )
    done: list[SubtaskCheckpoint] = field(default_factory=list[SubtaskCheckpoint])
    #: The path of the savepoint that was requested.
    path: str | None = None


class CheckpointCoordinator:
    """Coordinates the checkpoints of one attempt to run a job."""

    def __init__(
        self,
        plan: Plan,
        settings: Checkpointing,
        storage: CheckpointStorage,
        clock: RuntimeClock,
        *,
        first_id: int,
        completed: Sequence[int],
        restored: int | None,
        draw: float,
        notices: ReaderNotices,
        on_ended: Callable[[CheckpointInfo], None],
    ) -> None:
        """``restored`` is the checkpoint in ``storage`` that the attempt continues from; None if there is none.

        ``draw``, from 0 to 1, is the part of the interval that passes before the first periodic checkpoint.
        ``on_ended`` is called with the outcome of each checkpoint.
        """
        self.storage = storage
        self.threads = WorkerActivity()
        self.notices = notices
        self._plan = plan
        self._settings = settings
        self._clock = clock
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._machine = Coordinator(
            _names_of_tasks(plan),
            _machine_settings(settings, draw),
            first_id=first_id,
            completed=completed,
            restored=restored,
        )
        #: The group of the running tasks; None before ``start``.
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[TaskId, StreamTask] = {}
        self._timer = LoopTimer(self._loop, clock, self._on_timer)
        self._generations = Generations(None)
        self._collected: dict[int, _PendingCheckpoint] = {}
        self._requests: dict[int, asyncio.Future[CheckpointInfo]] = {}
        self._paths: dict[int, str] = {}
        self._next_request = 1
        #: The last completed checkpoint, which requests are answered with.
        self._completed: CheckpointInfo | None = None
        self._work: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()
        #: Set while no sweep is under way.
        self._no_sweep = asyncio.Event()
        self._no_sweep.set()
        #: Checkpoints that are still to be removed.
        self._removals = 0
        self._events: deque[events.Event] = deque()
        #: Requests made before the tasks ran.
        self._early: list[events.Event] = []
        #: The reason why no checkpoint can be taken any more; None while one can.
        self._over: str | None = None
        #: True once the tasks have ended: pending checkpoints are no failures then.
        self._closing = False
        #: True once more checkpoints have failed than is tolerable: the job fails, and none is taken any more.
        self.failing = False

    # -------------------------------------------------------------------------------------------- life cycle

    def start(self, group: asyncio.TaskGroup, tasks: Sequence[StreamTask]) -> None:
        """Start to take checkpoints of ``tasks``; effects that wait run in ``group``."""
        self._group = group
        self._tasks = {task.id: task for task in tasks}
        restored = (
            link.file.path
            for task in tasks
            for chain in task.chains.chains.values()
            for link in chain.links
        )
        self._generations = Generations(self._settings.independent_every, restored)
        self.notices.start(group)
        self._worker = group.create_task(self._run_work(), name="checkpoint storage")
        self._feed(events.Started())
        for early in self._early:
            self._feed(early)

    async def finish(self) -> None:
        """Take no further checkpoint, and complete the work that waits for storage."""
        self._closing = True
        self._feed(events.Stopped("the job has ended"))
        await self._work.join()
        await self.notices.finish()
        self._worker.cancel()

    def close(self, reason: str) -> None:
        """End: the tasks do not run any more. Harmless after ``finish``, and if it was not started."""
        self._closing = True
        self._over = reason
        if self._group is not None:
            self._feed(events.Stopped(reason))
        self._timer.cancel()
        for request in self._requests.values():
            if not request.done():
                request.set_exception(JobStopped(reason))
                request.exception()  # retrieved here, since the requester may have stopped waiting
        self._requests.clear()
        while not self._work.empty():
            self._work.get_nowait().close()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` in the job's task group."""
        assert self._group is not None
        self._group.create_task(work, name=name)

    @property
    def pending(self) -> list[CheckpointInfo]:
        """Checkpoints that have neither completed nor failed."""
        return [one.info for one in self._collected.values()]

    # ---------------------------------------------------------------------------------------------- requests

    async def request(self, kind: CheckpointKind, path: str | None = None) -> CheckpointInfo:
        """Take a checkpoint now, and wait until it can be restored.

        Raises ``CheckpointError`` if it fails, and ``JobStopped`` if the job ends first.
        """
        if self._over is not None:
            raise JobStopped(self._over)
        number = self._next_request
        self._next_request += 1
        answer: asyncio.Future[CheckpointInfo] = self._loop.create_future()
        self._requests[number] = answer
        if path is not None:
            self._paths[number] = path
        self._feed(events.Requested(number, kind))
        return await answer

    # ----------------------------------------------------------------------------------- events of the tasks

    async def may_store(self) -> None:
        """Wait while the storage is being swept."""
        await self._no_sweep.wait()

    def acknowledged(
        self,
        task: TaskId,
        checkpoint: int,
        chains: Mapping[str, tuple[Link, ...]],
        done: SubtaskCheckpoint,
    ) -> None:
        """Handle the acknowledgement of a subtask, whose part is stored."""
        collected = self._collected.get(checkpoint)
        if collected is not None:
            collected.chains[task] = chains
            collected.done.append(done)
        self._feed(events.Acknowledged(str(task), checkpoint))

    def declined(self, task: TaskId, checkpoint: int, reason: str) -> None:
        """Handle the decline of a subtask."""
        self._feed(events.Declined(str(task), checkpoint, reason))

    # ------------------------------------------------------------------------------------------ instructions

    def _feed(self, event: events.Event) -> None:
        """Report an event to the machine; events that its instructions cause are reported afterwards."""
        if self._group is None:
            self._early.append(event)
            return
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            try:
                for one in self._machine.handle(self._events[0], self._clock.now()):
                    self._execute(one)
            finally:
                self._events.popleft()

    def _execute(self, instruction: events.Instruction) -> None:
        match instruction:
            case events.TriggerTasks(checkpoint, kind, created_at):
                self._trigger(checkpoint, kind, created_at)
            case events.StoreCheckpoint(checkpoint, _):
                self._work.put_nowait(self._store(checkpoint))
            case events.NotifyComplete(checkpoint):
                self._complete(checkpoint)
            case events.NotifyAborted(checkpoint, reason):
                self._aborted(checkpoint, reason)
            case events.Discard(checkpoint):
                self._work.put_nowait(self._discard(checkpoint))
                self._removals_changed(1)
            case events.Answer(request, checkpoint):
                answer = self._requests.pop(request)
                assert self._completed is not None
                assert self._completed.id == checkpoint
                if not answer.done():  # the requester has stopped waiting
                    answer.set_result(self._completed)
            case events.Refuse(request, reason):
                self._refuse(request, reason)
            case events.FailJob(reason):
                self.failing = True
                self.spawn(_raise(CheckpointError(reason)), "too many failed checkpoints")
            case events.SetAlarm(at):
                self._timer.set(at)
            case events.CancelAlarm():
                self._timer.cancel()

    def _trigger(self, checkpoint: int, kind: CheckpointKind, created_at: Timestamp) -> None:
        collected = self._collected[checkpoint] = _PendingCheckpoint(
            CheckpointInfo(
                id=checkpoint,
                kind=kind,
                outcome=Outcome.PENDING,
                triggered_at=created_at,
                duration_ms=None,
            )
        )
        if kind is not CheckpointKind.PERIODIC and self._paths:
            # Requests of one kind are answered in their order.
            collected.path = self._paths.pop(min(self._paths))
        barrier = self._barrier(checkpoint, kind, created_at)
        for task in self._tasks.values():
            if task.is_source:
                self._mail(task, partial(task.begin_checkpoint, barrier, self._clock.steady()))

    def _barrier(self, checkpoint: int, kind: CheckpointKind, created_at: Timestamp) -> Barrier:
        barriers = self._settings.barriers
        if kind is not CheckpointKind.PERIODIC:
            return Barrier(checkpoint, created_at, kind)
        if isinstance(barriers, Unaligned):
            return Barrier(checkpoint, created_at, kind, unaligned=True)
        if barriers.timeout is not None:
            timeout = to_millis(barriers.timeout, what="timeout")
            return Barrier(checkpoint, created_at, kind, timeout)
        return Barrier(checkpoint, created_at, kind)

    def _mail(self, task: StreamTask, mail: Callable[[], None]) -> None:
        with suppress(MailboxClosed):  # the task has failed, and the job with it
            task.loop.mailbox.post(mail, Lane.CONTROL)

    async def _store(self, checkpoint: int) -> None:
        collected = self._collected.get(checkpoint)
        if collected is None:  # it was aborted while it waited
            self._feed(events.NotStored(checkpoint, "it was given up"))
            return
        manifest = self._manifest(checkpoint, collected)
        try:
            if collected.info.kind is not CheckpointKind.SAVEPOINT:
                await self.storage.complete(manifest)
            if collected.path is not None:
                await self.storage.export(manifest, collected.path)
        except Exception as exc:
            self._feed(events.NotStored(checkpoint, message_of(exc)))
            if is_permanent(exc):
                self.spawn(_raise(exc), "the storage was taken over")
        else:
            savepoint = manifest.kind is CheckpointKind.SAVEPOINT
            files = [ref.path for ref in manifest.files]
            independent = not savepoint and self._generations.completed(files)
            self._feed(events.Stored(checkpoint, independent))

    def _manifest(self, checkpoint: int, collected: _PendingCheckpoint) -> Manifest:
        steps = [
            StepState(
                node.name,
                node.what,
                task.parallelism,
                tuple(
                    SubtaskState(subtask, chains[node.name])
                    for subtask in range(task.parallelism)
                    if node.name in (chains := collected.chains[TaskId(task.head.name, subtask)])
                ),
            )
            for task in self._plan.tasks
            for node in task.nodes
        ]
        return Manifest(
            id=checkpoint,
            kind=collected.info.kind,
            flow=self._plan.flow,
            key_groups=self._plan.key_groups,
            created_at=collected.info.triggered_at,
            completed_at=self._clock.now(),
            steps=tuple(steps),
            aflow=VERSION,
        )

    async def _discard(self, checkpoint: int) -> None:
        try:
            await self.storage.discard(checkpoint)
        except Exception as exc:
            log_events.CHECKPOINT_NOT_REMOVED.log(
                "checkpoint %d could not be removed: %s",
                checkpoint,
                error := message_of(exc),
                job=self._plan.flow,
                checkpoint=checkpoint,
                error=error,
            )
        self._removals_changed(-1)

    def _removals_changed(self, by: int) -> None:
        self._removals += by
        self._feed(events.RemovalsCounted(self._removals))

    def _complete(self, checkpoint: int) -> None:
        collected = self._collected.pop(checkpoint)
        info = self._completed = replace(
            collected.info,
            outcome=Outcome.COMPLETED,
            duration_ms=float(self._clock.now() - collected.info.triggered_at),
            subtasks=tuple(collected.done),
            path=collected.path or "",
        )
        self._on_ended(info)
        if info.kind is not CheckpointKind.SAVEPOINT:
            # A savepoint commits nothing: after a failure the job continues from the preceding checkpoint.
            for task in self._tasks.values():
                self._mail(task, partial(task.checkpoint_completed, checkpoint))
            self.notices.completed(checkpoint, self._machine.completed[0])
        self._work.put_nowait(self._compact_and_sweep(checkpoint))

    def _aborted(self, checkpoint: int, reason: str) -> None:
        collected = self._collected.pop(checkpoint)
        outcome = Outcome.SUBSUMED if reason == "subsumed" else Outcome.FAILED
        self._on_ended(
            replace(
                collected.info,
                outcome=Outcome.STOPPED if self._closing else outcome,
                reason=reason,
                subtasks=tuple(collected.done),
            )
        )
        for task in self._tasks.values():
            self._mail(task, partial(task.checkpoint_aborted, checkpoint))
        if not self._closing:
            self._work.put_nowait(self._discard_aborted(checkpoint))

    async def _discard_aborted(self, checkpoint: int) -> None:
        """Tell the storage that the checkpoint will not be completed."""
        with suppress(Exception):  # a later sweep removes the rest
            await self.storage.discard(checkpoint)

    def _refuse(self, request: int, reason: str) -> None:
        self._paths.pop(request, None)
        answer = self._requests.pop(request)
        if not answer.done():
            answer.set_exception((JobStopped if self._closing else CheckpointError)(reason))

    # --------------------------------------------------------------------------------------------- compaction

    async def _compact_and_sweep(self, checkpoint: int) -> None:
        """Compact long chains, and remove parts that no checkpoint needs, unless parts are being written.

        If the next checkpoint is to be independent, all chains are compacted, those of one part too.
        """
        all_of_them = self._generations.is_due and self._settings.incremental
        replaced = True
        for task in self._tasks.values():
            for step, chain in list(task.chains.chains.items()):
                if chain.long or all_of_them:
                    replaced &= await self._compact(checkpoint, task, step, chain.links)
        if all_of_them and replaced:
            self._generations.replaced()
        if self._collected:
            return
        self._no_sweep.clear()
        try:
            live = {
                link.file
                for task in self._tasks.values()
                for chain in task.chains.chains.values()
                for link in chain.links
            }
            await self.storage.sweep(live)
        except Exception as exc:
            log_events.PARTS_NOT_REMOVED.log(
                "parts that no checkpoint needs could not be removed: %s",
                error := message_of(exc),
                job=self._plan.flow,
                error=error,
            )
        finally:
            self._no_sweep.set()

    async def _compact(
        self, checkpoint: int, task: StreamTask, step: str, former: Sequence[Link]
    ) -> bool:
        """Return True if the chain consists of new parts now. If it cannot be read, the next one is complete."""
        try:
            file = await self.storage.compact(
                checkpoint, task.id.step, task.id.subtask, step, former
            )
        except Exception as exc:
            log_events.PARTS_NOT_COMPACTED.log(
                "the parts of step %r could not be compacted: %s",
                step,
                error := message_of(exc),
                job=self._plan.flow,
                step=step,
                error=error,
            )
            is_damaged = isinstance(exc.__cause__, RestoreError)
            if is_damaged:
                task.chains.lost()
            return is_damaged
        task.chains.compacted(step, former, file)
        return True

    async def _run_work(self) -> None:
        """Do the work that waits for storage, one piece after the other, until cancelled."""
        while True:
            work = await self._work.get()
            try:
                with self.threads.working():
                    await work
            finally:
                self._work.task_done()

    def _on_timer(self, now: Timestamp) -> None:
        self._feed(events.AlarmFired())


def _names_of_tasks(plan: Plan) -> list[str]:
    return [
        str(TaskId(task.head.name, subtask))
        for task in plan.tasks
        for subtask in range(task.parallelism)
    ]


def _machine_settings(settings: Checkpointing, draw: float) -> events.CoordinatorSettings:
    every = None if settings.every is None else to_millis(settings.every, what="every")
    min_pause = to_millis(settings.min_pause, what="min_pause")
    tolerable = settings.tolerable_failures
    return events.CoordinatorSettings(
        every=every,
        first_delay=events.first_delay(every or 0, min_pause, draw),
        min_pause=min_pause,
        timeout=to_millis(settings.timeout, what="timeout"),
        max_concurrent=settings.max_concurrent,
        tolerable_failures=_ANY_NUMBER if tolerable is None else tolerable,
        keep=settings.keep,
    )


async def _raise(error: Exception) -> None:
    raise error
