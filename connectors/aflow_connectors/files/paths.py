"""Which files a path means.

A path is a file, a folder, or a pattern. Of a folder, the files directly in it count whose names end as the source
expects, and that do not begin with a dot or an underscore (the marks of hidden and of unfinished files). In a
pattern, ``*``, ``?`` and ``[…]`` stand for parts of a name and ``**`` for any number of folders; they match no dot
at the start of a name. Unlike ``glob``, which passes over folders it may not read, this says so.

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
    """The files that ``path`` means, sorted.

    Raises ``SourceError`` if there is none (unless that may be: files are expected to appear), and for what cannot be
    looked into.
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
    """True for a path that means one file: neither a folder nor a pattern."""
    return path.is_file() or not (path.is_dir() or _MAGIC.search(str(path)))


def _files(path: Path, suffixes: Sequence[str]) -> list[Path]:
    # What is there by this very name is meant, even if the name could be a pattern: "[1].jsonl".
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
