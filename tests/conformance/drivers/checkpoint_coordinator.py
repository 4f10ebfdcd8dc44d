"""checkpoint_coordinator.json: which request is next, which checkpoints are kept, and the coordinator as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from aflow.machines.checkpoints.coordinator import Coordinator
from aflow.machines.checkpoints.events import (
    Acknowledged,
    AlarmFired,
    CancelAlarm,
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
    Requested,
    SetAlarm,
    Started,
    Stopped,
    StoreCheckpoint,
    Stored,
    TriggerTasks,
)
from aflow.machines.checkpoints.kept import CompletedCheckpoints
from aflow.machines.checkpoints.requests import DuringPause, Load, RequestDecider, WantedCheckpoint
from aflow.model.elements import CheckpointKind
from tests.conformance.driver import Driver, Outcome
from tests.conformance.scenarios import UnknownWord

_UNLIMITED: Final = 1_000_000
_SINCE_COMPLETION: Final[Mapping[str, int]] = {"long ago": 1_000_000, "just now": 0}


class Decider(Driver):
    """``triggering`` (the coordinator is busy with another checkpoint) is our "the tasks do not run yet"."""

    def __init__(
        self,
        *,
        max_queued: int | str,
        max_concurrent: int,
        min_pause_ms: int,
        last_completion: str,
        pending: int,
        cleaning: int,
        triggering: bool,
    ) -> None:
        limit = _UNLIMITED if isinstance(max_queued, str) else max_queued
        self._decider = RequestDecider(max_concurrent, min_pause_ms, max_queued=limit)
        self._decider.ended(0)
        self._now = _SINCE_COMPLETION[last_completion]
        self._pending = pending
        self._cleaning = cleaning
        self._triggering = triggering
        self._names: list[tuple[WantedCheckpoint, str]] = []
        self._failed: list[dict[str, str]] = []

    def do_request(
        self, name: str, type: str, *, periodic: bool, forced: bool | None = None
    ) -> Outcome:
        # Savepoints of aflow do not wait. A requested periodic checkpoint corresponds to one of Flink that is not
        # forced: it waits, and is not scheduled.
        savepoint = type == "savepoint" and forced is True
        kind = CheckpointKind.SAVEPOINT if savepoint else CheckpointKind.PERIODIC
        wanted = WantedCheckpoint(kind, None if periodic else len(self._names))
        self._names.append((wanted, name))
        if (gone := self._decider.add(wanted)) is not None:
            self._fail(gone, "too_many_checkpoint_requests")
        return self.do_choose_queued()

    def do_choose_queued(self) -> Outcome:
        load = Load(not self._triggering, self._pending, self._cleaning)
        choice = self._decider.choose(self._now, load)
        if isinstance(choice, DuringPause):
            self._fail(choice.dropped, "minimum_time_between_checkpoints")
            choice = None
        return {"executes": None if choice is None else self._name(choice)}

    def do_set(
        self, *, pending: int | None = None, cleaning: int | None = None, triggering: bool = False
    ) -> None:
        self._pending = self._pending if pending is None else pending
        self._cleaning = self._cleaning if cleaning is None else cleaning
        self._triggering = triggering

    def see_failed(self) -> list[dict[str, str]]:
        return self._failed

    def see_failed_count(self) -> int:
        return len(self._failed)

    def see_reason(self) -> str:
        return self._failed[-1]["reason"]

    def see_still_queued(self) -> list[str]:
        return [self._name(wanted) for wanted in self._decider.queued]

    def _fail(self, wanted: WantedCheckpoint, reason: str) -> None:
        self._failed.append({"name": self._name(wanted), "reason": reason})

    def _name(self, wanted: WantedCheckpoint) -> str:
        return next(name for each, name in self._names if each is wanted)


class Completed(Driver):
    """The retained checkpoints."""

    def __init__(self, *, max_retained: int) -> None:
        self._completed = CompletedCheckpoints(max_retained)
        self._discarded: list[int] = []

    def do_add(self, checkpoint: int) -> None:
        self._discarded += self._completed.add(checkpoint)

    def see_retained(self) -> list[int]:
        return list(self._completed.ids)

    def see_all(self) -> list[int]:
        return list(self._completed.ids)

    def see_count(self) -> int:
        return len(self._completed.ids)

    def see_latest(self) -> int | None:
        return max(self._completed.ids, default=None)

    def see_discarded(self) -> list[int]:
        return self._discarded


class Failures(Driver):
    """The failures that a job tolerates, in a coordinator without schedule.

    A checkpoint that a failover aborts is no failure: its coordinator ends. Here such a checkpoint is left pending.
    """

    def __init__(self, *, tolerable_failures: int) -> None:
        settings = CoordinatorSettings(
            every=None,
            timeout=_UNLIMITED,
            max_concurrent=_UNLIMITED,
            tolerable_failures=tolerable_failures,
        )
        self._coordinator = Coordinator(["a"], settings)
        self._now = 0
        self._last = 0
        self._failures = 0
        self._tell(Started())

    def do_failure(self, checkpoint: int, reason: str) -> None:
        self._trigger(checkpoint)
        match reason:
            case "declined":
                self._tell(Declined("a", checkpoint, reason))
            case "exception":
                self._tell(Acknowledged("a", checkpoint))
                self._tell(NotStored(checkpoint, reason))
            case "expired":
                self._now += _UNLIMITED
                self._tell(AlarmFired())
            case "failover":
                pass
            case _:
                raise UnknownWord(f"a checkpoint fails for {reason!r}")

    def do_success(self, checkpoint: int) -> None:
        self._trigger(checkpoint)
        self._tell(Acknowledged("a", checkpoint))
        self._tell(Stored(checkpoint))

    def see_job_failures(self) -> int:
        return self._failures

    def _trigger(self, checkpoint: int) -> None:
        """Trigger ``checkpoint``, unless it was; it gets the next id, as the scenarios count from 1 on."""
        while self._last < checkpoint:
            self._last += 1
            self._tell(Requested(self._last, CheckpointKind.PERIODIC))

    def _tell(self, event: Event) -> None:
        told = self._coordinator.handle(event, self._now)
        self._failures += sum(isinstance(each, FailJob) for each in told)


class WholeCoordinator(Driver):
    """The coordinator with a clock, an alarm, and a storage that is ready at once.

    ``scheduler``, and the presence of ``interval_ms``, say whether checkpoints are scheduled. To stop scheduling is to
    stop the job, and to begin again is the coordinator of its next attempt.
    """

    def __init__(
        self,
        *,
        ack_tasks: Sequence[str] = (),
        tasks: Sequence[str] | Mapping[str, str] = (),
        commit_tasks: Sequence[str] = (),
        retain: int = 1,
        timeout_ms: int = 600_000,
        interval_ms: int | None = None,
        min_pause_ms: int = 0,
        max_concurrent: int | str = _UNLIMITED,
        scheduler: str | None = None,
    ) -> None:
        if scheduler not in (None, "started", "not started"):
            raise UnknownWord(f"scheduler {scheduler!r}")
        states = set(tasks.values()) if isinstance(tasks, Mapping) else set[str]()
        if states - {"not running"}:
            raise UnknownWord(f"tasks that are {states}")
        self._tasks = list(ack_tasks or tasks or ["a"])
        self._commit_tasks = commit_tasks
        self._settings = CoordinatorSettings(
            every=interval_ms
            if scheduler is None
            else _UNLIMITED
            if scheduler == "started"
            else None,
            min_pause=min_pause_ms,
            timeout=timeout_ms,
            max_concurrent=max_concurrent if isinstance(max_concurrent, int) else _UNLIMITED,
            keep=retain,
        )
        self._now = 0
        self._alarm: int | None = None
        self._requests = 0
        self._completed: list[int] = []
        self._aborted: dict[int, str] = {}
        self._refused: dict[int, str] = {}
        self._triggered: list[TriggerTasks] = []
        self._names: dict[int, str] = {}
        self._since = 0
        self._coordinator = Coordinator(self._tasks, self._settings)
        #: Time of the last acknowledgement.
        self._acknowledged_at = 0
        #: The tasks that acknowledged, by checkpoint.
        self._acknowledged: dict[int, set[str]] = {}
        if interval_ms is None and not states:
            self._tell(Started())

    def do_start_periodic(self, _: bool) -> None:
        self._since = len(self._triggered)
        first = len(self._triggered) + 1
        self._coordinator = Coordinator(self._tasks, self._settings, first_id=first)
        self._tell(Started())

    def do_stop_periodic(self, _: bool) -> None:
        self._since = len(self._triggered)
        self._tell(Stopped("stopped"))

    def do_shutdown(self, _: bool) -> None:
        self._tell(Stopped("coordinator_shutdown"))

    def do_advance_clock_ms(self, by: int) -> None:
        until = self._now + by
        while self._alarm is not None and self._alarm <= until:
            self._now, self._alarm = max(self._now, self._alarm), None
            self._tell(AlarmFired())
        self._now = until

    def do_trigger(
        self, *, ts: int | None = None, periodic: bool = False, name: str | None = None
    ) -> Outcome:
        before = len(self._triggered)
        if ts is not None:
            self.do_advance_clock_ms(ts - self._now)
        if periodic:
            # Only the clock triggers these.
            self.do_advance_clock_ms(0)
        else:
            self._requests += 1
            self._tell(Requested(self._requests, CheckpointKind.PERIODIC))
        begun = self._triggered[before:]
        if name is not None:
            self._names.update({each.checkpoint: name for each in begun})
        why = "periodic_scheduler_shutdown" if periodic else self._refused.get(self._requests, "?")
        return {"accepted": bool(begun), "fails": None if begun else why}

    def do_await_trigger(self, count: int) -> None:
        """Advance the time until a number of checkpoints is triggered."""
        while len(self._triggered) < count:
            assert self._alarm is not None, "no checkpoint is scheduled"
            self.do_advance_clock_ms(max(0, self._alarm - self._now))

    def do_ack(self, task: str, checkpoint: int) -> None:
        self._acknowledged_at = self._now
        self._acknowledged.setdefault(checkpoint, set()).add(task)
        self._tell(Acknowledged(task, checkpoint))

    def see_triggered_tasks(self) -> list[str]:
        """The instruction is for all tasks."""
        return self._tasks if self._triggered else []

    def see_acked(self) -> int:
        (number,) = self._coordinator.pending
        return len(self._acknowledged.get(number, ()))

    def see_not_acked(self) -> int:
        return len(self._tasks) - self.see_acked()

    def see_fully_acked(self) -> bool:
        return self.see_not_acked() == 0

    def see_discarded(self) -> bool:
        return bool(self._aborted)

    def see_time_between_ack_and_next_trigger_ms(self) -> int:
        return self._triggered[-1].created_at - self._acknowledged_at

    def see_pending(self) -> int:
        return len(self._coordinator.pending)

    def see_completed(self, expected: list[int] | int) -> list[int] | int:
        return len(self._completed) if isinstance(expected, int) else self._completed

    def see_discarded_pending(self) -> list[int]:
        return list(self._aborted)

    def see_notified_complete(self, expected: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return the notified tasks: ``commit_tasks`` if the scenario names any, else all."""
        listening = list(self._commit_tasks or self._tasks)
        told = {str(number): listening for number in self._completed}
        return {number: told.get(number, []) for number in expected or told}

    def see_failed(self) -> dict[str, str]:
        return {self._names[number]: reason for number, reason in self._aborted.items()}

    def see_triggered_count(self) -> int:
        return len(self._triggered)

    def see_triggered_since_stop(self) -> int:
        return len(self._triggered) - self._since

    def see_triggered_since_start(self) -> int:
        return len(self._triggered) - self._since

    def see_ids(self) -> str:
        ids = [each.checkpoint for each in self._triggered]
        return "strictly increasing" if ids == sorted(set(ids)) else f"{ids}"

    def see_timestamps(self) -> str:
        times = [each.created_at for each in self._triggered]
        return "not decreasing" if times == sorted(times) else f"{times}"

    def _tell(self, event: Event) -> None:
        todo = deque(self._coordinator.handle(event, self._now))
        while todo:
            instruction = todo.popleft()
            self._follow(instruction)
            if isinstance(instruction, StoreCheckpoint):
                todo += self._coordinator.handle(Stored(instruction.checkpoint), self._now)

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case TriggerTasks():
                self._triggered.append(instruction)
            case NotifyComplete(number):
                self._completed.append(number)
            case Discard(number):
                self._completed.remove(number)
            case NotifyAborted(number, reason):
                self._aborted[number] = reason
            case Refuse(request, reason):
                self._refused[request] = reason
            case SetAlarm(at):
                self._alarm = at
            case CancelAlarm():
                self._alarm = None
            case _:
                pass
