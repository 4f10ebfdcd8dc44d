"""Run a coroutine as a plain generator: one thread iterates over batches, the event loop of another processes them.

Only the caller's thread, which belongs to Spark, touches the iterator and yields results. At most ``prefetch`` batches
are read ahead of the coroutine, and at most ``credits`` results are buffered before it waits. So the coroutine
continues while the caller's thread waits for the next batch or processes results, and memory holds a few batches of a
partition at most.

Both threads share a few fields under one lock, which neither holds while it waits. An idle thread sleeps: the caller on
a condition, the loop in its selector. Each wakes the other only if the other sleeps, so a thread takes several
available batches for one crossing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

from aflow.errors import ConnectorError, FlowDefinitionError, described, shown
from aflow_connectors.spark.executor.event_loop import GRACE, LoopJob, WorkerLoop, worker_loop

B = TypeVar("B")
R = TypeVar("R")


class InputFailed(ConnectorError):
    """Raised if reading the input of a Spark task fails; the ``__cause__`` is the error of the iterator."""


def bridged(
    batches: Iterator[B],
    work: Callable[[BridgeInput[B], BridgeOutput[R]], Coroutine[Any, Any, None]],
    *,
    prefetch: int = 4,
    credits: int = 4,
    grace: float = GRACE,
) -> Generator[R, None, None]:
    """Yield the items that ``work`` puts into its outbox, in order; ``work`` runs on the loop of the worker process.

    ``work`` receives ``batches`` by its inbox. At most ``prefetch`` batches are read ahead, and at most ``credits``
    results wait for the caller. The generator ends when ``work`` has ended, even if input remains.

    Raises the error of ``work`` after the results that it put before; of an ``ExceptionGroup`` the first error, with a
    note on the others. An error of ``batches`` is raised unchanged once ``work`` has ended; its inbox and outbox raise
    ``InputFailed`` meanwhile. If the generator is closed early, ``work`` is cancelled and awaited. Coroutines that do
    not end within ``grace`` (seconds) are logged and abandoned.
    """
    check_bound("prefetch", prefetch)
    check_bound("credits", credits)
    return _bridged(batches, work, prefetch, credits, grace)


#: Maximum sleep of the caller's thread in seconds, after which it checks for signals.
_SLEEP: Final = 1.0


def check_bound(name: str, number: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``number`` is an int of at least 1."""
    if type(number) is not int or number < 1:
        raise FlowDefinitionError(f"{name}= is a number of batches from 1 on, not {shown(number)}")


def _bridged(
    batches: Iterator[B],
    work: Callable[[BridgeInput[B], BridgeOutput[R]], Coroutine[Any, Any, None]],
    prefetch: int,
    credits: int,
    grace: float,
) -> Generator[R, None, None]:
    loop = worker_loop()
    crossing: _Crossing[B, R] = _Crossing(loop, prefetch, credits)
    job = loop.begin(
        lambda: work(BridgeInput(crossing), BridgeOutput(crossing)), crossing.end, grace=grace
    )
    try:
        while (step := crossing.next_step()) is not _Step.END:
            if step is _Step.YIELD:
                yield crossing.result()
            else:
                _read(batches, crossing, job, grace)
    finally:
        loop.end(job, grace=grace)
    if job.error is not None:
        raise _first_leaf(job.error)


def _read(batches: Iterator[B], crossing: _Crossing[B, Any], job: LoopJob, grace: float) -> None:
    try:
        batch = next(batches)
    except StopIteration:
        crossing.end_input(None)
    except Exception as exc:
        crossing.end_input(exc)
        job.wait(grace)
        raise
    else:
        crossing.give(batch)


class BridgeInput(Generic[B]):
    """Input of the coroutine. Its methods run on the loop."""

    def __init__(self, crossing: _Crossing[B, Any]) -> None:
        self._crossing = crossing

    async def take(self) -> B | None:
        """Return the next batch; None at the end, and again on each later call. Raises ``InputFailed``."""
        crossing = self._crossing
        while crossing.waits_for_input():
            await crossing.changed_for_loop.wait()
        return crossing.take()


class BridgeOutput(Generic[R]):
    """Output of the coroutine. Its methods run on the loop."""

    def __init__(self, crossing: _Crossing[Any, R]) -> None:
        self._crossing = crossing

    @property
    def full(self) -> bool:
        """Return True while ``put`` would wait."""
        return self._crossing.full

    async def put(self, result: R) -> None:
        """Pass ``result`` to the caller's thread; wait while no credit is available. Raises ``InputFailed``."""
        crossing = self._crossing
        while crossing.waits_for_credit():
            await crossing.changed_for_loop.wait()
        crossing.put(result)


class _Step(Enum):
    """Next action of the caller's thread."""

    READ = "read"
    YIELD = "yield"
    END = "end"


class _Crossing(Generic[B, R]):
    """State that the two threads share."""

    def __init__(self, loop: WorkerLoop, prefetch: int, credits: int) -> None:
        self._loop = loop
        self._prefetch: Final = prefetch
        self._credits: Final = credits
        #: Guards the fields below; the caller's thread waits on it.
        self._changed = threading.Condition(threading.Lock())
        self._caller_sleeps = False
        self._input: deque[B] = deque()
        self._input_ended = False
        self._input_error: Exception | None = None
        self._results: deque[R] = deque()
        #: Reading and yielding alternate, so neither starves the other.
        self._read_first = True
        self._ended = False
        #: Set on the loop when the caller's thread has changed a field that the coroutine waits for.
        self.changed_for_loop = asyncio.Event()
        #: True while the coroutine waits and no wake-up is scheduled.
        self._loop_sleeps = False

    # -- In the caller's thread.

    def next_step(self) -> _Step:
        """Wait until the caller's thread can act, and return its next action."""
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
                # A signal that arrives just before a thread sleeps does not wake it: without a timeout an interrupt
                # would be lost.
                self._changed.wait(_SLEEP)

    def give(self, batch: B) -> None:
        """Add a batch to the input."""
        with self._changed:
            self._input.append(batch)
            self._wake_loop()

    def end_input(self, error: Exception | None) -> None:
        """End the input: all batches were read, or reading failed with ``error``."""
        with self._changed:
            self._input_ended = True
            self._input_error = error
            self._wake_loop()

    def result(self) -> R:
        """Return the next result and free its credit."""
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
        """Return True if there is neither input nor its end; ``changed_for_loop`` will be set then."""
        with self._changed:
            return self._sleeps(not self._input and not self._input_ended)

    def waits_for_credit(self) -> bool:
        """Return True if no credit is available; ``changed_for_loop`` will be set then."""
        with self._changed:
            return self._sleeps(self.full and self._input_error is None)

    def take(self) -> B | None:
        """Return the next batch; None if there is none."""
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
        """Mark the work as ended."""
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
    """Return the first error, with a note on the number of others."""
    leaves = list(_leaves(error))
    if len(leaves) > 1:
        others = ", ".join(described(leaf) for leaf in leaves[1:4])
        more = f", and {len(leaves) - 4} more" if len(leaves) > 4 else ""
        leaves[0].add_note(f"and {len(leaves) - 1} more failed with it: {others}{more}")
    return leaves[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(part)
    else:
        yield error
