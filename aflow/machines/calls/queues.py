"""The order in which results are emitted: three orders, two queues.

Theory. Calls are *put* in the order of the stream, with *fences* between them: watermarks, idleness and activity. Calls
are *settled* in any order. ``take`` returns what may be emitted, as *runs* of calls with fences between them.

- ``OrderedCalls``: results in the order of the stream. A settled call waits for all calls before it.
- ``UnorderedCalls``: the fences cut the stream into segments. Results are emitted in the order of completion, but a
  call waits for the fence before its segment, and a fence for all calls before it.
- By key: unordered, with one call at a time for each key. ``KeyTurns`` decides which one.

A fence takes room as a call does, so that fences after a slow call are bounded. Ordered calls have one bound for all.
In unordered calls a settled call that waits for the fence of an earlier segment is *held*: with a watermark after each
record one slow call would otherwise fill the queue with results, and stop the input although no call is running. Held
calls and fences have bounds of their own, ``HELD`` times as large. The source of the rules is Flink's
``StreamElementQueue``, which has one bound; scenarios: ``async_wait``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Final, Protocol, TypeAlias

from aflow.machines.calls.call import NO_RESULT, Call
from aflow.model.elements import Active, Idle, Watermark

Fence: TypeAlias = Watermark | Idle | Active
"""An element between records that must keep its place among them."""

Out: TypeAlias = list[list[Call] | Fence]
"""Runs of settled calls, none of them empty, and fences, in the order of emission."""


#: Held calls, and waiting fences, for each call that the queue has room for otherwise. A step takes
#: twice its capacity of the latter, so a call may take 64 times as long as the mean one before it stops the input.
HELD: Final = 32


class CallQueue(Protocol):
    """Calls between their arrival and the emission of their results."""

    def __len__(self) -> int:
        """Return the number of calls and fences."""
        ...

    def full(self, most: int) -> bool:
        """Return True if no more calls should be put, where ``most`` calls that are not held are enough."""
        ...

    @property
    def calls(self) -> list[Call]:
        """A new list of the calls, in the order in which they were put."""
        ...

    @property
    def fences(self) -> list[tuple[int, Fence]]:
        """The fences that are here, in order, each with the number of ``calls`` that precede it."""
        ...

    def put(self, calls: Sequence[Call]) -> None:
        """Add calls, in the order of the stream."""
        ...

    def put_fence(self, fence: Fence) -> None:
        """Add a fence after all calls."""
        ...

    def settle(self, call: Call) -> None:
        """Mark ``call`` as settled; once for each call."""
        ...

    def settle_all(self, calls: Sequence[Call]) -> None:
        """Settle ``calls``, which have results and are not marked, in order."""
        ...

    def take(self) -> Iterable[list[Call] | Fence]:
        """Remove and return what may be emitted now; the caller iterates to the end, once."""
        ...

    @property
    def has_out(self) -> bool:
        """True if ``take`` would return something."""
        ...


class _Fenced:
    """A fence in the queue of ordered calls: as if it were a call that is settled."""

    __slots__ = ("fence",)

    done: Final = True
    result: Final = NO_RESULT

    def __init__(self, fence: Fence) -> None:
        self.fence = fence


class OrderedCalls:
    """Results in the order of the stream."""

    def __init__(self) -> None:
        #: From the first call that is not settled.
        self._waiting: deque[Call | _Fenced] = deque()
        #: In front of it, from the last fence in ``_out``.
        self._run: list[Call] = []
        self._out: Out = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._run) + (_size(self._out) if self._out else 0)

    def full(self, most: int) -> bool:
        return len(self) >= most

    @property
    def calls(self) -> list[Call]:
        runs = [one for one in self._out if isinstance(one, list)]
        waiting = (one for one in self._waiting if not isinstance(one, _Fenced))
        return [*chain.from_iterable(runs), *self._run, *waiting]

    @property
    def fences(self) -> list[tuple[int, Fence]]:
        found, preceding = _fences_in(self._out)
        preceding += len(self._run)
        for one in self._waiting:
            if isinstance(one, _Fenced):
                found.append((preceding, one.fence))
            else:
                preceding += 1
        return found

    def put(self, calls: Sequence[Call]) -> None:
        self._waiting.extend(calls)

    def put_fence(self, fence: Fence) -> None:
        if self._waiting:
            self._waiting.append(_Fenced(fence))
        else:
            self._let_go(fence)

    def settle(self, call: Call) -> None:
        # Hot path.
        call.done = True
        waiting = self._waiting
        # A call of a snapshot that has a result is gone if the one before it was settled.
        if waiting and waiting[0] is call:
            waiting.popleft()
            self._run.append(call)
            # The next one may have a result of a plain scheduler, which sets no `done`.
            if waiting and ((one := waiting[0]).done or one.result is not NO_RESULT):
                self._advance()

    def settle_all(self, calls: Sequence[Call]) -> None:
        # Hot path.
        self._advance()

    @property
    def has_out(self) -> bool:
        return bool(self._run or self._out)

    def take(self) -> Out:
        out, self._out = self._out, []
        if self._run:
            out.append(self._run)
            self._run = []
        return out

    def _advance(self) -> None:
        # Hot path where calls take different times.
        waiting = self._waiting
        while waiting and ((one := waiting[0]).done or one.result is not NO_RESULT):
            waiting.popleft()
            if isinstance(one, _Fenced):
                self._let_go(one.fence)
            else:
                self._run.append(one)

    def _let_go(self, fence: Fence) -> None:
        if self._run:
            self._out.append(self._run)
            self._run = []
        self._out.append(fence)


def _fences_in(out: Out) -> tuple[list[tuple[int, Fence]], int]:
    """The fences of ``out``, each with the number of calls that precede it, and the number of all its calls."""
    found: list[tuple[int, Fence]] = []
    preceding = 0
    for one in out:
        if isinstance(one, list):
            preceding += len(one)
        else:
            found.append((preceding, one))
    return found, preceding


def _size(out: Out) -> int:
    return sum(len(one) if isinstance(one, list) else 1 for one in out)


class _Segment:
    """The calls between two fences."""

    __slots__ = ("fence", "left", "settled")

    def __init__(self) -> None:
        #: Calls that are not settled.
        self.left = 0
        #: In the order in which they were; of the first segment, those that have not left.
        self.settled: list[Call] = []
        #: The fence that ends the segment; None while it is open, as the last one is.
        self.fence: Fence | None = None


class UnorderedCalls:
    """Results in the order of completion, but not past a fence."""

    def __init__(self) -> None:
        #: As an ordered set.
        self._calls: dict[Call, None] = {}
        self._first = self._last = _Segment()
        #: From the first to the last.
        self._segments = deque((self._first,))
        self._out: Out = []
        #: Number of fences in the output.
        self._fences_out = 0
        #: Settled calls that wait for the fence of an earlier segment.
        self._held = 0

    def __len__(self) -> int:
        return len(self._calls) + len(self._segments) - 1 + self._fences_out

    def full(self, most: int) -> bool:
        # Hot path.
        calls, held = len(self._calls), self._held
        return (
            calls - held >= most
            or held >= HELD * most
            or len(self._segments) + self._fences_out > HELD * most
        )

    @property
    def calls(self) -> list[Call]:
        return list(self._calls)

    @property
    def fences(self) -> list[tuple[int, Fence]]:
        found, preceding = _fences_in(self._out)
        for segment in self._segments:
            preceding += segment.left + len(segment.settled)
            if segment.fence is not None:
                found.append((preceding, segment.fence))
        return found

    def put(self, calls: Sequence[Call]) -> None:
        # Hot path. `update` would make the dict just large enough, and move all calls to a new one for each batch.
        here = self._calls
        for call in calls:
            here[call] = None
        self._last.left += len(calls)

    def put_fence(self, fence: Fence) -> None:
        closed = self._last
        closed.fence = fence
        for call in reversed(self._calls):
            if call.segment is not None:
                break
            call.segment = closed
        self._last = _Segment()
        self._segments.append(self._last)
        self._advance()

    def settle(self, call: Call) -> None:
        # Hot path.
        call.done = True
        segment: _Segment = call.segment or self._last
        segment.left -= 1
        segment.settled.append(call)
        if segment is not self._first:
            self._held += 1
        elif not segment.left and segment.fence is not None:
            self._advance()

    def settle_all(self, calls: Sequence[Call]) -> None:
        # Hot path.
        if self._first is not self._last:
            for call in calls:
                self.settle(call)
            return
        self._first.left -= len(calls)
        self._first.settled.extend(calls)

    @property
    def has_out(self) -> bool:
        return bool(self._first.settled or self._out)

    def take(self) -> Out:
        # Hot path.
        out, self._out, self._fences_out = self._out, [], 0
        if self._first.settled:
            out.append(self._first.settled)
            self._first.settled = []
        here = self._calls
        for run in out:
            if isinstance(run, list):
                for call in run:
                    del here[call]
        return out

    def _advance(self) -> None:
        """Move complete segments with their fences to the output."""
        segments, out = self._segments, self._out
        while (first := segments[0]).fence is not None and not first.left:
            if first.settled:
                out.append(first.settled)
            out.append(first.fence)
            self._fences_out += 1
            segments.popleft().settled = []  # calls refer to their segment: no cycle
            self._held -= len(segments[0].settled)
        self._first = segments[0]


class KeyTurns:
    """One running call for each key, in order of arrival."""

    def __init__(self) -> None:
        #: By key with a running call: the calls that wait, in order. Often it is none or one, which take no deque.
        self.waiting: Final[dict[Hashable, deque[Call] | Call | None]] = {}
        #: The number of calls that wait for their turn.
        self.blocked = 0

    def admit(self, calls: Iterable[Call]) -> list[Call]:
        """Return the calls that may start at once; the others wait. Raises ``TypeError`` for unhashable keys."""
        # Hot path.
        waiting, admitted = self.waiting, list[Call]()
        for call in calls:
            key = call.key
            if key not in waiting:
                waiting[key] = None
                admitted.append(call)
                continue
            following = waiting[key]
            if following is None:
                waiting[key] = call
            elif isinstance(following, deque):
                following.append(call)
            else:
                waiting[key] = deque((following, call))
            self.blocked += 1
        return admitted

    def release(self, key: Hashable) -> Call | None:
        """End the running call of ``key``, and return the next one; None if there is none."""
        following = self.waiting[key]
        if following is None:
            del self.waiting[key]
            return None
        return self.take(key, following)

    def take(self, key: Hashable, following: deque[Call] | Call) -> Call:
        """Return the next call of ``key``, whose turn it is. ``following`` is the entry of ``waiting``."""
        # Hot path.
        self.blocked -= 1
        if not isinstance(following, deque):
            self.waiting[key] = None
            return following
        call = following.popleft()
        if not following:
            self.waiting[key] = None
        return call
