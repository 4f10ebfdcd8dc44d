"""The records: tickets, answers of the model, and rows of the output."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

import aflow as af


class Ticket(msgspec.Struct, frozen=True):
    """A line of the input. Other fields of the line are ignored, so a dead letter is a ticket, too."""

    id: int
    text: str


class Classification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of the model. Any other answer is refused."""

    category: Literal["billing", "access", "bug", "other"]
    urgency: Annotated[int, msgspec.Meta(ge=1, le=5)]
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class EnrichedTicket(msgspec.Struct, frozen=True):
    """A line of the output."""

    id: int
    text: str
    category: str
    urgency: int
    summary: str
    model: str


class DeadTicket(msgspec.Struct, frozen=True):
    """A ticket without a classification, and the reason."""

    id: int
    text: str
    reason: str
    message: str
    attempts: int
    failed_at: int
    """Epoch milliseconds."""


class UnreadableLine(msgspec.Struct, frozen=True):
    """A line of the input that is no ticket."""

    place: str
    reason: str
    line: str


def dead_ticket(failed: af.calls.FailedCall[Ticket]) -> DeadTicket:
    return DeadTicket(
        id=failed.value.id,
        text=failed.value.text,
        reason=failed.error,
        message=failed.message,
        attempts=failed.attempts,
        failed_at=failed.failed_at,
    )


def unreadable_line(bad: af.connect.BadRecord) -> UnreadableLine:
    return UnreadableLine(bad.place, bad.reason, bad.raw.decode(errors="replace"))
