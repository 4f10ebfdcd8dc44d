"""Which handler of a key is the next one.

Theory. A key that has something to do has a *line*: one call that is under way (or waits for a slot, or for its results
to leave), and behind it records that wait. The line stands in a stage. When its call has left, what is next is

1. the first record that waits, if it belongs to the stage of the line;
2. else, if a watermark ends the stage, the earliest timer of the key that is due at it;
3. else the same in the next stage; and nothing if the stage is open: the line is over.

That is the order in which a step that never waits would do it: the records before a watermark, the timers that are due
at it with those that they set, the records behind it. Timers that are set for a moment that the line has passed are due
at the next watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from aflow.machines.calls.call import Call
from aflow.model.time import Timestamp
from aflow.operators.calls.handlers.epochs import Stage

Due: TypeAlias = Callable[[Hashable], Timestamp | None]
"""The earliest event timer of a key that was found to be due, and has not rung."""


class _Line:
    __slots__ = ("stage", "waiting")

    def __init__(self, stage: Stage) -> None:
        #: Where the call under way belongs.
        self.stage = stage
        #: None: nothing waits.
        self.waiting: deque[Call] | None = None


class KeyLines:
    """The lines of all keys that have something to do."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._lines: dict[Hashable, _Line] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def admit(self, calls: Iterable[Call]) -> list[Call]:
        """Those of ``calls``, which were put into their stages, whose turn it is at once."""
        # Hot path: once for each record.
        lines, admitted = self._lines, list[Call]()
        for call in calls:
            line = lines.get(call.key)
            if line is None:
                lines[call.key] = _Line(call.segment)
                admitted.append(call)
            elif line.waiting is None:
                line.waiting = deque((call,))
            else:
                line.waiting.append(call)
        return admitted

    def begin(self, key: Hashable, stage: Stage) -> bool:
        """A line without a call, for ``next`` to be asked; False if the key has one."""
        if key in self._lines:
            return False
        self._lines[key] = _Line(stage)
        return True

    def next(self, key: Hashable) -> Call | tuple[Timestamp, Stage] | None:
        """What follows the call of ``key`` that has left: a call, or a timer and its stage; None: the line is over."""
        line = self._lines[key]
        while True:
            stage, waiting = line.stage, line.waiting
            if waiting and waiting[0].segment is stage:
                return waiting.popleft()
            if stage.ends is not None:
                at = self._due(key)
                if at is not None and at <= stage.ends:
                    return at, stage
            if stage.next is None:
                del self._lines[key]
                return None
            line.stage = stage.next
