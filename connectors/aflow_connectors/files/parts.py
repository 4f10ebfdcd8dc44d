"""Names of the files of a sink that writes more than one.

Without checkpoints a writer makes one file, its *part*: ``part-00000.jsonl``. With checkpoints it makes a *piece* for
each checkpoint: ``part-00000-000012.jsonl`` is what writer 0 wrote between the checkpoint before and checkpoint 12.
Checkpoints never share a number, so no piece ever gets the name of another, also when readers remove pieces.

What is not for readers yet begins with a dot::

    .part-00000.jsonl.inprogress        a part being written, or the lock of a writer that makes pieces
    .part-00000.jsonl.writing           what no checkpoint covers yet
    .part-00000-000012.jsonl.pending    prepared for checkpoint 12, to be committed
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aflow.connect import WriterContext

#: Of compressed files, the two last suffixes belong together.
_COMPRESSED = (".gz", ".zst")


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

    def part(self, subtask: int) -> Path:
        """The file of a writer without checkpoints."""
        return self.folder / f"{self.stem}-{subtask:05}{self.ending}"

    def piece(self, subtask: int, checkpoint: int) -> str:
        """The name of what a writer has written for a checkpoint."""
        return f"{self.stem}-{subtask:05}-{checkpoint:06}{self.ending}"

    def lock(self, subtask: int) -> Path:
        return in_progress(self.part(subtask))

    def writing(self, subtask: int) -> Path:
        part = self.part(subtask)
        return part.with_name(f".{part.name}.writing")

    # What is there. A folder that does not exist holds nothing.

    def parts(self) -> list[Path]:
        return [path for path, _ in self._found("", r"-\d{5,}", "")]

    def pieces(self) -> list[tuple[Path, int]]:
        """Pieces that readers see, each with its checkpoint."""
        return [(path, int(found[1])) for path, found in self._found("", r"-\d{5,}-(\d{6,})", "")]

    def locks(self) -> list[Path]:
        return [path for path, _ in self._found(r"\.", r"-\d{5,}", r"\.inprogress")]

    def uncommitted(self) -> list[Path]:
        """What was written and is for no reader yet."""
        writing = self._found(r"\.", r"-\d{5,}", r"\.writing")
        pending = self._found(r"\.", r"-\d{5,}-\d{6,}", r"\.pending")
        return [path for path, _ in [*writing, *pending]]

    def _found(self, before: str, number: str, behind: str) -> Iterator[tuple[Path, re.Match[str]]]:
        pattern = re.compile(
            f"{before}{re.escape(self.stem)}{number}{re.escape(self.ending)}{behind}"
        )
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            if found := pattern.fullmatch(path.name):
                yield path, found


def in_progress(path: Path) -> Path:
    """The name of a file that is not complete."""
    return path.with_name(f".{path.name}.inprogress")


def pending(folder: Path, piece: str) -> Path:
    """The name of a piece that waits for its commit."""
    return folder / f".{piece}.pending"


@dataclass(frozen=True, slots=True)
class Target:
    """The file of one writer without checkpoints."""

    path: Path
    #: None where there is one file only.
    parts: Parts | None = None
    parallelism: int = 1

    @classmethod
    def of(cls, path: Path, context: WriterContext, *, suffix: str) -> Target:
        """Where a writer writes.

        A ``path`` with a suffix is a file: ``out.jsonl``, or one for each writer if there are several:
        ``out-00000.jsonl`` … A path without one is a folder of files ``part-00000.jsonl`` … with the ``suffix`` of
        the format.
        """
        if path.suffix and context.parallelism == 1:
            return cls(path)
        parts = Parts.of(path, suffix=suffix)
        return cls(parts.part(context.subtask), parts, context.parallelism)

    def leftovers(self) -> list[Path]:
        """Parts of more writers than there are now, and pieces: to who reads all they look like parts of this run."""
        if self.parts is None:
            return []
        found = [path for path, _ in self.parts.pieces()]
        number = self.parallelism
        while (path := self.parts.part(number)).exists():
            found.append(path)
            number += 1
        return found
