"""``Avro``: one datum in each message, with the schema of a registry or a fixed one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, TypeVar, cast, overload

import msgspec

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described
from aflow_connectors.formats.format import FormatError
from aflow_connectors.json_decoder import converter
from aflow_connectors.schemas.avro_schema import derived_schema
from aflow_connectors.schemas.avro_values import Convert, avro_converter
from aflow_connectors.schemas.client import fastavro
from aflow_connectors.schemas.registry import SchemaRegistry, SchemaText
from aflow_connectors.schemas.schema_cache import WriterHeaders
from aflow_connectors.schemas.schema_format import SchemaFormat
from aflow_connectors.schemas.subjects import SubjectName, topic_name
from aflow_connectors.schemas.wire import HEADER

T = TypeVar("T")

_read: Final = fastavro.schemaless_reader
_write: Final = fastavro.schemaless_writer

_NO_SCHEMA: Final = (
    "this Avro format has no schema of its own, with which to encode: give of= or schema="
)

#: Attributes that fastavro adds to a parsed schema.
_PARSED: Final = ("__fastavro_parsed", "__named_schemas")


class Avro(SchemaFormat[T, tuple[Any, Any]]):
    """One Avro datum in each message, decoded as ``of``: a dataclass, ``msgspec.Struct``, TypedDict, NamedTuple …

    Without ``of``, records are dicts. ``schema`` (JSON text, dict or list) is the reader's and the writer's schema; by
    default it is derived from ``of``, with ``name`` as the full name of the record ("com.acme.Order").

    With a ``registry`` messages have the id of their writer's schema, and are resolved from it to the reader's schema:
    added fields get their defaults, removed ones are skipped, renamed ones are found by aliases. Without ``schema`` and
    ``of`` they are decoded as they were written. A writer registers its schema under the ``subject`` of the topic;
    with ``auto_register=False`` it must be registered already. Without a registry messages have no header, and the
    schema is that of the writer too.

    Raises ``FlowDefinitionError`` for types and schemas that Avro does not have. Encoded values are checked against the
    schema: a ``FormatError`` names the field.
    """

    @overload
    def __init__(
        self: Avro[Any],
        of: None = None,
        *,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        registry: SchemaRegistry | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        name: str | None = None,
        registry: SchemaRegistry | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None: ...
    def __init__(
        self,
        of: type[T] | None = None,
        *,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        name: str | None = None,
        registry: SchemaRegistry | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None:
        super().__init__(
            "AVRO",
            {"of": of, "schema": schema, "name": name},
            registry,
            subject,
            auto_register=auto_register,
        )
        if schema is None and of is None and registry is None:
            raise FlowDefinitionError(
                "Avro: give a type to decode into, schema=…, or registry=… to decode with the schemas of the writers"
            )
        if name is not None and (schema is not None or of is None):
            raise FlowDefinitionError("Avro: name= is for the schema of a declared type")
        given = derived_schema(of, name) if schema is None and of is not None else schema
        #: The reader's schema, parsed; None: that of the writer.
        self._schema: Any = None if given is None else _parsed(given)
        self._convert = None if of is None else _into(of)
        self._encoded: Convert | None = None
        self._text: SchemaText | None = None
        if given is not None:
            self._encoded = avro_converter(self._schema, _named_in(self._schema))
            self._text = SchemaText(json.dumps(_plain(given)), "AVRO")

    @property
    def schema(self) -> str:
        """The reader's schema as JSON. Raises ``ConnectorError`` if there is none."""
        if self._text is None:
            raise ConnectorError(_NO_SCHEMA)
        return self._text.text

    @property
    def record(self) -> str:
        return _name_of(self._schema)

    def decode(self, data: bytes) -> T:
        # Hot path: once for each message.
        body = BytesIO(data)
        writer, reader = self._schema, None
        if self._writers is not None:
            found = self._writers.known.get(data[:HEADER])
            if found is None:
                raise self._writers.error_for(data)
            writer, reader = found
            body.seek(HEADER)
        try:
            value = _read(body, writer, reader)
        except Exception as exc:  # fastavro has no common class of errors
            raise FormatError(f"not Avro of its schema: {described(exc)}") from exc
        if body.tell() != len(data):
            raise FormatError(f"{len(data) - body.tell()} bytes follow the Avro datum")
        if self._convert is None:
            return cast(T, value)
        try:
            return self._convert(value)
        except msgspec.ValidationError as exc:
            raise FormatError(f"not of the declared type: {exc}") from exc

    def encode(self, value: T) -> bytes:
        # Hot path: once for each record.
        header = self._known_header() if self._header is None else self._header
        if self._encoded is None:
            raise ConnectorError(_NO_SCHEMA)
        converted = self._encoded(value)
        body = BytesIO()
        body.write(header)
        try:
            _write(body, self._schema, converted)
        except Exception as exc:  # see decode
            raise FormatError(f"Avro cannot hold it: {described(exc)}") from exc
        return body.getvalue()

    async def _own_schema(self, headers: WriterHeaders) -> SchemaText:
        if self._text is None:
            raise ConnectorError(_NO_SCHEMA)
        return self._text

    def _writer_schema(self, imported: Sequence[SchemaText], writer: SchemaText) -> tuple[Any, Any]:
        """Return the writer's schema, and the reader's if it is another one."""
        named: dict[str, Any] = {}
        try:
            for one in imported:
                fastavro.parse_schema(json.loads(one.text), named_schemas=named)
            parsed = fastavro.parse_schema(json.loads(writer.text), named_schemas=named)
            if imported:
                parsed = fastavro.parse_schema(_Definitions(named).inlined(parsed))
        except Exception as exc:
            raise FormatError(f"is not a schema of Avro: {described(exc)}") from exc
        if self._schema is None or _plain(parsed) == _plain(self._schema):
            return parsed, None
        return parsed, self._schema


class _Definitions:
    """The definitions of named types, each put at its first use in a schema.

    fastavro keeps imported types with a parsed record only, not with a union, an array or a map of them.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._defined: set[str] = set()

    def inlined(self, schema: Any) -> Any:
        """Return ``schema``, parsed, with the definitions that it lacks."""
        if isinstance(schema, list):
            branches: list[Any] = schema  # pyright: ignore[reportUnknownVariableType]
            return [self.inlined(one) for one in branches]
        if isinstance(schema, str):
            if schema in self._defined or schema not in self._named:
                return schema
            schema = self._named[schema]
        found: dict[str, Any] = _plain(schema)
        if "name" in found:
            self._defined.add(found["name"])
        if "fields" in found:
            fields = cast("list[dict[str, Any]]", found["fields"])
            found["fields"] = [{**one, "type": self.inlined(one["type"])} for one in fields]
        for part in ("items", "values"):
            if part in found:
                found[part] = self.inlined(found[part])
        if not isinstance(found["type"], str):
            found["type"] = self.inlined(found["type"])
        return found


def _into(of: type[T]) -> Callable[[object], T]:
    try:
        return converter(of)
    except TypeError as exc:
        raise FlowDefinitionError(f"Avro: cannot decode into {of!r}: {exc}") from exc


def _parsed(schema: object) -> Any:
    try:
        plain = _plain(schema)
        return fastavro.parse_schema(plain)
    except Exception as exc:
        raise FlowDefinitionError(f"Avro: not a schema: {described(exc)}") from exc


def _plain(schema: object) -> Any:
    """Return ``schema`` as JSON has it, without what fastavro adds. Text may be JSON, or the name of a type."""
    if isinstance(schema, str):
        return json.loads(schema) if schema.lstrip()[:1] in ("{", "[", '"') else schema
    if isinstance(schema, dict):
        entries = cast("dict[str, Any]", schema)
        return {name: one for name, one in entries.items() if name not in _PARSED}
    return schema


def _named_in(parsed: Any) -> Mapping[str, Any]:
    """Return the named types of a parsed schema."""
    named: dict[str, Any] = {}
    fastavro.parse_schema(_plain(parsed), named_schemas=named)
    return named


def _name_of(parsed: Any) -> str:
    if isinstance(parsed, dict):
        schema = cast("dict[str, Any]", parsed)
        return str(schema.get("name", schema["type"]))
    return parsed if isinstance(parsed, str) else ""
