"""One call for several records: the groups of calls, and when they start.

Theory. Ready calls are added (``add``) to a line. A free slot takes a group (``take``): the first ``size`` calls of the
line, in order of arrival. If there are fewer, they wait for others until the first of them has waited for ``delay``;
then the group starts with those that are there. A group is formed when it starts, not before: while all slots are busy
the line grows. A ``delay`` of zero means that a free slot takes the calls that are there.

Others may be impossible: the input has ended, the stream is idle, or the step reads no more records before it has
results and no call is running. Waiting would only take time then, so the caller passes ``company=False``. Watermarks
are no reason to start a group: records after them may share a call with those before them.
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
    """The size of groups, and how long a record waits for others."""

    size: int
    """The most records in a call."""
    delay: int
    """The longest that a record waits for others (ms)."""


class Grouping(Generic[C]):
    """The line of calls that wait to share a call. They are compared by identity. Moments are epoch ms."""

    __slots__ = ("_delay", "_line", "_size")

    def __init__(self, groups: GroupSize) -> None:
        self._size = groups.size
        self._delay = groups.delay
        #: By identity: the calls, and the ends of their waits (epoch ms); in order of arrival.
        self._line: OrderedDict[int, tuple[C, Timestamp]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of waiting calls."""
        return len(self._line)

    def __iter__(self) -> Iterator[C]:
        """Yield the waiting calls in order of arrival."""
        return (call for call, _ in self._line.values())

    def add(self, call: C, now: Timestamp) -> None:
        """Add ``call``, which must not be waiting already."""
        # Hot path: once for each attempt of a step that calls for groups.
        self._line[id(call)] = (call, now + self._delay)

    def discard(self, call: C) -> bool:
        """Remove ``call``; False if it did not wait."""
        return self._line.pop(id(call), None) is not None

    @property
    def earliest(self) -> Timestamp | None:
        """The time (epoch ms) at which the first group starts even if it is not full; None if no call waits."""
        for _, at in self._line.values():
            return at
        return None

    def due(self, now: Timestamp, *, company: bool) -> int:
        """Return the number of groups that may start, or one more: the last of several may have to wait."""
        full, more = divmod(len(self._line), self._size)
        if not more:
            return full
        earliest = self.earliest
        hurried = not company or (earliest is not None and earliest <= now)
        return full + hurried

    def take(self, now: Timestamp, *, company: bool) -> list[C] | None:
        """Remove and return the calls of the next group, in order; None if it has to wait.

        ``company`` is True if other calls may still be added.
        """
        if not self.due(now, company=company):
            return None
        return self.first(self._size)

    def first(self, most: int) -> list[C]:
        """Remove and return the first calls of the line, at most ``most``, however long they have waited."""
        line = self._line
        return [line.popitem(last=False)[1][0] for _ in range(min(most, len(line)))]


class Group(Call):
    """A call for several records, its ``company``; its value is the list of their values. It is in no queue."""

    begun: bool = False
    """True once it has started."""
    left: int = 0
    """The number of records that need its result; set when it starts."""

    @classmethod
    def of(cls, members: list[Call]) -> Group:
        """Return a group that has not started."""
        group = cls([], None, None, company=[])
        group.join(members)
        return group

    def join(self, members: list[Call]) -> None:
        """Add records to a group that has not started."""
        self.company.extend(members)
        self.value.extend(one.value for one in members)
        for member in members:
            member.company = self

    def keep(self, members: list[Call]) -> None:
        """Keep only ``members``: there is no time left for the others."""
        self.company = members
        self.value = [one.value for one in members]

    def disband(self) -> list[Call]:
        """Return the records of a call that has ended. The group forgets them, since they refer to it."""
        members: list[Call] = self.company
        self.company = []
        return members

    def begin(self, members: list[Call]) -> None:
        """Start the call for ``members``."""
        self.keep(members)
        self.left = len(members)


def results_of(values: Sequence[Any], result: Any) -> list[Any]:
    """Return the results of a call for ``values``, one for each. Raises ``TypeError`` or ``ValueError``."""
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
