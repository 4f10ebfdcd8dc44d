"""Error policies: what a record gets whose call was given up, since no attempt or no time is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.model.tags import Tag

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fail:
    """The job fails with an ``OperatorError`` that names the record; a restart calls for it again."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the record, and count it (``dropped`` in the metrics of the step's calls)."""


@dataclass(frozen=True)  # not slotted: on Python 3.11 a frozen, slotted generic raises
class FailedCall(Generic[T]):
    """A record whose call has failed for good, as it arrives in the side output of ``DeadLetter``.

    It holds the cause as text, so that it can be stored and sent on.
    """

    value: T
    error: str
    """The class of the error: ``TimeoutError``."""
    message: str
    """The text of the error."""
    attempts: int
    """The number of attempts."""


@dataclass(frozen=True)
class DeadLetter(Generic[T]):
    """Emit the record to the side output ``tag``, with the cause: ``stream.side(tag)`` reads it.

    Raises ``FlowDefinitionError``.
    """

    tag: Tag[FailedCall[T]]

    def __post_init__(self) -> None:
        if not isinstance(self.tag, Tag):
            raise FlowDefinitionError(
                f"DeadLetter takes an aflow.Tag, the name of the side output that gets the records, not "
                f"{shown(self.tag)}"
            )


@dataclass(frozen=True)
class Fallback(Generic[T]):
    """``result(value, error)`` takes the place of what the call should have given; called, not awaited.

    What it raises fails the job: it is not called again. Raises ``FlowDefinitionError``.
    """

    result: Callable[[T, BaseException], Any]

    def __post_init__(self) -> None:
        if not callable(self.result):
            raise FlowDefinitionError(
                f"Fallback takes a function of the value and the error, not {shown(self.result)}"
            )


OnError: TypeAlias = Fail | Drop | DeadLetter[T] | Fallback[T]


def check_on_error(policy: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``policy`` is one of the four."""
    if not isinstance(policy, Fail | Drop | DeadLetter | Fallback):
        hint = "; call it: Fail(), Drop()" if isinstance(policy, type) else ""
        raise FlowDefinitionError(
            f"on_error= takes Fail(), Drop(), DeadLetter(tag) or Fallback(function) of aflow.calls, "
            f"not {shown(policy)}{hint}"
        )
