"""Cache of the state of tasks between the epochs of a stream, in one process that runs one task after the other.

Theory. An engine gives the tasks of an epoch to any of its worker processes. A process that has run a task keeps the
state with which the task has ended, under the chain of parts that a reader of the files would read for it. Names of
parts are unique, so a chain names one state.

An entry is *taken* when a task begins, and *put* after the task has written its part. So an attempt that fails leaves
no entry, and one that succeeds in vain leaves an entry whose last part no manifest names: it is never used. A later
task of the same partition uses an entry whose chain is the one in the manifest, or the beginning of it: then the parts
that follow have the changes of other processes since, and only those are read. If a task has written a complete part
meanwhile, the chain begins with that, and the entry is dropped.

Entries belong to one query and to one description of a fragment. The limit counts bytes of all entries; those that were
unused for the longest time leave first. The entries of another query are removed when a task of a new one begins over
the same folder, and, whatever their query, when they were unused for ``IDLE`` seconds while tasks of others ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from aflow.backfill.kept_state import KeptState
from aflow.model.key_groups import KeyGroupRange
from aflow.state.manifest import Link

#: Seconds after which entries of other queries are removed. Spark itself ends workers that were idle for that long.
IDLE: Final = 60.0

Chain = tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class StateOwner:
    """Identity of the tasks that continue each other's state."""

    folder: Path
    """The folder of the stream."""
    query: str
    """Unique for each driver."""
    fragment: str
    """Digest of the description that the task runs."""
    groups: KeyGroupRange


@dataclass(slots=True)
class CachedState:
    """The state at the end of ``chain``."""

    chain: Chain
    state: KeptState
    used: float = 0.0


@dataclass(slots=True)
class StateCache:
    """The states that a process keeps, least recently used first."""

    now: Callable[[], float] = monotonic
    """Seconds of a clock that never goes back."""
    _entries: dict[StateOwner, CachedState] = field(default_factory=dict[StateOwner, CachedState])

    def take(self, owner: StateOwner, chain: Chain) -> CachedState | None:
        """Remove and return the state of ``owner``, if its chain is ``chain`` or a beginning of it, else None."""
        self._remove_others(owner)
        entry = self._entries.pop(owner, None)
        if entry is None or not entry.chain or chain[: len(entry.chain)] != entry.chain:
            return None
        return entry

    def put(self, owner: StateOwner, chain: Chain, state: KeptState, limit: int) -> None:
        """Keep ``state``, which the caller uses no more, and at most ``limit`` bytes of states in all."""
        self._entries.pop(owner, None)
        self._entries[owner] = CachedState(chain, state, self.now())
        size = self.size
        for one in list(self._entries):
            if size <= limit:
                break
            size -= self._entries.pop(one).state.size

    @property
    def size(self) -> int:
        """Bytes of all states, as estimated."""
        return sum(one.state.size for one in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def _remove_others(self, owner: StateOwner) -> None:
        """Remove the entries of earlier queries over the folder of ``owner``, and unused ones of other queries."""
        since = self.now() - IDLE
        for one, entry in list(self._entries.items()):
            if one.query != owner.query and (one.folder == owner.folder or entry.used < since):
                del self._entries[one]
