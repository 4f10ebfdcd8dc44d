"""timers.json: two queues, and an alarm on the processing-time one."""

from __future__ import annotations

import re
from typing import Final

from aflow.machines.timers import Alarm, Arm, Disarm, Timer, TimerQueue
from tests.conformance.running import Driver
from tests.conformance.scenarios import UnknownWord

_REGISTERS: Final = re.compile(r"at (\d+) registers \((\w+), (\d+)\)")


class Timers(Driver):
    """The timers of an operator in both domains, and the clock service they are armed with."""

    def __init__(
        self, *, key: int | None = None, keys: list[int] | None = None, callback: str = ""
    ) -> None:
        self._keys = [key] if key is not None else keys
        self._queues: dict[str, TimerQueue[int, str]] = {
            "event": TimerQueue(),
            "processing": TimerQueue(),
        }
        self._alarm = Alarm()
        self._physical: list[int] = []
        self._fired: list[Timer[int, str]] = []
        self._visited: list[Timer[int, str]] = []
        self._callback = dict(_registration(clause) for clause in callback.split("; ") if clause)

    def do_register_timer(self, domain: str, key: int, namespace: str, ts: int) -> None:
        assert self._keys is None or key in self._keys
        self._queues[domain].register(ts, key, namespace)
        self._arm()

    def do_delete_timer(self, domain: str, key: int, namespace: str, ts: int) -> None:
        self._queues[domain].delete(ts, key, namespace)
        self._arm()

    def do_watermark(self, ts: int) -> None:
        self._fired.extend(self._queues["event"].due(ts))

    def do_advance_processing_time(self, now: int) -> None:
        while self._physical and self._physical[0] <= now:
            self._physical.clear()
            self._alarm.rang()
            for timer in self._queues["processing"].due(now):
                self._fire(timer)
            self._arm()

    def do_for_each_timer(self, domain: str) -> None:
        self._visited.extend(self._queues[domain].entries())

    def see_timers(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def see_timers_of_namespace(self, expected: dict[str, int]) -> dict[str, int]:
        return {
            name: sum(queue.count(name) for queue in self._queues.values()) for name in expected
        }

    def see_physical_timers(self) -> list[int]:
        return self._physical

    def see_fired(self) -> list[dict[str, object]]:
        return [{"key": t.key, "namespace": t.namespace, "ts": t.time} for t in self._fired]

    def see_visited(self) -> list[dict[str, object]]:
        return [
            {"current_key": t.key, "namespace": t.namespace, "ts": t.time} for t in self._visited
        ]

    def _fire(self, timer: Timer[int, str]) -> None:
        self._fired.append(timer)
        if timer.time in self._callback:
            namespace, ts = self._callback[timer.time]
            self.do_register_timer("processing", timer.key, namespace, ts)

    def _arm(self) -> None:
        match self._alarm.update(self._queues["processing"].earliest):
            case Arm(at):
                self._physical[:] = [at]
            case Disarm():
                self._physical.clear()
            case None:
                pass


def _registration(clause: str) -> tuple[int, tuple[str, int]]:
    found = _REGISTERS.fullmatch(clause)
    if found is None:
        raise UnknownWord(f"what does a callback that {clause!r} do?")
    return int(found[1]), (found[2], int(found[3]))
