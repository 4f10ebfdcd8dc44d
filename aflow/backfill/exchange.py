"""Records as rows on their way from one fragment to another: where each goes, when it stands, and its bytes.

A row of an exchange has a *part*, the subtask of the reader that owns the key group of its key, and a *payload*, the
key and the value. Payloads are read by the code that wrote them, in the same run, and never stored for longer, so a
payload may be pickled: with what runs in executors comes code anyhow. Most are not, since pickling a dataclass takes
4 us, and what has only plain fields is encoded in a tenth of that:

- msgpack of ``[header, key, fields …]`` for instances of dataclasses, named tuples and Structs whose fields, like the key,
  are None, bool, int, float, str or bytes; the header is the class, as in ``aflow.model.codecs.records``;
- msgpack of ``[".", key, value]`` for such plain values, and of ``["(", key, items …]`` for tuples of them, and
  ``["{", key, dict]`` for dicts with keys that are str;
- msgpack of ``["", pickle of the pair]`` for all else.

As all are msgpack, payloads that stand one behind the other, as in a column of Arrow, are read by one call.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from aflow.backfill.fragments import Exit
from aflow.errors import InternalError, OperatorError, shown
from aflow.model.batch import Batch
from aflow.model.codecs import CodecError
from aflow.model.codecs.record_kinds import RecordForm, form_named, form_of
from aflow.model.time import Timestamp
from aflow.runtime.key_owners import KeyOwners

#: What msgpack gives back as it was; subclasses are something else.
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})

_PICKLED, _VALUE, _TUPLE, _DICT = "", ".", "(", "{"

#: The first byte of a msgpack array of any length, which four bytes of it follow.
_ARRAY: Final = b"\xdd"

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Records on their way, as columns of equal length."""

    exit: int
    parts: list[int]
    """The subtasks of the reader that they go to; empty for a sink."""
    times: list[Timestamp]
    """Empty for a sink."""
    payloads: list[bytes]


class ExitEncoder:
    """Makes rows of what leaves by one exit. ``readers`` is the number of subtasks of the reading fragment."""

    def __init__(self, way: Exit, *, key_groups: int, readers: int) -> None:
        self._way = way
        self._owners = KeyOwners(way.origin.name, key_groups, readers)

    def rows(self, batch: Batch[Any]) -> Rows:
        """The records of ``batch``. Raises ``OperatorError`` for what can be no key, and for what does not pickle."""
        if self._way.reader is None:
            payloads = self._payloads([None] * len(batch), batch)
            return Rows(exit=self._way.number, parts=[], times=[], payloads=payloads)
        keys, times = batch.keys, batch.timestamps
        if keys is None or times is None:
            raise InternalError(f"a batch without keys or times leaves {self._way.origin.name!r}")
        return Rows(
            exit=self._way.number,
            parts=self._parts(batch, keys),
            times=times,
            payloads=self._payloads(keys, batch),
        )

    def _parts(self, batch: Batch[Any], keys: Sequence[Hashable]) -> list[int]:
        known = self._owners.known
        try:
            return [known[key] for key in keys]
        except (KeyError, TypeError):
            self._owners.learn(batch, keys)
            return [known[key] for key in keys]

    def _payloads(self, keys: Sequence[Hashable], batch: Batch[Any]) -> list[bytes]:
        # Hot path (benchmark `spark`).
        if _PLAIN.issuperset(map(type, keys)):
            with suppress(
                OverflowError, ValueError
            ):  # an int of more than 64 bits, half a surrogate
                if (payloads := _plain_payloads(keys, batch.values)) is not None:
                    return payloads
        try:
            return [
                _encode((_PICKLED, pickle.dumps(pair, 5)))
                for pair in zip(keys, batch.values, strict=True)
            ]
        except Exception as exc:  # whatever a class's own pickling raises
            raise self._unpicklable(batch, exc) from exc

    def _unpicklable(self, batch: Batch[Any], cause: Exception) -> OperatorError:
        record = next((value for value in batch.values if not _pickles(value)), batch.values[0])
        return OperatorError(
            f"step {self._way.origin.name!r} sent {shown(record)}, which cannot go from one executor to another: "
            f"{cause}; make it plain values, a dataclass, a NamedTuple or a Struct",
            operator=self._way.origin.name,
            record=record,
        )


def decoded(payloads: Sequence[bytes]) -> tuple[list[Any], list[Any]]:
    """The keys and the values of payloads."""
    return decoded_together(b"".join(payloads), len(payloads))


def decoded_together(payloads: bytes | memoryview, count: int) -> tuple[list[Any], list[Any]]:
    """The keys and the values of ``count`` payloads, which stand one behind the other."""
    # Hot path (benchmark `spark`).
    rows = _decode(b"".join((_ARRAY, count.to_bytes(4, "big"), payloads)))
    headers = {row[0] for row in rows}
    if len(headers) == 1 and _PICKLED not in headers:
        make = _made(headers.pop())
        return [row[1] for row in rows], [make(row[2:]) for row in rows]
    pairs = [
        pickle.loads(row[1])  # ours: see above
        if row[0] == _PICKLED
        else (row[1], _made(row[0])(row[2:]))
        for row in rows
    ]
    return [key for key, _ in pairs], [value for _, value in pairs]


def _plain_payloads(keys: Sequence[Hashable], values: list[Any]) -> list[bytes] | None:
    """Payloads without pickle; None if there is something in a value that has no such form."""
    kinds = set(map(type, values))
    if _PLAIN.issuperset(kinds):
        return [_encode((_VALUE, key, value)) for key, value in zip(keys, values, strict=True)]
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is tuple:
        return _of_rows(_TUPLE, keys, values)
    if kind is dict:
        return _of_dicts(keys, values)
    known = _known(kind)
    rows = None if known is None else known.form.rows(values)
    return None if known is None or rows is None else _of_rows(known.header, keys, list(rows))


def _of_rows(
    header: str, keys: Sequence[Hashable], rows: Sequence[Sequence[object]]
) -> list[bytes] | None:
    if not _PLAIN.issuperset(map(type, chain.from_iterable(rows))):
        return None
    return [_encode((header, key, *row)) for key, row in zip(keys, rows, strict=True)]


def _of_dicts(keys: Sequence[Hashable], values: list[dict[Any, object]]) -> list[bytes] | None:
    names = chain.from_iterable(values)
    inner = chain.from_iterable(value.values() for value in values)
    if not {str}.issuperset(map(type, names)) or not _PLAIN.issuperset(map(type, inner)):
        return None
    return [_encode((_DICT, key, value)) for key, value in zip(keys, values, strict=True)]


@dataclass(frozen=True, slots=True)
class _Known:
    """A class whose instances go without pickle, and how a payload names it: the code of its form before the header."""

    header: str
    form: RecordForm


#: The classes that were seen; None for those that have no form, or are not found by their name.
_KNOWN: Final[dict[type, _Known | None]] = {}


def _known(kind: type) -> _Known | None:
    if kind not in _KNOWN:
        try:
            form = form_of(kind)
        except CodecError:
            _KNOWN[kind] = None
        else:
            _KNOWN[kind] = _Known(f"{form.code} {form.header}", form)
    return _KNOWN[kind]


def _first(parts: Sequence[Any]) -> object:
    return parts[0]


#: By header, what makes a value of the items behind the key.
_MAKERS: Final[dict[str, Callable[[Sequence[Any]], object]]] = {
    _VALUE: _first,
    _DICT: _first,
    _TUPLE: tuple,
}


def _made(header: str) -> Callable[[Sequence[Any]], object]:
    """Raises ``CodecError`` and ``ImportError`` for a class that is not here, or another one."""
    make = _MAKERS.get(header)
    if make is None:
        code, _, rest = header.partition(" ")
        make = _MAKERS[header] = form_named(int(code), rest).make
    return make


def _pickles(value: object) -> bool:
    try:
        pickle.dumps(value, 5)
    except Exception:
        return False
    return True
