"""Work in pieces: a step that fires a million windows must not block the event loop until all of them have fired.

Theory. An operator does work that may take long (firing, cleaning up) in a generator, and passes it to ``pieces.run``.
The generator yields between two pieces, and the runtime resumes it later if the task must yield to the event loop.
Until it ends, the operator gets nothing else: no batch, no watermark, no alarm, and its state is not captured. So
results and their order are those of one piece, and the generator may iterate over the state of the operator across
pieces. It emits the watermark itself, after the results. If the job ends early, it is closed and must emit nothing.

The runtime adapts the number of results in a piece to the time that they take, together with the downstream steps of
the chain. All other work is done in slices of ``CHUNK`` items, since its cost is known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from aflow.model.batch import BATCH_RECORDS

T = TypeVar("T")

#: Number of items after which work other than that for results yields: some tens of microseconds.
CHUNK: Final = 256

#: Number of items that are sorted at once: less than a millisecond.
_RUN: Final = 2048


class PieceRunner(Protocol):
    """Runs the work of one operator in pieces."""

    @property
    def limit(self) -> int:
        """The maximum of results in the next piece, at least 1."""
        ...

    def run(self, work: Iterator[int]) -> None:
        """Run ``work`` to its end, now or in several pieces.

        It yields the number of results of each piece, and 0 for a piece without results. Raises what ``work`` raises.
        """
        ...


class OnePiece:
    """Runs work at once, outside of a job."""

    limit = BATCH_RECORDS

    def run(self, work: Iterator[int]) -> None:
        """Run ``work`` to its end."""
        for _ in work:
            pass


def slices(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield ``items`` in lists of ``CHUNK``."""
    left = iter(items)
    while some := list(islice(left, CHUNK)):
        yield some


def drained(items: list[T]) -> Iterator[T]:
    """Remove and yield ``items`` in order. Their memory is freed one by one, and not all at once at the end."""
    items.reverse()
    while items:
        yield items.pop()


def drained_slices(items: list[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Remove and yield ``items`` in order, in slices of ``size``."""
    items.reverse()
    while items:
        some = items[-size:]
        del items[-size:]
        some.reverse()
        yield some


def in_order(items: list[T], key: Callable[[T], int]) -> Generator[int, None, Iterator[T]]:
    """Return an iterator that removes ``items`` in the order of ``key``, with equal ones in their order.

    They are sorted in pieces.
    """
    runs: list[list[T]] = []
    for some in drained_slices(items, _RUN):
        some.sort(key=key)
        if runs and key(runs[-1][-1]) <= key(some[0]):
            runs[-1] += some
        else:
            runs.append(some)
        yield 0
    return drained(runs[0]) if len(runs) == 1 else merge(*map(drained, runs), key=key)


def discarded(entries: dict[Hashable, Any]) -> Iterator[int]:
    """Clear ``entries`` in pieces: to free a million entries at once takes 50 to 100 ms."""
    while entries:
        for _ in range(min(CHUNK, len(entries))):
            entries.popitem()
        yield 0
