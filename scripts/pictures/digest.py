"""Digest of the rows of a picture in its metadata, to find pictures that are out of date."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Final

from scripts.pictures.runs import Row

FOLDER: Final = Path(__file__).parents[2] / "docs" / "guide" / "pictures"

_DIGEST: Final = re.compile(r"rows: sha256 ([0-9a-f]{64})")


def digest(rows: list[Row]) -> str:
    """Return the metadata of a picture of ``rows``."""
    return f"rows: sha256 {hashlib.sha256(json.dumps(rows).encode()).hexdigest()}"


def digest_in(path: Path) -> str | None:
    """Return the digest in the metadata of the picture at ``path``; None if there is none."""
    found = _DIGEST.search(path.read_text(encoding="utf-8"))
    return found[0] if found else None
