"""A sink that is killed at any operation on the file system loses no record, and changes no file of others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from aflow.connect import Committable
from aflow_connectors.files.output.names import Parts
from aflow_connectors.files.output.pieces import FolderRecovery, PieceOutput

#: Records, each of which is an epoch of its own.
COUNT: Final = 5
#: Everything that changes names or makes content durable.
OPERATIONS: Final = ("fsync", "link", "mkdir", "open", "rename", "replace", "unlink", "write")
FOREIGN: Final = ("part-20240115-120000.jsonl", ".part-00003-000001.jsonl.pending", "notes.txt")


class Killed(BaseException):
    """Raised in place of killing the process."""


class Killer:
    """Replacement for operations of ``os`` that kills the process before or after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: Operations left until the process dies; None: it lives.
        self.left: int | None = None
        self.after = False
        self.dead = False
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, self._deadly(name, getattr(os, name)))

    def arm(self, left: int, *, after: bool) -> None:
        self.left, self.after, self.dead = left, after, False

    def disarm(self) -> None:
        self.left, self.dead = None, False

    def _deadly(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.left is None:
                return None if name == "fsync" else operation(*args, **kwargs)
            self.left -= 1
            self.dead = self.dead or self.left < 0
            if self.dead and not (self.after and self.left == -1):
                raise Killed
            result = None if name == "fsync" else operation(*args, **kwargs)
            if self.dead:
                raise Killed
            return result

        return call


@dataclass
class Storage:
    """The checkpoints of a job: none of its operations is one that kills."""

    number: int = 0
    position: int = 0
    committables: list[Committable] = field(default_factory=list[Committable])

    def copy(self) -> Storage:
        return Storage(self.number, self.position, list(self.committables))


def run(folder: Path, storage: Storage) -> None:
    """Resume from the last checkpoint and run to the end; every second checkpoint does not complete."""
    parts = Parts.of(folder, suffix=".jsonl")
    owner = FolderRecovery(folder, parts, sink="out", overwrite=False).recover(storage.committables)
    output = PieceOutput(parts, sink="out", subtask=0, owner=owner)
    output.open()
    pending: list[Committable] = []
    for record in range(storage.position, COUNT):
        output.write(b"%d\n" % record)
        storage.number += 1
        pending.append(output.prepare(storage.number))
        if storage.number % 2 or record == COUNT - 1:
            storage.position, storage.committables = record + 1, list(pending)
            for one in pending:
                output.commit(one)
            pending.clear()
    output.finish()
    output.discard()


def shown(folder: Path) -> list[int]:
    texts = [one.read_text() for one in folder.glob("part-*") if one.name not in FOREIGN]
    return sorted(int(line) for text in texts for line in text.splitlines())


def with_foreign_files(folder: Path) -> Path:
    folder.mkdir()
    for name in FOREIGN:
        (folder / name).write_text("precious")
    return folder


def survivors(folder: Path) -> list[str]:
    return [name for name in FOREIGN if (folder / name).read_text() == "precious"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the files that a dead process had open
@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("back", [False, True], ids=["from the start", "going back"])
def test_a_kill_at_any_operation_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool, back: bool
) -> None:
    # Of a process that dies in a test, locks stay behind: it is run as on a system without locks.
    monkeypatch.setattr("aflow.model.file_locks.fcntl", None)
    killer = Killer(monkeypatch)
    kills = 0
    while True:
        folder = with_foreign_files(tmp_path / str(kills))
        storage = Storage()
        if back:
            run_to_half = storage.copy()
            halfway(folder, storage, run_to_half)
            storage = Storage(storage.number, run_to_half.position, run_to_half.committables)
        killer.arm(kills, after=after)
        try:
            run(folder, storage)
        except Killed:
            killer.disarm()
            run(folder, storage)
        else:
            killer.disarm()
            break
        assert shown(folder) == list(range(COUNT))
        assert survivors(folder) == list(FOREIGN)
        kills += 1
    assert kills > 30


def halfway(folder: Path, storage: Storage, first: Storage) -> None:
    """Run to the end, and keep in ``first`` the first checkpoint that was complete."""
    parts = Parts.of(folder, suffix=".jsonl")
    owner = FolderRecovery(folder, parts, sink="out", overwrite=False).recover([])
    output = PieceOutput(parts, sink="out", subtask=0, owner=owner)
    output.open()
    output.write(b"0\n")
    storage.number = 1
    committable = output.prepare(1)
    first.position, first.committables = 1, [committable]
    output.commit(committable)
    output.discard()
    storage.position, storage.committables = 1, [committable]
    run(folder, storage)
