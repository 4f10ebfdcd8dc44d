"""Ctrl-C while Spark starts.

In the seconds between the start of the JVM and its first answer nobody can end it: interrupted there, pyspark forgets
the process, which would wait for a client for ever.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Generator[None]:
    """Hold back SIGINT inside, and let it come at the end if it came. Does nothing in threads, which get no signals."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[FrameType | None] = []

    def hold(_: int, frame: FrameType | None) -> None:
        came.append(frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        # pyspark sets one of its own as soon as there is something to cancel.
        if signal.getsignal(signal.SIGINT) is hold:
            signal.signal(signal.SIGINT, handler)
    if came:
        handler(signal.SIGINT, came[0])
