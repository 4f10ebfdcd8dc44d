"""The calls that are ready to start: one by one, or in groups.

Theory. Calls are added when it is their turn, and retried calls again when their pause is over. Both parts keep two
lines: *repeats* first, then *first attempts*. ``next_line`` returns the line whose first call is next. While the step
is blocked that is the line of repeats, since the time of those calls runs.

``ReadyGroups`` forms a group no earlier than a slot asks for it, so that it grows until then. A group that a limit
delays takes more calls along while it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, Protocol, TypeGuard

from aflow.machines.calls.call import Call
from aflow.machines.calls.groups import Group, Grouping, GroupSize
from aflow.machines.calls.settings import CallSettings
from aflow.model.time import Timestamp

#: A line without calls.
_EMPTY: Final[deque[Call]] = deque(maxlen=0)


class ReadyQueue(Protocol):
    """Calls that may start as soon as they are admitted."""

    @property
    def first(self) -> deque[Call]:
        """Calls, or formed groups, that wait for their first attempt."""
        ...

    def add(self, calls: Iterable[Call], now: Timestamp) -> None:
        """Add calls for their first attempt, in order."""
        ...

    def add_again(self, calls: Iterable[Call], now: Timestamp) -> None:
        """Add calls whose time runs, in order."""
        ...

    def waiting(self, now: Timestamp, *, blocked: bool) -> int:
        """Return how many calls could start now."""
        ...

    def prepare(self, now: Timestamp, *, blocked: bool) -> None:
        """Let the next call be in ``next_line``; a slot asks for it."""
        ...

    def next_line(self, *, blocked: bool) -> deque[Call]:
        """Return the line whose first call is next; the caller takes it from there."""
        ...

    def discard(self, call: Call) -> bool:
        """Remove ``call``, whose time is over. Return True if it was not running."""
        ...

    @property
    def calls(self) -> list[Call]:
        """The calls that wait for their first attempt, those of groups one by one."""
        ...

    @property
    def earliest(self) -> Timestamp | None:
        """The time (epoch ms) at which the first group starts even if it is not full; None if nothing waits."""
        ...


class ReadyCalls:
    """Calls that start one by one."""

    def __init__(self) -> None:
        self.first: Final[deque[Call]] = deque()
        self.repeats: Final[deque[Call]] = deque()

    def add(self, calls: Iterable[Call], now: Timestamp) -> None:
        self.first.extend(calls)

    def add_again(self, calls: Iterable[Call], now: Timestamp) -> None:
        self.repeats.extend(calls)

    def waiting(self, now: Timestamp, *, blocked: bool) -> int:
        return len(self.repeats) + (0 if blocked else len(self.first))

    def prepare(self, now: Timestamp, *, blocked: bool) -> None:
        return None

    def next_line(self, *, blocked: bool) -> deque[Call]:
        return self.repeats or (_EMPTY if blocked else self.first)

    def discard(self, call: Call) -> bool:
        for line in (self.repeats, self.first):
            if call in line:
                line.remove(call)
                return True
        return False

    @property
    def calls(self) -> list[Call]:
        return list(self.first)

    @property
    def earliest(self) -> Timestamp | None:
        return None


class ReadyGroups:
    """Calls that start in groups.

    ``more_may_come`` returns True if other calls may still be added soon. ``time_runs`` returns True for a call that
    has to start even while the step is blocked; ``retries`` is True if there may be such calls.
    """

    def __init__(
        self,
        size: GroupSize,
        *,
        more_may_come: Callable[[], bool],
        time_runs: Callable[[Call], bool],
        retries: bool,
    ) -> None:
        self._line: Final[Grouping[Call]] = Grouping(size)
        self._size: Final = size.size
        self._more_may_come: Final = more_may_come
        self._time_runs: Final = time_runs
        self._retries: Final = retries
        #: At most one formed group each, which a limit delays.
        self.first: Final[deque[Call]] = deque()
        self._repeats: Final[deque[Call]] = deque()

    def __len__(self) -> int:
        """Return the number of calls that are in no group."""
        return len(self._line)

    def add(self, calls: Iterable[Call], now: Timestamp) -> None:
        for call in calls:
            self._line.add(call, now)

    def add_again(self, calls: Iterable[Call], now: Timestamp) -> None:
        self.add(calls, now)

    def waiting(self, now: Timestamp, *, blocked: bool) -> int:
        if blocked:
            return 1 if self._repeats or self._any_time_runs() else 0
        due = self._line.due(now, company=self._more_may_come())
        return len(self._repeats) + len(self.first) + due

    def prepare(self, now: Timestamp, *, blocked: bool) -> None:
        if blocked:
            self._form_in_time()
        elif formed := self.next_line(blocked=False):
            group = formed[0]
            if is_group(group) and (room := self._size - len(group.company)) > 0:
                group.join(self._line.first(room))
        elif members := self._line.take(now, company=self._more_may_come()):
            self.first.append(Group.of(members))

    def next_line(self, *, blocked: bool) -> deque[Call]:
        return self._repeats or (_EMPTY if blocked else self.first)

    def discard(self, call: Call) -> bool:
        if self._line.discard(call):
            return True
        group: Group = call.company
        return not group.begun

    @property
    def calls(self) -> list[Call]:
        return [*chain.from_iterable(group.company for group in self.first), *self._line]

    @property
    def earliest(self) -> Timestamp | None:
        return self._line.earliest

    def _form_in_time(self) -> None:
        """Form a group of calls whose time runs, without waiting for others."""
        if self._repeats or not self._any_time_runs():
            return
        if self.first and any(map(self._time_runs, self.first[0].company)):
            self._repeats.append(self.first.popleft())
            return
        members = [call for call in self._line if self._time_runs(call)][: self._size]
        for call in members:
            self._line.discard(call)
        self._repeats.append(Group.of(members))

    def _any_time_runs(self) -> bool:
        return self._retries and any(map(self._time_runs, [*self._line, *self._members()]))

    def _members(self) -> Iterable[Call]:
        return chain.from_iterable(group.company for group in self.first)


def ready_calls(
    settings: CallSettings,
    *,
    more_may_come: Callable[[], bool],
    time_runs: Callable[[Call], bool],
) -> ReadyQueue:
    """Return the part that a step with ``settings`` needs."""
    if settings.groups is None:
        return ReadyCalls()
    retries = settings.retry is not None or settings.cache is not None
    return ReadyGroups(
        settings.groups, more_may_come=more_may_come, time_runs=time_runs, retries=retries
    )


def is_group(call: Call) -> TypeGuard[Group]:
    return isinstance(call, Group)
