"""A plain generator around a coroutine: batches that one thread iterates over, worked on by the event loop of another.

Only the caller's thread, Spark's, touches the iterator, and yields results. The coroutine gets input that was read
ahead, ``prefetch`` batches at most, and hands out results, ``credits`` at most before it has to wait. So what it has
begun goes on while the caller's thread waits for the next batch, or is busy with results, and there are never more than
a few batches of a partition in memory.

Both threads look at the same few fields, under one lock that nobody keeps while waiting. Who has nothing to do sleeps:
the caller on a condition, the loop in its selector. Each wakes the other only if that one sleeps, so a thread that
finds several batches takes them all for one crossing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

from aflow.errors import ConnectorError, FlowDefinitionError, shown
from aflow_connectors.spark.worker import GRACE, Errand, WorkerLoop, worker_loop

B = TypeVar("B")
R = TypeVar("R")


class InputFailed(ConnectorError):
    """The input of a Spark task could not be read on; the ``__cause__`` is what the iterator raised."""


def bridged(
    batches: Iterator[B],
    work: Callable[[Inbox[B], Outbox[R]], Coroutine[Any, Any, None]],
    *,
    prefetch: int = 4,
    credits: int = 4,
    grace: float = GRACE,
) -> Generator[R, None, None]:
    """Yield what ``work`` puts into its outbox, in that order; it runs on the loop of the worker process.

    ``work`` gets ``batches`` by its inbox. At most ``prefetch`` batches are read ahead of it, and ``credits`` results
    wait for the caller. The generator ends when ``work`` has ended, whether it has taken all its input or not.

    Raises what ``work`` has failed with, in place of an ``ExceptionGroup`` the first error in it with a note on the
    others; results that were put before come first. What ``batches`` raises is raised as it is, once ``work``, whose
    inbox and outbox raise ``InputFailed`` then, has ended. If the generator is closed before its end, ``work`` is
    cancelled and waited for. What does not end within ``grace`` (seconds) is reported in the log and left behind.
    """
    check_bound("prefetch", prefetch)
    check_bound("credits", credits)
    return _bridged(batches, work, prefetch, credits, grace)


#: Seconds that the caller's thread sleeps at most before it looks for signals.
_SLEEP: Final = 1.0


def check_bound(name: str, number: object) -> None:
    """Raises ``FlowDefinitionError`` for what is no number of batches from 1 on."""
    if type(number) is not int or number < 1:
        raise FlowDefinitionError(f"{name}= is a number of batches from 1 on, not {shown(number)}")


def _bridged(
    batches: Iterator[B],
    work: Callable[[Inbox[B], Outbox[R]], Coroutine[Any, Any, None]],
    prefetch: int,
    credits: int,
    grace: float,
) -> Generator[R, None, None]:
    loop = worker_loop()
    crossing: _Crossing[B, R] = _Crossing(loop, prefetch, credits)
    errand = loop.begin(lambda: work(Inbox(crossing), Outbox(crossing)), crossing.end, grace=grace)
    try:
        while (step := crossing.next_step()) is not _Step.END:
            if step is _Step.YIELD:
                yield crossing.result()
            else:
                _read(batches, crossing, errand, grace)
    finally:
        loop.end(errand, grace=grace)
    if errand.error is not None:
        raise _first_leaf(errand.error)


def _read(batches: Iterator[B], crossing: _Crossing[B, Any], errand: Errand, grace: float) -> None:
    try:
        batch = next(batches)
    except StopIteration:
        crossing.end_input(None)
    except Exception as exc:
        crossing.end_input(exc)
        errand.wait(grace)
        raise
    else:
        crossing.give(batch)


class Inbox(Generic[B]):
    """Where the coroutine gets its input; on the loop."""

    def __init__(self, crossing: _Crossing[B, Any]) -> None:
        self._crossing = crossing

    async def take(self) -> B | None:
        """The next batch; None at the end, and again whenever it is asked. Raises ``InputFailed``."""
        crossing = self._crossing
        while crossing.waits_for_input():
            await crossing.changed_for_loop.wait()
        return crossing.take()


class Outbox(Generic[R]):
    """Where the coroutine leaves its results; on the loop."""

    def __init__(self, crossing: _Crossing[Any, R]) -> None:
        self._crossing = crossing

    @property
    def full(self) -> bool:
        """True while ``put`` would wait."""
        return self._crossing.full

    async def put(self, result: R) -> None:
        """Hand ``result`` to the caller's thread; waits while no credit is left. Raises ``InputFailed``."""
        crossing = self._crossing
        while crossing.waits_for_credit():
            await crossing.changed_for_loop.wait()
        crossing.put(result)


class _Step(Enum):
    """What the caller's thread does next."""

    READ = "read"
    YIELD = "yield"
    END = "end"


class _Crossing(Generic[B, R]):
    """What the two threads share."""

    def __init__(self, loop: WorkerLoop, prefetch: int, credits: int) -> None:
        self._loop = loop
        self._prefetch: Final = prefetch
        self._credits: Final = credits
        #: Guards everything below; the caller's thread sleeps on it.
        self._changed = threading.Condition(threading.Lock())
        self._caller_sleeps = False
        self._input: deque[B] = deque()
        self._input_ended = False
        self._input_error: Exception | None = None
        self._results: deque[R] = deque()
        #: Reading and yielding take turns: neither may starve the other.
        self._read_first = True
        self._ended = False
        #: Set on the loop when the caller's thread has changed something that somebody there waits for.
        self.changed_for_loop = asyncio.Event()
        #: True while somebody there waits, and nobody was told to wake him.
        self._loop_sleeps = False

    # -- In the caller's thread.

    def next_step(self) -> _Step:
        """Wait until there is something to do for the caller's thread, and say what."""
        with self._changed:
            while True:
                reads = (
                    not self._input_ended and not self._ended and len(self._input) < self._prefetch
                )
                if reads and (self._read_first or not self._results):
                    self._read_first = False
                    return _Step.READ
                if self._results:
                    self._read_first = True
                    return _Step.YIELD
                if self._ended:
                    return _Step.END
                self._caller_sleeps = True
                # A signal that comes in the moment before a thread sleeps does not wake it: an interrupt would be lost.
                self._changed.wait(_SLEEP)

    def give(self, batch: B) -> None:
        """Add a batch to the input."""
        with self._changed:
            self._input.append(batch)
            self._wake_loop()

    def end_input(self, error: Exception | None) -> None:
        """There is no further batch, because of ``error`` or since all were read."""
        with self._changed:
            self._input_ended = True
            self._input_error = error
            self._wake_loop()

    def result(self) -> R:
        """The next result, for which there is a credit again."""
        with self._changed:
            result = self._results.popleft()
            self._wake_loop()
            return result

    def _wake_loop(self) -> None:
        if self._loop_sleeps:
            self._loop_sleeps = False
            self._loop.soon(self.changed_for_loop.set)

    # -- On the loop.

    @property
    def full(self) -> bool:
        return len(self._results) >= self._credits

    def waits_for_input(self) -> bool:
        """True if there is neither input nor its end; then ``changed_for_loop`` will be set."""
        with self._changed:
            return self._sleeps(not self._input and not self._input_ended)

    def waits_for_credit(self) -> bool:
        """True if there is no room for a result; then ``changed_for_loop`` will be set."""
        with self._changed:
            return self._sleeps(self.full and self._input_error is None)

    def take(self) -> B | None:
        """The next batch, if there is one."""
        with self._changed:
            self._check_input()
            if not self._input:
                return None
            batch = self._input.popleft()
            if not self._input_ended:
                self._wake_caller()
            return batch

    def put(self, result: R) -> None:
        """Add a result."""
        with self._changed:
            self._check_input()
            self._results.append(result)
            self._wake_caller()

    def end(self) -> None:
        """The work has ended."""
        with self._changed:
            self._ended = True
            self._wake_caller()

    def _sleeps(self, waits: bool) -> bool:
        if waits:
            self.changed_for_loop.clear()
            self._loop_sleeps = True
        return waits

    def _wake_caller(self) -> None:
        if self._caller_sleeps:
            self._caller_sleeps = False
            self._changed.notify()

    def _check_input(self) -> None:
        if self._input_error is not None:
            raise InputFailed(
                f"the input of the Spark task cannot be read on: {shown(self._input_error)}"
            ) from self._input_error


def _first_leaf(error: BaseException) -> BaseException:
    """The error that came first, with a note on how many there were besides it."""
    leaves = list(_leaves(error))
    if len(leaves) > 1:
        others = ", ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves[1:4])
        more = f", and {len(leaves) - 4} more" if len(leaves) > 4 else ""
        leaves[0].add_note(f"and {len(leaves) - 1} more failed with it: {others}{more}")
    return leaves[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(part)
    else:
        yield error
