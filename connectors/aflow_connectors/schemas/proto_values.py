"""Messages of Protobuf as records of a declared type, and back.

| Protobuf | Python |
|---|---|
| numbers, bool, string, bytes | int, float, bool, str, bytes |
| enum | the name of the value, or its number if the declared type is an int |
| message, repeated, map | a record, list, dict |
| string | also ``UUID``, ``Decimal``, ``date``, ``time``, ``datetime``, as text |
| ``Timestamp``, ``Duration`` | aware ``datetime``, ``timedelta``; nanoseconds are cut off |
| ``Int64Value`` and the other wrappers | the value, or None |

A field that has presence and is not set is None, or the default of the declared field. Other fields have a value always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from msgspec import inspect

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.declared_types import fields_by_name, without_none
from aflow_connectors.fields import fields_of
from aflow_connectors.formats.format import FormatError
from aflow_connectors.schemas.field_path import within

Read: TypeAlias = Callable[[Any], Any]

_PACKAGE: Final = "google.protobuf."

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
        always: list[tuple[str, Read | None]] = []
        present: list[tuple[str, Read | None, bool]] = []
        for name, want in wanted.items():
            field = descriptor.fields_by_name.get(name)
            if field is None:
                _check_optional(descriptor, name, want)
            elif field.has_presence and not field.is_repeated:
                # Without a default, None has to say that it is not set.
                present.append((name, self._field(field, want.type), want.required))
            else:
                always.append((name, self._field(field, want.type)))

        def read(message: Any) -> dict[str, Any]:
            # Hot path: once for each message.
            out: dict[str, Any] = {}
            for name, convert in always:
                value = getattr(message, name)
                out[name] = value if convert is None else convert(value)
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
    try:
        found: datetime = message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as exc:
        raise FormatError(f"a Timestamp is not a date: {exc}") from exc
    return found


def _read_duration(message: Any) -> timedelta:
    try:
        found: timedelta = message.ToTimedelta()
    except (ValueError, OverflowError) as exc:
        raise FormatError(f"a Duration is not valid: {exc}") from exc
    return found


def fill(message: Any, record: object) -> None:
    """Set the fields of ``message`` from those of ``record``; None leaves a field unset. Raises ``FormatError``."""
    try:
        given = fields_of(record)
    except TypeError as exc:
        raise FormatError(str(exc)) from exc
    fields: Mapping[str, Any] = message.DESCRIPTOR.fields_by_name
    for name, value in given.items():
        field = fields.get(name)
        if field is None:
            raise FormatError(f"message {message.DESCRIPTOR.full_name} has no field {name!r}")
        if value is None:
            continue
        try:
            _set(message, field, value)
        except FormatError as exc:
            raise within(name, exc) from None
        except (TypeError, ValueError, OverflowError, AttributeError) as exc:
            raise FormatError(f"field {name}: {shown(value)}: {exc}") from exc


def _set(message: Any, field: Any, value: Any) -> None:
    name = field.name
    if not field.is_repeated:
        if field.message_type is not None:
            _set_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))
        return
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        _set_map(getattr(message, name), entry.fields_by_name["value"], value)
    elif isinstance(value, str | bytes) or not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"{shown(value)} is not a list")
    elif entry is not None:
        for item in cast("list[Any]", value):
            _set_message(getattr(message, name).add(), item)
    else:
        getattr(message, name).extend(_scalar(field, item) for item in cast("list[Any]", value))


def _set_map(target: Any, field: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{shown(value)} is not a dict")
    for key, item in cast("Mapping[Any, Any]", value).items():
        if field.message_type is not None:
            _set_message(target[key], item)
        else:
            target[key] = _scalar(field, item)


def _set_message(target: Any, value: Any) -> None:
    if isinstance(value, type(target)):
        target.CopyFrom(value)
        return
    name = target.DESCRIPTOR.full_name
    if name == f"{_PACKAGE}Timestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise TypeError(f"a Timestamp is a datetime with time zone, not {shown(value)}")
        target.FromDatetime(value)
    elif name == f"{_PACKAGE}Duration":
        if not isinstance(value, timedelta):
            raise TypeError(f"a Duration is a timedelta, not {shown(value)}")
        target.FromTimedelta(value)
    elif name in _WRAPPERS:
        target.value = value
    else:
        fill(target, value)
    target.SetInParent()  # also if all of its fields have their defaults


def _scalar(field: Any, value: Any) -> Any:
    value = value.value if isinstance(value, Enum) else value
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(f"enum {field.enum_type.full_name} has no value {value!r}")
        return known.number
    if isinstance(value, Decimal | UUID) and field.type == field.TYPE_STRING:
        return str(value)
    if isinstance(value, date | time) and field.type == field.TYPE_STRING:
        return value.isoformat()
    return value
