"""``parts``: divides the messages of a batch into those that wait for their confirmation at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: Messages of a part, at most.
MESSAGES: Final = 1_000

#: Bytes of a part of several messages, at most. A part is repeated after a lost connection, so it must not be too large
#: for a slow one.
BYTES: Final = 8_000_000


def parts(messages: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the messages in order, in parts. ``size`` returns the bytes of one."""
    part: list[T] = []
    total = 0
    for message in messages:
        length = size(message)
        if part and (len(part) == MESSAGES or total + length > BYTES):
            yield part
            part, total = [], 0
        part.append(message)
        total += length
    if part:
        yield part
