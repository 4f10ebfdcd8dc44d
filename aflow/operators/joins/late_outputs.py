"""Where records of a join go that came too late."""

from __future__ import annotations

from typing import Final

#: Side output of the records of the left input that came too late.
LATE_LEFT: Final = "late-left"

#: Side output of the records of the right input that came too late.
LATE_RIGHT: Final = "late-right"
