"""A picture says of which rows it was drawn, so that one that is out of date can be told from one that is not."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Final

from scripts.pictures.runs import Row

FOLDER: Final = Path(__file__).parents[2] / "docs" / "guide" / "pictures"

_TOLD: Final = re.compile(r"rows: sha256 ([0-9a-f]{64})")


def told(rows: list[Row]) -> str:
    """What goes into the metadata of a picture of ``rows``."""
    return f"rows: sha256 {hashlib.sha256(json.dumps(rows).encode()).hexdigest()}"


def drawn_from(path: Path) -> str | None:
    """What the metadata of the picture at ``path`` tell; None if they tell nothing."""
    found = _TOLD.search(path.read_text(encoding="utf-8"))
    return found[0] if found else None
