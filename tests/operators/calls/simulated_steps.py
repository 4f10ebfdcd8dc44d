"""Asynchronous steps and the service that they call, simulated without a loop: slots, mails, alarms, and one clock.

Slots do here what those of the runtime do: they rest until ``on_ready`` wakes as many as ``waiting`` says, ask once for
a call, and again when it has ended. So who is not woken here, is not woken there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.rate import SharedBuckets
from aflow.machines.calls.settings import CallSettings
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.operators.base import OperatorContext
from aflow.operators.calls.operator import AsyncOperator
from aflow.state.snapshot import OperatorSnapshot
from tests.operators.calls.by_hand import unused
from tests.operators.driver import RecordingOutput

Answer = Callable[[Any], tuple[float, object]]
"""Says of a value how long its call takes (ms) and what it gives; an exception is raised."""


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
    #: Callbacks to run now, in order.
    soon: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])

    def now(self) -> Timestamp:
        return int(self.at)

    def steady(self) -> float:
        return self.at / 1000

    def step(
        self,
        name: str = "step",
        answer: Answer = at_once,
        *,
        restored: OperatorSnapshot | None = None,
        **settings: Any,
    ) -> SimulatedStep:
        made = SimulatedStep(self, name, answer, CallSettings(call=unused, **settings), restored)
        self.steps.append(made)
        return made

    def until(self, at: float) -> None:
        """Let all happen that happens until then."""
        self.settle()
        while (following := self.following()) is not None and following <= at:
            self.at = max(self.at, following)
            for step in self.steps:
                step.what_is_due()
            self.settle()
        self.at = max(self.at, at)

    def following(self) -> float | None:
        """Return the time of the next event (ms)."""
        moments = [step.following() for step in self.steps]
        return min((moment for moment in moments if moment is not None), default=None)

    def settle(self) -> None:
        while self.soon:
            self.soon.popleft()()

    def values(self, step: str = "step") -> list[Any]:
        """Of the calls that a step has begun."""
        return [began.value for began in self.begun if began.step == step]

    def times(self, step: str | None = None) -> list[float]:
        return [began.at for began in self.begun if step in (None, began.step)]


class SimulatedStep:
    """One step, its alarm, and its calls that are under way."""

    def __init__(
        self,
        world: World,
        name: str,
        answer: Answer,
        settings: CallSettings,
        restored: OperatorSnapshot | None,
    ) -> None:
        self.world, self.name, self.answer = world, name, answer
        self.output = RecordingOutput()
        self.alarm: Timestamp | None = None
        #: The end (ms) of each call.
        self.ends: dict[Call, float] = {}
        self._gives: dict[Call, object] = {}
        #: The most calls that were under way at once.
        self.most = 0
        self._coming = 0
        self.operator = AsyncOperator(settings)
        self.operator.open(
            OperatorContext(
                name=name,
                output=self.output,
                clock=world,
                alarm=self,
                steady=world.steady,
                buckets=world.buckets,
            )
        )
        if restored is not None:
            self.operator.restore(restored)
        self.operator.on_ready = self._wake
        self.operator.on_settled = lambda: world.soon.append(self.operator.emit)
        self.operator.on_cancel = self._cancel
        self.operator.on_start()
        self._wake()

    # ------------------------------------------------------------------------------------------ what happens

    def push(self, *values: object, keys: Sequence[Hashable] | None = None) -> SimulatedStep:
        self.operator.process(Batch(list(values), None, keys))
        self.world.settle()
        return self

    def hold(self) -> None:
        self.operator.held = True

    def resume(self) -> None:
        self.operator.resume()
        self.world.settle()

    def gone(self) -> None:
        """It is no more, and what its calls give is lost."""
        self.world.steps.remove(self)
        self.operator.on_ready = lambda: None
        self.operator.on_settled = lambda: None
        self.operator.held = True

    def set(self, at: Timestamp | None) -> None:
        """The alarm."""
        self.alarm = at

    def what_is_due(self) -> None:
        now = self.world.now()
        for call in [one for one, end in self.ends.items() if end <= self.world.at]:
            if call in self.ends:
                self._ended(call)
                self.world.settle()
        if self.alarm is not None and self.alarm <= now:
            self.alarm = None
            self.operator.on_processing_time(now)

    # ------------------------------------------------------------------------------------------ what is seen

    def following(self) -> float | None:
        moments: list[float] = list(self.ends.values())
        if self.alarm is not None:
            moments.append(self.alarm)
        return min(moments, default=None)

    def emitted(self) -> list[Any]:
        """All values that have left."""
        batches = [item for item in self.output.emitted if isinstance(item, Batch)]
        return [value for batch in batches for value in batch.values]

    def side(self, tag: str) -> list[Any]:
        return [value for batch in self.output.sides.get(tag, []) for value in batch.values]

    # -------------------------------------------------------------------------------------------- the slots

    def _wake(self) -> None:
        need = self.operator.waiting - self._coming
        for _ in range(need):
            self._coming += 1
            self.world.soon.append(self._come)

    def _come(self) -> None:
        self._coming -= 1
        self._ask()

    def _ask(self) -> None:
        call = self.operator.take()
        if call is None:
            return
        self.world.begun.append(Began(self.world.at, self.name, call.value))
        takes, self._gives[call] = self.answer(call.value)
        self.ends[call] = round(self.world.at + takes, 3)
        self.most = max(self.most, len(self.ends))

    def _ended(self, call: Call) -> None:
        del self.ends[call]
        result = self._gives.pop(call)
        if isinstance(result, BaseException):
            self.operator.raised(call, result)
        else:
            self.operator.returned(call, result)
        self._ask()

    def _cancel(self, call: Call) -> None:
        del self.ends[call], self._gives[call]
        self.world.soon.append(self._ask)
