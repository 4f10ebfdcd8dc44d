"""``Message``: a record with all that a broker knows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


# Not slotted: on Python 3.11 Message[str, int](…) of a frozen, slotted generic raises.
@dataclass(frozen=True)
class Message(Generic[K_co, V_co]):
    """A message of a topic, stream or queue.

    Sources return it in place of the value with ``messages=True``; sinks write its key, headers and timestamp where
    their system has them. What a system does not have is None or empty.
    """

    key: K_co | None
    value: V_co | None
    """None is a tombstone: the key is deleted."""
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None
    """Epoch ms, by the producer or by the broker."""
    origin: str = ""
    """The topic, stream or queue."""
    partition: int | None = None
    offset: int | str | None = None
    """The position within ``origin`` and ``partition``, in the form of the system."""
