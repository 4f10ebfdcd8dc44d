"""Descriptions of the bytes of a state in a snapshot, by which a reader decides beforehand if it can read them.

The stored form is a dict with the kind of the state, the names of its codecs, and for each codec the plain form of its
schema, or None. Older snapshots have a list of the kind and the names instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final, cast

from aflow.errors import shown
from aflow.model.codecs import PICKLE, PLAIN, CodecError, Schema
from aflow.state.schema_change import Incompatible, Kept, Migrated, Verdict, compare

#: Names of the parts of a state that has two.
_PARTS: Final = ("keys", "values")


@dataclass(frozen=True, slots=True)
class Described:
    """The description of one codec of a state."""

    codec: str
    """The name of the codec."""
    schema: Schema | None = None
    """The schema of its bytes, if it is known."""

    def __str__(self) -> str:
        return self.codec if self.schema is None else str(self.schema)


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a state: its kind (``value``, ``map`` …) and the codecs of its parts."""

    kind: str
    parts: tuple[Described, ...]

    def __str__(self) -> str:
        return f"{self.kind} of {' to '.join(map(str, self.parts))}"

    def encoded(self) -> bytes:
        """Return the stored form."""
        return PLAIN.encode(
            {
                "kind": self.kind,
                "codecs": [part.codec for part in self.parts],
                "schemas": [part.schema and part.schema.plain for part in self.parts],
            }
        )

    @staticmethod
    def decoded(data: bytes) -> Description:
        """Return the description that was ``encoded``. Raises ``CodecError``."""
        stored = cast("dict[str, Any] | list[Any]", PLAIN.decode(data))
        try:
            if isinstance(stored, dict):
                kind, codecs, schemas = stored["kind"], stored["codecs"], stored["schemas"]
            else:
                kind, *codecs = stored
                schemas = [None] * len(codecs)
            pairs = zip(codecs, schemas, strict=True)
            description = Description(_text(kind), tuple(starmap(_part, pairs)))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as exc:
            raise CodecError(f"{shown(stored)} does not describe a state") from exc
        return description


def compare_descriptions(old: Description, new: Description) -> Verdict:
    """Return how state that was stored as ``old`` is read as ``new``."""
    if old.kind != new.kind or len(old.parts) != len(new.parts):
        return Incompatible(f"{old.kind} state cannot be read as {new.kind} state")
    changes: list[str] = []
    for index, (stored, declared) in enumerate(zip(old.parts, new.parts, strict=True)):
        match _compare_parts(stored, declared):
            case Incompatible(reason):
                return Incompatible(_of_part(reason, index, new.parts))
            case Migrated(more):
                changes += [_of_part(change, index, new.parts) for change in more]
            case Kept():
                pass
    return Migrated(tuple(changes)) if changes else Kept()


def _compare_parts(old: Described, new: Described) -> Verdict:
    """Compare two codecs. Without a schema only undetected misreading is refused: other errors occur on reading."""
    if new.codec == PLAIN.name != old.codec:
        return Incompatible(f"it was stored with of={old.codec}; declare of={old.codec} again")
    if old.codec != new.codec and PICKLE.name in (old.codec, new.codec):
        return Incompatible(f"it was stored by codec {old.codec!r}; declare that codec again")
    if old.schema is not None and new.schema is not None:
        return compare(old.schema, new.schema)
    if old.codec == new.codec:
        return Kept()
    return Migrated((f"{old} → {new}; checked when each value is read",))


def _of_part(text: str, index: int, parts: Sequence[Described]) -> str:
    return text if len(parts) == 1 else f"{_PARTS[index]}: {text}"


def _part(codec: Any, schema: Any) -> Described:
    return Described(_text(codec), None if schema is None else Schema.of_plain(schema))


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError(f"{shown(data)} is no text")
    return data
