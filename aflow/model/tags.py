"""Names of side outputs, with the type of their records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(
    frozen=True
)  # not slotted: on Python 3.11 Tag[int]("x") of a frozen, slotted generic raises
class Tag(Generic[T]):
    """A side output: ``bad = Tag[BadRow]("bad rows")``, then ``ctx.side(bad, row)`` and ``stream.side(bad)``.

    Two tags of one name are the same side output; the type parameter is for the type checker.
    """

    name: str
