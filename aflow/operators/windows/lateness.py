"""Where records go that came too late."""

from __future__ import annotations

from typing import Final

#: Side output of the records that came too late for all their windows.
LATE: Final = "late"
