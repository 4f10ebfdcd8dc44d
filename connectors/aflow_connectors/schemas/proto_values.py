"""Messages of Protobuf as records of a declared type, and back.

| Protobuf | Python |
|---|---|
| numbers, bool, string, bytes | int, float, bool, str, bytes |
| enum | the name of the value, or its number if the declared type is an int |
| message, repeated, map | a record, list, dict |
| string | also ``UUID``, ``Decimal``, ``date``, ``time``, ``datetime``, as text |
| ``Timestamp``, ``Duration`` | aware ``datetime``, ``timedelta``; nanoseconds are cut off |
| ``Int64Value`` and the other wrappers | the value, or None |

A field that has presence and is not set is None, or the default of the declared field. Other fields always have a
value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from msgspec import inspect

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.declared_types import fields_by_name, without_none
from aflow_connectors.fields import fields_of
from aflow_connectors.formats.format import FormatError
from aflow_connectors.schemas.client import message_factory
from aflow_connectors.schemas.field_path import within

Read: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any], Any]

_PACKAGE: Final = "google.protobuf."

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Seconds of a day, and nanoseconds of a second.
_DAY: Final = 86_400
_NANOS: Final = 1_000_000_000

_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{kind}Value"
    for kind in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)

#: Messages without fields of their own that a record could have.
_DYNAMIC: Final = frozenset(f"{_PACKAGE}{kind}" for kind in ("Any", "Struct", "Value", "ListValue"))


def message_reader(descriptor: Any, declared: inspect.Type | None) -> Read:
    """Return the function that returns a message as a dict with the fields of ``declared``.

    Raises ``FlowDefinitionError`` if a declared field does not exist and is required.
    """
    return _Readers().message(descriptor, declared)


class _Readers:
    def __init__(self) -> None:
        #: Of messages that contain themselves.
        self._made: dict[tuple[str, int], Read] = {}

    def message(self, descriptor: Any, declared: inspect.Type | None) -> Read:
        known = self._made.get((descriptor.full_name, id(declared)))
        if known is not None:
            return known
        made: list[Read] = []
        self._made[descriptor.full_name, id(declared)] = lambda message: made[0](message)
        made.append(self._message(descriptor, declared))
        return made[0]

    def _message(self, descriptor: Any, declared: inspect.Type | None) -> Read:
        special = _special_reader(descriptor.full_name)
        if special is not None:
            return special
        wanted = fields_by_name(declared)
        plain: list[str] = []
        always: list[tuple[str, Read]] = []
        present: list[tuple[str, Read | None, bool]] = []
        for name, want in wanted.items():
            field = descriptor.fields_by_name.get(name)
            if field is None:
                _check_optional(descriptor, name, want)
            elif field.has_presence and not field.is_repeated:
                # Without a default, None has to say that it is not set.
                present.append((name, self._field(field, want.type), want.required))
            elif (reader := self._field(field, want.type)) is None:
                plain.append(name)
            else:
                always.append((name, reader))
        # At least two attributes, so that it returns a tuple.
        plain_values = attrgetter(*plain, "DESCRIPTOR", "DESCRIPTOR")

        def read(message: Any) -> dict[str, Any]:
            # Hot path: once for each message.
            out: dict[str, Any] = dict(zip(plain, plain_values(message), strict=False))
            for name, read_field in always:
                out[name] = read_field(getattr(message, name))
            for name, convert, is_required in present:
                if message.HasField(name):
                    value = getattr(message, name)
                    out[name] = value if convert is None else convert(value)
                elif is_required:
                    out[name] = None
            return out

        return read

    def _field(self, field: Any, declared: inspect.Type) -> Read | None:
        want = without_none(declared)
        if not field.is_repeated:
            return self._single(field, want)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            value = self._single(entry.fields_by_name["value"], getattr(want, "value_type", None))
            if value is None:
                return dict
            return lambda found: {key: value(one) for key, one in found.items()}
        item = self._single(field, getattr(want, "item_type", None))
        return list if item is None else lambda found: [item(one) for one in found]

    def _single(self, field: Any, declared: inspect.Type | None) -> Read | None:
        want = without_none(declared)
        if field.message_type is not None:
            return self.message(field.message_type, want)
        if field.enum_type is not None and not _is_number(want):
            return _enum_reader(field.enum_type)
        return None


def _check_optional(descriptor: Any, name: str, want: inspect.Field) -> None:
    if want.required:
        known = ", ".join(field.name for field in descriptor.fields)
        raise FlowDefinitionError(
            f"Protobuf: message {descriptor.full_name} has no field {name!r}, which the declared type requires; it has "
            f"{known or 'none'}"
        )


def _is_number(want: inspect.Type | None) -> bool:
    if isinstance(want, inspect.EnumType):
        return all(isinstance(member.value, int) for member in want.cls)
    return isinstance(want, inspect.IntType)


def _enum_reader(enum: Any) -> Read:
    names = {value.number: value.name for value in reversed(enum.values)}

    def name_of(number: int) -> str:
        name = names.get(number)
        if name is None:
            raise FormatError(f"enum {enum.full_name} has no value {number}")
        return cast(str, name)

    return name_of


def _special_reader(name: str) -> Read | None:
    if name in _DYNAMIC:
        raise FlowDefinitionError(
            f"Protobuf: {name} has no declared type; decode into the message class, and convert it in a step"
        )
    if name == f"{_PACKAGE}Timestamp":
        return _read_timestamp
    if name == f"{_PACKAGE}Duration":
        return _read_duration
    if name in _WRAPPERS:
        return lambda message: message.value
    return None


def _read_timestamp(message: Any) -> datetime:
    # As ToDatetime(tzinfo=UTC), in a fourth of its time.
    nanos = message.nanos
    if not 0 <= nanos < _NANOS:
        raise FormatError(f"a Timestamp has {nanos} nanoseconds")
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=nanos // 1000)
    except OverflowError as exc:
        raise FormatError(f"a Timestamp is not a date: {exc}") from exc


def _read_duration(message: Any) -> timedelta:
    try:
        found: timedelta = message.ToTimedelta()
    except (ValueError, OverflowError) as exc:
        raise FormatError(f"a Duration is not valid: {exc}") from exc
    return found


def message_writer(cls: Any) -> Write:
    """Return the function that returns a record as a message of ``cls``; None leaves a field unset.

    The function raises ``FormatError`` for a record that the message cannot hold.
    """
    return _Writers().message(cls.DESCRIPTOR)


class _Writers:
    def __init__(self) -> None:
        #: Of messages that contain themselves.
        self._made: dict[str, Write] = {}

    def message(self, descriptor: Any) -> Write:
        name = descriptor.full_name
        if name not in self._made:
            made: list[Write] = []
            self._made[name] = lambda value: made[0](value)
            made.append(self._message(descriptor))
        return self._made[name]

    def _message(self, descriptor: Any) -> Write:
        cls = message_factory.GetMessageClass(descriptor)
        special = _special_writer(cls)
        if special is not None:
            return special
        fields = {field.name: self._field(field) for field in descriptor.fields}

        def write(record: Any) -> Any:
            # Hot path: once for each record.
            if isinstance(record, cls):
                return record
            values = _converted(descriptor, fields, record)
            try:
                return cls(**values)
            except (TypeError, ValueError, OverflowError, AttributeError) as exc:
                raise _located(cls, values, exc) from exc

        return write

    def _field(self, field: Any) -> Write | None:
        entry = field.message_type
        if not field.is_repeated:
            return self._single(field)
        if entry is not None and entry.GetOptions().map_entry:
            return _map_writer(self._single(entry.fields_by_name["value"]))
        return _list_writer(self._single(field))

    def _single(self, field: Any) -> Write | None:
        if field.message_type is not None:
            return self.message(field.message_type)
        if field.enum_type is not None:
            return _enum_writer(field.enum_type)
        return _text if field.type == field.TYPE_STRING else None


def _converted(descriptor: Any, fields: Mapping[str, Write | None], record: Any) -> dict[str, Any]:
    """Return the set fields of ``record``, converted."""
    try:
        given = fields_of(record)
    except TypeError as exc:
        raise FormatError(str(exc)) from exc
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            raise FormatError(f"message {descriptor.full_name} has no field {name!r}")
        if value is None:
            continue
        convert = fields[name]
        if convert is not None:
            try:
                value = convert(value)
            except FormatError as exc:
                raise within(name, exc) from None
        values[name] = value
    return values


def _located(cls: Any, values: Mapping[str, Any], cause: BaseException) -> FormatError:
    """Return the error for the field of ``values`` that the message refuses."""
    for name, value in values.items():
        try:
            cls(**{name: value})
        except (TypeError, ValueError, OverflowError, AttributeError) as exc:
            return within(name, FormatError(f"{shown(value)}: {exc}"))
    return FormatError(str(cause))


def _list_writer(item: Write | None) -> Write:
    def write(value: Any) -> Any:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise FormatError(f"{shown(value)} is not a list")
        items = cast("Iterable[object]", value)
        return items if item is None else [item(one) for one in items]

    return write


def _map_writer(item: Write | None) -> Write:
    def write(value: Any) -> Any:
        if not isinstance(value, dict):
            raise FormatError(f"{shown(value)} is not a dict")
        entries = cast("dict[object, object]", value)
        return entries if item is None else {key: item(one) for key, one in entries.items()}

    return write


def _enum_writer(enum: Any) -> Write:
    numbers: dict[str, int] = {value.name: value.number for value in enum.values}

    def write(value: Any) -> Any:
        value = value.value if isinstance(value, Enum) else value
        if not isinstance(value, str):
            return value
        if value not in numbers:
            raise FormatError(f"enum {enum.full_name} has no value {value!r}")
        return numbers[value]

    return write


def _text(value: Any) -> Any:
    if type(value) is str:
        return value
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, (date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, (Decimal, UUID)) else value


def _special_writer(cls: Any) -> Write | None:
    name = cls.DESCRIPTOR.full_name
    if name == f"{_PACKAGE}Timestamp":
        return _timestamp_writer(cls)
    if name == f"{_PACKAGE}Duration":
        return _duration_writer(cls)
    if name in _WRAPPERS:
        return _wrapper_writer(cls)
    return None


def _timestamp_writer(cls: Any) -> Write:
    def write(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise FormatError(f"a Timestamp is a datetime with time zone, not {shown(value)}")
        since = value - _EPOCH
        seconds = since.days * _DAY + since.seconds
        return cls(seconds=seconds, nanos=since.microseconds * 1000)

    return write


def _duration_writer(cls: Any) -> Write:
    def write(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if not isinstance(value, timedelta):
            raise FormatError(f"a Duration is a timedelta, not {shown(value)}")
        message = cls()
        message.FromTimedelta(value)
        return message

    return write


def _wrapper_writer(cls: Any) -> Write:
    def write(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        try:
            return cls(value=value)
        except (TypeError, ValueError, OverflowError) as exc:
            raise FormatError(f"{shown(value)}: {exc}") from exc

    return write
