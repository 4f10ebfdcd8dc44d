"""The interface of formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from aflow.connect import ConnectorError

T = TypeVar("T")


class FormatError(ConnectorError):
    """Bytes are no record of a format, or a record cannot be encoded; the message says why, without the bytes."""


class Format(ABC, Generic[T]):
    """Encodes records of type ``T`` as the bytes of a message, and decodes them.

    A description that may be used by several readers and writers at a time. ``decode`` and ``encode`` run on the event
    loop, once for each record: they must not block. What they need from elsewhere, such as schemas, is fetched by the
    two methods that are awaited before them.
    """

    def for_topic(self, topic: str, *, is_key: bool = False) -> Format[T]:
        """Return this format for the messages of ``topic``, or for their keys. Returns the format itself by default.

        Called by sinks, for formats whose schemas have names with those of topics.
        """
        return self

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """Return the record in ``data``. Raises ``FormatError`` for bytes that are none."""

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Return ``value`` as bytes. Raises ``FormatError`` for a value that the format cannot hold."""

    async def before_decoding(self, messages: Sequence[bytes]) -> None:
        """Fetch what ``decode`` needs for ``messages``. Raises ``ConnectorError``. A no-op by default.

        Data that ``decode`` will refuse is no error here.
        """
        return None

    async def before_encoding(self, values: Sequence[T]) -> None:
        """Fetch what ``encode`` needs for ``values``. Raises ``ConnectorError``. A no-op by default."""
        return None
