"""``EntryFormat``: the arguments of a source that say how an entry becomes a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aflow.connect import BadRecord, Tag
from aflow.errors import FlowDefinitionError
from aflow_connectors.arguments import checked_dead_letters
from aflow_connectors.broker_arguments import checked_format
from aflow_connectors.formats import Format, Raw
from aflow_connectors.messages import Decoded
from aflow_connectors.redis.arguments import checked_field, checked_fields_type
from aflow_connectors.redis.entries import Entry, FieldsDecoder, PayloadDecoder


class EntriesDecoder(Protocol):
    """``FieldsDecoder`` or ``PayloadDecoder``."""

    async def decode(self, entries: Sequence[Entry], /) -> Decoded: ...


@dataclass(frozen=True, slots=True)
class EntryFormat:
    """Checked arguments. ``format`` is None if the fields of an entry are those of the record."""

    of: type[Any] | None
    format: Format[Any] | None
    key_format: Format[Any]
    messages: bool
    dead_letters: Tag[BadRecord] | None
    field: str
    key_field: str

    @classmethod
    def checked(
        cls,
        owner: str,
        *,
        of: type[Any] | None,
        format: Format[Any] | None,
        key_format: Format[Any] | None,
        messages: bool,
        dead_letters: Tag[BadRecord] | None,
        field: str,
        key_field: str,
    ) -> EntryFormat:
        """Return the format. Raises ``FlowDefinitionError`` for arguments that are wrong or do not fit together."""
        checked_dead_letters(owner, dead_letters)
        if key_format is not None and (format is None or not messages):
            raise FlowDefinitionError(
                f"{owner}: key_format= needs format= and messages=True, which keeps the keys"
            )
        return cls(
            checked_fields_type(owner, of, format),
            None if format is None else checked_format(owner, "format", format, Raw()),
            checked_format(owner, "key_format", key_format, Raw()),
            messages,
            dead_letters,
            checked_field(owner, "field", field),
            checked_field(owner, "key_field", key_field),
        )

    @property
    def as_text(self) -> bool:
        """True if the decoder takes text, not bytes."""
        return self.format is None

    def decoder(self, stream: str) -> EntriesDecoder:
        """Return a decoder for the entries of ``stream``."""
        if self.format is None:
            return FieldsDecoder[Any](
                stream, self.of, messages=self.messages, dead_letters=self.dead_letters
            )
        return PayloadDecoder[Any](
            stream,
            self.format,
            key_format=self.key_format,
            messages=self.messages,
            value_field=self.field,
            key_field=self.key_field,
            dead_letters=self.dead_letters,
        )
