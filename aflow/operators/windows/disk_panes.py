"""Panes whose accumulators may be on disk: what a batch needs, and windows merged from the ranges of their panes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from aflow.model.codecs import Codec, decode_all, encode_all
from aflow.model.time import Timestamp
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import unsupported
from aflow.operators.windows.two_stacks import Panes
from aflow.state.disk.ranged_rows import RangedRows

Wanted = dict[int, dict[Hashable, None]]
"""Keys by the start of a pane."""


class AccumulatorRows:
    """Encodes one accumulator as a row."""

    def __init__(self, codec: Codec[Any]) -> None:
        self._codec = codec
        self.encode: Final = codec.encode

    def encode_all(self, rows: Sequence[Any]) -> list[bytes]:
        """Return the bytes of rows. Raises ``CodecError``."""
        return encode_all(self._codec, rows)

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[Any]:
        """Return the rows of ``keys``."""
        return decode_all(self._codec, stored)


def panes_of_batch(
    pane_at: Callable[[Timestamp], tuple[Timestamp, Timestamp]],
    keys: Sequence[Hashable],
    times: Sequence[Timestamp],
) -> Wanted:
    """Return the keys of a batch by pane; ``pane_at`` returns start and end (exclusive) of the pane of a time."""
    wanted: Wanted = {}
    low = high = 0
    some: dict[Hashable, None] = {}
    for key, time in _usable(keys, times):
        if not low <= time < high:
            low, high = pane_at(time)
            some = wanted.setdefault(low, {})
        some[key] = None
    return wanted


def windows_of_batch(
    starts_of: Callable[[Hashable, Timestamp], Iterable[Timestamp]],
    keys: Sequence[Hashable],
    times: Sequence[Timestamp],
) -> Wanted:
    """Return the keys of a batch by the start of each of their windows."""
    wanted: Wanted = {}
    for key, time in _usable(keys, times):
        for start in starts_of(key, time):
            wanted.setdefault(start, {})[key] = None
    return wanted


def distinct_keys(keys: Sequence[Hashable]) -> dict[Hashable, None]:
    """Return the keys of a batch in order, without those that are reported when their records are folded."""
    try:
        return dict.fromkeys(keys)
    except TypeError:
        return dict.fromkeys(key for key in keys if unsupported(key) is None)


def _usable(
    keys: Sequence[Hashable], times: Sequence[Timestamp]
) -> Iterable[tuple[Hashable, Timestamp]]:
    """Return keys and times of a batch, without keys that are reported when their records are folded."""
    records = zip(keys, times, strict=True)
    try:
        set(keys)
    except TypeError:
        return [(key, time) for key, time in records if unsupported(key) is None]
    return records


class PaneMerge:
    """The aggregates of the panes from ``low`` up to ``high``, as ``TwoStacks``, without aggregates in memory.

    The ranges of all panes are merged by key at each firing. Results are in the order of the bytes of their keys.
    """

    def __init__(self, panes: Panes, rows: RangedRows, accumulation: Accumulation) -> None:
        self._panes = panes
        self._rows = rows
        self._accumulation = accumulation
        self._starts: list[Timestamp] = []
        #: The current key, for a message about a failed ``merge``.
        self.key: Hashable = None

    def __len__(self) -> int:
        """Return 0: no aggregate is kept."""
        return 0

    def on_record(self, start: Timestamp, key: Hashable) -> None:
        """Do nothing: aggregates are made at each firing."""

    def slide_to(self, low: Timestamp, high: Timestamp) -> Iterator[int]:
        """Slide to panes from ``low`` to ``high``, in pieces."""
        for _ in self._rows.flush():
            yield 0
        self._starts = self._panes.between(low, high)

    def sums(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield each key with its aggregate, which the caller may change. Nothing else may be called meanwhile."""
        merge = self._accumulation.merged
        for key, parts in self._rows.merged(self._starts):
            self.key = key
            held = parts[0]
            for part in parts[1:]:
                held = merge(held, part)
            yield key, held

    def release_before(self, low: Timestamp) -> Iterator[int]:
        """Do nothing: no aggregate is kept."""
        return iter(())
