"""One call for several records: who goes together, and when.

Theory. Calls that may be made *come* (``add``), and wait in line. A slot that is free asks for a group (``take``): the
first ``size`` of the line, in the order in which they came. It gets them at once if there are that many. If there are
fewer, they wait for company until the first of them has waited for ``delay``, and go with as many as there are then. So
a group is made when it goes, not before: while all slots are busy it grows, however long that takes, and a ``delay`` of
zero means whatever is there when a slot is free.

Company may be impossible: the input has ended, the stream is idle, or the step takes no more records before it has
results, and no call is under way that could bring some. Then to wait is time lost, for each group again. Whoever asks
knows that says so (``company=False``), and nobody waits. Watermarks do not hurry a group: records behind them may go
with those before them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aflow.errors import shown
from aflow.machines.calls.call import Call
from aflow.model.time import Timestamp

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class GroupSize:
    """How large groups are, and how long a record waits for others."""

    size: int
    """The most records in a call."""
    delay: int
    """The longest that a record waits for others (ms)."""


class Grouping(Generic[C]):
    """Calls that wait to be made together, told apart by identity. Moments are epoch ms."""

    __slots__ = ("_delay", "_line", "_size")

    def __init__(self, groups: GroupSize) -> None:
        self._size = groups.size
        self._delay = groups.delay
        #: By identity: the calls, and from when on they wait for nobody (epoch ms); in the order in which they came.
        self._line: OrderedDict[int, tuple[C, Timestamp]] = OrderedDict()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def __iter__(self) -> Iterator[C]:
        """Those that wait, in the order in which they came."""
        return (call for call, _ in self._line.values())

    def add(self, call: C, now: Timestamp) -> None:
        """``call`` may be made. It must not be here already."""
        # Hot path: once for each attempt of a step that calls for groups.
        self._line[id(call)] = (call, now + self._delay)

    def discard(self, call: C) -> bool:
        """``call`` waits no more; False if it did not."""
        return self._line.pop(id(call), None) is not None

    @property
    def earliest(self) -> Timestamp | None:
        """From when on (epoch ms) the first group goes even if it is not full; None if nobody waits."""
        for _, at in self._line.values():
            return at
        return None

    def due(self, now: Timestamp, *, company: bool) -> int:
        """How many groups there are to take, or one more: the last of several may have to wait for company."""
        full, more = divmod(len(self._line), self._size)
        if not more:
            return full
        earliest = self.earliest
        hurried = not company or (earliest is not None and earliest <= now)
        return full + hurried

    def take(self, now: Timestamp, *, company: bool) -> list[C] | None:
        """The calls that go together now, in order; they are not here any more. None if nobody is to go yet.

        ``company``: whether somebody may still come.
        """
        if not self.due(now, company=company):
            return None
        return self.first(self._size)

    def first(self, most: int) -> list[C]:
        """At most so many calls, the first in line, whether or not they have waited; they are not here any more."""
        line = self._line
        return [line.popitem(last=False)[1][0] for _ in range(min(most, len(line)))]


class Group(Call):
    """A call for several records, its ``company``; its value is the list of their values. It is in no queue."""

    begun: bool = False
    """True from when a slot has it."""
    left: int = 0
    """How many records its result is of use for; belongs to it from when it has begun."""

    @classmethod
    def of(cls, members: list[Call]) -> Group:
        """One that has not begun."""
        group = cls([], None, None, company=[])
        group.join(members)
        return group

    def join(self, members: list[Call]) -> None:
        """More records go along; it has not begun."""
        self.company.extend(members)
        self.value.extend(one.value for one in members)
        for member in members:
            member.company = self

    def keep(self, members: list[Call]) -> None:
        """For the others there is no time left."""
        self.company = members
        self.value = [one.value for one in members]

    def begin(self, members: list[Call]) -> None:
        """It is made for ``members``."""
        self.keep(members)
        self.left = len(members)


def results_of(values: Sequence[Any], result: Any) -> list[Any]:
    """The results of a call for a list of ``values``. Raises what is wrong with them."""
    number = len(values)
    if not _is_list_like(result):
        raise TypeError(
            f"called with a list of values ({number} this time), the function returned {shown(result)}; it has to "
            f"return a list with one result for each of them, in their order"
        )
    results = list(result)
    if len(results) != number:
        raise ValueError(
            f"called with {number} values, the function returned {len(results)} results; it has to return one for "
            f"each, in their order. An exception in place of a result says that this value alone has failed"
        )
    return results


def _is_list_like(result: object) -> bool:
    """True for lists, tuples, and arrays of other libraries, which are no ``Sequence``."""
    if isinstance(result, str | bytes | bytearray | Mapping | Set):
        return False
    return hasattr(result, "__len__") and hasattr(result, "__iter__")
