"""timers.json: two queues, and an alarm on the processing-time one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from aflow.machines.alarm import CancelAlarm, EarliestAlarm, SetAlarm
from aflow.machines.timer_queue import Timer, TimerQueue
from aflow.model.time import TimeDomain
from tests.conformance.driver import Driver, call
from tests.conformance.drivers.timers_in_step import Registration, TimersInStep
from tests.conformance.scenarios import Json, UnknownWord

_REGISTERS: Final = re.compile(r"at (\d+) registers \((\w+), (\d+)\)")


_HALVES: Final = ["first half", "second half"]
_OF_HALVES: Final = {
    "1": "key of the first half of the key groups",
    "2": "key of the second half",
}


class Timers(Driver):
    """The timers of an operator in both domains, and the clock service they are armed with."""

    def __init__(
        self,
        *,
        key: int | None = None,
        keys: Sequence[int] | Mapping[str, str] | None = None,
        callback: str = "",
    ) -> None:
        if isinstance(keys, Mapping):
            if dict(keys) != _OF_HALVES:
                raise UnknownWord(f"keys {keys!r}")
            keys = [int(name) for name in keys]
        self._keys = [key] if key is not None else keys
        #: Registered timers, for a step that is snapshotted.
        self._registered: list[Registration] = []
        self._step = TimersInStep()
        self._queues: dict[str, TimerQueue[int, str]] = {
            "event": TimerQueue(),
            "processing": TimerQueue(),
        }
        self._alarm = EarliestAlarm()
        self._physical: list[int] = []
        self._fired: list[Timer[int, str]] = []
        self._visited: list[Timer[int, str]] = []
        self._callback = dict(_registration(clause) for clause in callback.split("; ") if clause)

    def do_register_timer(self, domain: str, key: int, namespace: str, ts: int) -> None:
        assert self._keys is None or key in self._keys
        self._queues[domain].register(ts, key, namespace)
        self._registered.append((domain, key, namespace, ts))
        self._arm()

    def do_delete_timer(self, domain: str, key: int, namespace: str, ts: int) -> None:
        self._queues[domain].delete(ts, key, namespace)
        self._arm()

    def do_watermark(self, ts: int) -> None:
        self._step.watermark(ts)
        self._fired.extend(self._queues["event"].due(ts))

    def do_snapshot_and_restore(self, yes: bool) -> None:
        """The timers are set in a step, and from then on are those of the step that was restored."""
        assert yes
        self._restored(1)

    def do_snapshot_and_restore_into(self, halves: Sequence[str]) -> None:
        if list(halves) != _HALVES:
            raise UnknownWord(f"halves {halves!r}")
        self._restored(len(halves))

    def do_each(self, steps: Sequence[Mapping[str, int]]) -> None:
        """Times that pass in each of the restored subtasks."""
        for step in steps:
            ((word, to),) = step.items()
            call(getattr(self, f"do_{word}"), to)

    def do_advance_processing_time(self, now: int) -> None:
        self._step.advance_processing_time(now)
        while self._physical and self._physical[0] <= now:
            self._physical.clear()
            self._alarm.on_fired()
            for timer in self._queues["processing"].due(now):
                self._fire(timer)
            self._arm()

    def do_for_each_timer(self, domain: str) -> None:
        self._visited.extend(self._queues[domain].entries())

    def see_current_processing_time(self) -> int:
        return self._step.current_processing_time

    def see_current_watermark(self) -> int:
        return self._step.current_watermark

    def see_processing_time_timers(self) -> int:
        return self._in_step().timers(TimeDomain.PROCESSING)

    def see_event_time_timers(self) -> int:
        return self._in_step().timers(TimeDomain.EVENT)

    def see_fired_processing(self) -> list[Json]:
        return self._step.fired("processing")

    def see_fired_event(self) -> list[Json]:
        return self._step.fired("event")

    def see_first_half(self) -> dict[str, list[Json]]:
        return self._of_half(0)

    def see_second_half(self) -> dict[str, list[Json]]:
        return self._of_half(1)

    def see_timers(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def see_timers_of_namespace(self, expected: dict[str, int]) -> dict[str, int]:
        return {
            name: sum(
                timer.namespace == name
                for queue in self._queues.values()
                for timer in queue.entries()
            )
            for name in expected
        }

    def see_physical_timers(self) -> list[int]:
        return self._physical

    def see_fired(self) -> list[dict[str, object]]:
        return [{"key": t.key, "namespace": t.namespace, "ts": t.time} for t in self._fired]

    def see_visited(self) -> list[dict[str, object]]:
        return [
            {"current_key": t.key, "namespace": t.namespace, "ts": t.time} for t in self._visited
        ]

    def _in_step(self) -> TimersInStep:
        """The step, with the timers that were registered since it was made or restored."""
        self._step.register(self._registered)
        self._registered = []
        return self._step

    def _restored(self, parallelism: int) -> None:
        self._step = self._in_step().restored(parallelism)

    def _of_half(self, subtask: int) -> dict[str, list[Json]]:
        return {
            f"fired_{domain}": self._step.fired(domain, subtask)
            for domain in ("processing", "event")
        }

    def _fire(self, timer: Timer[int, str]) -> None:
        self._fired.append(timer)
        if timer.time in self._callback:
            namespace, ts = self._callback[timer.time]
            self.do_register_timer("processing", timer.key, namespace, ts)

    def _arm(self) -> None:
        match self._alarm.update(self._queues["processing"].earliest):
            case SetAlarm(at):
                self._physical[:] = [at]
            case CancelAlarm():
                self._physical.clear()
            case None:
                pass


def _registration(clause: str) -> tuple[int, tuple[str, int]]:
    found = _REGISTERS.fullmatch(clause)
    if found is None:
        raise UnknownWord(f"what does a callback that {clause!r} do?")
    return int(found[1]), (found[2], int(found[3]))
