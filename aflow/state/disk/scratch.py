"""The folder that a backend on disk works in: made when first needed, gone when it is closed."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path

from aflow.errors import OperatorError
from aflow.state.disk.folders import ClaimedFolder, claimed_folder, remove_left_over
from aflow.state.disk.store import Engine, Store


class Scratch:
    """A database in a temporary folder below ``folder`` (None: where temporary files are).

    Removes what killed programs have left there.
    """

    def __init__(self, engine: Engine, folder: Path | None, operator: str) -> None:
        self._engine = engine
        self._folder = folder
        self._operator = operator
        self._store: Store | None = None
        self._end: weakref.finalize[[Store, ClaimedFolder], Scratch] | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a database: whether anything was ever asked of it."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """The database. Raises ``OperatorError`` if the folder cannot be made."""
        if self._store is None:
            folder = self._made()
            try:
                self._store = self._engine(folder.path)
            except BaseException:
                folder.remove()
                raise
            # Also at the end of the program, should nobody clear it.
            self._end = weakref.finalize(self, _end, self._store, folder)
        return self._store

    def clear(self) -> None:
        """Close the database and remove its folder; the next use begins a new one."""
        self._store = None
        if self._end is not None:
            self._end()

    def _made(self) -> ClaimedFolder:
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            remove_left_over(self._folder)
            return claimed_folder(self._folder)
        except OSError as exc:
            raise OperatorError(
                f"step {self._operator!r} cannot keep its state on disk: no folder can be made in "
                f"{self._folder or tempfile.gettempdir()}: {exc}",
                operator=self._operator,
            ) from exc


def _end(store: Store, folder: ClaimedFolder) -> None:
    try:
        store.close()
    finally:
        folder.remove()
