"""Error policies: the outcome for a record on which a user function failed, and no attempt or time is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.model.tags import Tag
from aflow.model.time import Timestamp

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fail:
    """The job fails with an ``OperatorError`` that names the record; a restart processes it again."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the record, and count it: as ``dropped`` of the calls, or as side output ``dropped`` of other steps."""


@dataclass(frozen=True)  # not slotted: on Python 3.11 a frozen, slotted generic raises
class FailedRecord(Generic[T]):
    """A record that failed for good, as it arrives in the side output of ``DeadLetter``.

    It holds the cause as text, so that it can be stored and sent on. Two are equal if the same value failed for the
    same reason: ``step`` and ``failed_at`` are not compared.
    """

    value: T
    """The record: the input of the function. For a join the pair ``(left, right)``, for the function of a window a
    ``Windowed`` with its contents."""
    error: str
    """The class of the error: ``TimeoutError``."""
    message: str
    """The text of the error."""
    attempts: int = 1
    """The number of attempts."""
    step: str = field(default="", compare=False)
    """The name of the step."""
    failed_at: Timestamp = field(default=0, compare=False)
    """The time of the clock when the record was given up (epoch ms). Its event time is the timestamp of the dead
    letter."""


#: The name of ``FailedRecord`` before steps without calls had policies.
FailedCall = FailedRecord


@dataclass(frozen=True)
class DeadLetter(Generic[T]):
    """Emit the record to the side output ``tag``, with the cause: ``stream.side(tag)`` reads it.

    Raises ``FlowDefinitionError``.
    """

    tag: Tag[FailedRecord[T]]

    def __post_init__(self) -> None:
        if not isinstance(self.tag, Tag):
            raise FlowDefinitionError(
                f"DeadLetter takes an aflow.Tag, the name of the side output that gets the records, not "
                f"{shown(self.tag)}"
            )


@dataclass(frozen=True)
class Fallback(Generic[T]):
    """``result(value, error)`` takes the place of the result of the function; called, not awaited.

    What it raises fails the job: it is not called again. Raises ``FlowDefinitionError``.
    """

    result: Callable[[T, BaseException], Any]

    def __post_init__(self) -> None:
        if not callable(self.result):
            raise FlowDefinitionError(
                f"Fallback takes a function of the value and the error, not {shown(self.result)}"
            )


OnError: TypeAlias = Fail | Drop | DeadLetter[T] | Fallback[T]

#: The policy of a step without another one.
FAIL: Final = Fail()

#: Name of the side output that counts the records that ``Drop`` drops.
DROPPED: Final = "dropped"


def policy_text(policy: OnError[Any]) -> str:
    """Return the policy as plans show it; an empty text for ``Fail``."""
    match policy:
        case Drop():
            return "failures dropped"
        case DeadLetter(tag):
            return f"failures to {tag.name!r}"
        case Fallback():
            return "failures replaced"
        case Fail():
            return ""


def dead_letter_tag(policy: OnError[Any]) -> str | None:
    """Return the name of the side output for failed records; None if there is none."""
    return policy.tag.name if isinstance(policy, DeadLetter) else None


def check_on_error(policy: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``policy`` is one of the four."""
    if not isinstance(policy, Fail | Drop | DeadLetter | Fallback):
        hint = "; call it: Fail(), Drop()" if isinstance(policy, type) else ""
        raise FlowDefinitionError(
            f"on_error= takes Fail(), Drop(), DeadLetter(tag) or Fallback(function) of aflow.calls, "
            f"not {shown(policy)}{hint}"
        )
