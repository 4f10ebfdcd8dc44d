"""Codecs of the accumulators of ready-made aggregates, for steps without ``of=``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.state.layouts import Many, state_codec


def values_codec(stored_as: type[Any] | None) -> Codec[list[Any]]:
    """Return the codec of lists of one type, of plain values without it. Raises ``FlowDefinitionError``."""
    return state_codec(None) if stored_as is None else _Values(Many(state_codec(stored_as)))


@dataclass(frozen=True, slots=True)
class _Values:
    layout: Many[Any]

    @property
    def name(self) -> str:
        return f"list of {self.layout.codec.name}"

    def encode(self, value: list[Any]) -> bytes:
        return self.layout.encode(value)

    def decode(self, data: bytes) -> list[Any]:
        return self.layout.decode(data)


@dataclass(frozen=True, slots=True)
class RankedCodec:
    """Codec of two lists: the ranks, which are plain Python values or the values themselves, and the values."""

    values: Codec[list[Any]]
    by_value: bool
    """True if values are their own ranks, which are then not stored."""

    @property
    def name(self) -> str:
        return f"ranked {self.values.name}"

    def encode(self, value: tuple[list[Any], list[Any]]) -> bytes:
        ranks, values = value
        return PLAIN.encode([None if self.by_value else ranks, self.values.encode(values)])

    def decode(self, data: bytes) -> tuple[list[Any], list[Any]]:
        ranks, stored = cast("tuple[list[Any] | None, bytes]", PLAIN.decode(data))
        values = self.values.decode(stored)
        return values.copy() if ranks is None else ranks, values


@dataclass(frozen=True, slots=True)
class FieldsCodec:
    """Codec of several accumulators by name. It drops stored fields that are removed, and refuses added ones."""

    parts: Mapping[str, Codec[Any]]

    @property
    def name(self) -> str:
        return "fields of " + ", ".join(
            f"{name}: {codec.name}" for name, codec in self.parts.items()
        )

    def encode(self, value: list[Any]) -> bytes:
        named = zip(self.parts.items(), value, strict=True)
        return PLAIN.encode({name: codec.encode(held) for (name, codec), held in named})

    def decode(self, data: bytes) -> list[Any]:
        stored = cast("dict[str, bytes]", PLAIN.decode(data))
        if missing := self.parts.keys() - stored.keys():
            raise CodecError(
                f"nothing is stored for {', '.join(sorted(missing))}, only for {', '.join(stored)}: "
                f"a changed aggregate can remove fields, not add them; rename the step to start without state"
            )
        return [codec.decode(stored[name]) for name, codec in self.parts.items()]
