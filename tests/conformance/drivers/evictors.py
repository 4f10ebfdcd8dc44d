"""evictors.json: window steps whose records an evictor drops, before the function or after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from aflow.machines.windows import evictors
from aflow.machines.windows.evictors import Evictor
from tests.conformance.driver import call
from tests.conformance.drivers.window_operator import Record, WindowOperators
from tests.conformance.scenarios import Json, UnknownWord


def _delta(arguments: Json, after: bool) -> Evictor[Record]:
    def make(threshold: float, delta: str) -> Evictor[Record]:
        if delta != "value of the newest element minus value of the element":
            raise UnknownWord(f"what is the delta of {delta!r}?")
        return evictors.Delta(
            threshold, lambda one, newest: newest[1] - one[1], after_function=after
        )

    made: Evictor[Record] = call(make, arguments)
    return made


_EVICTORS: Final[Mapping[str, Callable[[Any, bool], Evictor[Record]]]] = {
    "count": lambda size, after: evictors.Count(size, after_function=after),
    "time": lambda size, after: evictors.Time(timedelta(milliseconds=size), after_function=after),
    "delta": _delta,
}


class Evictors(WindowOperators):
    """One window step with an evictor."""

    def __init__(
        self, *, assigner: Json | str, trigger: Json | str, evictor: Json, function: str
    ) -> None:
        super().__init__(
            assigner=assigner, trigger=trigger, function=function, evictor=_evictor(**evictor)
        )


def _evictor(*, evict_after: bool = False, **one: Any) -> Evictor[Record]:
    ((name, argument),) = one.items()
    if name not in _EVICTORS:
        raise UnknownWord(f"there is no {name} evictor")
    return _EVICTORS[name](argument, evict_after)
