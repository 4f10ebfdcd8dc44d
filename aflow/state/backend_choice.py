"""The choice of a backend for keyed state. Checkpoints are the same for all backends and restore into any."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Clock
from aflow.state.disk.backend import DiskBackend
from aflow.state.disk.rocksdb import RocksdbStore, rocksdb_installed, rocksdict
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.memory import MemoryBackend


class DiskEngine(Enum):
    """The database of state on disk."""

    SQLITE = "sqlite"
    """Part of every Python."""
    ROCKSDB = "rocksdb"
    """Faster; needs ``pip install "aflow-streams[rocksdb]"``."""


def best_engine() -> DiskEngine:
    """Return RocksDB if it is installed, else SQLite."""
    return DiskEngine.ROCKSDB if rocksdb_installed() else DiskEngine.SQLITE


@dataclass(frozen=True, slots=True)
class InMemory:
    """All state in memory: the fastest backend, if memory suffices."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """State larger than memory: each subtask of a stateful step has ``resident`` entries in memory, the others on disk.

    An entry is a key; in windows a pair of key and window, in interval and as-of joins a record.

    The database is scratch space in a temporary folder below ``folder`` (None: the folder of temporary files), removed
    at the end; only checkpoints survive a crash. Its reads and writes take time of the event loop.

    Raises ``FlowDefinitionError`` for an engine that is not installed, and for less than one resident key.
    """

    engine: DiskEngine = field(default_factory=best_engine)
    folder: Path | None = None
    resident: int = 100_000

    def __post_init__(self) -> None:
        if not isinstance(self.engine, DiskEngine):
            raise FlowDefinitionError(
                f"OnDisk: engine must be DiskEngine.SQLITE or DiskEngine.ROCKSDB, not {shown(self.engine)}"
            )
        if self.folder is not None and not isinstance(self.folder, Path):
            raise FlowDefinitionError(f"OnDisk: folder must be a Path, not {shown(self.folder)}")
        if type(self.resident) is not int or self.resident < 1:
            raise FlowDefinitionError(
                f"OnDisk: resident must be a number of keys, at least 1, not {shown(self.resident)}"
            )
        if self.engine is DiskEngine.ROCKSDB:
            rocksdict()


StateBackend: TypeAlias = InMemory | OnDisk


def make_backend(choice: StateBackend, key_codec: KeyGroupCodec, clock: Clock) -> MemoryBackend:
    """Return an empty backend for one operator in one subtask; ``clock`` is for state with a time to live."""
    if isinstance(choice, InMemory):
        return MemoryBackend(key_codec, clock)
    scratch = make_scratch(choice, key_codec.operator)
    return DiskBackend(key_codec, clock, scratch, choice.resident)


def make_scratch(choice: OnDisk, operator: str) -> Scratch:
    """Return the database of ``operator``, which is made at its first use."""
    engine = SqliteStore if choice.engine is DiskEngine.SQLITE else RocksdbStore
    return Scratch(engine, choice.folder, operator)
