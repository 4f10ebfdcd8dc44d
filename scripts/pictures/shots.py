"""The screenshots of the guide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "docs" / "guide" / "screenshots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One screenshot."""

    name: str
    width: int
    height: int
    dark: bool = False
    step: str | None = None
    """The step whose panel is open."""


SHOTS: Final = (
    Shot(name="page", width=1400, height=1020),
    Shot(name="page-step", width=1400, height=900, dark=True, step="airport hours"),
    Shot(name="page-narrow", width=400, height=860),
)
