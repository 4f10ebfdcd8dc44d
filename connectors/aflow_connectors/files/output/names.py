"""Names of the files of a sink that writes more than one.

Without checkpoints a writer makes one file, its *part*: ``part-00000.jsonl``. With checkpoints it makes a *piece* for
each checkpoint: ``part-00000-000012.jsonl`` is what writer 0 wrote between the checkpoint before and checkpoint 12.
Numbers of checkpoints grow, so a job never gives two pieces the same name, also when readers remove pieces.

What is not for readers begins with a dot::

    .part-00000.jsonl.inprogress                            the lock of a writer
    .part-00000.jsonl.0e5f26b1d9a84c37.writing              its scratch file: what no checkpoint covers yet
    .part-00000-000012.jsonl.61c4b8f0a2937de5.pending       prepared for checkpoint 12, to be committed
    .part.jsonl.61c4b8f0a2937de5.manifest                   the files of owner 61c4b8f0a2937de5

A name that has this form does not prove that the sink wrote the file. Only a manifest does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aflow.connect import WriterContext
from aflow_connectors.owners import OWNER, new_owner

#: Of compressed files, the two last suffixes belong together.
_COMPRESSED = (".gz", ".zst")

_PIECE: Final = re.compile(r"(?P<stem>[^/\0]+)-\d{5}-\d{6,}(?P<ending>\.[^/\0]*)")


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the parts and pieces of a sink are: ``folder/stem-00000.ending``."""

    folder: Path
    stem: str
    ending: str

    @classmethod
    def of(cls, path: Path, *, suffix: str) -> Parts:
        """Of a folder, files ``part-…`` with ``suffix`` in it; of a file (a path with a suffix), ones beside it."""
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
        """The file of a writer without checkpoints."""
        return self.folder / f"{self.stem}-{subtask:05}{self.ending}"

    def piece(self, subtask: int, checkpoint: int) -> str:
        """The name of what a writer has written for a checkpoint."""
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
        """A piece of ``owner`` that waits for its commit."""
        return self.folder / f".{piece}.{owner}.pending"

    def manifest(self, owner: str) -> Path:
        return self.folder / f".{self.stem}{self.ending}.{owner}.manifest"

    # Files that have such names. A folder that does not exist holds none.

    def output_files(self) -> list[Path]:
        """Files for readers that have the name of a part or a piece."""
        return sorted(
            path
            for pattern in (self._part_pattern(), self._piece_pattern())
            for path, _ in self._found(pattern)
        )

    def locks(self) -> list[Path]:
        pattern = rf"\.{re.escape(self.stem)}-\d{{5}}{re.escape(self.ending)}\.inprogress"
        return [path for path, _ in self._found(re.compile(pattern))]

    def owners(self) -> list[str]:
        """Owners that manifests in the folder are named after."""
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
    """The lock of the writer that makes ``path``."""
    return path.with_name(f".{path.name}.inprogress")


def new_scratch(path: Path) -> Path:
    """A name that no file has, for what is going to be ``path``."""
    return path.with_name(f".{path.name}.{new_owner()}.writing")


@dataclass(frozen=True, slots=True)
class PartTarget:
    """The file of one writer without checkpoints."""

    path: Path
    #: None where there is one file only.
    parts: Parts | None = None
    parallelism: int = 1

    @classmethod
    def of(cls, path: Path, context: WriterContext, *, suffix: str) -> PartTarget:
        """Where a writer writes.

        A ``path`` with a suffix is a file: ``out.jsonl``, or one for each writer if there are several:
        ``out-00000.jsonl`` … A path without one is a folder of files ``part-00000.jsonl`` … with the ``suffix`` of
        the format.
        """
        if path.suffix and context.parallelism == 1:
            return cls(path)
        parts = Parts.of(path, suffix=suffix)
        return cls(parts.part(context.subtask), parts, context.parallelism)

    def is_conflicting(self, name: str) -> bool:
        """Return True for a name that readers would take for output of this writer's run, and no other writer has."""
        assert self.parts is not None
        number = self.parts.part_number(name)
        if number is None:
            return self.parts.numbers(name) is not None
        return number >= self.parallelism or name == self.path.name
