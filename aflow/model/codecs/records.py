"""Self-describing encoding of records without a declared type: plain values, and objects as their fields.

Plain values are stored as by ``PLAIN``. Instances of dataclasses, named tuples, msgspec Structs and enums are
msgpack extensions, by codes that never change; a *header* is the class and its fields, ``module:qualified name(a,b)``:

==  ===========  =====================================================================
32  dataclass    array of header, the values of the fields, and if there is more in its
                 ``__dict__`` or in other slots, a map of that
33  named tuple  likewise
34  Struct       likewise
35  enum         array of header and the name of the member; of a flag, its number
36  UNSET        nothing: ``msgspec.UNSET``, which a field of a Struct may hold
37  many         array of code (32 to 35), header, and the values of the fields of some
                 instances of one class, one after the other: the list of them
==  ===========  =====================================================================

Decoding looks a class up among those that are imported already and accepts only a class of that form. So changed bytes
can select among the records of the program, and run no code but ``__hash__`` and ``__eq__`` of those in sets or in keys
of dicts. ``__init__``, ``__new__`` and ``__post_init__`` are never called: fields are set directly. See decision 024.

A ``cached_property`` is computed again. An object that is in a value twice becomes two objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec
from msgspec.msgpack import Ext

from aflow.model.codecs.base import Codec, CodecError
from aflow.model.codecs.plain import DICT, FROZENSET, SET, TUPLE, Packer, paired, unpack, unstorable
from aflow.model.codecs.record_kinds import FormCode, RecordForm, flat, form_named, form_of, put

_UNSET, _MANY = 36, 37

_encode: Final = msgspec.msgpack.Encoder().encode
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})


class _Records:
    """See ``RECORDS``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "records"

    def encode(self, value: object) -> bytes:
        try:
            return _encode(_PACKER.pack(value))
        except OverflowError:
            return self._encode_large_ints(value)
        except (ValueError, RecursionError, AttributeError) as exc:
            raise unstorable(value, exc) from exc

    def decode(self, data: bytes) -> object:
        try:
            return _decode(data)
        except Exception as exc:  # damaged bytes, and modules of users
            raise CodecError(f"{len(data)} stored bytes are no records: {exc}") from exc

    def _encode_large_ints(self, value: object) -> bytes:
        try:
            return _encode(_CAREFUL.pack(value))
        except (ValueError, RecursionError, AttributeError) as exc:
            raise unstorable(value, exc) from exc


class _RecordPacker(Packer):
    """Packs objects by their fields, and the rest as ``PLAIN`` does."""

    __slots__ = ()

    def unknown(self, value: object) -> object:
        if value is msgspec.UNSET:
            return Ext(_UNSET, b"")
        form = _form(type(value))
        parts = self._parts(form.parts(value))
        if more := form.more(value):
            parts.append(self.pack(more))
        return Ext(form.code, _encode([form.header, *parts]))

    def items(self, values: Iterable[object]) -> object:
        values = list(values)
        kinds = set(map(type, values))
        if len(kinds) == 1 and len(values) > 1:
            form = _FORMS.get(kinds.pop())  # hot path: the records of a batch, if seen before
            if form is not None and form.width and (rows := form.rows(values)) is not None:
                parts = self._parts(flat(rows))
                return Ext(_MANY, _encode([form.code, form.header, *parts]))
        return [self.pack(value) for value in values]

    def _parts(self, parts: Iterable[object]) -> list[object]:
        there = list(parts)
        if self._native.issuperset(map(type, there)):
            return there
        return [self.pack(part) for part in there]


#: The forms of the classes of which an instance was packed.
_FORMS: Final[dict[type, RecordForm]] = {}


def _form(kind: type) -> RecordForm:
    form = _FORMS.get(kind)
    if form is None:
        form = _FORMS[kind] = form_of(kind)
    return form


_PACKER: Final = _RecordPacker(_SCALARS)
_CAREFUL: Final = _RecordPacker(_SCALARS - {int})


def _unpack(code: int, data: memoryview) -> object:
    if (container := _CONTAINERS.get(code)) is not None:
        return container(cast("list[object]", _decode(data)))
    if code in _FORM_CODES:
        header, *parts = cast("list[Any]", _decode(data))
        return _one(form_named(code, header), parts)
    if code == _MANY:
        return _many(cast("list[Any]", _decode(data)))
    return msgspec.UNSET if code == _UNSET else unpack(code, data)


_FORM_CODES: Final = frozenset(one.value for one in FormCode)

_decode: Final = msgspec.msgpack.Decoder(ext_hook=_unpack).decode


def _one(form: RecordForm, parts: list[Any]) -> object:
    # Neither more nor less: a class that is called with fewer arguments computes defaults.
    if len(parts) == form.width:
        return form.make(parts)
    if len(parts) != form.width + 1 or not isinstance(parts[-1], dict):
        raise ValueError(f"{form.header} does not have {len(parts)} fields")
    made = form.make(parts[:-1])
    put(made, cast("dict[str, object]", parts[-1]))
    return made


def _many(stored: list[Any]) -> list[object]:
    code, header, *values = stored
    form, parts = form_named(code, header), iter(values)
    if not form.width:
        raise ValueError(f"{form.header} has no fields, and cannot be many")
    return [form.make(row) for row in zip(*[parts] * form.width, strict=True)]


#: As in ``PLAIN``, but their items may be records.
_CONTAINERS: Final[dict[int, Callable[[list[object]], object]]] = {
    TUPLE: tuple,
    SET: set,
    FROZENSET: frozenset,
    DICT: paired,
}


#: Plain values, and instances of dataclasses, named tuples, Structs and enums that are defined at the top of a module
#: (or in a class there); they are restored equal, type for type. All else is refused with ``CodecError``.
RECORDS: Final[Codec[object]] = _Records()
