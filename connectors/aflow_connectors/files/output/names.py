"""Names of the files of a sink that writes several.

Without checkpoints a writer creates one file, its *part*: ``part-00000.jsonl``. With checkpoints it creates a *piece*
for each checkpoint: ``part-00000-000012.jsonl`` is the output of writer 0 between the preceding checkpoint and
checkpoint 12. Numbers of checkpoints increase, so a job never reuses the name of a piece, even if readers remove
pieces.

Names of files that are not for readers begin with a dot::

    .part-00000.jsonl.inprogress                            the lock of a writer
    .part-00000.jsonl.0e5f26b1d9a84c37.writing              its scratch file, not covered by a checkpoint yet
    .part-00000-000012.jsonl.61c4b8f0a2937de5.pending       prepared for checkpoint 12, to be committed
    .part.jsonl.61c4b8f0a2937de5.manifest                   the files of owner 61c4b8f0a2937de5

A name of this form does not prove that the sink wrote the file. Only a manifest does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aflow.connect import WriterContext
from aflow_connectors.owners import OWNER, new_owner

#: The last two suffixes of a compressed file belong together.
_COMPRESSED = (".gz", ".zst")

_PIECE: Final = re.compile(r"(?P<stem>[^/\0]+)-\d{5}-\d{6,}(?P<ending>\.[^/\0]*)")


@dataclass(frozen=True, slots=True)
class Parts:
    """Names of the parts and pieces of a sink: ``folder/stem-00000.ending``."""

    folder: Path
    stem: str
    ending: str

    @classmethod
    def of(cls, path: Path, *, suffix: str) -> Parts:
        """Return the names for ``path``: files ``part-…`` with ``suffix`` in a folder; files beside a path with a
        suffix.
        """
        if not path.suffix:
            return cls(path, "part", suffix)
        ending = path.suffix
        if ending in _COMPRESSED:
            ending = path.with_suffix("").suffix + ending
        return cls(path.parent, path.name.removesuffix(ending), ending)

    @classmethod
    def of_piece(cls, folder: Path, piece: str) -> Parts | None:
        """Return the names that ``piece`` in ``folder`` belongs to; None if it is not the name of a piece."""
        found = _PIECE.fullmatch(piece)
        return found and cls(folder, found["stem"], found["ending"])

    def part(self, subtask: int) -> Path:
        """Return the file of a writer without checkpoints."""
        return self.folder / f"{self.stem}-{subtask:05}{self.ending}"

    def piece(self, subtask: int, checkpoint: int) -> str:
        """Return the name of a writer's output for a checkpoint."""
        return f"{self.stem}-{subtask:05}-{checkpoint:06}{self.ending}"

    def numbers(self, name: str) -> tuple[int, int] | None:
        """Return writer and checkpoint of a piece; None for another name."""
        found = self._piece_pattern().fullmatch(name)
        return found and (int(found[1]), int(found[2]))

    def part_number(self, name: str) -> int | None:
        """Return the writer of a part; None for another name."""
        found = self._part_pattern().fullmatch(name)
        return found and int(found[1])

    def lock(self, subtask: int) -> Path:
        return lock(self.part(subtask))

    def pending(self, piece: str, owner: str) -> Path:
        """Return the path of a piece of ``owner`` that waits for its commit."""
        return self.folder / f".{piece}.{owner}.pending"

    def manifest(self, owner: str) -> Path:
        return self.folder / f".{self.stem}{self.ending}.{owner}.manifest"

    # Files with such names. A folder that does not exist holds none.

    def output_files(self) -> list[Path]:
        """Return the files for readers that have the name of a part or a piece."""
        return sorted(
            path
            for pattern in (self._part_pattern(), self._piece_pattern())
            for path, _ in self._found(pattern)
        )

    def locks(self) -> list[Path]:
        pattern = rf"\.{re.escape(self.stem)}-\d{{5}}{re.escape(self.ending)}\.inprogress"
        return [path for path, _ in self._found(re.compile(pattern))]

    def owners(self) -> list[str]:
        """Return the owners of the manifests in the folder, by their names."""
        pattern = rf"\.{re.escape(self.stem + self.ending)}\.({OWNER})\.manifest"
        return [found[1] for _, found in self._found(re.compile(pattern))]

    def _part_pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(self.stem)}-(\d{{5}}){re.escape(self.ending)}")

    def _piece_pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(self.stem)}-(\d{{5}})-(\d{{6,}}){re.escape(self.ending)}")

    def _found(self, pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            if found := pattern.fullmatch(path.name):
                yield path, found


def lock(path: Path) -> Path:
    """Return the lock file of the writer of ``path``."""
    return path.with_name(f".{path.name}.inprogress")


def new_scratch(path: Path) -> Path:
    """Return an unused name for the scratch file of ``path``."""
    return path.with_name(f".{path.name}.{new_owner()}.writing")


@dataclass(frozen=True, slots=True)
class PartTarget:
    """File of one writer without checkpoints."""

    path: Path
    #: None if there is only one file.
    parts: Parts | None = None
    parallelism: int = 1

    @classmethod
    def of(cls, path: Path, context: WriterContext, *, suffix: str) -> PartTarget:
        """Return the target of a writer.

        A ``path`` with a suffix is a file: ``out.jsonl``, or one for each of several writers: ``out-00000.jsonl`` … A
        path without one is a folder of files ``part-00000.jsonl`` … with the ``suffix`` of the format.
        """
        if path.suffix and context.parallelism == 1:
            return cls(path)
        parts = Parts.of(path, suffix=suffix)
        return cls(parts.part(context.subtask), parts, context.parallelism)

    def is_conflicting(self, name: str) -> bool:
        """Return True for a name that readers would take for output of this run, and no other writer has."""
        assert self.parts is not None
        number = self.parts.part_number(name)
        if number is None:
            return self.parts.numbers(name) is not None
        return number >= self.parallelism or name == self.path.name
