"""Contents of a savepoint or a checkpoint, row by row, without the code of the pipeline.

``stored_parts`` reads only the manifest and returns the parts, which can be read in parallel and in any process;
``rows_of`` reads one of them. All functions block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias, cast

from aflow.errors import RestoreError
from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.operators.key_timers import TIMER_NAMES
from aflow.runtime.checkpoints.directory.files import DISK, load_now, reason
from aflow.runtime.checkpoints.directory.names import manifest_name, manifest_numbers
from aflow.runtime.checkpoints.directory.paths import local_folder
from aflow.runtime.checkpoints.directory.reader import ReadSource, read_chain
from aflow.state.descriptions import Description
from aflow.state.manifest import Link, Manifest, manifest_of
from aflow.state.snapshot import STATES, OperatorSnapshot
from aflow.state.specs import RESERVED
from aflow.state.stored_entries import Entries
from aflow.state.stored_values import json_line, key_value, opened, state_value

#: Names under which timers are stored.
_TIMERS: Final = frozenset(TIMER_NAMES.values())

#: Prefix of the times at which states of the same key were last accessed.
_TOUCHED: Final = f"{RESERVED}touched "

#: Prefix of states of a key in one window.
_WINDOW_STATE: Final = f"{RESERVED}window state "


@dataclass(frozen=True, slots=True)
class StoredPart:
    """State stored by one subtask of one step. Plain data, which can be sent to another process."""

    folder: str
    operator: str
    what: str
    """Method that created the step (``process``, ``window.fold`` …)."""
    subtask: int
    chain: tuple[Link, ...]
    broadcasts: bool
    """True for the one subtask whose copy of broadcast state is shown: all copies are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One stored item of a step."""

    operator: str
    what: str
    subtask: int
    """Subtask that stored the item."""
    kind: str
    """``value``, ``list``, ``map`` and other kinds of declared state, ``broadcast``, ``timer``, ``window``, ``keyed``
    for other keyed state of a step (the two sides of a join, say), and ``operator`` for state that is not keyed: source
    positions, watermarks, records in flight.
    """
    state: str
    """Name of the state."""
    value: str
    """Content as JSON."""
    key_group: int | None = None
    key: str | None = None
    """Key as JSON."""
    timer: Timestamp | None = None
    """Time at which the timer fires (epoch ms)."""
    window_start: Timestamp | None = None
    """Start of the window (epoch ms)."""
    window_end: Timestamp | None = None
    """End of the window, exclusive. None for windows of a fixed size that are stored by their start."""


def stored_parts(path: str | PathLike[str], *, operator: str | None = None) -> list[StoredPart]:
    """Return the parts of the checkpoint at ``path``, or of its step ``operator``.

    ``path`` is a savepoint, a folder of checkpoints (the newest is read), or one manifest; a ``file:`` URI is accepted.
    Raises ``RestoreError`` if there is none, or if it has no step of that name, and ``FlowDefinitionError`` for an
    invalid path.
    """
    # Absolute: a process with another working directory may read it.
    manifest, folder = newest_manifest(Path.cwd() / local_folder(path, "path"))
    parts = [
        StoredPart(str(folder), step.name, step.what, one.subtask, one.chain, number == 0)
        for step in manifest.steps
        for number, one in enumerate(step.subtasks)
        if operator in (None, step.name)
    ]
    if operator is not None and not parts:
        known = ", ".join(repr(step.name) for step in manifest.steps) or "none"
        raise RestoreError(
            f"there is no step {operator!r} in {manifest.kind.value} {manifest.id} of flow {manifest.flow!r}; it has: "
            f"{known}"
        )
    return parts


def newest_manifest(path: Path) -> tuple[Manifest, Path]:
    """Return the newest readable manifest at ``path``, and the folder to which its paths are relative; blocks.

    ``path`` is a savepoint, a folder of checkpoints, or one manifest. Raises ``RestoreError`` if there is none.
    """
    try:
        if path.is_file():
            return manifest_of(load_now(path), what=str(path)), path.parent
        numbers = manifest_numbers(DISK.names(path))
    except OSError as exc:
        raise RestoreError(f"{path} cannot be read: {reason(exc)}") from exc
    problems: list[RestoreError] = []
    for number in sorted(numbers, reverse=True):
        file = path / manifest_name(number)
        try:
            return manifest_of(load_now(file), what=str(file)), path
        except RestoreError as exc:
            problems.append(exc)
        except OSError as exc:
            raise RestoreError(f"{file} cannot be read: {reason(exc)}") from exc
    if problems:
        raise problems[0]
    raise RestoreError(f"{path} holds no checkpoint: no file like {manifest_name(1)} is in it")


def rows_of(part: StoredPart) -> Iterator[StateRow]:
    """Yield the stored state of ``part`` by key group. Raises ``RestoreError`` if its files are damaged."""
    source = ReadSource(DISK, Path(part.folder))
    snapshot = read_chain(part.operator, part.chain, source)
    rows = _Rows(part)
    for group in sorted(snapshot.keyed):
        yield from rows.of_group(group, snapshot.keyed[group])
    yield from rows.of_operator(snapshot)
    if part.broadcasts:
        yield from rows.of_broadcasts(snapshot)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Converter of stored state to rows."""

    part: StoredPart

    def of_group(self, group: int, names: Mapping[str, Entries]) -> Iterator[StateRow]:
        described = {
            name.decode(): Description.decoded(data) for name, data in names.get(STATES, ())
        }
        for name, entries in names.items():
            if name == STATES or name.startswith(_TOUCHED):
                continue
            for key, data in entries:
                yield self._of_key(group, key, name, data, described.get(name))

    def _of_key(
        self, group: int, key: bytes, name: str, data: bytes, described: Description | None
    ) -> StateRow:
        if name.startswith(_WINDOW_STATE):
            key, start, end = cast("tuple[bytes, int, int]", PLAIN.decode(key))
            kind, value = _declared(described, data)
            return self._row(group, key, name, kind, value, window=(start, end))
        if name in _TIMERS:
            at, window = _timer(data)
            return self._row(group, key, name, "timer", key_value(data), timer=at, window=window)
        if name.startswith(RESERVED):
            found = _window(name, data)
            if found is None:
                return self._row(group, key, name, "keyed", opened(data))
            return self._row(group, key, name, "window", found.held, window=found.bounds)
        kind, value = _declared(described, data)
        return self._row(group, key, name, kind, value)

    def of_operator(self, snapshot: OperatorSnapshot) -> Iterator[StateRow]:
        for name, parts in sorted(snapshot.operator.items()):
            for data in parts:
                yield self._row(None, None, name, "operator", opened(data))

    def of_broadcasts(self, snapshot: OperatorSnapshot) -> Iterator[StateRow]:
        for name, copies in sorted(snapshot.broadcast.items()):
            described, data = cast("tuple[bytes, bytes]", PLAIN.decode(copies[0]))
            entries = state_value(Description.decoded(described), data)
            for key, value in cast("list[tuple[object, object]]", entries):
                yield self._row(None, None, name, "broadcast", value, shown=json_line(key))

    def _row(
        self,
        group: int | None,
        key: bytes | None,
        name: str,
        kind: str,
        value: object,
        *,
        timer: Timestamp | None = None,
        window: _Bounds | None = None,
        shown: str | None = None,
    ) -> StateRow:
        start, end = window or (None, None)
        return StateRow(
            operator=self.part.operator,
            what=self.part.what,
            subtask=self.part.subtask,
            kind=kind,
            state=name.removeprefix(_WINDOW_STATE).removeprefix(RESERVED),
            value=json_line(value),
            key_group=group,
            key=shown if key is None else json_line(key_value(key)),
            timer=timer,
            window_start=start,
            window_end=end,
        )


def _declared(described: Description | None, data: bytes) -> tuple[str, object]:
    kind = "value" if described is None else described.kind
    return kind, state_value(described, data)


_Bounds: TypeAlias = tuple[Timestamp, Timestamp | None]


@dataclass(frozen=True, slots=True)
class _InWindow:
    """State of a key in a window or pane, with its bounds."""

    held: object
    bounds: _Bounds


def _timer(data: bytes) -> tuple[Timestamp | None, _Bounds | None]:
    """Return the time of a timer and the window it belongs to."""
    match _columns(data):
        case [int(at)]:
            return at, None
        case [int(at), int(start), int(end)]:
            return at, (start, end)
        case _:
            return None, None


def _window(name: str, data: bytes) -> _InWindow | None:
    """Return the window state; None for state in any other format."""
    match name, _columns(data):
        case "@windows" | "@panes", [bytes(held), int(start), *_]:
            return _InWindow(key_value(held), (start, None))
        case "@sessions", [bytes(held), int(start), int(end), *_]:
            return _InWindow(key_value(held), (start, end))
        case "@key windows", [where, _, _, held]:
            start, end, *_ = cast("list[int]", where)
            return _InWindow(key_value(held) if isinstance(held, bytes) else None, (start, end))
        case _:
            return None


def _columns(data: bytes) -> list[object]:
    stored = key_value(data)
    return cast("list[object]", stored) if isinstance(stored, list) else [stored]
