"""State of one task of a keyed step in one epoch of a stream: read, selected, and written.

Theory. ``TaskState`` goes through these steps, the blocking ones outside of the event loop:

1. ``read`` (blocks) takes the kept state from the cache of the process and reads the parts that are newer, or reads all
   parts of the chain.
2. ``look_ahead`` (blocks) reads the rows of the task until their keys are known, within a bound.
3. ``select`` chooses the state that is restored into the opened operator: that of the keys of the rows and of those
   that are due before the end of the epoch, or of all keys.
4. The operator runs and is captured.
5. ``write`` (blocks) writes a part, and puts the kept state into the cache.

All keys are restored if the step needs them (it has no ``row_times``), if the task has more rows than the bound or
concerns most keys, at the end of time, and if equal keys may have different bytes. State that comes from another
folder, or that a changed flow reads in another way, is restored and written completely, and kept from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aflow.backfill.blocks import ExchangedRows, InputRows
from aflow.backfill.continuation import StepFiles
from aflow.backfill.epochs import EpochPart, is_empty, needs_complete_part, write_epoch_part
from aflow.backfill.fragment_run import Selection, StateSelector
from aflow.backfill.kept_state import ROW_BYTES, KeptState, SelectedKeys
from aflow.backfill.state_cache import Chain, StateCache, StateOwner
from aflow.errors import CheckpointError
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Operator, RowTimes
from aflow.runtime.checkpoints.directory.files import DISK
from aflow.runtime.checkpoints.directory.reader import ReadSource, content, links_to_groups
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.manifest import Link
from aflow.state.read_errors import wrap_read_errors
from aflow.state.snapshot import OperatorSnapshot
from aflow.state.stored_entries import StoredEntries

#: Maximum of rows that are read ahead to know their keys.
MOST_ROWS: Final = 1 << 18
#: Share of the keys with state from which all are restored.
MOST_KEYS: float = 0.5


@dataclass(frozen=True, slots=True)
class CacheUse:
    """The use of a cache by one task."""

    cache: StateCache
    owner: StateOwner
    limit: int
    """Bytes of all states in the cache."""


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The task whose state it is."""

    folder: Path
    """The folder of the stream."""
    epoch: int
    step: str
    subtask: int
    groups: KeyGroupRange


@dataclass(slots=True)
class TaskState(StateSelector):
    """State of one task in one epoch; see the module for the order of calls."""

    place: TaskPlace
    files: StepFiles | None
    """The state with which the task begins; None if there is none."""
    use: CacheUse | None = None
    """None to restore and capture without a cache."""
    bytes_read: int = 0
    """Bytes of the files that were read."""
    is_partial: bool = False
    """True if some keys only were restored."""
    _kept: KeptState | None = None
    #: Complete state that was read and is not kept yet.
    _stored: OperatorSnapshot | None = None
    #: Changes of other processes since the kept state, oldest first.
    _newer: list[OperatorSnapshot] = field(default_factory=list[OperatorSnapshot])
    #: The keys of all rows; None if they are not known.
    _keys: set[Hashable] | None = None
    _selected: SelectedKeys = field(default_factory=SelectedKeys)
    #: The rule of the step; None if it needs the state of all keys, or was not asked.
    _times: RowTimes | None = None
    _codec: KeyGroupCodec | None = None
    _until: Timestamp = MIN_TIMESTAMP

    @property
    def needs_complete_part(self) -> bool:
        """True if all state has to be written, and not only changes."""
        return needs_complete_part(self.files, self.place.folder, self.place.groups)

    def read(self) -> None:
        """Read what the process does not have. Raises ``RestoreError`` if a file is missing or damaged."""
        if self.files is None:
            return
        chain = self._chain
        found = self.use.cache.take(self.use.owner, chain) if self.use and self._is_own else None
        if found is not None and self._read_newer(chain[len(found.chain) :]):
            self._kept = found.state
            return
        self._stored = self.files.read(self.place.groups)
        self.bytes_read += sum(link.file.size for link in chain)

    def look_ahead(self, rows: Iterator[InputRows]) -> Iterator[InputRows]:
        """Read ``rows`` until their keys are known, and return all of them."""
        if self.use is None or not self._is_own:
            return rows
        most = MOST_KEYS * self._key_count()
        keys: set[Hashable] = set()
        kinds = KeyKinds()
        ahead: deque[InputRows] = deque()
        count = 0
        for some in rows:
            ahead.append(some)
            if not isinstance(some, ExchangedRows):
                break
            # Before equal keys of different types become one.
            kinds.see(some.keys)
            keys.update(some.keys)
            count += len(some.keys)
            if kinds.mixed or count > MOST_ROWS or len(keys) > most:
                break
        else:
            self._keys = keys
        return _chained(ahead, rows)

    def select(self, head: Operator, until: Timestamp) -> Generator[None, None, Selection]:
        state = None if self.use is None else head.readable_state()
        times = head.row_times()
        if state is not None and times is not None:
            with wrap_read_errors(f"the state of step {self.place.step!r}"):
                yield from self._prepare(state.key_codec, times)
                if self._kept is not None:
                    self._selected_keys(self._kept, state.key_codec, until)
        if self.is_partial and self._kept is not None:
            return Selection(self._kept.selected(self._selected), partial=True)
        if self._kept is not None:
            return Selection(self._kept.complete(), partial=False)
        stored, self._stored = self._stored, None
        return Selection(stored, partial=False)

    def write(self, state: Mapping[str, OperatorSnapshot]) -> EpochPart:
        """Write the state after the epoch, by step as in a ``FragmentResult``, durably, and keep it.

        Raises ``CheckpointError``.
        """
        kept, place = self._kept, self.place
        captured = state.get(place.step, OperatorSnapshot())
        written: OperatorSnapshot | None = captured
        if self.is_partial and kept is not None:
            written = self._write_partially(kept, captured)
        part = EpochPart(place.step, place.subtask, None, complete=False)
        if written is not None:
            part = write_epoch_part(
                place.folder, place.epoch, place.step, place.subtask, {place.step: written}
            )
        if not self.is_partial and kept is not None:
            if captured.complete:
                self._kept = None  # made anew
            elif part.file is not None:
                self._update(kept, captured)
        self._keep(part, written)
        return part

    def _write_partially(
        self, kept: KeptState, captured: OperatorSnapshot
    ) -> OperatorSnapshot | None:
        """Return what to write if ``captured`` is the state of the selected keys; None if nothing has changed."""
        changes = kept.changes(self._selected, captured)
        if changes is not None and is_empty(changes):
            changes = None  # no part has it
        self._update(kept, changes)
        return kept.complete() if self.needs_complete_part else changes

    @property
    def _chain(self) -> Chain:
        return () if self.files is None else links_to_groups(self.files.subtasks, self.place.groups)

    @property
    def _is_own(self) -> bool:
        """True if the stored state is in the folder of the stream, and is read as it was written."""
        files = self.files
        return (
            files is not None
            and files.folder == self.place.folder
            and self.place.step not in files.changes.changed_steps
        )

    def _read_newer(self, links: Chain) -> bool:
        """Read the changes in ``links``; return False if they are none of this task alone."""
        groups = self.place.groups
        source = ReadSource(DISK, self.place.folder)
        for link in links:
            snapshot = content(source, link.file).get(self.place.step)
            self.bytes_read += link.file.size
            whole = (link.first, link.stop) == (groups.start, groups.stop)
            if snapshot is None or snapshot.complete or not whole:
                self._newer.clear()
                return False
            self._newer.append(snapshot.restricted_to(groups))
        return True

    def _key_count(self) -> int:
        """Return the number of keys with state, or somewhat less."""
        if self._kept is not None:
            return len(self._kept)
        if self._stored is None:
            return 0
        return sum(
            max(map(len, names.values()), default=0) for names in self._stored.keyed.values()
        )

    def _prepare(self, codec: KeyGroupCodec, times: RowTimes) -> Iterator[None]:
        """Make the kept state, and bring it up to date."""
        self._times, self._codec = times, codec
        if self._stored is not None and self._is_own and self._fits(self._stored):
            self._kept, self._stored = KeptState(self._stored), None
            yield
        kept = self._kept
        if kept is None:
            return
        if not kept.is_indexed:
            yield from kept.index(codec, times)
        for changes in self._newer:
            changed = kept.apply(changes, times)
            kept.expect(changed, times, MIN_TIMESTAMP)
            for keys in changed.values():
                kept.kinds.see(codec.keys(list(keys)))
            yield
        self._newer.clear()

    def _selected_keys(self, kept: KeptState, codec: KeyGroupCodec, until: Timestamp) -> None:
        """Choose the keys whose state is restored, if these are not all."""
        keys = self._keys
        if keys is None or until == MAX_TIMESTAMP:
            return
        kept.kinds.see(keys)
        if kept.kinds.mixed:
            return
        self._until = until
        selected = kept.take_due(until)
        for key in keys:
            try:
                group, stored = codec.place(key)
            except CheckpointError:
                continue  # it has no state, and the step reports it
            selected.setdefault(group, set()).add(stored)
        self._selected = selected
        self.is_partial = True

    def _update(self, kept: KeptState, changes: OperatorSnapshot | None) -> None:
        times = {} if self._times is None else self._times
        changed = {} if changes is None else kept.apply(changes, times)
        if not self.is_partial and self._codec is not None:
            for keys in changed.values():
                kept.kinds.see(self._codec.keys(list(keys)))
        # Selected keys are due again, if they are, after the end of this epoch; those that were not selected have kept
        # their times.
        kept.expect(self._selected if self.is_partial else changed, times, self._until)

    def _fits(self, snapshot: OperatorSnapshot) -> bool:
        """Return True if the state, kept, would not exceed the limit of the cache."""
        if self.use is None:
            return False
        size = 0
        for names in snapshot.keyed.values():
            for entries in names.values():
                size += len(entries) * ROW_BYTES
                if isinstance(entries, StoredEntries):
                    size += sum(memoryview(frame.stored).nbytes for frame in entries.frames)
                if size > self.use.limit:
                    return False
        return True

    def _keep(self, part: EpochPart, written: OperatorSnapshot | None) -> None:
        """Put the state into the cache, under the chain that a reader finds if this part counts."""
        if self.use is None or self._times is None:
            return
        kept, self._kept = self._kept, None
        if kept is None and written is not None and written.complete and self._fits(written):
            kept = KeptState(written)
        if kept is None or kept.kinds.mixed:
            return
        self.use.cache.put(self.use.owner, self._chain_after(part), kept, self.use.limit)

    def _chain_after(self, part: EpochPart) -> Chain:
        groups = self.place.groups
        link = () if part.file is None else (Link(part.file, groups.start, groups.stop),)
        return link if part.complete else (*self._chain, *link)


def _chained(ahead: deque[InputRows], rows: Iterator[InputRows]) -> Iterator[InputRows]:
    while ahead:
        yield ahead.popleft()
    yield from rows
