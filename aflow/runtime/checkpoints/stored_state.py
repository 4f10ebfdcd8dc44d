"""Reads of keyed state in the last completed checkpoint, for ``job.state(…)``.

Theory. The state of a step is read from the storage as a restore reads it, with the same checks, and remains bytes.
Rows of the wanted keys are then selected, and restored into an operator of their own, which is never opened with code
of the user and processes nothing. Rows are selected in a worker thread, which releases the lock of the interpreter
after each piece; some at a time are restored where they are read.

A checkpoint may be removed while it is read. Then the storage reads the newer one that was completed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter

from aflow.errors import CheckpointError, InternalError, RestoreError
from aflow.model.batch import Batch
from aflow.model.elements import Marker
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import Clock, Timestamp
from aflow.operators.base import Operator, OperatorContext
from aflow.operators.key_timers import TIMER_NAMES
from aflow.operators.windows.window_state import PREFIX
from aflow.runtime.checkpoints.directory.threads import to_its_end
from aflow.runtime.checkpoints.storage import CheckpointStorage, Restored, StepReader
from aflow.runtime.clock import release_gil
from aflow.runtime.loop_budget import WorkerActivity
from aflow.state.manifest import Manifest
from aflow.state.read_errors import wrap_read_errors
from aflow.state.readable_state import KeySelection, ReadableState
from aflow.state.snapshot import STATES, Entry, OperatorSnapshot
from aflow.state.specs import RESERVED
from aflow.state.stored_entries import Entries, in_pieces
from aflow.state.tables import TOUCHED

T = TypeVar("T")

#: Bytes of checkpoint files whose state is kept for further reads. Larger state is read again each time.
_CACHED: Final = 64 << 20

#: Further reads by ``latest`` if it could not read the newest checkpoint, which may have been removed meanwhile.
_TRIES: Final = 3

#: Names of keyed state that is not read: timers, and the state of window functions by key and window.
_UNREAD: Final = (STATES, *TIMER_NAMES.values())


class _Nowhere:
    """The output and the alarm of an operator that processes nothing."""

    def emit(self, batch: Batch[Any]) -> None: ...
    def watermark(self, timestamp: Timestamp) -> None: ...
    def idle(self) -> None: ...
    def active(self) -> None: ...
    def marker(self, marker: Marker) -> None: ...
    def side(self, tag: str, batch: Batch[Any]) -> None: ...
    def set(self, at: Timestamp | None) -> None: ...


@dataclass(frozen=True, slots=True)
class StepInCheckpoint:
    """The keyed state of one step in one checkpoint, as bytes.

    ``rows`` and ``selected`` block: call them in a thread.
    """

    manifest: Manifest
    snapshot: OperatorSnapshot
    size: int
    """The size of the files that it was read from (bytes)."""
    operator: Callable[[], Operator]
    context: OperatorContext

    def view(self, snapshot: OperatorSnapshot | None = None) -> ReadableState | None:
        """Return a view of ``snapshot``, or of no keys; None for a step without state that can be read."""
        if snapshot is None:
            snapshot = OperatorSnapshot(operator=self.snapshot.operator)
        with wrap_read_errors(f"the state of step {self.context.name!r} in the checkpoint"):
            return self.operator().stored_state(snapshot, self.context)

    def rows(self, name: str, keys: Iterable[Hashable]) -> SelectedRows:
        """Return the rows of ``keys`` that state ``name`` needs. Raises ``RestoreError``."""
        key_codec = self.readable().key_codec
        rows = SelectedRows(self, {key: [] for key in keys})
        groups = frozenset(map(key_codec.group_of, rows.by_key)) & self.snapshot.keyed.keys()
        with wrap_read_errors(f"the keys of step {self.context.name!r} in the checkpoint"):
            for group in groups:
                names = self.snapshot.keyed[group]
                for one in self._relevant(names):
                    for entries in in_pieces(names[one]):
                        rows.add(group, one, key_codec.keys([key for key, _ in entries]), entries)
                        release_gil()
        return rows

    def readable(self) -> ReadableState:
        """Return the view of no keys of a step whose state can be read."""
        view = self.view()
        if view is None:
            raise InternalError(f"step {self.context.name!r} has no state that can be read")
        return view

    def selected(self, name: str, selection: KeySelection) -> SelectedRows:
        """Select keys of state ``name``, and return their rows. Raises ``RestoreError``."""
        with wrap_read_errors(f"the keys of step {self.context.name!r} in the checkpoint"):
            for _ in selection.fill(self._keys(name, self.readable().key_codec.keys)):
                release_gil()
            keys: list[Hashable] = []
            for some in selection.slices():
                keys += some
                release_gil()
        return self.rows(name, keys)

    def _keys(
        self, name: str, decode: Callable[[Sequence[bytes]], list[Hashable]]
    ) -> Iterator[list[Hashable]]:
        for names in self.snapshot.keyed.values():
            for one in (name,) if name in names else self._relevant(names):
                for entries in in_pieces(names[one]):
                    yield decode([key for key, _ in entries])

    def _relevant(self, names: Mapping[str, Entries]) -> list[str]:
        """Return the names of the rows that are restored: those of declared states, and those of windows and joins."""
        declared = self.operator().declares() or {}
        return [
            name
            for name in names
            if name in declared
            or name.removeprefix(TOUCHED) in declared
            or (
                name.startswith(RESERVED)
                and name not in _UNREAD
                and not name.startswith((PREFIX, TOUCHED))
            )
        ]


class SelectedRows:
    """The rows of some keys of a stored step, as bytes, in the order in which the keys were selected."""

    def __init__(
        self, step: StepInCheckpoint, by_key: dict[Hashable, list[tuple[int, str, Entry]]]
    ) -> None:
        self._step = step
        #: Key group, name and entry of each row of a key.
        self.by_key: Final = by_key

    def add(
        self, group: int, name: str, keys: Sequence[Hashable], entries: Sequence[Entry]
    ) -> None:
        """Add those of ``entries`` that are rows of the keys; ``keys`` are their keys."""
        by_key = self.by_key
        for key, entry in zip(keys, entries, strict=True):
            if key in by_key:
                by_key[key].append((group, name, entry))

    def view(self, keys: Iterable[Hashable]) -> ReadableState:
        """Return a view of some of the keys, which takes time for these. Raises ``RestoreError``."""
        snapshot = self._step.snapshot
        keyed: dict[int, dict[str, list[Entry]]] = {}
        for group, name, entry in chain.from_iterable(map(self.by_key.__getitem__, keys)):
            keyed.setdefault(group, {}).setdefault(name, []).append(entry)
        described = {
            group: {STATES: snapshot.keyed[group].get(STATES, ()), **names}
            for group, names in keyed.items()
        }
        view = self._step.view(OperatorSnapshot(described, snapshot.operator))
        assert view is not None  # as that of no keys
        return view


class StoredReads:
    """Reads of the last completed checkpoint of one job, one after the other. Small state is cached."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        #: Made on the loop of the job.
        self._limiter: CapacityLimiter | None = None
        #: The state of steps in the newest checkpoint, by step and key groups, the last used one last.
        self._cached: OrderedDict[tuple[str, KeyGroupRange], StepInCheckpoint] = OrderedDict()
        #: The number of the newest checkpoint when they were read.
        self._newest: int | None = None

    def clear(self) -> None:
        """Drop the cache: the job has ended."""
        self._cached.clear()
        self._newest = None

    async def step(
        self,
        storage: CheckpointStorage,
        name: str,
        operator: Callable[[], Operator],
        groups: KeyGroupRange,
        *,
        key_groups: int,
        clock: Clock,
    ) -> StepInCheckpoint:
        """Return the state of a step in the last completed checkpoint, at least that of ``groups``.

        Raises ``CheckpointError`` if there is none, and ``RestoreError`` if none can be read.
        """
        async with self._turn:
            newest = max(await storage.kept(), default=None)
            if newest != self._newest:
                self._cached.clear()
                self._newest = newest
            found = self._cached.get((name, groups))
            if found is not None:
                self._cached.move_to_end((name, groups))
                return found
            restored = await _read(storage, name, groups)
            if restored is None:
                raise CheckpointError(
                    "no checkpoint has been completed yet, so there is none to read; take one with "
                    "await job.checkpoint(), or read the live state"
                )
            if restored.manifest.key_groups != key_groups:
                raise RestoreError(
                    f"checkpoint {restored.manifest.id} has {restored.manifest.key_groups} key groups, and the job "
                    f"{key_groups}"
                )
            context = OperatorContext(
                name=name,
                output=_Nowhere(),
                clock=clock,
                alarm=_Nowhere(),
                key_groups=KeyGroupRange(0, key_groups),
                key_group_count=key_groups,
            )
            snapshot = restored.states.get(name, OperatorSnapshot())
            size = _size(restored.manifest, name, groups)
            found = StepInCheckpoint(restored.manifest, snapshot, size, operator, context)
            self._cache(name, groups, found)
            return found

    def _cache(self, name: str, groups: KeyGroupRange, found: StepInCheckpoint) -> None:
        if found.size <= _CACHED:
            self._cached[name, groups] = found
            while sum(one.size for one in self._cached.values()) > _CACHED:
                self._cached.popitem(last=False)

    async def run(self, work: Callable[[], T], threads: WorkerActivity | None) -> T:
        """Do ``work`` in a thread, while busy tasks of the job leave it the lock of the interpreter."""
        with nullcontext() if threads is None else threads.working():
            self._limiter = self._limiter or CapacityLimiter(1)
            return await to_its_end(work, self._limiter)


async def _read(storage: CheckpointStorage, step: str, groups: KeyGroupRange) -> Restored | None:
    if isinstance(storage, StepReader) and not _overrides_latest(storage):
        return await storage.latest_of(step, groups)
    for _ in range(_TRIES):
        before = await storage.kept()
        try:
            found = await storage.latest()
            if found is None or not found.passed_over or await storage.kept() == before:
                return found
        except RestoreError:
            if await storage.kept() == before:
                raise
    return await storage.latest()


def _overrides_latest(storage: object) -> bool:
    """Return True if ``latest`` is that of a subclass which inherits ``latest_of``, and so may read something else."""
    for kind in type(storage).__mro__:
        if "latest_of" in vars(kind):
            return False
        if "latest" in vars(kind):
            return True
    return False


def _size(manifest: Manifest, step: str, groups: KeyGroupRange) -> int:
    """Return the size of the files that hold state of ``groups`` of a step (bytes)."""
    chains = chain.from_iterable(
        one.chain for state in manifest.steps if state.name == step for one in state.subtasks
    )
    files = {link.file for link in chains if link.first < groups.stop and link.stop > groups.start}
    return sum(file.size for file in files)
