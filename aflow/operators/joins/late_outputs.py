"""Side outputs of the late records of joins."""

from __future__ import annotations

from typing import Final

#: Side output of late records of the left input.
LATE_LEFT: Final = "late-left"

#: Side output of late records of the right input.
LATE_RIGHT: Final = "late-right"
