"""Retention of completed checkpoints, and independence of earlier ones.

Theory. An incremental checkpoint consists of parts of earlier checkpoints and of its own. One damaged part makes all
checkpoints useless that share it, so keeping several of them is of no help. A checkpoint is *independent* if it shares
no file with an earlier one. It and the checkpoints until the next independent one are a *generation*: no file belongs
to two generations. The last checkpoint of the generation before that of the newest one is therefore kept in addition to
the newest ``keep``.

A generation ends when all parts that the next checkpoint needs are copied to new files. Parts that a subtask stores
during the copying may still be combined with old ones. So it is not the copying that begins a generation, but the first
checkpoint whose files are all new.

A file of an earlier attempt is needed only through the checkpoint that the attempt continues from. So nothing about
generations has to be stored: all checkpoints of earlier attempts belong to the generation of the restored one or
earlier ones.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable
from typing import Final


class Generations:
    """Finds independent checkpoints, and decides when the files of a generation should not be used any more.

    ``every`` is the wanted number of checkpoints of a generation; None: files may be used for ever, and no checkpoint
    counts as independent. ``restored`` are the files of the checkpoint that the attempt continues from.
    """

    __slots__ = ("_completed", "_every", "_files", "_is_due")

    def __init__(self, every: int | None, restored: Iterable[str] = ()) -> None:
        self._every: Final = every
        #: The files of the present generation.
        self._files = set(restored)
        #: Complete checkpoints of the present generation.
        self._completed = 0
        self._is_due = every is not None and bool(self._files)

    def completed(self, files: Collection[str]) -> bool:
        """Return True if the checkpoint of ``files``, which is complete, is independent: a generation begins."""
        if self._every is None:
            return False
        is_independent = self._files.isdisjoint(files)
        if is_independent:
            self._files, self._completed, self._is_due = set(files), 0, False
        self._files.update(files)
        self._completed += 1
        self._is_due = self._is_due or self._completed >= self._every
        return is_independent

    @property
    def is_due(self) -> bool:
        """True if all files should be replaced by new ones now. Reset by ``replaced``."""
        return self._is_due

    def replaced(self) -> None:
        """All files that later checkpoints need are new: one of the next checkpoints is independent."""
        self._is_due = False
        self._completed = 0


class CompletedCheckpoints:
    """The newest ``keep`` completed checkpoints, by id, and the last one of the generation before the newest one's.

    ``known`` are those of earlier attempts, which may be more. Those that are newer than ``restored``, the one that the
    attempt continues from, could not be read, and are superfluous as soon as there is another one.
    """

    __slots__ = ("_first", "_ids", "_keep", "_unreadable")

    def __init__(
        self, keep: int, known: Iterable[int] = (), *, restored: int | None = None
    ) -> None:
        self._keep = keep
        self._unreadable = {one for one in known if restored is not None and one > restored}
        #: Ascending. Above ``keep`` + 1 only before the first ``add``.
        self._ids = sorted(set(known))
        #: The independent checkpoint with which the newest generation begins; it may be superfluous already.
        self._first: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """Checkpoints that are kept, oldest first."""
        return tuple(self._ids)

    def add(self, checkpoint: int, *, independent: bool = False) -> tuple[int, ...]:
        """Add a checkpoint and return those that are superfluous now, oldest first.

        One that completes after newer ones may be superfluous itself.
        """
        insort(self._ids, checkpoint)
        if independent and (self._first is None or checkpoint > self._first):
            self._first = checkpoint
        readable = [one for one in self._ids if one not in self._unreadable]
        kept = set(readable[-self._keep :])
        if self._first is not None:
            earlier = [one for one in readable if one < self._first]
            kept.update(earlier[-1:])
        superfluous = tuple(one for one in self._ids if one not in kept)
        self._ids = sorted(kept)
        return superfluous
