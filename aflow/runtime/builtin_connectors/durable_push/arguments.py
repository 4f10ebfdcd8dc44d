"""Checks of the arguments of ``DurablePushSource``, and errors that several of its methods raise."""

from __future__ import annotations

from typing import Final

from aflow.errors import FlowDefinitionError, JobStopped, shown
from aflow.model.codecs.zoneless import Search, may_hold_zoneless, search_plain
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, Timestamp, to_timestamp
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Ack

#: The name of the source in messages.
NAME: Final = "DurablePushSource"

#: The least ``max_bytes``: room for the header and a small record.
LEAST_BYTES: Final = 1_000

#: The longest id, in characters.
_MAX_ID: Final = 256


def check_id(name: object) -> None:
    """Raise ``FlowDefinitionError`` if a record cannot have this id. Its UTF-8 form is part of the log."""
    if type(name) is not str or not 0 < len(name) <= _MAX_ID or not name.isprintable():
        raise FlowDefinitionError(
            f"the id of a record must be printable text of 1 to {_MAX_ID} characters, not {shown(name)}"
        )


def check_zones(value: object, data: bytes, search: Search) -> None:
    """Raise ``FlowDefinitionError`` if a record has a datetime without a time zone; ``data`` are its bytes.

    Such a record would fail the step that takes event time or a key from it, again after each restart.
    """
    if search is search_plain and not may_hold_zoneless(data):
        return
    if (path := search(value)) is not None:
        raise FlowDefinitionError(
            f"{NAME} cannot log the record {shown(value)}: record{path} is a datetime without a time zone, which "
            f"cannot be event time or a key, and the job would fail on it after each restart; use an aware datetime, "
            f"such as datetime.now(UTC), or declare the field as Annotated[datetime, msgspec.Meta(tz=False)]"
        )


def checked_time(timestamp: Instant) -> Timestamp:
    """Return epoch ms. Raises ``FlowDefinitionError`` for times that no job could process."""
    at = to_timestamp(timestamp, what="timestamp")
    if not MIN_TIMESTAMP < at < MAX_TIMESTAMP:
        raise FlowDefinitionError(
            f"timestamp {at} is not between {MIN_TIMESTAMP} and {MAX_TIMESTAMP} (epoch ms)"
        )
    return at


def input_ended() -> JobStopped:
    return JobStopped(f"the input of this {NAME} was ended and takes no more records")


def checked_ack(ack: object) -> Ack:
    if not isinstance(ack, Ack):
        raise FlowDefinitionError(f"ack takes a member of Ack, not {shown(ack)}")
    return ack


def job_ended() -> JobStopped:
    return JobStopped(
        "the record is in the log, but the job that reads it has ended before the promise was kept; "
        "the next job processes it"
    )
