"""Records in the body of a response: the list at a path of its JSON.

The usual page has only valid records, so it is decoded as a whole. If that fails, its records are decoded in pieces,
and those of a piece with bad ones one by one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Generic, TypeGuard, TypeVar, cast

import msgspec
import orjson

from aflow.connect import BadRecord, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.formats import Format, Json
from aflow_connectors.http.link_header import linked
from aflow_connectors.json_decoder import json_decoder
from aflow_connectors.messages import MessageDecoder, RawMessage

T = TypeVar("T")

#: Records that are decoded without a pause for other tasks, if a page cannot be decoded as a whole.
_PIECE: Final = 256


# Not slotted: on Python 3.11 HttpPage[int](…) of a frozen, slotted generic raises.
@dataclass(frozen=True)
class HttpPage(Generic[T]):
    """A response of a service, for the function that returns the cursor of the following one."""

    records: Sequence[T]
    """All valid records of the response. With ``dead_letters`` there may be none: all entries are invalid."""
    url: str
    """The address of the request, with its query."""
    headers: Mapping[str, str]
    """Headers of the response; names in lower case, values of repeated ones joined with commas."""
    body: bytes

    def json(self) -> Any:
        """Return the whole response as plain values, decoded at each call."""
        return orjson.loads(self.body)

    def link(self, rel: str = "next") -> str | None:
        """Return the address with this relation in the header ``Link`` (RFC 8288); None if there is none."""
        return linked(self.headers.get("link", ""), rel)


@dataclass(frozen=True, slots=True)
class PageRecords:
    """The entries of a response, in order: ``values`` and ``rejected``, each with the number of its entry."""

    count: int
    values: list[Any]
    #: For each value the number of its entry; None if all entries are valid.
    numbers: list[int] | None
    rejected: list[tuple[int, BadRecord]]

    def between(self, start: int, stop: int) -> tuple[list[Any], list[BadRecord]]:
        """Return the values and the bad records among the entries from ``start`` to before ``stop``."""
        first, last = start, stop
        if self.numbers is not None:
            first, last = (bisect_left(self.numbers, number) for number in (start, stop))
        low, high = (
            bisect_left(self.rejected, number, key=itemgetter(0)) for number in (start, stop)
        )
        return self.values[first:last], [bad for _, bad in self.rejected[low:high]]


class PageDecoder:
    """Decodes the responses of one address, named ``place`` in messages of errors.

    ``path`` are the names of the fields that lead to the list of records; without names the body is the list.
    """

    def __init__(
        self,
        place: str,
        format: Format[Any],
        path: Sequence[str],
        dead_letters: Tag[BadRecord] | None,
    ) -> None:
        self._place = place
        self._format = format
        self._path = path
        self._bad = BadRecords(place, dead_letters)
        self._decoder = MessageDecoder[Any](place, format, dead_letters=dead_letters)
        self._at_once = _list_decoder(format)

    async def decode(self, body: bytes) -> PageRecords:
        """Return the records. A body without the list is one bad record.

        Raises ``SourceError`` for bad records without dead letters.
        """
        if self._at_once is not None:
            try:
                values = self._at_once(_at(body, self._path))
            except (msgspec.MsgspecError, ValueError, RecursionError, _NoList):
                pass  # the other way finds the reason
            else:
                return PageRecords(len(values), values, None, [])
        try:
            parts = msgspec.json.decode(_at(body, self._path), type=list[msgspec.Raw])
        except (msgspec.MsgspecError, ValueError, RecursionError, _NoList) as exc:
            where = ".".join(self._path)
            reason = f"no JSON with a list of records{f' at {where!r}' if where else ''}: {exc}"
            return PageRecords(0, [], [], [(0, self._bad.bad("response", reason, body))])
        return await self._decode_parts([bytes(part) for part in parts])

    async def _decode_parts(self, parts: Sequence[bytes]) -> PageRecords:
        values: list[Any] = []
        numbers: list[int] = []
        rejected: list[tuple[int, BadRecord]] = []
        await self._format.before_decoding(parts)
        for start in range(0, len(parts), _PIECE):
            await asyncio.sleep(0)  # other tasks run between two pieces
            piece = [
                RawMessage(part, offset=number)
                for number, part in enumerate(parts[start : start + _PIECE], start)
            ]
            decoded = await self._decoder.decode(piece)
            if not decoded.rejected:
                values += decoded.values
                numbers += range(start, start + len(piece))
                continue
            for number, one in enumerate(piece, start):
                decoded = await self._decoder.decode([one])
                if decoded.rejected:
                    rejected.append((number, decoded.rejected[0]))
                else:
                    values += decoded.values
                    numbers.append(number)
        return PageRecords(len(parts), values, numbers, rejected)


class _NoList(Exception):
    """A field of the path is missing."""


def _at(body: bytes, path: Sequence[str]) -> bytes | msgspec.Raw:
    """Return the JSON at ``path``. Raises ``_NoList`` and ``msgspec.MsgspecError``."""
    found: bytes | msgspec.Raw = body
    for name in path:
        fields = msgspec.json.decode(found, type=dict[str, msgspec.Raw])
        if name not in fields:
            raise _NoList(f"there is no field {name!r}")
        found = fields[name]
    return found


def _list_decoder(format: Format[Any]) -> Callable[[bytes | msgspec.Raw], list[Any]] | None:
    """Return the function that decodes a list of records at once; None for formats that have none."""
    if type(format) is not Json:
        return None
    of = _declared(format)
    if of is None:
        return _plain_list
    many: Any = list.__class_getitem__(of)
    decode: Callable[[bytes], list[Any]] = json_decoder(many)
    return lambda data: decode(bytes(data))


def _declared(json: Any) -> Any:
    return json.of


def _plain_list(data: bytes | msgspec.Raw) -> list[Any]:
    found: Any = orjson.loads(bytes(data))
    if not _is_list(found):
        raise _NoList("it is no list")
    return found


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def checked_records_path(owner: str, records: object) -> tuple[str, ...]:
    """Return the names of the fields. Raises ``FlowDefinitionError`` for a path that is none."""
    if records is None:
        return ()
    names: Sequence[object] = records.split(".") if isinstance(records, str) else ()
    if type(records) in (list, tuple):
        names = cast("Sequence[object]", records)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise FlowDefinitionError(
            f"{owner}: records= must be the path to the list of records, like 'data.items' or ['data', 'items'], not "
            f"{shown(records)}"
        )
    return tuple(cast("Sequence[str]", names))
