"""Owners of a sink's output in a location that others write to as well.

An owner is a lineage of runs: a job, and the jobs restored from its checkpoints. A sink chooses its id when a job
starts fresh, and its checkpoints carry it from run to run. So a sink recognises its own output and never changes that
of others.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

OWNER: Final = r"[0-9a-f]{16}"
"""Regular expression for ids."""


def new_owner() -> str:
    """Return an id that no other lineage of runs has."""
    return secrets.token_hex(8)


def is_owner(text: str) -> bool:
    """Return True for an id of the form that ``new_owner`` returns."""
    return re.fullmatch(OWNER, text) is not None
