"""Handling of data that is no record: an error, or entries of the dead-letter stream."""

from __future__ import annotations

from typing import Final

from aflow.connect import BadRecord, SourceError, Tag

#: Maximum bytes of a bad record in the dead-letter stream, and in an error message.
_KEPT: Final = 4096
_SHOWN: Final = 120


class BadRecords:
    """The bad records of one input named ``origin``, for messages."""

    def __init__(self, origin: object, dead_letters: Tag[BadRecord] | None) -> None:
        self._origin = origin
        self._kept = dead_letters is not None

    def bad(self, where: str, reason: str, raw: bytes) -> BadRecord:
        """Describe the record at ``where``. Raises it as a ``SourceError`` if there is no dead-letter stream."""
        if self._kept:
            return BadRecord(f"{self._origin}, {where}", reason, raw[:_KEPT])
        start = raw[:_SHOWN].decode("utf-8", "backslashreplace")
        raise SourceError(
            f"{self._origin}, {where}: {reason}: {start!r}{'…' if len(raw) > _SHOWN else ''} "
            "(dead_letters=Tag(…) sends bad records to a stream of their own)"
        )
