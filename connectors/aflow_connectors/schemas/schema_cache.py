"""Schemas of a registry that were fetched or registered, for all readers and writers of a format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from aflow.connect import ConnectorError
from aflow_connectors.formats.format import FormatError
from aflow_connectors.schemas.registry import SchemaRegistry, SchemaText
from aflow_connectors.schemas.wire import has_header, header, id_of, missing_header

S = TypeVar("S")

#: Seconds after which an unknown id is asked for a second time: a node of a registry may be behind the others.
_SECOND_ATTEMPT: Final = 0.3

#: Seconds after which an id that was unknown twice is asked for again.
_UNKNOWN_FOR: Final = 30.0

#: Maximum number of unknown ids that are remembered: messages that are no records may have any.
_MOST_UNKNOWN: Final = 100_000


class WriterSchemas(Generic[S]):
    """The schemas of writers by the first five bytes of their messages, as ``parse`` returns them.

    ``parse`` gets the imported schemas and the schema; it raises ``FormatError`` for one that it cannot use.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        kind: str,
        parse: Callable[[Sequence[SchemaText], SchemaText], S],
    ) -> None:
        self._registry = registry
        self._kind = kind
        self._parse = parse
        #: Hot path: looked up for each message.
        self.known: dict[bytes, S] = {}
        #: Reasons why messages with a header cannot be decoded, for schemas that are of no use.
        self._unusable: dict[bytes, str] = {}
        #: Loop time until which an unknown id is not asked for.
        self._unknown_until: dict[bytes, float] = {}

    async def fetch(self, messages: Sequence[bytes]) -> None:
        """Fetch the schemas of ``messages`` that are not known. Raises ``RegistryError``."""
        heads = {bytes(one[:5]) for one in messages if has_header(one)} - self.known.keys()
        asked = [one for one in sorted(heads) if one not in self._unusable]
        unknown = [one for one in asked if not self._is_unknown(one) and not await self._fetch(one)]
        if unknown:
            await asyncio.sleep(_SECOND_ATTEMPT)
        for head in unknown:
            if not await self._fetch(head):
                self._remember_unknown(head)

    def error_for(self, data: bytes) -> Exception:
        """Return the error for a message without a known schema."""
        if not has_header(data):
            return missing_header(data)
        head = bytes(data[:5])
        if head in self._unusable:
            return FormatError(self._unusable[head])
        if head in self._unknown_until:
            return FormatError(f"{self._registry.place} has no schema with id {id_of(head)}")
        return ConnectorError(
            f"the schema with id {id_of(head)} was not fetched: await before_decoding(messages) before decode"
        )

    def _is_unknown(self, head: bytes) -> bool:
        return self._unknown_until.get(head, 0.0) > asyncio.get_running_loop().time()

    def _remember_unknown(self, head: bytes) -> None:
        unknown = self._unknown_until
        unknown.pop(head, None)  # the oldest one is the first
        unknown[head] = asyncio.get_running_loop().time() + _UNKNOWN_FOR
        if len(unknown) > _MOST_UNKNOWN:
            del unknown[next(iter(unknown))]

    async def _fetch(self, head: bytes) -> bool:
        """Fetch the schema of ``head``. Return False if the registry has none."""
        number = id_of(head)
        schema = await self._registry.schema(number)
        if schema is None:
            return False
        try:
            if schema.kind != self._kind:
                raise FormatError(f"is {schema.kind} and not {self._kind}")
            self.known[head] = self._parse(await self._registry.imported(schema), schema)
        except FormatError as exc:
            self._unusable[head] = f"schema {number} of {self._registry.place}: {exc}"
        return True


class WriterHeaders:
    """The first five bytes of the messages of a writer, by subject."""

    def __init__(self, registry: SchemaRegistry, *, auto_register: bool) -> None:
        self._registry = registry
        self._auto_register = auto_register
        self.known: dict[str, bytes] = {}

    async def fetch(self, subject: str, schema: SchemaText) -> None:
        """Register or look up ``schema`` if that was not done before. Raises ``RegistryError``."""
        if subject not in self.known:
            self.known[subject] = header(await self.schema_id(subject, schema))

    async def schema_id(self, subject: str, schema: SchemaText) -> int:
        """Return the id of ``schema``, which is registered or looked up."""
        if self._auto_register:
            return await self._registry.register(subject, schema)
        return (await self._registry.look_up(subject, schema))[0]

    async def version(self, subject: str, schema: SchemaText) -> int:
        """Return the version of ``schema``, which is registered before if that is allowed."""
        if self._auto_register:
            await self._registry.register(subject, schema)
        return (await self._registry.look_up(subject, schema))[1]
