"""The timers of timers.json in a keyed step, where a scenario asks for its snapshot or its current time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, TypeAlias

from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, subtask_of
from aflow.model.time import TimeDomain
from aflow.operators.context import Context
from aflow.operators.keyed_function import KeyedProcess, KeyedProcessOperator
from aflow.testing import At, OperatorHarness
from tests.conformance.scenarios import Json

Registration: TypeAlias = tuple[str, int, str, int]
"""Domain, key, namespace and time of a timer."""

_Key: TypeAlias = str


class _Registers(KeyedProcess[_Key, Registration, Registration]):
    """Sets the timer that a record describes, and emits it when it fires.

    The timers of aflow have no namespaces, so each pair of a key and a namespace is a key of this step.
    """

    def __init__(self, described: Callable[[_Key, int], Registration]) -> None:
        self._described = described

    def process(self, value: Registration, ctx: Context[_Key]) -> None:
        domain, *_, at = value
        (ctx.set_event_timer if domain == "event" else ctx.set_processing_timer)(at)

    def on_timer(self, at: int, ctx: Context[_Key]) -> list[Registration]:
        return [self._described(ctx.key, at)]


class TimersInStep:
    """The timers of a keyed step with ``parallelism`` subtasks. Of two, subtask n - 1 has the timers of key n."""

    def __init__(self, parallelism: int = 1) -> None:
        self._parallelism = parallelism
        self._registered: dict[_Key, list[Registration]] = {}
        self._steps = [self._step(subtask) for subtask in range(parallelism)]

    def register(self, registrations: Sequence[Registration]) -> None:
        """Set timers, in the only subtask."""
        (step,) = self._steps
        for each in registrations:
            self._registered.setdefault(_key(each), []).append(each)
            step.push(each)

    def restored(self, parallelism: int) -> TimersInStep:
        """The timers in a step of another parallelism that was restored from a snapshot of this one."""
        snapshots = [step.snapshot() for step in self._steps]
        other = TimersInStep(parallelism)
        other._registered = self._registered
        for step in other._steps:
            step.restore(*(each for each in snapshots if each is not None))
        return other

    def watermark(self, ts: int) -> None:
        for step in self._steps:
            step.watermark(ts)

    def advance_processing_time(self, to: int) -> None:
        for step in self._steps:
            step.advance_processing_time(to)

    @property
    def current_processing_time(self) -> int:
        return self._steps[0].now

    @property
    def current_watermark(self) -> int:
        return self._steps[0].operator.watermark

    def timers(self, domain: TimeDomain) -> int:
        sizes = [step.size for step in self._steps]
        event = domain is TimeDomain.EVENT
        return sum(size.event_timers if event else size.processing_timers for size in sizes)

    def fired(self, domain: str, subtask: int = 0) -> list[Json]:
        """The timers that fired in a subtask."""
        return [
            {"key": key, "namespace": namespace, "ts": ts}
            for each in self._steps[subtask].output
            if isinstance(each, At)
            for of_domain, key, namespace, ts in [each.value]
            if of_domain == domain
        ]

    def _step(self, subtask: int) -> OperatorHarness[Registration, Registration]:
        return OperatorHarness(
            lambda: KeyedProcessOperator(_Registers(self._described), str),
            key=_key,
            subtask=subtask,
            parallelism=self._parallelism,
        )

    def _described(self, key: _Key, at: int) -> Registration:
        return next(each for each in self._registered[key] if each[3] == at)


#: Scenarios have two keys, of which the second belongs to the second half of the key groups.
_HALVES: Final = 2


def _key(registration: Registration) -> _Key:
    """A key of the half of the key groups that the scenario's key belongs to."""
    domain, key, namespace, _ = registration
    return next(
        name
        for name in _names(f"{domain} {key} {namespace}")
        if subtask_of(key_group(name), DEFAULT_KEY_GROUPS, _HALVES) == (key - 1) % _HALVES
    )


def _names(name: str) -> Iterator[_Key]:
    return (f"{name} {number}" for number in count())
