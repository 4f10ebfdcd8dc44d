"""The part of ``Avro`` and ``Protobuf`` that concerns their registry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.formats.format import Format
from aflow_connectors.schemas.registry import SchemaRegistry, SchemaText
from aflow_connectors.schemas.schema_cache import WriterHeaders, WriterSchemas
from aflow_connectors.schemas.subjects import SubjectName
from aflow_connectors.schemas.wire import HEADER

T = TypeVar("T")
S = TypeVar("S")


class SchemaFormat(Format[T], Generic[T, S]):
    """A format with a schema, of a registry or fixed. ``S`` is the schema of a writer, ready for decoding.

    ``arguments`` are those of the constructor, by which a pickled format is made again without its fetched schemas.
    """

    def __init__(
        self,
        kind: str,
        arguments: Mapping[str, Any],
        registry: SchemaRegistry | None,
        subject: SubjectName,
        *,
        auto_register: bool,
    ) -> None:
        owner = type(self).__name__
        if registry is not None and not isinstance(registry, SchemaRegistry):
            raise FlowDefinitionError(
                f"{owner}: registry= must be a SchemaRegistry, not {shown(registry)}"
            )
        if not callable(subject):
            raise FlowDefinitionError(
                f"{owner}: subject= must be a function such as topic_name, not {shown(subject)}"
            )
        self._arguments = {
            **arguments,
            "registry": registry,
            "subject": subject,
            "auto_register": auto_register,
        }
        self._subject = subject
        #: The topic, and True for its keys.
        self._place = ("", False)
        self._writers: WriterSchemas[S] | None = None
        self._headers: WriterHeaders | None = None
        #: The first bytes of encoded messages; None until the schema is registered.
        self._header: bytes | None = None if registry is not None else b""
        if registry is not None:
            self._writers = WriterSchemas(registry, kind, self._writer_schema)
            self._headers = WriterHeaders(registry, auto_register=auto_register)

    @property
    @abstractmethod
    def record(self) -> str:
        """The full name of the record."""

    @abstractmethod
    def _writer_schema(self, imported: Sequence[SchemaText], writer: SchemaText) -> S:
        """Return the schema of a writer. Raises ``FormatError`` if it cannot be used."""

    @abstractmethod
    async def _own_schema(self, headers: WriterHeaders) -> SchemaText:
        """Return the schema to register, after those that it imports. Raises ``ConnectorError``."""

    def _after_header(self) -> bytes:
        """Return the bytes between the id and the data."""
        return b""

    def for_topic(self, topic: str, *, is_key: bool = False) -> Self:
        bound = object.__new__(type(self))
        vars(bound).update(vars(self))  # with the same fetched schemas
        bound._place = (topic, is_key)
        bound._header = None if self._headers is not None else b""
        return bound

    async def before_decoding(self, messages: Sequence[bytes]) -> None:
        if self._writers is not None:
            await self._writers.fetch(messages)

    async def before_encoding(self, values: Sequence[T]) -> None:
        if self._header is not None or self._headers is None or not values:
            return
        topic, is_key = self._place
        subject = self._subject(topic, self.record, is_key)
        if subject not in self._headers.known:
            await self._headers.fetch(subject, await self._own_schema(self._headers))
        self._header = self._headers.known[subject] + self._after_header()

    def _schema_of(self, data: bytes) -> S | None:
        """Return the schema of the writer of ``data``; None without a registry. Raises ``FormatError``."""
        if self._writers is None:
            return None
        found = self._writers.known.get(data[:HEADER])
        if found is None:
            raise self._writers.error_for(data)
        return found

    def _known_header(self) -> bytes:
        """Return the first bytes of encoded messages. Raises ``ConnectorError`` before they are known."""
        if self._header is None:
            raise ConnectorError(
                f"{type(self).__name__} encodes with a registered schema: await before_encoding(values) before encode"
            )
        return self._header

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _made_again, (type(self), self._arguments, self._place)


def _made_again(cls: Any, arguments: Mapping[str, Any], place: tuple[str, bool]) -> Any:
    return cls(**arguments).for_topic(place[0], is_key=place[1])
