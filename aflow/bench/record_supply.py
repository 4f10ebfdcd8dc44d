"""The records of a load: made by a function of the user, by number or one after the other, or those of a sequence.

``RecordSupply`` counts the seconds that it takes to make them: a supply that is slower than the rate is reported, and
never passes for a slow pipeline.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Final, TypeAlias, cast

from aflow.bench.arrivals import ArrivalSchedule
from aflow.errors import FlowDefinitionError, shown

Records: TypeAlias = Callable[[], Iterable[Any]] | Callable[[int], Any] | Iterable[Any]
"""A function without parameters that returns an iterable of records; a function that returns the record of a number
(from 0); a sequence, which is repeated; or another iterable, which is read once."""

#: Records that ``speed_of`` makes, and the seconds after which it stops.
_TRIAL: Final = 20_000
_TRIAL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """The load of one source."""

    records: Records
    arrivals: ArrivalSchedule | None = None
    """The intended times; None: those of the run."""
    timestamps: bool = False
    """True gives each record its intended time as a timestamp, as sources of brokers do."""


class RecordSupply:
    """Makes the records of one run of one source. Raises ``FlowDefinitionError`` for what makes none."""

    def __init__(self, records: Records, source: str, *, keeps_values: bool = False) -> None:
        self._source = source
        #: All records that were taken; None if they are not kept.
        self.values: list[Any] | None = [] if keeps_values else None
        #: Returns the next records, at most a number of them; an empty list at the end.
        self._make, self._begin_again = _maker(records, source)
        #: Records that were made and not taken.
        self._ready: deque[Any] = deque()
        #: The number of records that were taken.
        self.taken = 0
        #: Seconds in which records were made.
        self.seconds = 0.0
        self.ended = False
        #: Seconds for one record in the last call of ``take``.
        self._each = 0.0

    def take(self, count: int) -> list[Any]:
        """Return the next ``count`` records; fewer if the supply ends. ``ended`` is True then."""
        begun = time.perf_counter()
        if self._ready:
            values = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
            if len(values) < count:
                values += self._make(count - len(values))
        else:
            values = self._make(count)
        took = time.perf_counter() - begun
        self.seconds += took
        self._each = took / max(len(values), 1)
        self.taken += len(values)
        if self.values is not None:
            self.values += values
        if len(values) < count:
            self.ended = True
        return values

    def most_in(self, seconds: float) -> int:
        """Return the number of records that are made in ``seconds`` as fast as the last ones, at least 1."""
        return max(1, int(seconds / max(self._each, 1e-9)))

    def speed(self) -> float:
        """Return the records per second that can be made when nothing else runs.

        After it a function begins again and a sequence is read from its start: records with times near now would be old
        otherwise. Those of other iterables are kept for ``take``.
        """
        begun = time.perf_counter()
        made = 0
        trial: list[Any] = []
        while made < _TRIAL and (took := time.perf_counter() - begun) < _TRIAL_SECONDS:
            values = self._make(256)
            trial += values
            made += len(values)
            if len(values) < 256:
                break
        took = time.perf_counter() - begun
        if not made:
            raise FlowDefinitionError(f"the load of source {self._source!r} has no records")
        again = self._begin_again()
        if again is None:
            self._ready += trial
        else:
            self._make = again
        return made / max(took, 1e-9)


_Make: TypeAlias = Callable[[int], list[Any]]


def _maker(records: Records, source: str) -> tuple[_Make, Callable[[], _Make | None]]:
    """Return the function that makes records, and one that returns such a function from the first record on.

    The latter returns None if the records can be read only once.
    """
    if callable(records):
        if _takes_number(records, source):
            numbered = cast("Callable[[int], Any]", records)
            return _Numbered(numbered).make, lambda: _Numbered(numbered).make
        function = cast("Callable[[], object]", records)
        made = _made_by(function, source)

        def begin_again() -> _Make | None:
            again = _made_by(function, source)
            is_same_iterator = again is made and isinstance(made, Iterator)
            return None if is_same_iterator else _Iterated(iter(again)).make

        return _Iterated(iter(made)).make, begin_again
    if isinstance(records, str | bytes) or not isinstance(records, Iterable):
        raise FlowDefinitionError(
            f"the load of source {source!r} is a function that makes records, or an iterable of records, not "
            f"{shown(records)}"
        )
    if isinstance(records, Sequence):
        return _Iterated(cycle(records)).make, lambda: _Iterated(cycle(records)).make
    return _Iterated(iter(records)).make, lambda: None


def _made_by(function: Callable[[], object], source: str) -> Iterable[Any]:
    made = function()
    if not isinstance(made, Iterable):
        raise FlowDefinitionError(
            f"the load of source {source!r}: {shown(function)} returned {shown(made)}, which is no iterable; return "
            f"or yield records, or take one parameter, the number of the record, and return that record"
        )
    iterable: Iterable[Any] = cast("Any", made)
    return iterable


@dataclass(slots=True)
class _Iterated:
    iterator: Iterator[Any]

    def make(self, count: int) -> list[Any]:
        return list(islice(self.iterator, count))


@dataclass(slots=True)
class _Numbered:
    function: Callable[[int], Any]
    next: int = 0

    def make(self, count: int) -> list[Any]:
        first = self.next
        self.next = end = first + count
        function = self.function
        return [function(number) for number in range(first, end)]


def _takes_number(function: Callable[..., object], source: str) -> bool:
    """Return True if ``function`` needs one argument. Raises ``FlowDefinitionError`` if it needs several."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # some builtins have no signature; they are called without arguments
    needed = [
        one
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1 or any(
        one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters
    ):
        raise FlowDefinitionError(
            f"the load of source {source!r}: {shown(function)} needs more than one argument; a function that makes "
            f"records takes none, or the number of the record"
        )
    return len(needed) == 1
