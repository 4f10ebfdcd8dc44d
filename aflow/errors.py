"""Every error that aflow raises on purpose.

::

    AflowError
    ├── FlowDefinitionError   the pipeline is described wrongly (also a ValueError)      the author's fault
    ├── OperatorError         a user function raised; names operator, key, timestamp      the function's fault
    ├── CheckpointError       a checkpoint was declined, expired, or could not be stored
    ├── RestoreError          a snapshot does not fit the pipeline that restores it
    ├── ConnectorError        an end of the pipeline failed                               the outside world's fault
    │   ├── SourceError
    │   └── SinkError
    ├── JobStopped            the job does not run (any more), so it cannot do what was asked
    │   └── MailboxClosed
    ├── SourceFull            a PushSource takes no more for now (also an asyncio.QueueFull)
    └── InternalError         an invariant of aflow is broken                             our fault: please report it
"""

from __future__ import annotations

from asyncio import QueueFull
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime

__all__ = [
    "AflowError",
    "CheckpointError",
    "ConnectorError",
    "FlowDefinitionError",
    "InternalError",
    "JobStopped",
    "MailboxClosed",
    "OperatorError",
    "RestoreError",
    "SinkError",
    "SourceError",
    "SourceFull",
]

#: A record is shown in an error up to this many characters: enough to recognise it, too few to flood a log.
_SHOWN = 200


class AflowError(Exception):
    """The root: ``except AflowError`` catches whatever aflow raises on purpose."""


class FlowDefinitionError(AflowError, ValueError):
    """The description of a pipeline, or an argument of one of its steps, is wrong. Raised before anything runs."""


class OperatorError(AflowError):
    """A user function failed on a record (or a timer); the original exception is the ``__cause__``.

    ``record``, ``key`` and ``timestamp`` (epoch ms) say where in the data, as far as that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        operator: str,
        record: object = None,
        key: Hashable = None,
        timestamp: int | None = None,
    ) -> None:
        super().__init__(message)
        self.operator = operator
        self.record = record
        self.key = key
        self.timestamp = timestamp

    @classmethod
    def of(
        cls,
        operator: str,
        cause: BaseException,
        *,
        record: object = None,
        key: Hashable = None,
        timestamp: int | None = None,
        after: str = "",
    ) -> OperatorError:
        """Describe ``cause``, raised by the user function of ``operator`` while it handled ``record``."""
        where = [f"record {shown(record)}"] if record is not None else []
        where += [f"key {shown(key)}"] if key is not None else []
        where += [f"timestamp {timestamp} ({readable(timestamp)})"] if timestamp is not None else []
        detail = f" on {', '.join(where)}" if where else ""
        return cls(
            f"step {operator!r} failed{detail}{after}: {type(cause).__name__}: {cause}",
            operator=operator,
            record=record,
            key=key,
            timestamp=timestamp,
        )


class CheckpointError(AflowError):
    """A checkpoint could not be taken: declined, expired, or not stored."""


class RestoreError(AflowError):
    """A snapshot does not fit the pipeline that is to continue from it: state is missing, or its type has changed."""


class ConnectorError(AflowError):
    """Something outside the process, behind a source or a sink, failed or holds data that cannot be read."""


class SourceError(ConnectorError):
    """A source could not be read; the message names the place (file, line, offset) and the reason."""


class SinkError(ConnectorError):
    """A sink could not be written; the message names the place and the reason."""


class JobStopped(AflowError):
    """The job has ended (or is about to), so what was asked of it cannot be done."""


class MailboxClosed(JobStopped):
    """A mail was posted to a task that takes no more: it is draining or has ended."""


class SourceFull(AflowError, QueueFull):
    """``PushSource.send_nowait`` found as many records waiting as the source holds; also an ``asyncio.QueueFull``."""


class InternalError(AflowError):
    """An invariant of aflow itself is broken; ``events`` are the most recent ones the machine saw, oldest first."""

    def __init__(self, message: str, *, events: Sequence[object] = ()) -> None:
        story = "".join(f"\n  {event!r}" for event in events)
        recent = f"\nRecent events, oldest first:{story}" if story else ""
        super().__init__(
            f"{message}\nThis is a bug in aflow, not in your pipeline; please report it.{recent}"
        )
        self.events = tuple(events)


def shown(value: object) -> str:
    """``repr`` of a user's value, cut to a readable length; a ``__repr__`` that fails is named instead of raised."""
    try:
        text = repr(value)
    except Exception as exc:
        return f"<{type(value).__name__} whose repr failed: {exc}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def readable(timestamp: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, or as a bare number where no calendar reaches."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
