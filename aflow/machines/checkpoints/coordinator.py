"""The checkpoint coordinator: it triggers checkpoints and completes or aborts them.

Theory. A checkpoint is *wanted* (a request, or the clock), *pending* from ``TriggerTasks`` on, and ends once: complete
or aborted. While pending it first collects the acknowledgements of all tasks; then it is being *stored*, until
``Stored`` makes it complete.

    wanted ──TriggerTasks──> collecting ──StoreCheckpoint──> storing ──Stored──> complete
                                 └───────────────────┴──> aborted: declined, expired, not stored, subsumed, stopped

- ``requests`` decides which one begins. The clock wants a periodic checkpoint every ``every`` ms. If that must wait for
  a pending one it begins as soon as that has ended, and the next ones keep the original schedule; at most one waits. A
  checkpoint due within the pause is delayed to its end, and the schedule with it.
- A checkpoint that completes subsumes older periodic ones that are pending. Savepoints and the final checkpoint have a
  requester, and continue.
- Declined, expired and not stored are failures; too many in a row fail the job. Subsumed and stopped are not.
- ``kept`` decides which complete checkpoints are superfluous.
- A savepoint belongs to its requester, who is answered. The job is not restored from it: it subsumes no checkpoint,
  makes none superfluous, is no failure of the job, and does not end a row of failures.
- The timeout ends with ``Stored``. A checkpoint that is aborted while it is being stored may still be stored
  afterwards: ``Stored`` is then answered by ``Discard``.
- Each request is answered: with its checkpoint, with the one that subsumed it, or with the reason for a refusal.
- When the job is stopped or fails, all pending checkpoints are aborted. From then on the coordinator only refuses
  requests. A job that is restarted gets a new coordinator.

Only ``AlarmFired`` advances time: other events find nothing due and nothing expired, so a task's last acknowledgement
wins over a deadline that has passed before the alarm went off.

After Flink's ``CheckpointCoordinator``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from aflow.errors import InternalError
from aflow.machines.alarm import EarliestAlarm
from aflow.machines.checkpoints.events import (
    Acknowledged,
    AlarmFired,
    Answer,
    CoordinatorSettings,
    Declined,
    Discard,
    Event,
    FailJob,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    NotStored,
    Refuse,
    RemovalsCounted,
    Requested,
    Started,
    Stopped,
    StoreCheckpoint,
    Stored,
    TriggerTasks,
)
from aflow.machines.checkpoints.kept import CompletedCheckpoints
from aflow.machines.checkpoints.requests import DuringPause, Load, RequestDecider, WantedCheckpoint
from aflow.model.elements import CheckpointKind
from aflow.model.time import Timestamp, short

#: Number of events shown when an invariant is broken.
_REMEMBERED: Final = 20

#: Maximum of tasks named in a reason.
_NAMED: Final = 3


class Coordinator:
    """The coordinator of one attempt to run a job, made of ``tasks``.

    Checkpoints are numbered from ``first_id`` on; ``completed`` are those of earlier attempts in storage, without
    savepoints, and ``restored`` is the one of them that this attempt continues from. Raises ``InternalError`` without
    tasks, and for numbers that are taken.
    """

    def __init__(
        self,
        tasks: Collection[str],
        settings: CoordinatorSettings,
        *,
        first_id: int = 1,
        completed: Sequence[int] = (),
        restored: int | None = None,
    ) -> None:
        if not tasks:
            raise InternalError("a coordinator needs at least one task")
        if completed and first_id <= max(completed):
            raise InternalError(
                f"checkpoints begin at {first_id}, but {max(completed)} exists already"
            )
        self._tasks = frozenset(tasks)
        self._settings = settings
        self._next_id = first_id
        self._decider = RequestDecider(settings.max_concurrent, settings.min_pause)
        self._failures = FailureCounter(settings.tolerable_failures)
        self._completed = CompletedCheckpoints(settings.keep, completed, restored=restored)
        #: Pending checkpoints by id, ascending: a dict keeps the order in which they began.
        self._pending: dict[int, PendingCheckpoint] = {}
        #: Checkpoints that were aborted while being stored, and are not reported as stored or not yet.
        self._abandoned: set[int] = set()
        self._running = False
        #: Reason for which the coordinator has stopped; None while it has not.
        self._over: str | None = None
        #: True once the sources have ended: no checkpoint is scheduled any more.
        self._final = False
        self._removals = 0
        #: Time at which the clock last wanted a checkpoint, or will next.
        self._scheduled_at: Timestamp = 0
        #: Time at which the clock wants the next one; None: never, or one is queued already.
        self._due: Timestamp | None = None
        self._alarm = EarliestAlarm()
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)

    @property
    def pending(self) -> tuple[int, ...]:
        """Pending checkpoints, in the order of their ids."""
        return tuple(self._pending)

    @property
    def completed(self) -> tuple[int, ...]:
        """Completed checkpoints that are kept, oldest first, without savepoints."""
        return self._completed.ids

    def handle(self, event: Event, now: Timestamp) -> list[Instruction]:
        """Return the instructions, in order. Raises ``InternalError`` for an impossible event."""
        self._recent.append(event)
        if self._over is not None:
            return _refuse(event, self._over)
        done = self._on(event, now)
        if self._over is None:
            done += self._begin(now)
        return done + self._change_alarm()

    def _on(self, event: Event, now: Timestamp) -> list[Instruction]:
        match event:
            case Started():
                return self._start(now)
            case AlarmFired():
                return self._on_alarm(now)
            case Requested(request, kind):
                return self._request(WantedCheckpoint(kind, request), now)
            case Acknowledged(task, number):
                return self._acknowledge(task, number)
            case Declined(task, number, reason):
                return self._decline(task, number, reason, now)
            case Stored(number, independent):
                return self._stored(number, now, independent=independent)
            case NotStored(number, reason):
                return self._not_stored(number, reason, now)
            case RemovalsCounted(under_way):
                self._removals = under_way
                return []
            case Stopped(reason):
                return self._end(reason)

    # ------------------------------------------------------------------------------------------------ beginning

    def _start(self, now: Timestamp) -> list[Instruction]:
        if self._running:
            raise self._bug("the tasks were started twice")
        self._running = True
        if self._settings.every is not None and not self._final:
            self._scheduled_at = self._due = now + self._settings.first_delay
        return []

    def _on_alarm(self, now: Timestamp) -> list[Instruction]:
        self._alarm.on_fired()
        done: list[Instruction] = []
        for each in list(self._pending.values()):
            if self._over is None and each.deadline <= now:
                after = short(self._settings.timeout)
                done += self._fail(each, f"expired after {after} {each.waiting_for()}", now)
        if self._over is None and self._due is not None and self._due <= now:
            self._due = None
            done += self._want(WantedCheckpoint(CheckpointKind.PERIODIC), now)
        return done

    def _request(self, wanted: WantedCheckpoint, now: Timestamp) -> list[Instruction]:
        if wanted.kind is CheckpointKind.FINAL:
            self._final = True
            self._due = None
            self._decider.drop_scheduled()
        return self._want(wanted, now)

    def _want(self, wanted: WantedCheckpoint, now: Timestamp) -> list[Instruction]:
        gone = self._decider.add(wanted)
        if gone is None:
            return []
        if gone.request is not None:
            return [Refuse(gone.request, "too many requests for checkpoints are waiting")]
        self._schedule_next(now)
        return []

    def _begin(self, now: Timestamp) -> list[Instruction]:
        done: list[Instruction] = []
        while (choice := self._decider.choose(now, self._load())) is not None:
            if isinstance(choice, DuringPause):
                self._scheduled_at = self._due = choice.until
            else:
                done.append(self._trigger(choice, now))
        return done

    def _load(self) -> Load:
        return Load(self._running, len(self._pending), self._removals)

    def _trigger(self, wanted: WantedCheckpoint, now: Timestamp) -> TriggerTasks:
        number = self._next_id
        self._next_id += 1
        deadline = now + self._settings.timeout
        self._pending[number] = PendingCheckpoint(number, wanted, self._tasks, deadline)
        if wanted.scheduled:
            self._schedule_next(now)
        return TriggerTasks(number, wanted.kind, now)

    def _schedule_next(self, now: Timestamp) -> None:
        """Schedule the next periodic checkpoint after ``now``, on the original schedule; missed ones are skipped."""
        if self._settings.every is not None:
            missed = (now - self._scheduled_at) // self._settings.every
            self._scheduled_at = self._due = (
                self._scheduled_at + (missed + 1) * self._settings.every
            )

    # ----------------------------------------------------------------------------------------------- collecting

    def _acknowledge(self, task: str, number: int) -> list[Instruction]:
        each = self._collecting(task, number)
        return (
            [StoreCheckpoint(number, each.kind)]
            if each is not None and each.acknowledge(task)
            else []
        )

    def _decline(self, task: str, number: int, reason: str, now: Timestamp) -> list[Instruction]:
        each = self._collecting(task, number)
        return [] if each is None else self._fail(each, f"declined by {task}: {reason}", now)

    def _collecting(self, task: str, number: int) -> PendingCheckpoint | None:
        """Return the checkpoint that a task reports; None if the report is late."""
        if task not in self._tasks:
            raise self._bug(f"{task!r} is no task of this job, and reported checkpoint {number}")
        if number >= self._next_id:
            raise self._bug(f"{task!r} reported checkpoint {number}, which has not begun")
        each = self._pending.get(number)
        return None if each is None or each.storing else each

    # ---------------------------------------------------------------------------------------------------- ending

    def _stored(self, number: int, now: Timestamp, *, independent: bool) -> list[Instruction]:
        if number in self._abandoned:
            self._abandoned.remove(number)
            return [Discard(number)]
        each = self._storing(number)
        del self._pending[number]
        self._decider.ended(now)
        done: list[Instruction] = [NotifyComplete(number)]
        if each.kind is not CheckpointKind.SAVEPOINT:
            self._failures.succeeded(number)
            done += self._subsume(number)
            superfluous = self._completed.add(number, independent=independent)
            done += [Discard(older) for older in superfluous]
        return done if each.wanted.request is None else [*done, Answer(each.wanted.request, number)]

    def _subsume(self, number: int) -> list[Instruction]:
        done: list[Instruction] = []
        for older in [each for each in self._pending.values() if each.id < number]:
            if older.kind is CheckpointKind.PERIODIC:
                done.append(self._abort(older, "subsumed"))
                # The newer checkpoint covers everything that the request was for.
                if older.wanted.request is not None:
                    done.append(Answer(older.wanted.request, number))
        return done

    def _not_stored(self, number: int, reason: str, now: Timestamp) -> list[Instruction]:
        if number in self._abandoned:
            self._abandoned.remove(number)
            return []
        return self._fail(self._storing(number), f"could not be stored: {reason}", now)

    def _storing(self, number: int) -> PendingCheckpoint:
        each = self._pending.get(number)
        if each is None or not each.storing:
            raise self._bug(f"checkpoint {number} was not to be stored")
        return each

    def _fail(self, each: PendingCheckpoint, reason: str, now: Timestamp) -> list[Instruction]:
        self._decider.ended(now)
        done: list[Instruction] = [self._abort(each, reason)]
        if each.wanted.request is not None:
            done.append(Refuse(each.wanted.request, _story(each, reason)))
        if each.kind is not CheckpointKind.SAVEPOINT and self._failures.failed(each.id):
            why = self._too_many(_story(each, reason))
            done += [FailJob(why), *self._end(why)]
        return done

    def _too_many(self, story: str) -> str:
        count, allowed = self._failures.count, self._settings.tolerable_failures
        in_a_row = (
            f"{count} checkpoints in a row have failed" if count > 1 else "a checkpoint has failed"
        )
        return f"{in_a_row}, and tolerable_failures is {allowed}; {story}"

    def _end(self, reason: str) -> list[Instruction]:
        self._over = reason
        self._due = None
        pending = list(self._pending.values())
        wanted = [*(each.wanted for each in pending), *self._decider.clear()]
        aborted: list[Instruction] = [self._abort(each, reason) for each in pending]
        return aborted + [
            Refuse(each.request, reason) for each in wanted if each.request is not None
        ]

    def _abort(self, each: PendingCheckpoint, reason: str) -> NotifyAborted:
        del self._pending[each.id]
        if each.storing:
            self._abandoned.add(each.id)
        return NotifyAborted(each.id, reason)

    # ------------------------------------------------------------------------------------------------ the alarm

    def _change_alarm(self) -> list[Instruction]:
        times = [each.deadline for each in self._pending.values()]
        if self._due is not None:
            times.append(self._due)
        change = self._alarm.update(min(times, default=None))
        return [] if change is None else [change]

    def _bug(self, message: str) -> InternalError:
        return InternalError(message, events=tuple(self._recent))


def _refuse(event: Event, reason: str) -> list[Instruction]:
    return [Refuse(event.request, reason)] if isinstance(event, Requested) else []


def _story(each: PendingCheckpoint, reason: str) -> str:
    return f"{each.kind.value} {each.id} failed: {reason}"


class PendingCheckpoint:
    """A checkpoint and the tasks that have not acknowledged it. Once all have, it is being *stored*."""

    __slots__ = ("_missing", "deadline", "id", "wanted")

    def __init__(
        self, number: int, wanted: WantedCheckpoint, tasks: Collection[str], deadline: Timestamp
    ) -> None:
        self.id = number
        self.wanted = wanted
        #: Time at which it fails unless it has ended.
        self.deadline = deadline
        #: Tasks that have not acknowledged.
        self._missing = set(tasks)

    @property
    def kind(self) -> CheckpointKind:
        """The kind of the checkpoint."""
        return self.wanted.kind

    @property
    def storing(self) -> bool:
        """True after the last acknowledgement."""
        return not self._missing

    def acknowledge(self, task: str) -> bool:
        """Record an acknowledgement. Return True if it was the last one missing; a repeated one never is."""
        if task not in self._missing:
            return False
        self._missing.remove(task)
        return self.storing

    def waiting_for(self) -> str:
        """Return a phrase for messages that names the missing tasks."""
        if self.storing:
            return "while it was being stored"
        named = sorted(self._missing)[:_NAMED]
        more = len(self._missing) - len(named)
        return f"without {', '.join(named)}" + (f" and {more} more" if more else "")


class FailureCounter:
    """Counts failed checkpoints until one succeeds.

    Each id must be reported once. A failure is not counted if a newer checkpoint has succeeded: the job can be restored
    from that. After Flink's ``CheckpointFailureManager``.
    """

    __slots__ = ("_succeeded", "_tolerable", "count")

    def __init__(self, tolerable: int) -> None:
        self._tolerable = tolerable
        #: The newest checkpoint that succeeded; -1 before the first.
        self._succeeded = -1
        #: Failures since that one.
        self.count = 0

    def failed(self, checkpoint: int) -> bool:
        """Count a failure. Return True if there are more than are tolerable."""
        if checkpoint < self._succeeded:
            return False
        self.count += 1
        return self.count > self._tolerable

    def succeeded(self, checkpoint: int) -> None:
        """Set the count to 0."""
        self._succeeded = max(self._succeeded, checkpoint)
        self.count = 0
