"""Unfinished work of a chain: firings and clean-ups that are resumed by the task, and the input that waits for them.

Theory. An operator with work that is not finished is *unfinished*. Whatever its upstream operators push into it
meanwhile waits in its queue, in order. The task resumes the unfinished operator that is furthest downstream: it runs
the next pieces, then the elements of its queue, one by one, each of which may make it or a downstream operator
unfinished again. An operator is finished when it has no work and its queue is empty. The task takes new input only when
all are finished. So at most one batch of input and its results wait in a chain.

A piece takes half a millisecond at most, so that several fit into the loop budget: a turn that ends with a piece that
takes four times as long as expected is still one of a few milliseconds.

Work is suspended when the loop budget is spent, and when a downstream exchange, sink or step with calls is full, so a
firing overfills a downstream part by one piece only.

A checkpoint cannot be taken while an operator is unfinished: what has fired is in no state any more, and the rest is.
What a checkpoint has to do is postponed, in order, until all operators are finished. Barriers that may overtake records
must not wait for slow readers: from then on the work does not wait for room.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from aflow.errors import AflowError, OperatorError
from aflow.machines.batch_size import BatchSize
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.loop_budget import LoopBudget

#: Seconds that a piece may take. Its fixed costs are some 10 µs.
LONGEST_PIECE: Final = 0.0005


class Room(Protocol):
    """Something that can be full: an exchange, a sink, or a step with many calls."""

    @property
    def full(self) -> bool: ...


class ChainPieces:
    """The unfinished operators of one chain."""

    def __init__(
        self, loop_budget: LoopBudget, clock: RuntimeClock, resume: Callable[[], None]
    ) -> None:
        """``resume`` is called when the task has something to resume."""
        self.spent: Final = loop_budget.spent
        self.steady: Final = clock.steady
        self._resume = resume
        #: In any order; read for each element of the task.
        self.unfinished: Final[list[OperatorPieces]] = []
        #: Work that waits until all operators are finished. Empty whenever they are.
        self._postponed: deque[Callable[[], None]] = deque()
        #: True if the unfinished work must not wait for room.
        self.ignores_room = False

    def when_finished(self, work: Callable[[], None], *, urgent: bool = False) -> None:
        """Do ``work`` now, or after the unfinished operators and earlier postponed work.

        If it is ``urgent``, they do not wait for room downstream.
        """
        if not self.unfinished:
            work()
            return
        self._postponed.append(work)
        if urgent:
            self.ignores_room = True
            self._resume()

    def waits_for(self) -> Room | None:
        """Return the full part that the next piece has to wait for; None if it may run."""
        return None if self.ignores_room else self._last().full_room()

    def step(self) -> None:
        """Run the next pieces, or process the next queued element. Raises what an operator raises."""
        self._last().step()
        if not self.unfinished:
            self.ignores_room = False
            while self._postponed and not self.unfinished:
                self._postponed.popleft()()

    def add(self, operator: OperatorPieces) -> None:
        """Add an unfinished operator."""
        self.unfinished.append(operator)
        self._resume()

    def close(self) -> None:
        """Drop unfinished work, without results."""
        for operator in self.unfinished:
            operator.close()

    def _last(self) -> OperatorPieces:
        """Return the unfinished operator that is furthest downstream."""
        return max(self.unfinished, key=_index)


class OperatorPieces:
    """Work of one operator in pieces, and the elements that wait for it."""

    __slots__ = ("_chain", "_size", "_waiting", "_work", "index", "name", "rooms", "unfinished")

    def __init__(self, chain: ChainPieces, index: int, name: str, size: BatchSize) -> None:
        """``index`` is the place of the operator in the chain; ``name`` is the step, for errors."""
        self._chain = chain
        self._size = size
        self.index = index
        self.name = name
        #: Downstream parts that can be full; set once the chain is connected.
        self.rooms: Sequence[Room] = ()
        #: True while elements for the operator have to wait.
        self.unfinished = False
        #: None while only elements wait.
        self._work: Iterator[int] | None = None
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def limit(self) -> int:
        """The maximum of results in the next piece."""
        return self._size.limit

    @property
    def downstream(self) -> Room:
        """A room that is full while a later operator of the chain is unfinished."""
        return _Downstream(self._chain.unfinished, self.index)

    def run(self, work: Iterator[int]) -> None:
        """Run ``work`` until it ends, the loop budget is spent, or a downstream part is full."""
        size, steady, spent = self._size, self._chain.steady, self._chain.spent
        start = steady()
        for results in work:
            if results:
                now = steady()
                size.took(results, now - start)
                start = now
            if spent() or (self.rooms and self._waits()):
                self._suspend(work)
                return
            if not results:
                start = steady()
        self._work = None

    def put(self, element: Callable[[], None]) -> None:
        """Queue an element for the operator, which is unfinished: a function that processes it."""
        self._waiting.append(element)

    def full_room(self) -> Room | None:
        """Return a full downstream part; None if all have room."""
        for room in self.rooms:
            if room.full:
                return room
        return None

    def step(self) -> None:
        """Run the next pieces, or process the next element that waits. Raises what the operator raises."""
        try:
            if self._work is not None:
                self.run(self._work)
            else:
                self._waiting.popleft()()
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Operators are synchronous, so a CancelledError is the user function's own and cancels no task.
            raise OperatorError.of(self.name, exc) from exc
        if self._work is None and not self._waiting:
            self.unfinished = False
            self._chain.unfinished.remove(self)

    def close(self) -> None:
        """Drop the work and the elements, without results."""
        self._work = None
        self._waiting.clear()

    def _waits(self) -> bool:
        return not self._chain.ignores_room and self.full_room() is not None

    def _suspend(self, work: Iterator[int]) -> None:
        self._work = work
        if not self.unfinished:
            self.unfinished = True
            self._chain.add(self)


class _Downstream:
    """Full while an operator after number ``index`` is unfinished."""

    __slots__ = ("_index", "_unfinished")

    def __init__(self, unfinished: Sequence[OperatorPieces], index: int) -> None:
        self._unfinished = unfinished
        self._index = index

    @property
    def full(self) -> bool:
        for one in self._unfinished:  # noqa: SIM110 - as in CallSlots
            if one.index > self._index:
                return True
        return False


def _index(operator: OperatorPieces) -> int:
    return operator.index
