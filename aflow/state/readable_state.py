"""Keyed state for readers outside of its step: the value of one key, and the keys in order.

Theory. Reads are between two batches of a step. One key takes one lookup. All keys cannot be visited at once, so a
listing visits them in pieces, between which the step goes on. It reports keys in the order of their canonical bytes
(``aflow.model.keys``), which is the same for each backend and for checkpoints, and does not depend on the time at which
a key was added. So the last reported key tells where the listing continues, whatever has changed meanwhile.

``ReadableState.scan`` yields the keys in any order, and a key more than once if it is stored at several places. A
``KeySelection`` keeps the first ones of them that follow the last reported key. A listing of more keys than a selection
holds scans again. That costs time for each selection, and bounds memory. Steps that store keys in order stop a scan
early.

Invariants. Each key is reported at most once, since each selection begins after the last key. A key that has state
throughout is reported, provided that ``scan`` finds each such key. Values are read when the key is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import Enum
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from aflow.model.keys import encode_key, encode_keys
from aflow.state.keyed_entries import KeyGroupCodec

#: Keys that a scan yields at once, and that a selection merges in one piece: less than a millisecond.
SCANNED: Final = 256

#: Keys that a selection may hold beyond those that it selects, before it drops the last ones.
_SURPLUS: Final = 1024

P = TypeVar("P", int, tuple[int, int])

_Placed: TypeAlias = tuple[bytes, Hashable]
"""The canonical bytes of a key, and the key."""

_canonical: Final = itemgetter(0)


Prefix: TypeAlias = str | tuple[Hashable, ...]
"""The beginning of keys: of text, or the first parts of tuples."""


class Absent(Enum):
    """The type of ``ABSENT`` and ``FIRST``."""

    ABSENT = "absent"
    FIRST = "first"


#: Stands for the value of a key without state. ``None`` cannot mark absence: it is a valid value.
ABSENT: Final = Absent.ABSENT

#: Stands for the key before all others. ``None`` is a valid key.
FIRST: Final = Absent.FIRST


class ReadableState(Protocol):
    """The keyed state of one step in one subtask, or that of some keys in a checkpoint.

    No method changes state, and none counts as an access for a time to live. Expired state is absent.
    """

    @property
    def names(self) -> Sequence[str]:
        """The names of the states."""
        ...

    @property
    def key_codec(self) -> KeyGroupCodec:
        """The codec of the keys."""
        ...

    def read(self, name: str, key: Hashable) -> object:
        """Return the value of ``key``, which shares no mutable object with the state; ``ABSENT`` if there is none.

        Raises ``FlowDefinitionError`` for an unknown name, and what user code raises that makes the value.
        """
        ...

    def scan(self, name: str, wanted: KeySelection) -> Iterator[Sequence[Hashable]]:
        """Yield keys in lists of at most ``SCANNED``; state may change between two of them.

        Each key that has state throughout and may be ``wanted`` is yielded, others may be, and each any number of
        times.
        """
        ...


class KeyCursor(NamedTuple):
    """The place of a key in the order of keys, without the key: values that can be stored as text."""

    canonical: bytes
    kind: str
    text: str

    @staticmethod
    def of(key: Hashable) -> KeyCursor:
        """Return the place of ``key``. Raises ``UnsupportedKey``."""
        return KeyCursor(encode_key(key), *_rank(key))


class KeySelection:
    """The first ``most`` keys that follow ``after`` and begin with ``prefix``, in order.

    ``after`` is a key or its cursor. A ``prefix`` is text that keys begin with, or a tuple of their first parts; None
    selects keys of all types. Raises
    ``UnsupportedKey`` for a key or prefix that cannot be one.
    """

    def __init__(
        self,
        most: int,
        after: Hashable = FIRST,
        prefix: Prefix | None = None,
    ) -> None:
        self.most: Final = most
        self._after = after
        self._prefix = prefix
        cursor = after if isinstance(after, KeyCursor) else None
        if cursor is None and after is not FIRST:
            cursor = KeyCursor.of(after)
        self._cursor = cursor
        self._begin = b"" if cursor is None else cursor.canonical
        begin = b"" if prefix is None else encode_key(prefix)
        #: No canonical bytes before it are selected.
        self.start: Final = max(begin, self._begin)
        #: The end (exclusive) of the canonical bytes that are selected; None: there is none.
        self.stop: Final = _following(begin)
        #: Sorted lists of keys.
        self._runs: list[list[_Placed]] = []
        #: The keys in them, each once: a key with a thousand windows is scanned a thousand times.
        self._held: set[Hashable] = set()
        #: Keys beyond it are not selected; None before it is known.
        self._last: bytes | None = None
        #: True once a key was visited that may begin with the prefix: it is text, or a tuple, too.
        self._has_kind = False
        self._other_kind: Hashable = ABSENT

    @property
    def other_kind(self) -> Hashable:
        """A visited key of another kind than the prefix, if none was of its kind (text or tuples); else ``ABSENT``."""
        return ABSENT if self._has_kind else self._other_kind

    @property
    def held(self) -> int:
        """The number of keys that it holds."""
        return len(self._held)

    def fill(self, scan: Iterable[Sequence[Hashable]]) -> Iterator[None]:
        """Select from the keys of ``scan``, in pieces."""
        for keys in scan:
            self.add(keys)
            yield
            if self.held >= 2 * max(self.most, _SURPLUS):
                yield from self._drop_last()

    def matching(self, keys: Iterable[Hashable]) -> list[_Placed]:
        """Return those of ``keys`` that may be selected, with their canonical bytes."""
        keys = list(keys)
        if self._prefix is not None:
            if not self._has_kind:
                self._find_kind(keys, str if isinstance(self._prefix, str) else tuple)
            keys = list(filter(self._begins, keys))
        start, begin, stop = self.start, self._begin, self.stop
        return [
            (canonical, key)
            for canonical, key in zip(encode_keys(keys), keys, strict=True)
            if canonical >= start
            and (stop is None or canonical < stop)
            and (canonical != begin or self._follows(key))
        ]

    def add(self, keys: Iterable[Hashable]) -> None:
        """Select from some hundred keys."""
        run = self.matching(keys)
        if (last := self._last) is not None:
            run = [placed for placed in run if placed[0] <= last]
        held = self._held
        run = [placed for placed in run if placed[1] not in held]
        if run:
            run.sort(key=_canonical)
            self._runs.append(run)
            held.update(key for _, key in run)

    def slices(self, size: int = SCANNED) -> Iterator[list[Hashable]]:
        """Yield the selected keys in order, ``size`` at a time; each slice takes less than a millisecond."""
        left = iter(self)
        while some := list(islice(left, size)):
            yield some

    def __iter__(self) -> Iterator[Hashable]:
        """Yield the selected keys, each once; fewer than ``most`` if no key follows them."""
        groups = groupby(merge(*self._runs, key=_canonical), _canonical)
        return islice(chain.from_iterable(_in_order(placed) for _, placed in groups), self.most)

    def _drop_last(self) -> Iterator[None]:
        """Keep the first ``most`` keys, and those with the same canonical bytes as the last of them, in pieces."""
        kept: list[_Placed] = []
        visited = 0
        for canonical, placed in groupby(merge(*self._runs, key=_canonical), _canonical):
            if len(kept) >= self.most:
                self._last = kept[-1][0]
                break
            some = list(placed)
            kept += ((canonical, key) for key in _in_order(some))
            visited += len(some)
            if visited >= SCANNED:
                visited = 0
                yield
        self._runs = [kept]
        self._held = {key for _, key in kept}

    def _find_kind(self, keys: Sequence[Hashable], kind: type) -> None:
        self._has_kind = any(isinstance(key, kind) for key in keys)
        if keys:
            self._other_kind = keys[0]

    def _begins(self, key: Hashable) -> bool:
        """Return True if ``key`` begins with the prefix."""
        prefix = self._prefix
        if isinstance(prefix, str):
            return isinstance(key, str) and key.startswith(prefix)
        parts = cast("tuple[Hashable, ...]", key) if isinstance(key, tuple) else None
        return prefix is None or (parts is not None and parts[: len(prefix)] == prefix)

    def _follows(self, key: Hashable) -> bool:
        """Return True if ``key``, which has the canonical bytes of the key ``after``, follows it."""
        cursor = self._cursor
        return cursor is None or (key != self._after and _rank(key) > cursor[1:])


def _in_order(placed: Iterable[_Placed]) -> Iterable[Hashable]:
    """Return the keys of some with the same canonical bytes, each once and in an order that does not change."""
    keys = dict.fromkeys(key for _, key in placed)
    return keys if len(keys) == 1 else sorted(keys, key=_rank)


def _rank(key: Hashable) -> tuple[str, str]:
    return type(key).__name__, repr(key)


def _following(prefix: bytes) -> bytes | None:
    """Return the first bytes after all that begin with ``prefix``; None if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def scanned(keys: Sequence[Hashable]) -> Iterator[Sequence[Hashable]]:
    """Yield ``keys``, a copy that does not change, in lists for ``ReadableState.scan``."""
    for start in range(0, len(keys), SCANNED):
        yield keys[start : start + SCANNED]


def in_time_order(
    places: Callable[[], Iterable[P]], exists: Callable[[P], bool] = lambda _: True
) -> Iterator[P]:
    """Yield the present ``places`` of keys in ascending order, and then those that were added meanwhile.

    For scans of places of which the lowest is removed first, such as windows. Whenever a key is removed from a place
    that was not yielded yet, it can only remain in a higher one, which is yielded later. A place that does not exist
    any more is not yielded.
    """
    seen: set[P] = set()
    while fresh := sorted(place for place in places() if place not in seen):
        seen.update(fresh)
        yield from filter(exists, fresh)
