"""A step for checks of backends: a state of each kind, used as by operators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from typing import Any, Final

from aflow.model.key_groups import DEFAULT_KEY_GROUPS, KeyGroupRange
from aflow.model.time import Clock, Timestamp
from aflow.state.aggregate import Aggregate
from aflow.state.backend import KeyedBackend
from aflow.state.keyed_entries import CapturedRows, KeyGroupCodec
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateSpec,
    TtlOn,
    ValueState,
)

#: The number of keys touched at once.
BATCH: Final = 64

ALL_KEY_GROUPS: Final = KeyGroupRange(0, DEFAULT_KEY_GROUPS)


class Mean(Aggregate[float, list[float], float]):
    """Mean that changes its accumulator in place, as aggregates may."""

    def create(self) -> list[float]:
        return [0.0, 0.0]

    def add(self, acc: list[float], value: float) -> list[float]:
        acc[0] += value
        acc[1] += 1
        return acc

    def merge(self, a: list[float], b: list[float]) -> list[float]:
        return [a[0] + b[0], a[1] + b[1]]

    def result(self, acc: list[float]) -> float:
        return acc[0] / acc[1]


class SettableClock:
    """A clock that a check sets."""

    def __init__(self) -> None:
        self.time: Timestamp = 1_000_000_000

    def now(self) -> Timestamp:
        return self.time


class States:
    """A state of each kind."""

    def __init__(self, ttl: timedelta | None = None, ttl_on: TtlOn = TtlOn.UPDATE) -> None:
        self.value = ValueState[int]("value", of=int, ttl=ttl, ttl_on=ttl_on)
        self.list = ListState[int]("list", of=int, ttl=ttl, ttl_on=ttl_on)
        self.map = MapState[str, int]("map", key=str, of=int, ttl=ttl, ttl_on=ttl_on)
        self.reducing = ReducingState[int]("reducing", max, of=int, ttl=ttl, ttl_on=ttl_on)
        self.aggregating = AggregatingState[float, list[float], float](
            "aggregating", Mean(), of=list[float], ttl=ttl, ttl_on=ttl_on
        )

    def all(self) -> tuple[StateSpec[Any], ...]:
        return self.value, self.list, self.map, self.reducing, self.aggregating


class BackendStep:
    """A backend with a cell of each kind, used as by a step."""

    def __init__(
        self,
        make: Callable[[KeyGroupCodec, Clock], KeyedBackend],
        clock: SettableClock,
        states: States | None = None,
        groups: KeyGroupRange | None = None,
    ) -> None:
        states = states or States()
        self.key_codec: Final = KeyGroupCodec(
            operator="checked",
            key_groups=groups or ALL_KEY_GROUPS,
            key_group_count=DEFAULT_KEY_GROUPS,
        )
        self.backend: Final = make(self.key_codec, clock)
        self.names: Final = [spec.name for spec in states.all()]
        self.value = self.backend.cell(states.value)
        self.list = self.backend.cell(states.list)
        self.map = self.backend.cell(states.map)
        self.reducing = self.backend.cell(states.reducing)
        self.aggregating = self.backend.cell(states.aggregating)

    def each(self, keys: Sequence[Hashable], handle: Callable[[], object]) -> None:
        """Call ``handle`` with each of ``keys`` as the current one."""
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            self.backend.touch(batch)
            for key in batch:
                self.backend.key = key
                handle()
            self.backend.leave()

    def write(self, keys: Sequence[Hashable], number: int) -> None:
        """Change the state of each kind."""

        def handle() -> None:
            self.value.set(number)
            self.list.add(number)
            self.map.put(str(number), number)
            self.reducing.add(number)
            self.aggregating.add(float(number))

        self.each(keys, handle)

    def clear(self, keys: Sequence[Hashable]) -> None:
        """Clear the state of each kind."""
        cells = (self.value, self.list, self.map, self.reducing, self.aggregating)
        self.each(keys, lambda: [cell.clear() for cell in cells])

    def state_of(self, key: Hashable) -> dict[str, object]:
        """Return the values of the cells of ``key``."""
        found: dict[str, object] = {}

        def handle() -> None:
            found["value"] = self.value.get()
            found["list"] = self.list.get()
            found["map"] = dict(self.map.items())
            found["reducing"] = self.reducing.get()
            found["aggregating"] = self.aggregating.get()

        self.each([key], handle)
        return found

    def capture(self, *, changes: bool) -> CapturedRows:
        return CapturedRows(self.key_codec, self.backend.capture(changes=changes))

    def content(self) -> dict[str, dict[Hashable, object]]:
        """Return all state, as a query of a running job returns it."""
        get, keys = self.backend.get, self.backend.keys
        return {name: {key: get(name, key) for key in keys(name)} for name in self.names}
