"""Owners: who wrote what a sink has in a place that others write into, too.

An owner is a lineage of runs: a job, and those that go on from its checkpoints. A sink chooses its id when a job begins
anew, and its checkpoints carry it from run to run, so that a sink recognises its own output and never touches that of
others.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

OWNER: Final = r"[0-9a-f]{16}"
"""A regular expression for ids."""


def new_owner() -> str:
    """Return an id that no other lineage of runs has."""
    return secrets.token_hex(8)


def is_owner(text: str) -> bool:
    """Return True for an id as ``new_owner`` makes them."""
    return re.fullmatch(OWNER, text) is not None
