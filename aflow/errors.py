"""Errors that aflow raises on purpose.

::

    AflowError
    ├── FlowDefinitionError   the pipeline is defined wrongly (also a ValueError)        the author's fault
    │   └── WrongKey          a key, or a prefix of keys, that no record of a step can have
    ├── OperatorError         a user function raised; names operator, key, timestamp      the function's fault
    ├── CheckpointError       a checkpoint was declined, expired, or could not be stored
    │   ├── StorageTaken      another job has taken over the storage of checkpoints
    │   └── UnstorableState   a value of the pipeline has no encoding                     the author's fault
    ├── RestoreError          a snapshot does not fit the pipeline that restores it
    ├── ConnectorError        a source or sink failed                                     the outside world's fault
    │   ├── SourceError
    │   │   └── SourceInUse   another process uses the log of a DurablePushSource
    │   └── SinkError
    ├── JobStopped            the job does not run, so it cannot serve the request
    │   ├── MailboxClosed
    │   └── StopTimeout       a job did not end within the deadline of stop() (also a TimeoutError)
    ├── NoResult              a pipeline has no result for the record of ask()
    ├── SourceFull            the buffer of a PushSource is full (also an asyncio.QueueFull)
    └── InternalError         an invariant of aflow is broken                             our fault: please report it
"""

from __future__ import annotations

from asyncio import QueueFull
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime

__all__ = [
    "AflowError",
    "CheckpointError",
    "ConnectorError",
    "FlowDefinitionError",
    "InternalError",
    "JobStopped",
    "MailboxClosed",
    "NoResult",
    "OperatorError",
    "RestoreError",
    "SinkError",
    "SourceError",
    "SourceFull",
    "SourceInUse",
    "StopTimeout",
    "StorageTaken",
    "UnstorableState",
    "WrongKey",
]

#: The maximum number of characters of a record in an error: enough to recognise it, too few to flood a log.
_SHOWN = 200


class AflowError(Exception):
    """The root: ``except AflowError`` catches all errors that aflow raises on purpose."""


class FlowDefinitionError(AflowError, ValueError):
    """A pipeline, or an argument of one of its steps, is invalid. Raised before anything runs."""


class WrongKey(FlowDefinitionError):
    """A read of state was given a key, or a prefix of keys, that no record of the step can have.

    ``key`` is the wrong one. ``key_classes`` are those of the keys of the step: as declared in ``key_by(…, of=…)``, or
    as found; empty if they are not known.
    """

    def __init__(
        self, message: str, *, key: Hashable = None, key_classes: Iterable[type] = ()
    ) -> None:
        super().__init__(message)
        self.key = key
        self.key_classes = frozenset(key_classes)


class OperatorError(AflowError):
    """A user function failed on a record (or a timer); the original exception is the ``__cause__``.

    ``record``, ``key`` and ``timestamp`` (epoch ms) are those of the failed call, as far as they are known.
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
        context = [f"record {shown(record)}"] if record is not None else []
        context += [f"key {shown(key)}"] if key is not None else []
        context += (
            [f"timestamp {timestamp} ({readable(timestamp)})"] if timestamp is not None else []
        )
        detail = f" on {', '.join(context)}" if context else ""
        return cls(
            f"step {operator!r} failed{detail}{after}: {described(cause)}",
            operator=operator,
            record=record,
            key=key,
            timestamp=timestamp,
        )


class CheckpointError(AflowError):
    """A checkpoint could not be taken: declined, expired, or not stored."""


class StorageTaken(CheckpointError):
    """Another job has taken over the storage of checkpoints: no later checkpoint of this job can complete."""


class UnstorableState(CheckpointError):
    """A value of the state, a position of a source or a record in flight has no encoding: its type is not declared.

    ``initial`` is True if the step or the source had no state before: each attempt of the job would fail with it.
    """

    initial: bool = False


class RestoreError(AflowError):
    """A snapshot does not fit the pipeline that restores it: state is missing, or its type has changed."""


class ConnectorError(AflowError):
    """The system of a source or a sink failed, or holds data that cannot be read."""


class SourceError(ConnectorError):
    """A source could not be read; the message names the location (file, line, offset) and the reason."""


class SourceInUse(SourceError):
    """The log of a ``DurablePushSource`` is open in another process, or in another object of this one."""


class SinkError(ConnectorError):
    """A sink could not be written; the message names the location and the reason."""


class JobStopped(AflowError):
    """The job has ended or is ending, so it cannot serve the request."""


class MailboxClosed(JobStopped):
    """A mail was posted to a task that accepts none: it is draining or has ended."""


class StopTimeout(JobStopped, TimeoutError):
    """``Job.stop(deadline=…)`` did not end in time: the job was cancelled, and the message says what was left."""


class NoResult(AflowError):
    """The pipeline has processed the record of ``Job.ask``, and no result of it has reached a ``ReplySink``.

    It was dropped by a filter or an error policy, for example, or is in the state of a window.
    """


class SourceFull(AflowError, QueueFull):
    """``PushSource.send_nowait`` was called while the buffer was full; also an ``asyncio.QueueFull``."""


class InternalError(AflowError):
    """An invariant of aflow itself is broken; ``events`` are the last events of the machine, oldest first."""

    def __init__(self, message: str, *, events: Sequence[object] = ()) -> None:
        listed = "".join(f"\n  {event!r}" for event in events)
        recent = f"\nRecent events, oldest first:{listed}" if listed else ""
        super().__init__(
            f"{message}\nThis is a bug in aflow, not in your pipeline; please report it.{recent}"
        )
        self.events = tuple(events)


def described(error: BaseException) -> str:
    """Return the class and the text of an error; the class alone if it has no text."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return ``str`` of an error. If it raises, as a class of the user may, return a text that names the problem."""
    try:
        return str(error)
    except Exception as exc:
        return f"<its text failed: {type(exc).__name__}>"


def message_of(error: BaseException) -> str:
    """Return the text of an error of aflow, which needs no class; ``described`` for any other, and without text."""
    return (text_of(error) if isinstance(error, AflowError) else "") or described(error)


def shown(value: object) -> str:
    """Return ``repr`` of a user's value, cut to a readable length. If it raises, return a text that names the error."""
    try:
        text = repr(value)
    except Exception as exc:
        return f"<{type(value).__name__} whose repr failed: {exc}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def readable(timestamp: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC, or as a number outside of the calendar's range."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
