"""Names of the files in a folder of checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

PARTS: Final = "parts"
"""The folder of the parts."""
LOCK: Final = "lock"
PLACE: Final = "flow.json"
TEMPORARY: Final = ".tmp"
"""The end of the name of a file that is being written, or whose writer has died."""

_MANIFEST: Final = re.compile(r"checkpoint-(\d{6,18})\.json")
_PART: Final = re.compile(r"(\d{6,18})-.+\.part")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.]+")


def manifest_name(checkpoint: int) -> str:
    return f"checkpoint-{checkpoint:06d}.json"


def part_name(checkpoint: int, task: str, subtask: int, step: str | None = None) -> str:
    """Return the name of a part; with ``step``, of the one that its chain was compacted to."""
    compacted = "" if step is None else f"-{slug(step)}"
    return f"{checkpoint:06d}-{slug(task)}-{subtask}{compacted}.part"


def slug(name: str) -> str:
    """Return a readable piece of a file name, unique for ``name`` also on file systems that ignore case."""
    readable = _UNSAFE.sub("_", name)[:40].strip("_.") or "_"
    return f"{readable}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def manifest_numbers(names: Iterable[str]) -> list[int]:
    """Return the checkpoints whose manifests are among ``names``."""
    found = [_MANIFEST.fullmatch(name) for name in names]
    return [int(one[1]) for one in found if one is not None]


def part_number(name: str) -> int | None:
    """Return the checkpoint that a part was written for, by its name; None for any other file."""
    found = _PART.fullmatch(name)
    return int(found[1]) if found is not None else None


def temporary(path: Path) -> Path:
    """Return the name of a file while it is written, in the same folder."""
    return path.with_name(path.name + TEMPORARY)


def number_in(name: str) -> int | None:
    """Return the checkpoint that a manifest or part belongs to, also an incomplete one; None for other files."""
    final = name.removesuffix(TEMPORARY)
    found = _MANIFEST.fullmatch(final) or _PART.fullmatch(final)
    return int(found[1]) if found is not None else None
