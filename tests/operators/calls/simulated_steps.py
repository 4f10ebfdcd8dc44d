"""Async steps and the service that they call, simulated in one virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.rate import SharedBuckets
from aflow.model.batch import Batch
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.calls.harness import CallHarness

Answer = Callable[[Any], tuple[float, object]]
"""Return the duration of the call for a value (ms), and its result; an exception is raised."""


def at_once(value: object) -> tuple[float, object]:
    return 0.0, value


@dataclass(frozen=True)
class Began:
    """A call."""

    at: float
    """Its time (ms)."""
    step: str
    value: Any


@dataclass
class World:
    """The clock, what steps share, and all calls that were begun."""

    #: ms since the beginning; whole microseconds.
    at: float = 0.0
    buckets: SharedBuckets = field(default_factory=SharedBuckets)
    steps: list[SimulatedStep] = field(default_factory=list["SimulatedStep"])
    begun: list[Began] = field(default_factory=list[Began])

    def step(
        self,
        name: str = "step",
        answer: Answer = at_once,
        *,
        restored: OperatorSnapshot | None = None,
        **options: Any,
    ) -> SimulatedStep:
        made = SimulatedStep(self, name, answer, restored=restored, **options)
        self.steps.append(made)
        return made

    def until(self, at: float) -> None:
        """Let all happen that happens until then."""
        while (following := self.following()) is not None and following <= at:
            self.at = max(self.at, following)
            for step in self.steps:
                step.run_due()
        self.at = max(self.at, at)

    def following(self) -> float | None:
        """Return the time of the next event (ms)."""
        moments = [step.following() for step in self.steps]
        return min((moment for moment in moments if moment is not None), default=None)

    def values(self, step: str = "step") -> list[Any]:
        """Of the calls that a step has begun."""
        return [began.value for began in self.begun if began.step == step]

    def times(self, step: str | None = None) -> list[float]:
        return [began.at for began in self.begun if step in (None, began.step)]


class SimulatedStep(CallHarness):
    """One step, whose calls end by themselves."""

    def __init__(self, world: World, name: str, answer: Answer, **options: Any) -> None:
        self.world, self.answer = world, answer
        #: The end (ms) of each running call.
        self.ends: dict[Call, float] = {}
        self._results: dict[Call, object] = {}
        #: The most calls that were running at once.
        self.most = 0
        super().__init__(name=name, buckets=world.buckets, now=int(world.at), **options)

    def block(self) -> None:
        self.step.held = True

    def unblock(self) -> None:
        self._step(self.step.resume)

    def lose(self) -> None:
        """The step is lost, and the results of its calls."""
        self.world.steps.remove(self)

    def stop(self) -> None:
        """The job stops."""
        self._step(self.step.on_stop)

    def run_due(self) -> None:
        """Let the calls end and the alarm fire that are due."""
        self._time.at = int(self.world.at)
        for call in [one for one, end in self.ends.items() if end <= self.world.at]:
            if call in self.ends:
                self._end_due(call)
        self._fire_until(self._time.at)

    def following(self) -> float | None:
        moments: list[float] = list(self.ends.values())
        if self._time.alarm is not None:
            moments.append(self._time.alarm)
        return min(moments, default=None)

    def emitted(self) -> list[Any]:
        """Return all emitted values."""
        batches = [item for item in self.recorder.emitted if isinstance(item, Batch)]
        return [value for batch in batches for value in batch.values]

    def _step(self, act: Callable[[], None]) -> None:
        self._time.at = int(self.world.at)
        super()._step(act)

    def _steady(self) -> float:
        return self.world.at / 1000

    def _on_call_started(self, call: Call) -> None:
        self.world.begun.append(Began(self.world.at, self._context.name, call.value))
        takes, self._results[call] = self.answer(call.value)
        self.ends[call] = round(self.world.at + takes, 3)
        self.most = max(self.most, len(self.ends))

    def _end_due(self, call: Call) -> None:
        del self.ends[call]
        result = self._results.pop(call)
        if isinstance(result, BaseException):
            self.end(call, lambda call: self.step.raised(call, result))
        else:
            self.end(call, lambda call: self.step.returned(call, result))

    def _cancel(self, call: Call) -> None:
        del self.ends[call], self._results[call]
        super()._cancel(call)
