"""Markers that arrive while calls are under way: each is emitted after the results of the calls that precede it.

In contrast to a watermark, a marker holds back no later result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aflow.machines.calls.call import Call
from aflow.model.elements import Marker, ProgressMarker

#: The most markers that wait, so that a call without an end costs no memory.
_MOST: Final = 8


class WaitingMarkers:
    """The markers of one subtask that wait for calls, in order."""

    def __init__(self) -> None:
        #: Each with calls that precede it; of the first, only those whose results were not emitted.
        self._waiting: deque[tuple[Marker, set[Call]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, marker: Marker, calls: Iterable[Call]) -> None:
        """Let ``marker`` wait for ``calls``, of which there is at least one.

        If many wait already, a measurement is left out, and progress replaces the last progress that waits.
        """
        if len(self._waiting) >= _MOST:
            if not isinstance(marker, ProgressMarker):
                return
            replaced = next(
                (one for one in reversed(self._waiting) if type(one[0]) is type(marker)), None
            )
            if replaced is not None:
                self._waiting.remove(replaced)
        self._waiting.append((marker, set(calls)))

    def emitted(self, run: Iterable[Call], left: Callable[[], Iterable[Call]]) -> Iterator[Marker]:
        """Yield the markers that waited for the calls of ``run`` alone; ``left`` returns all that are not emitted."""
        self._waiting[0][1].difference_update(run)
        while self._waiting and not self._waiting[0][1]:
            yield self._waiting.popleft()[0]
            if self._waiting:
                self._waiting[0][1].intersection_update(left())
