"""Open windows for readers of the state: those of a key with what they hold now, as a list of ``Windowed``.

``firing`` of each is the number of results that the window has emitted so far, 0 before the first. The value is what
its function would get or return now: the result of the accumulator, or the records if it keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from aflow.errors import FlowDefinitionError, RestoreError, shown
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.accumulation import Accumulation
from aflow.operators.windows.window_contents import EMPTY, KeyWindow, WindowContents
from aflow.state.keyed_entries import Keyed, KeyGroupCodec
from aflow.state.readable_state import ABSENT, KeySelection, ReadableState, scanned

#: The name of the state of a window step.
WINDOWS: Final = "windows"


class OpenContents(NamedTuple):
    """A window of a key, its contents, and the number of its firings so far."""

    window: TimeWindow
    held: Any
    firings: int


class WindowStep(Protocol):
    """The windows of one subtask, or some of a checkpoint."""

    def open_windows(self, key: Hashable) -> Iterable[OpenContents]:
        """Return the open windows of ``key``, in any order, without any change."""
        ...

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys with windows, as ``ReadableState.scan`` does."""
        ...


class OpenWindows:
    """The windows of a step as ``ReadableState``; ``seen`` returns what readers get for contents."""

    names: Sequence[str] = (WINDOWS,)

    def __init__(
        self, step: WindowStep, key_codec: KeyGroupCodec, seen: Callable[[Any], Any]
    ) -> None:
        self._step = step
        self._seen = seen
        self.key_codec: Final = key_codec

    def read(self, name: str, key: Hashable) -> object:
        """Return the windows of ``key`` that hold something, by start and end."""
        self._check(name)
        found = [one for one in self._step.open_windows(key) if one.held is not EMPTY]
        if not found:
            return ABSENT
        found.sort(key=_window)
        return [Windowed(key, window, self._seen(held), count) for window, held, count in found]

    def scan(self, name: str, wanted: KeySelection) -> Iterator[Sequence[Hashable]]:
        """Yield the keys with windows."""
        self._check(name)
        return self._step.window_keys()

    def _check(self, name: str) -> None:
        if name != WINDOWS:
            raise FlowDefinitionError(
                f"step {self.key_codec.operator!r} has no state named {name!r}; its state is {WINDOWS!r}"
            )


def _window(one: OpenContents) -> TimeWindow:
    return one.window


class EntrySource(Protocol):
    """The windows of a general window step."""

    def peek(self, key: Hashable) -> Iterable[KeyWindow]:
        """Return the entries of ``key``, without any change."""
        ...

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        """As ``WindowStep.window_keys``."""
        ...


class LiveEntries:
    """The windows of a general window step as a ``WindowStep``."""

    def __init__(self, windows: EntrySource) -> None:
        self._windows = windows
        self.window_keys: Final = windows.window_keys

    def open_windows(self, key: Hashable) -> Iterator[OpenContents]:
        """As ``WindowStep.open_windows``."""
        for one in self._windows.peek(key):
            yield OpenContents(one.window, one.held, one.firing)


class WindowsInCheckpoint:
    """Windows of a general window step in a checkpoint."""

    def __init__(self, by_key: Mapping[Hashable, list[OpenContents]]) -> None:
        self._by_key = by_key

    def open_windows(self, key: Hashable) -> list[OpenContents]:
        """As ``WindowStep.open_windows``."""
        return self._by_key.get(key, [])

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        """As ``WindowStep.window_keys``."""
        return scanned(list(self._by_key))


def stored_windows(
    keyed: Keyed, name: str, key_codec: KeyGroupCodec, contents: WindowContents
) -> ReadableState:
    """Return the windows in the rows ``name`` of a snapshot. Raises ``RestoreError`` for bytes that are no windows."""
    by_key: dict[Hashable, list[OpenContents]] = {}
    for key, data in key_codec.read(keyed, name):
        try:
            bounds, firing, _, held = cast(
                "tuple[list[int], int, object, bytes | None]", PLAIN.decode(data)
            )
            if held is not None:
                window = TimeWindow(bounds[0], bounds[1])
                one = OpenContents(window, contents.decode(held), firing)
                by_key.setdefault(key, []).append(one)
        except CodecError as exc:
            raise RestoreError(
                f"step {key_codec.operator!r} cannot read the contents of key {shown(key)} in a window: {exc}"
            ) from exc
    return OpenWindows(WindowsInCheckpoint(by_key), key_codec, contents.seen)


def joined_ranges(ranges: Iterable[range]) -> list[int]:
    """Return the numbers of all ``ranges``, ascending and each once. Ranges ascend and are parts of one grid."""
    found: list[int] = []
    for one in ranges:
        low = max(one.start, found[-1] + one.step) if found else one.start
        found += range(low, one.stop, one.step)
    return found


def merged_panes(
    parts: Sequence[tuple[Timestamp, Any]],
    starts: Sequence[Timestamp],
    size: int,
    accumulation: Accumulation,
) -> Iterator[tuple[Timestamp, Any]]:
    """Yield the start and the accumulator of each window that contains some of ``parts``, panes of one key.

    ``parts`` and ``starts`` ascend. The panes are merged as in ``two_stacks``, two merges for each pane and one for
    each window, and are not changed.
    """
    merge, copy = accumulation.merged, accumulation.copy
    #: The aggregates of the parts before ``middle``, each up to ``middle``, that of the oldest part last.
    front: list[Any] = []
    low = middle = high = 0
    back: Any = None
    for start in starts:
        while high < len(parts) and parts[high][0] < start + size:
            held = parts[high][1]
            back = copy(held) if high == middle else merge(back, held)
            high += 1
        while low < high and parts[low][0] < start:
            if low == middle:
                front, middle = _suffixes([held for _, held in parts[low:high]], accumulation), high
            front.pop()
            low += 1
        if low == high:
            continue
        if not front:
            yield start, copy(back)
        elif middle == high:
            yield start, copy(front[-1])
        else:
            yield start, merge(copy(front[-1]), back)


def _suffixes(parts: Sequence[Any], accumulation: Accumulation) -> list[Any]:
    """Return the aggregate of each part with those after it, the last part's first."""
    aggregates: list[Any] = []
    for held in reversed(parts):
        whole = accumulation.copy(held)
        aggregates.append(accumulation.merged(whole, aggregates[-1]) if aggregates else whole)
    return aggregates
