"""The work of one subtask for a checkpoint.

The order: emit the barrier, capture the state of the operators (that is the pause). Then, while records are processed,
collect rows that captures only refer to, wait for the records in flight and for what sinks prepare, encode everything
in a worker thread, store it, acknowledge. Nothing needs to be prepared before the barrier: operators hold no output
back.

State that cannot be encoded (its type was not declared) fails the job, since it would fail every later checkpoint; a
failure of the storage fails the checkpoint.

While an operator has unfinished work (``runtime/pieces.py``), its state is not captured: whatever the checkpoint needs
from the task is postponed, in order.

Parts are stored one after the other, in the order of their captures, since changes count from the preceding capture. A
checkpoint that is aborted meanwhile is stored nevertheless: the changes of the next one count from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import anyio.to_thread

from aflow.connect import Position
from aflow.errors import CheckpointError, message_of
from aflow.machines.barriers.events import AbortReason
from aflow.machines.mail_order import Lane
from aflow.model.batch import Batch
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp
from aflow.operators.base import Operator
from aflow.operators.sink import Pending, SinkOperator
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.checkpointed_input import InFlight
from aflow.runtime.checkpoints.inflight import ElementOrigin, InFlightCodec, records_of
from aflow.runtime.checkpoints.reader_notices import ReaderNotices
from aflow.runtime.checkpoints.sections import committables, source_progress
from aflow.runtime.checkpoints.statistics import SubtaskCheckpoint
from aflow.runtime.checkpoints.storable_check import Progressing
from aflow.runtime.checkpoints.storage import CheckpointStorage
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.edges import OutEdge
from aflow.runtime.loop_budget import DEFAULT_BUDGET, WorkerActivity
from aflow.runtime.pieces import ChainPieces
from aflow.runtime.task_environment import TaskId
from aflow.runtime.timer_service import TimerService
from aflow.state.manifest import Link
from aflow.state.snapshot import Captured, OperatorSnapshot, Ready

#: Captures that may wait for slow storage. With more of them, those of aborted checkpoints are dropped, although the
#: next one must be complete then.
_BACKLOG: Final = 4

#: Milliseconds for which a mark that overtakes waits for the writer of a sink before it bypasses it.
_WRITER_PATIENCE: Final = 1000

#: Pieces of a capture that are collected in one pass of the loop, whatever the clock shows: a virtual one stands still.
_PIECES: Final = 8

#: Milliseconds in a second.
_MS: Final = 1000.0


class PositionedSource(Progressing, Protocol):
    """The progress of a source, and its positions for notices."""

    @property
    def read_positions(self) -> Mapping[str, Position | None]:
        """By split, also of those that have ended: the position after the last record that operators processed."""
        ...

    def emit_progress(self, checkpoint: int) -> None:
        """Emit the marker that precedes the barrier of ``checkpoint``."""
        ...


class Coordinating(Protocol):
    """The coordinator, as subtasks use it."""

    @property
    def storage(self) -> CheckpointStorage: ...

    @property
    def threads(self) -> WorkerActivity: ...

    @property
    def notices(self) -> ReaderNotices: ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` in the job's task group."""
        ...

    async def may_store(self) -> None:
        """Wait while the storage is being swept."""
        ...

    def acknowledged(
        self,
        task: TaskId,
        checkpoint: int,
        chains: Mapping[str, tuple[Link, ...]],
        done: SubtaskCheckpoint,
    ) -> None:
        """Report that the subtask's part is stored; ``chains`` are the parts of each of its steps that it needs."""
        ...

    def declined(self, task: TaskId, checkpoint: int, reason: str) -> None:
        """Report that the subtask cannot take part."""
        ...


@dataclass(slots=True)
class _PendingCapture:
    """A checkpoint between its capture and its stored part."""

    barrier: Barrier
    start_delay: float
    captured: dict[str, Captured]
    #: ``losses`` of the chains at the capture.
    losses: int
    sync_ms: float = 0.0
    alignment: float = 0.0
    #: Set when the preceding capture is stored or lost, since changes build on it; and when this one is.
    before: asyncio.Event = field(default_factory=asyncio.Event)
    stored: asyncio.Event = field(default_factory=asyncio.Event)
    #: Records that barriers have overtaken, by channel; resolved when they are complete, empty for aligned ones.
    in_flight: asyncio.Future[InFlight] = field(default_factory=asyncio.Future[InFlight])
    #: The committables of each sink when it was prepared, and the batches that it writes after that.
    sinks: dict[str, asyncio.Future[Pending]] = field(
        default_factory=dict[str, asyncio.Future[Pending]]
    )
    waiting: dict[str, list[Batch[Any]]] = field(default_factory=dict[str, list[Batch[Any]]])
    #: True once its marks in the sinks have overtaken the batches that wait there.
    overtook: bool = False
    #: True if its barriers did not all arrive: records in flight are missing, and only later changes need it.
    given_up: bool = False
    #: True once the coordinator has aborted it before it was stored.
    unwanted: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """A part that is stored durably."""

    bytes: int
    complete: bool
    chains: Mapping[str, tuple[Link, ...]]
    in_flight_records: int
    in_flight_bytes: int


class SubtaskCheckpointer:
    """Takes the checkpoints of one subtask, in its coroutine."""

    def __init__(
        self,
        task: TaskId,
        coordinator: Coordinating,
        chains: SubtaskChains,
        codec: InFlightCodec,
        clock: RuntimeClock,
        timers: TimerService,
        *,
        operators: Sequence[Operator],
        edges: Sequence[OutEdge],
        pieces: ChainPieces,
        source: PositionedSource | None = None,
        origins: Sequence[ElementOrigin] = (),
    ) -> None:
        """``source`` is the input if it is a source; ``origins`` are those of its channels otherwise."""
        self.task = task
        self.chains = chains
        self._coordinator = coordinator
        self._codec = codec
        self._clock = clock
        self._operators = operators
        self._edges = edges
        self._when_finished = pieces.when_finished
        self._source = source
        self._origins = origins
        #: Checkpoints that wait for records in flight.
        self._open: dict[int, _PendingCapture] = {}
        #: Checkpoints that wait until the preceding ones are stored.
        self._waiting: dict[int, _PendingCapture] = {}
        #: By checkpoint, with the time (epoch ms) at which its marks overtake the batches that wait in the sinks, or
        #: bypass their writers.
        self._overtaking: dict[int, tuple[Timestamp, _PendingCapture]] = {}
        self._overtaking_timer = timers.timer(self._on_overtaking_due, Lane.CONTROL)
        #: Set when the part of the latest capture is stored or lost.
        self._latest_stored = asyncio.Event()
        self._latest_stored.set()

    def begin(self, barrier: Barrier, posted_at: float) -> None:
        """Take a checkpoint that the coordinator has triggered at ``posted_at`` (s, steady); only of a source."""
        begin = partial(self._begin, barrier, posted_at)
        self._when_finished(begin, urgent=_may_overtake(barrier))

    def take(self, barrier: Barrier, start_delay: float) -> None:
        """Take a checkpoint now, or when the unfinished work of operators is done.

        For an unaligned one, ``all_arrived`` passes the records in flight.
        """
        take = partial(self._take, barrier, start_delay)
        self._when_finished(take, urgent=_may_overtake(barrier))

    def all_arrived(self, checkpoint: int, alignment: int, in_flight: InFlight) -> None:
        """Complete the capture: all barriers have arrived, ``alignment`` ms after the first."""
        self._when_finished(partial(self._all_arrived, checkpoint, alignment, in_flight))

    def abandoned(self, checkpoint: int, reason: AbortReason) -> None:
        """Decline: the barriers will not all arrive. Readers need not wait, and the capture is stored for later
        changes."""
        self._when_finished(partial(self._abandoned, checkpoint, reason))

    def completed(self, checkpoint: int) -> None:
        """Let sinks commit: the checkpoint can be restored."""
        for operator in self._operators:
            if isinstance(operator, SinkOperator):
                operator.commit_up_to(checkpoint)

    def aborted(self, checkpoint: int) -> None:
        """Handle the abort of a checkpoint. A source emits it to readers that may wait for barriers."""
        self._when_finished(partial(self._aborted, checkpoint))

    def _begin(self, barrier: Barrier, posted_at: float) -> None:
        self._take(barrier, (self._clock.steady() - posted_at) * _MS)
        self._all_arrived(barrier.id, 0, {})

    def _take(self, barrier: Barrier, start_delay: float) -> None:
        began = self._clock.steady()
        if self._source is not None and self._coordinator.notices.need_progress:
            self._source.emit_progress(barrier.id)
        for edge in self._edges:
            edge.barrier(barrier)
        capture = _PendingCapture(barrier, start_delay, {}, self.chains.losses)
        self._capture(capture)
        capture.sync_ms = (self._clock.steady() - began) * _MS
        capture.before, self._latest_stored = self._latest_stored, capture.stored
        self._open[barrier.id] = self._waiting[barrier.id] = capture
        if capture.sinks:
            self._plan_overtaking(capture)
        self._coordinator.spawn(self._store(capture), f"checkpoint {barrier.id} of {self.task}")

    def _all_arrived(self, checkpoint: int, alignment: int, in_flight: InFlight) -> None:
        capture = self._open.pop(checkpoint, None)
        if capture is not None:
            capture.alignment = alignment
            capture.in_flight.set_result(in_flight)

    def _abandoned(self, checkpoint: int, reason: AbortReason) -> None:
        if checkpoint in self._open:
            self._open[checkpoint].given_up = True
        self._all_arrived(checkpoint, 0, {})
        self._decline(checkpoint, reason.value)

    def _aborted(self, checkpoint: int) -> None:
        if checkpoint in self._waiting:
            self._waiting[checkpoint].unwanted = True
        self._all_arrived(checkpoint, 0, {})
        if self._source is not None:
            self._cancel(checkpoint)

    def _decline(self, checkpoint: int, reason: str) -> None:
        self._cancel(checkpoint)
        self._coordinator.declined(self.task, checkpoint, reason)

    def _cancel(self, checkpoint: int) -> None:
        for edge in self._edges:
            edge.cancel_barrier(checkpoint)

    def _capture(self, capture: _PendingCapture) -> None:
        """Capture the state: the pause of the records. Raises ``CheckpointError``."""
        captured = capture.captured
        if self._source is not None:
            self._coordinator.notices.captured(
                capture.barrier.id, self.task.step, self._source.read_positions
            )
            progress = source_progress(self.task.step, self._source.progress(), self.task.subtask)
            captured[self.task.step] = Ready(progress)
        for operator in self._operators:
            if isinstance(operator, SinkOperator):
                self._mark(operator, capture)
                continue
            one = operator.checkpoint(changes=self.chains.changes_do(operator.name))
            if one is not None:
                captured[operator.name] = one

    def _mark(self, sink: SinkOperator, capture: _PendingCapture) -> None:
        prepared: asyncio.Future[Pending] = asyncio.get_running_loop().create_future()

        def done(pending: Pending) -> None:
            if not prepared.done():
                prepared.set_result(pending)

        capture.sinks[sink.name] = prepared
        capture.waiting[sink.name] = sink.mark(
            capture.barrier.id, done, overtaking=capture.barrier.unaligned
        )

    def _plan_overtaking(self, capture: _PendingCapture) -> None:
        """Plan when the marks of a checkpoint overtake, or, after they have, when they bypass the writers."""
        barrier = capture.barrier
        if barrier.unaligned:
            capture.overtook = True
            at = self._clock.now() + _WRITER_PATIENCE
        elif barrier.timeout is not None:
            at = barrier.created_at + barrier.timeout
        else:
            return
        self._overtaking[barrier.id] = at, capture
        self._set_overtaking_timer()

    def _set_overtaking_timer(self) -> None:
        self._overtaking_timer.set(min((at for at, _ in self._overtaking.values()), default=None))

    def _on_overtaking_due(self, now: Timestamp) -> None:
        """Let marks in the sinks overtake the batches that wait there, and later bypass the writers."""
        for checkpoint in [one for one, (at, _) in self._overtaking.items() if at <= now]:
            _, capture = self._overtaking[checkpoint]
            for operator in self._operators:
                if not isinstance(operator, SinkOperator) or capture.sinks[operator.name].done():
                    continue
                if not capture.overtook:
                    capture.waiting[operator.name] += operator.overtake(checkpoint)
                elif (before := operator.bypass(checkpoint)) is not None:
                    capture.waiting[operator.name] = before + capture.waiting[operator.name]
            capture.overtook = True
            if all(one.done() for one in capture.sinks.values()):
                del self._overtaking[checkpoint]
            else:
                self._overtaking[checkpoint] = now + _WRITER_PATIENCE, capture
        self._set_overtaking_timer()

    async def _store(self, capture: _PendingCapture) -> None:
        """Store the part of a checkpoint after the preceding ones, and acknowledge it, or decline."""
        captured = self._clock.steady()
        await self._gather(capture)
        await capture.before.wait()
        try:
            written = await self._written(capture)
        finally:
            capture.stored.set()
        if written is None or capture.given_up:
            return
        overtaken = written.in_flight_records + sum(
            len(batch) for batches in capture.waiting.values() for batch in batches
        )
        done = SubtaskCheckpoint(
            task=str(self.task),
            unaligned=capture.barrier.unaligned,
            start_delay_ms=capture.start_delay,
            alignment_ms=capture.alignment,
            sync_ms=capture.sync_ms,
            async_ms=(self._clock.steady() - captured) * _MS,
            bytes=written.bytes,
            in_flight_records=overtaken,
            in_flight_bytes=written.in_flight_bytes,
            complete=written.complete,
        )
        self._coordinator.acknowledged(self.task, capture.barrier.id, written.chains, done)

    async def _gather(self, capture: _PendingCapture) -> None:
        """Collect the rows of large captures, in pieces. Raises ``CheckpointError`` for one that cannot be encoded."""
        steady = self._clock.steady
        until = steady() + DEFAULT_BUDGET
        for one in capture.captured.values():
            for number, _ in enumerate(one.gather(), 1):
                if number % _PIECES == 0 or steady() >= until:
                    await asyncio.sleep(0)
                    until = steady() + DEFAULT_BUDGET

    async def _written(self, capture: _PendingCapture) -> _Written | None:
        """Complete the capture and store the part; return None if it cannot be stored or is not wanted any more."""
        checkpoint = capture.barrier.id
        del self._waiting[checkpoint]
        if capture.unwanted and len(self._waiting) >= _BACKLOG:
            self._record_loss(capture)
            return None
        in_flight = await capture.in_flight
        pending = {name: await one for name, one in capture.sinks.items()}
        if self._overtaking.pop(checkpoint, None) is not None:
            self._set_overtaking_timer()
        with self._coordinator.threads.working():
            return await self._write(capture, in_flight, pending)

    async def _write(
        self, capture: _PendingCapture, in_flight: InFlight, pending: Mapping[str, Pending]
    ) -> _Written | None:
        checkpoint = capture.barrier.id
        encode = partial(self._encoded, capture, in_flight, pending)
        snapshots, in_flight_bytes = await anyio.to_thread.run_sync(encode)
        complete = all(one.complete for one in snapshots.values())
        try:
            if not complete and capture.losses != self.chains.losses:
                raise CheckpointError("the base of its changes could not be stored")
            await self._coordinator.may_store()
            file = await self._coordinator.storage.write_part(
                checkpoint, self.task.step, self.task.subtask, snapshots
            )
        except Exception as exc:
            self._record_loss(capture)
            self._decline(checkpoint, message_of(exc))
            return None
        self.chains.stored(file, snapshots)
        chains = self.chains.now(snapshots)
        return _Written(file.size, complete, chains, records_of(in_flight), in_flight_bytes)

    def _record_loss(self, capture: _PendingCapture) -> None:
        """Record a lost capture: later changes have no base."""
        if capture.losses == self.chains.losses:
            self.chains.lost()

    def _encoded(
        self, capture: _PendingCapture, in_flight: InFlight, pending: Mapping[str, Pending]
    ) -> tuple[dict[str, OperatorSnapshot], int]:
        """Encode everything, and count the bytes of records in flight; in a worker thread."""
        snapshots = {name: one.encoded() for name, one in capture.captured.items()}
        bytes_in_flight = 0
        for name, prepared in pending.items():
            waiting = self._codec.waiting(name, self.task.subtask, capture.waiting[name])
            bytes_in_flight += sum(map(len, waiting))
            snapshots[name] = committables(name, prepared, waiting)
        if in_flight:
            parts = self._codec.channels(self.task.step, in_flight, self._origins)
            bytes_in_flight += sum(map(len, parts))
            snapshots[self.task.step] = self._codec.added(
                snapshots.get(self.task.step, OperatorSnapshot()), parts
            )
        return snapshots, bytes_in_flight


def _may_overtake(barrier: Barrier) -> bool:
    """Return True if the barrier must not wait for slow readers."""
    return barrier.unaligned or barrier.timeout is not None
