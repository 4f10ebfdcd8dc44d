"""The asynchronous step that makes one call for several records.

Records whose turn it is wait in line for others, and go together when a slot asks for a call: the slot gets a call
whose value is the list of their values. What it gives is taken apart: each record has its own result or error, retries,
deadline and policy, and a record that is called for again stands in line again, with whoever is there then.

``capacity`` is the number of calls under way, each for up to ``size`` records. A checkpoint has the inputs of single
records: a restored step makes its groups anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from aflow.errors import InternalError, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.grouping import Grouping
from aflow.machines.calls.settings import CallSettings
from aflow.model.time import Timestamp
from aflow.operators.base import RAISED
from aflow.operators.calls.limited import StepLimits
from aflow.operators.calls.operator import AsyncOperator


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


class GroupedOperator(AsyncOperator):
    """Calls for lists of values."""

    def __init__(self, settings: CallSettings) -> None:
        super().__init__(settings)
        if settings.groups is None:
            raise InternalError("a step that makes groups is not told of which size")
        self._line: Grouping[Call] = Grouping(settings.groups)
        self._share *= settings.groups.size
        self._watched = True  # so that each record of a group is asked whether its time is up, and counts its attempts
        self._size = settings.groups.size
        self._timed = settings.timeout is not None or settings.deadline is not None
        #: True while the input brings nothing: it is idle, or has ended.
        self._quiet = False
        #: Groups whose calls are under way.
        self._under_way: set[Group] = set()

    # ------------------------------------------------------------------------------------ told by the task

    @property
    def waiting(self) -> int:
        if self.held:
            return self._wanted(1 if self._repeats or self._some_begun() else 0)
        due = self._line.due(self.context.clock.now(), company=self._company_may_come())
        return self._wanted(len(self._repeats) + len(self._ready) + due)

    def on_idle(self) -> None:
        self._quiet = True
        super().on_idle()
        self.on_ready()

    def on_active(self) -> None:
        self._quiet = False
        super().on_active()

    def on_input_end(self) -> None:
        self._quiet = True
        self.on_ready()

    def on_processing_time(self, now: Timestamp) -> None:
        super().on_processing_time(now)
        self._wake_for_groups(now)

    def counted(self) -> CallCounters:
        calls = super().counted()
        calls.waiting = len(self._queue.calls) - sum(group.left for group in self._under_way)
        return calls

    def emit(self) -> None:
        super().emit()
        if len(self._line):
            self.on_ready()  # if the step is still full, nobody can come

    # -------------------------------------------------------------------------------------- making groups

    def _make_ready(self, calls: Iterable[Call]) -> None:
        now = self.context.clock.now()
        for call in calls:
            self._line.add(call, now)
        self._wake_for_groups(now)

    def _make_again(self, calls: Iterable[Call]) -> None:
        # Not that of a subclass, which may have others called for, or none: these are to be called for.
        GroupedOperator._make_ready(self, calls)

    def take(self) -> Call | None:
        self._form_group()
        had = bool(self._line_up())
        call = super().take()
        if isinstance(call, Group):
            self._under_way.add(call)
        elif had and not self._line_up():
            self.on_ready()  # nobody is left to call for in that group; before the next one others have the loop
        return call

    def _form_group(self) -> None:
        """Let a group be ready to be taken; not before that, since until then it may grow."""
        if self._failure is not None or self._room() <= 0:
            return
        if self.held:
            self._form_group_of_begun()
            return
        now = self.context.clock.now()
        if formed := self._line_up():
            self._let_join(formed[0])
        elif members := self._line.take(now, company=self._company_may_come()):
            self._ready.append(Group.of(members))
        self._wake_for_groups(now)

    def _form_group_of_begun(self) -> None:
        """No further record may begin, so those whose time runs go without waiting for company."""
        if self._repeats or not self._some_begun():
            return
        if self._ready and self._any_begun(self._ready[0].company):
            self._repeats.append(self._ready.popleft())  # the limits have kept it waiting
            return
        begun = [call for call in self._line if self._time_runs(call)][: self._size]
        for call in begun:
            self._line.discard(call)
        self._repeats.append(Group.of(begun))

    def _some_begun(self) -> bool:
        """True if somebody's time runs who waits for a call."""
        if self.settings.retry is None and self.settings.cache is None:
            return False
        begun = self._any_begun
        return begun(self._line) or any(begun(group.company) for group in self._ready)

    def _any_begun(self, calls: Iterable[Call]) -> bool:
        return any(self._time_runs(call) for call in calls)

    def _let_join(self, group: Call) -> None:
        """A group that the limits of the step have kept waiting takes those along who have come meanwhile."""
        if isinstance(group, Group) and (room := self._size - len(group.company)) > 0:
            group.join(self._line.first(room))

    def _company_may_come(self) -> bool:
        """Whether those in line can hope for others. What is to be called for again later does not count."""
        if self._quiet:
            return False
        if self.running:
            return True  # what it gives makes room, and lets the next records of its keys come
        if self._turns is not None and self._turns.blocked:
            return False  # others wait for those in line, and keys may be fewer than go together
        return not self.full or self._queue.has_out

    def _wake_for_groups(self, now: Timestamp) -> None:
        """Whoever is in line, and not to be taken at once, has an alarm."""
        earliest = self._line.earliest
        if earliest is not None and earliest > now:
            self._wake_at(earliest)

    def _cost(self, limits: StepLimits, call: Call) -> float:
        """A group costs as much as its records together, if the user has said what they cost; else it is one call."""
        if not isinstance(call, Group) or not limits.costs_differ:
            return super()._cost(limits, call)
        return sum(limits.cost(member.value) for member in call.company)

    def _is_late(self, call: Call) -> bool:
        late = super()._is_late
        if not isinstance(call, Group):
            return late(call)
        if not self._timed:
            return False
        call.keep([one for one in call.company if not one.done and not late(one)])
        return not call.company

    def _waiting_calls(self) -> list[Call]:
        formed = [member for group in self._ready for member in group.company]
        return [*formed, *self._line]

    def _begins(self, call: Call) -> bool:
        if not isinstance(call, Group):
            return super()._begins(call)
        call.begun = True
        members: list[Call] = [one for one in call.company if not one.done and self._begins(one)]
        call.begin(members)
        return bool(members)

    # ------------------------------------------------------------------------------------- what a call gave

    def _came(self, call: Call, result: Any) -> None:
        if not isinstance(call, Group):
            super()._came(call, result)
            return
        self._under_way.discard(call)
        try:
            results = _one_for_each(call.value, result)
        except RAISED as exc:
            self._failed(call, exc)
            return
        for member, its in zip(call.company, results, strict=True):
            if member.done:
                continue
            if isinstance(its, BaseException):
                super()._failed(member, its)
            else:
                super()._came(member, its)

    def _failed(self, call: Call, error: BaseException) -> None:
        if not isinstance(call, Group):
            super()._failed(call, error)
            return
        self._under_way.discard(call)
        for member in call.company:
            if not member.done:
                super()._failed(member, error)

    # --------------------------------------------------------------------------------------------- deadlines

    def _withdraw(self, call: Call) -> bool:
        if self._line.discard(call):
            return False
        group: Group = call.company
        return group.begun

    def _cancel(self, call: Call) -> None:
        """The others of its group still wait for their results: the call is cancelled when nobody does."""
        group: Group = call.company
        group.left -= 1
        if not group.left:
            group.done = True
            self._under_way.discard(group)
            super()._cancel(group)


def _one_for_each(values: Sequence[Any], result: Any) -> list[Any]:
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
