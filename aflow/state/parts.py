"""Part files: the encoding and decoding of the snapshots of all steps of one subtask.

Layout. All numbers are big-endian::

    8 bytes   b"AFLOWPRT"
    2 bytes   the format
    2 bytes   the length of what follows: the version of aflow that wrote the file, UTF-8
    frames    8 bytes of length, then MessagePack; a frame of length 0 ends the file

The header is the same in all formats, so that each reader can tell which version wrote a file. The first frame names
the steps, the others hold records of them: rows, removed members, replaced keys, parts of operator state, copies of
broadcast state. One state may be spread over many records.

A frame has at most some thousand rows and about a megabyte. Its encoding or decoding is one call into C that holds the
GIL, and the thread of the event loop must not wait for a large state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from aflow.errors import CheckpointError, RestoreError
from aflow.state.manifest import FORMAT, newer
from aflow.state.snapshot import STATES, Entry, OperatorSnapshot
from aflow.state.stored_entries import Entries, Frame, StoredEntries

MAGIC: Final = b"AFLOWPRT"
_HEAD: Final = struct.Struct(">HH")
_LENGTH: Final = struct.Struct(">Q")

#: Rows in a frame: decoding them takes about a millisecond.
_ROWS: Final = 4096
#: Bytes in a frame, as estimated from the preceding frames.
_BYTES: Final = 1 << 20


class _Kind(IntEnum):
    """Content of a record; the numbers are part of the format."""

    KEYED = 0
    REMOVED = 1
    REPLACED = 2
    OPERATOR = 3
    BROADCAST = 4


class _Step(msgspec.Struct, array_like=True, frozen=True):
    name: str
    changes: bool
    members: tuple[str, ...]


class _Entries(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=0):
    kind: int
    step: int
    """Its index in the first frame."""
    group: int
    name: str
    items: tuple[Entry, ...]


class _Stored(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=0):
    """As ``_Entries``, with entries that are not decoded."""

    kind: int
    step: int
    group: int
    name: str
    items: msgspec.Raw


class _Values(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    kind: int
    step: int
    group: int
    """0 for content without key group."""
    name: str
    items: tuple[bytes, ...]


_Record: TypeAlias = _Entries | _Values


def _noop() -> None:
    return None


_ENCODER: Final = msgspec.msgpack.Encoder()
_STEPS: Final = msgspec.msgpack.Decoder(list[_Step])
_RECORDS: Final = msgspec.msgpack.Decoder(list[_Record])
#: Decodes what ``_RECORDS`` has checked.
_UNDECODED: Final = msgspec.msgpack.Decoder(list[_Stored | _Values])


def encoded(steps: Mapping[str, OperatorSnapshot], *, aflow: str) -> Iterator[bytes]:
    """Yield the content of a part file in pieces; ``aflow`` is the version that writes it.

    Key groups without names are omitted. Raises ``CheckpointError`` for a value that is too large to be stored.
    """
    version = aflow.encode()
    yield MAGIC + _HEAD.pack(FORMAT, len(version)) + version
    yield _framed(
        _ENCODER.encode(
            [
                _Step(name, not one.complete, tuple(sorted(one.members)))
                for name, one in steps.items()
            ]
        )
    )
    records = chain.from_iterable(
        _records(index, snapshot) for index, snapshot in enumerate(steps.values())
    )
    yield from _frames(records)
    yield _LENGTH.pack(0)


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _records(step: int, snapshot: OperatorSnapshot) -> Iterator[_Record | _Stored]:
    for kind, filed in ((_Kind.KEYED, snapshot.keyed), (_Kind.REMOVED, snapshot.removed)):
        for group, names in filed.items():
            for name, entries in names.items():
                if isinstance(entries, StoredEntries):
                    for frame in entries.frames:
                        yield _Stored(kind, step, group, name, frame.stored)
                else:
                    yield _Entries(kind, step, group, name, tuple(entries))
    for group, keys in (snapshot.replaced or {}).items():
        yield _Values(_Kind.REPLACED, step, group, "", tuple(keys))
    for name, parts in snapshot.operator.items():
        yield _Values(_Kind.OPERATOR, step, 0, name, parts)
    for name, copies in snapshot.broadcast.items():
        yield _Values(_Kind.BROADCAST, step, 0, name, copies)


def _frames(records: Iterable[_Record | _Stored]) -> Iterator[bytes]:
    packer = _Packer()
    for record in records:
        if isinstance(record, _Stored):
            yield from packer.add_stored(record)
        else:
            yield from packer.add(record)
    yield from packer.rest()


class _Packer:
    """Divides records among frames."""

    def __init__(self) -> None:
        self._frame: list[_Record | _Stored] = []
        self._limit = self._room = _ROWS

    def add(self, record: _Record) -> Iterator[bytes]:
        """Add a record, and yield the frames that are full."""
        start, size = 0, len(record.items)
        while True:
            piece = _cut(record, start, start + self._room)
            start += len(piece.items)
            yield from self._put(piece, len(piece.items))
            if start >= size:
                return

    def add_stored(self, record: _Stored) -> Iterator[bytes]:
        """Add a record that cannot be divided, and yield the frames that are full."""
        size = len(Frame(record.items))
        if size > self._room:
            yield from self.rest()
        yield from self._put(record, size)

    def rest(self) -> Iterator[bytes]:
        """Yield the last frame, unless it is empty."""
        if self._frame:
            body = _body(self._frame)
            yield _framed(body)
            # The following rows probably have a similar size.
            self._limit = max(1, min(_ROWS, self._limit * _BYTES // len(body)))
            self._frame, self._room = [], self._limit

    def _put(self, record: _Record | _Stored, size: int) -> Iterator[bytes]:
        self._frame.append(record)
        # A record counts as a row itself, so that many empty ones fill a frame too.
        self._room -= size + 1
        if self._room <= 0:
            yield from self.rest()


def _cut(record: _Record, start: int, stop: int) -> _Record:
    """Return the record with its items from ``start`` to ``stop`` only."""
    if start == 0 and stop >= len(record.items):
        return record
    if isinstance(record, _Entries):
        return _Entries(
            record.kind, record.step, record.group, record.name, record.items[start:stop]
        )
    return _Values(record.kind, record.step, record.group, record.name, record.items[start:stop])


def _body(frame: list[_Record | _Stored]) -> bytes:
    try:
        return _ENCODER.encode(frame)
    except (ValueError, OverflowError) as exc:
        names = ", ".join(sorted({repr(record.name) for record in frame}))
        raise CheckpointError(f"state cannot be stored, among {names}: {exc}") from exc


def decoded(
    data: bytes, *, what: str, after_frame: Callable[[], None] = _noop
) -> dict[str, OperatorSnapshot]:
    """Return the snapshots in a part file by the names of their steps. Their keyed entries refer to ``data``.

    ``what`` names the file in errors; ``after_frame`` is called about each millisecond. Raises ``RestoreError`` for
    bytes that are no part, an incomplete one, or one of a newer format than this version of aflow knows.
    """
    frames = _bodies(data, what)
    first = next(frames, None)
    if first is None:
        raise RestoreError(f"{what} ends before its first frame")
    try:
        steps = [_StepRecords(step) for step in _STEPS.decode(first)]
        for body in frames:
            _RECORDS.decode(body)  # checks the entries, of which only the bytes are kept
            for record in _UNDECODED.decode(body):
                steps[_place(record)].add(record)
            after_frame()
    except (msgspec.MsgspecError, IndexError, ValueError, TypeError, RecursionError) as exc:
        raise RestoreError(f"{what} is no valid part file: {exc}") from exc
    return {step.name: step.snapshot() for step in steps}


def _place(record: _Record | _Stored) -> int:
    """Return the index of the step of ``record``. Raises ``IndexError`` for a negative one, valid for a tuple."""
    if record.step < 0:
        raise IndexError(f"a record of step {record.step}")
    return record.step


def _bodies(data: bytes, what: str) -> Iterator[memoryview]:
    """Yield the content of all frames except the empty one at the end."""
    view = memoryview(data)
    at = _start(data, what)
    while True:
        if at + _LENGTH.size > len(data):
            raise RestoreError(f"{what} ends before its last frame, after {len(data)} bytes")
        length: int
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not length:
            return
        if at + length > len(data):
            raise RestoreError(f"{what} ends in the middle of a frame, after {len(data)} bytes")
        yield view[at : at + length]
        at += length


def _start(data: bytes, what: str) -> int:
    """Return the offset of the first frame."""
    head = len(MAGIC) + _HEAD.size
    if len(data) < head or not data.startswith(MAGIC):
        raise RestoreError(f"{what} is no part of a checkpoint: it does not begin with {MAGIC!r}")
    written: int
    length: int
    written, length = _HEAD.unpack_from(data, len(MAGIC))
    if written > FORMAT:
        version = data[head : head + length].decode(errors="replace")
        raise RestoreError(newer(what, written, version))
    return head + length


class PartReader:
    """Check a complete part file in pieces of any size, with one frame at a time in memory.

    ``what`` names the file in errors, ``groups`` are the key groups that it may hold state of.
    """

    def __init__(self, *, what: str, groups: Container[int]) -> None:
        self._what: Final = what
        self._groups: Final = groups
        #: Bytes after the last complete frame, or from the beginning of the file before the first one.
        self._rest = bytearray()
        #: True after the header.
        self._begun = False
        #: Names of the steps in the first frame; None before it.
        self._steps: tuple[str, ...] | None = None
        #: True after the empty frame at the end of the file.
        self._over = False

    def add(self, piece: bytes) -> None:
        """Check the next bytes. Raises ``RestoreError`` if they cannot follow in a complete part."""
        self._rest += piece
        if not self._begun and (start := self._begin()) is not None:
            del self._rest[:start]
            self._begun = True
        while self._begun and (body := self._frame()) is not None:
            self._read(body)
        if self._over and self._rest:
            raise RestoreError(f"{self._what} continues after its last frame")

    def end(self) -> tuple[str, ...]:
        """Return the steps of the file. Raises ``RestoreError`` if it is incomplete."""
        if not self._over or self._steps is None:
            raise RestoreError(f"{self._what} ends before its last frame")
        return self._steps

    def _begin(self) -> int | None:
        """Return the offset of the first frame; None if more bytes are needed."""
        head = len(MAGIC) + _HEAD.size
        if len(self._rest) < head:
            return None
        start = _start(bytes(self._rest[: head + 0xFFFF]), self._what)
        return start if len(self._rest) >= start else None

    def _frame(self) -> bytes | None:
        """Return the next frame; None while it is incomplete, and after the last one."""
        if self._over or len(self._rest) < _LENGTH.size:
            return None
        length: int
        (length,) = _LENGTH.unpack_from(self._rest)
        stop = _LENGTH.size + length
        if len(self._rest) < stop:
            return None
        body = bytes(self._rest[_LENGTH.size : stop])
        del self._rest[:stop]
        self._over = not length
        return body

    def _read(self, body: bytes) -> None:
        try:
            if self._steps is None:
                self._name(_STEPS.decode(body))
            elif body:
                for record in _RECORDS.decode(body):
                    self._check(self._steps[_place(record)], record)
        except (msgspec.MsgspecError, IndexError, ValueError, RecursionError) as exc:
            raise RestoreError(f"{self._what} is no valid part file: {exc}") from exc

    def _name(self, steps: Iterable[_Step]) -> None:
        for step in steps:
            if step.changes:
                raise RestoreError(
                    f"{self._what} holds changes of step {step.name!r}, not all of its state"
                )
        self._steps = tuple(step.name for step in steps)

    def _check(self, step: str, record: _Record) -> None:
        if _Kind(record.kind) is _Kind.KEYED and record.group not in self._groups:
            raise RestoreError(
                f"{self._what} holds state of key group {record.group} for step {step!r}, which is not among the "
                f"key groups of this part"
            )


class _StepRecords:
    """Collected records of one step."""

    def __init__(self, step: _Step) -> None:
        self.name: Final = step.name
        self._step = step
        self._keyed: dict[int, dict[str, list[Frame]]] = {}
        self._removed: dict[int, dict[str, list[Frame]]] = {}
        self._replaced: dict[int, set[bytes]] = {}
        self._operator: dict[str, list[tuple[bytes, ...]]] = {}
        self._broadcast: dict[str, list[tuple[bytes, ...]]] = {}

    def add(self, record: _Stored | _Values) -> None:
        kind = _Kind(record.kind)
        if isinstance(record, _Stored):
            filed = self._keyed if kind is _Kind.KEYED else self._removed
            frame = Frame(record.items)
            filed.setdefault(record.group, {}).setdefault(record.name, []).append(frame)
        elif kind is _Kind.REPLACED:
            self._replaced.setdefault(record.group, set()).update(record.items)
        else:
            named = self._operator if kind is _Kind.OPERATOR else self._broadcast
            named.setdefault(record.name, []).append(record.items)

    def snapshot(self) -> OperatorSnapshot:
        replaced = {group: frozenset(keys) for group, keys in self._replaced.items()}
        return OperatorSnapshot(
            {group: _entries(names) for group, names in self._keyed.items()},
            _joined(self._operator),
            _joined(self._broadcast),
            replaced if self._step.changes else None,
            {group: _entries(names) for group, names in self._removed.items()},
            frozenset(self._step.members),
        )


def _entries(frames: Mapping[str, list[Frame]]) -> dict[str, Entries]:
    """Return the entries by name. Descriptions are few, and are looked up again and again."""
    return {
        name: tuple(StoredEntries(some)) if name == STATES else StoredEntries(some)
        for name, some in frames.items()
    }


def _joined(pieces: Mapping[str, list[tuple[bytes, ...]]]) -> dict[str, tuple[bytes, ...]]:
    return {
        name: some[0] if len(some) == 1 else tuple(chain.from_iterable(some))
        for name, some in pieces.items()
    }
