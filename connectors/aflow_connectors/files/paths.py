"""Files that a path matches.

A path is a file, a folder, or a pattern. A folder matches the files directly in it whose names end as the source
expects and do not begin with a dot or an underscore (marks of hidden and of unfinished files). In a pattern, ``*``,
``?`` and ``[…]`` match parts of a name and ``**`` any number of folders; they match no dot at the start of a name.
Unlike ``glob``, which skips unreadable folders, this raises an error.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from aflow.connect import SourceError

_MAGIC: Final = re.compile(r"[*?\[]")


def expand(path: Path, suffixes: Sequence[str], *, may_be_none: bool = False) -> list[Path]:
    """Return the files that ``path`` matches, sorted.

    Raises ``SourceError`` if there is none (unless ``may_be_none``: files are expected to appear), and for an
    unreadable folder.
    """
    try:
        files = _files(path, suffixes)
    except OSError as exc:
        raise SourceError(
            f"cannot look for input files in {exc.filename or path}: {exc.strerror}"
        ) from exc
    if files or may_be_none:
        return files
    if path.is_dir():
        raise SourceError(
            f"the folder {path} holds no file to read: names must end in {', '.join(suffixes)} and not begin "
            f"with '.' or '_'; to read other files give a pattern, like {path / '*'}"
        )
    raise SourceError(f"no file matches the pattern {str(path)!r} (from the folder {Path.cwd()})")


def is_file(path: Path) -> bool:
    """Return True for a path of one file: neither a folder nor a pattern."""
    return path.is_file() or not (path.is_dir() or _MAGIC.search(str(path)))


def _files(path: Path, suffixes: Sequence[str]) -> list[Path]:
    # An existing file of exactly this name is meant, even if the name could be a pattern: "[1].jsonl".
    if path.is_dir():
        names = (entry.name for entry in _entries(path) if entry.is_file())
        return [path / name for name in sorted(names) if _counts(name, suffixes)]
    if is_file(path):
        if not path.exists():
            raise SourceError(f"there is no file {path} (from the folder {Path.cwd()})")
        return [path]
    parts = path.parts
    fixed = next(index for index, part in enumerate(parts) if _MAGIC.search(part))
    return sorted(set(_matches(Path(*parts[:fixed]), parts[fixed:])))


def _counts(name: str, suffixes: Sequence[str]) -> bool:
    return name.endswith(tuple(suffixes)) and not name.startswith((".", "_"))


def _matches(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    head, *rest = parts
    if head == "**":
        yield from _matches(folder, rest or ["*"])
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _matches(folder / entry.name, parts)
        return
    for entry in _entries(folder):
        if not fnmatchcase(entry.name, head) or entry.name.startswith(".") != head.startswith("."):
            continue
        if not rest and entry.is_file():
            yield folder / entry.name
        elif rest and entry.is_dir():
            yield from _matches(folder / entry.name, rest)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
