"""The time for which a thread was ready to run and got no processor, as Linux counts it.

The times of a clock and of the processor cannot tell a thread that sleeps in a system call, which blocks the event
loop, from one that other programs keep from running. The scheduler counts the latter.
"""

from __future__ import annotations

import os
from typing import Final

#: Three numbers: ns on a processor, ns in the queue of one, time slices.
_FILE: Final = "/proc/thread-self/schedstat"

_NANOS: Final = 1e-9


class ProcessorWait:
    """Reads the waiting time of the thread that has created it, from any thread."""

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open(_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not Linux, or a kernel that does not count
            self._file = None

    def seconds(self) -> float | None:
        """Return the seconds for which the thread has waited so far; None if the system does not count them."""
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, 100, 0).split()[1]) * _NANOS
        except (OSError, ValueError, IndexError):  # the thread has ended, for example
            return None

    def close(self) -> None:
        """Close the file. ``seconds`` returns None from now on."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)
