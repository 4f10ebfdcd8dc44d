"""Copies of all timers of a queue, taken in pieces while timers are registered, deleted and fire.

Theory. A copy promises the timers of one moment. To list a million timers takes up to 0.2 s. So the moment itself only
lists the places of the queue (times, or times and windows), and the timers at them are collected later, in pieces. The
queue records the first change of each timer since the moment (``ChangeRecord``). A timer whose first change is that it
was added was not there at the moment; one whose first change is that it was removed was there, whether a piece found it
or not. All others are as they were.

Timers of one place keep their order, except those that were removed since the moment, which are last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from aflow.machines.timer_changes import ChangeRecord, Identity
from aflow.model.time import Timestamp

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)
K_co = TypeVar("K_co", bound=Hashable, covariant=True)
N_co = TypeVar("N_co", bound=Hashable, covariant=True)
P = TypeVar("P")

#: Timers that are collected at once: less than a millisecond.
_PIECE: Final = 512


class TimerCopy(Protocol[K_co, N_co]):
    """All timers of a queue at one moment. They may be iterated over repeatedly, and in another thread."""

    def __iter__(self) -> Iterator[tuple[Timestamp, K_co, N_co]]:
        """Iterate over the timers, after ``gather``."""
        ...

    def gather(self) -> Iterator[Sequence[K_co]]:
        """Complete the copy in pieces, and yield the keys of each piece; an iterator that is shared by all calls.

        Must end before changes of the queue are taken again.
        """
        ...


class CopyInPieces(Generic[P, K, N]):
    """The timers at ``places`` of a queue that records its ``changes``.

    ``listed(place)`` returns the present timers of a place in any form, and ``identity(place, listed)`` one of them.
    """

    __slots__ = (
        "_changes",
        "_collected",
        "_identity",
        "_listed",
        "_places",
        "_removed",
        "_since",
        "_work",
    )

    def __init__(
        self,
        places: list[P],
        *,
        listed: Callable[[P], Sequence[Any]],
        identity: Callable[[P, Any], Identity[K, N]],
        changes: ChangeRecord[K, N],
    ) -> None:
        self._places = places
        self._listed = listed
        self._identity = identity
        self._changes = changes
        self._since: Mapping[Identity[K, N], bool] = changes.begin_copy()
        #: Times, keys and namespaces of each piece: a tuple for each timer would be an object for the collector.
        self._collected: list[tuple[list[Timestamp], list[K], list[N]]] = []
        #: The timers that were removed between the moment and the end of ``gather``.
        self._removed: Mapping[Identity[K, N], None] = {}
        self._work = self._pieces()

    def gather(self) -> Iterator[Sequence[K]]:
        """Collect the timers in pieces, and yield the keys of each piece."""
        return self._work

    def __iter__(self) -> Iterator[Identity[K, N]]:
        removed = self._removed
        for columns in self._collected:
            piece = zip(*columns, strict=True)
            yield from (timer for timer in piece if timer not in removed) if removed else piece
        yield from removed

    def _pieces(self) -> Iterator[Sequence[K]]:
        for some in self._listings():
            if since := self._since:
                some = [timer for timer in some if timer not in since]
            keys = [key for _, key, _ in some]
            self._collected.append(([at for at, _, _ in some], keys, [of for _, _, of in some]))
            yield keys
        self._removed = dict.fromkeys(timer for timer, there in self._since.items() if not there)
        self._changes.end_copy()
        yield [key for _, key, _ in self._removed]

    def _listings(self) -> Iterator[list[Identity[K, N]]]:
        """Yield the timers that were present when their place was listed, some at a time."""
        listed, identity = self._listed, self._identity
        some: list[Identity[K, N]] = []
        places = self._places
        while places:
            place = places.pop()  # one by one, which frees a little memory at a time
            left = iter(listed(place))
            while part := list(islice(left, _PIECE)):
                some += [identity(place, one) for one in part]
                if len(some) >= _PIECE:
                    yield some
                    some = []
        if some:
            yield some


class CompleteCopy(Generic[K, N]):
    """Timers that were copied at once, with keys that are to be observed."""

    __slots__ = ("_keys", "_timers")

    def __init__(self, timers: Iterable[Identity[K, N]], keys: Sequence[K]) -> None:
        self._timers = timers
        self._keys = iter(keys)

    def gather(self) -> Iterator[Sequence[K]]:
        """Yield the keys in pieces."""
        while some := list(islice(self._keys, _PIECE)):
            yield some

    def __iter__(self) -> Iterator[Identity[K, N]]:
        return iter(self._timers)
