"""``JsonLinesSource``: one JSON value per line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast, overload

import orjson

from aflow.connect import BadRecord, Position, Reader, Tag
from aflow.errors import FlowDefinitionError
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.arguments import checked_encoding, checked_line_bound
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.lines import LineParser, LinePosition, LineReader, Lines
from aflow_connectors.files.source import MAX_LINE_BYTES, FileSource
from aflow_connectors.json_decoder import json_decoder

T = TypeVar("T")

# JSON of undeclared type: with `object` every `record["amount"] * 2` would need a cast. `of=` gives types.
JsonObject: TypeAlias = dict[str, Any]

_UTF8: Final = frozenset({"utf-8", "utf8", "utf_8", "ascii", "us-ascii"})


class JsonLinesSource(FileSource[T]):
    """Read records from files of one JSON value per line; blank lines are skipped.

    ``path`` is a file, a folder or a pattern like ``"logs/2013-*/*.jsonl.gz"``; files compressed with gzip or zstd are
    recognised by their first bytes. In a folder, files that end in ``.jsonl``, ``.ndjson`` or ``.json`` are read, also
    with ``.gz`` or ``.zst`` appended.

    Without ``of`` each line must be a JSON object and becomes a dict. With ``of``, a dataclass, ``msgspec.Struct``,
    TypedDict or any other type that msgspec decodes, a line that does not match is bad, and undeclared fields are
    ignored. A NamedTuple is read from an object, as ``JsonLinesSink`` writes it, or from an array.

    A bad line raises ``SourceError`` with file, line and reason; with ``dead_letters`` it is emitted to that side
    output instead. A line longer than ``max_line_bytes`` is always an error. With ``discover_every`` the source never
    ends: it lists the folder or pattern at this interval and reads new files. A file must be complete when it appears
    under its name: write it elsewhere (or under a name that begins with a dot) and rename it.

    A subtask reads one file after the other, or ``concurrency`` of them concurrently; None: all of them. Read files
    that cover the same time concurrently, since event time follows the slowest open file: read one after the other, all
    records of the second file would be late.
    """

    suffixes: ClassVar[Sequence[str]] = tuple(
        f".{name}{codec}" for name in ("jsonl", "ndjson", "json") for codec in ("", ".gz", ".zst")
    )

    @overload
    def __init__(
        self: JsonLinesSource[JsonObject],
        path: str | Path,
        *,
        of: None = None,
        dead_letters: Tag[BadRecord] | None = None,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    @overload
    def __init__(
        self,
        path: str | Path,
        *,
        of: type[T],
        dead_letters: Tag[BadRecord] | None = None,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    def __init__(
        self,
        path: str | Path,
        *,
        of: type[T] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None:
        super().__init__(
            path,
            dead_letters=dead_letters,
            discover_every=discover_every,
            concurrency=concurrency,
        )
        self._encoding = checked_encoding("JsonLinesSource", encoding)
        self._max_line_bytes = checked_line_bound("JsonLinesSource", max_line_bytes)
        self._of = of
        _parser(of, encoding)

    def file_reader(self, path: InputFile, position: Position | None) -> Reader[T]:
        lines = Lines(path, LinePosition.of(position, path), self._max_line_bytes)
        parser = _parser(self._of, self._encoding)
        return LineReader(lines, parser, BadRecords(path, self.dead_letters))


def _parser(of: type[T] | None, encoding: str) -> LineParser[T]:
    if of is None:
        return cast(LineParser[T], _of_objects(encoding))
    try:
        decode = json_decoder(of)
    except TypeError as exc:
        raise FlowDefinitionError(f"JsonLinesSource: cannot decode into {of!r}: {exc}") from exc
    one = _decoding_first(decode, encoding)
    return LineParser(one, lambda lines: list(map(one, lines)), encoding, skip_blank=True)


def _of_objects(encoding: str) -> LineParser[JsonObject]:
    loads: Callable[[bytes], JsonObject] = _decoding_first(orjson.loads, encoding)

    def one(line: bytes) -> JsonObject:
        value: object = loads(line)
        if type(value) is not dict:
            raise ValueError(
                f"it is a JSON {type(value).__name__}, not an object; of= says what else a line may be"
            )
        return value

    def many(lines: list[bytes]) -> list[JsonObject]:
        values = list(map(loads, lines))
        # Only two percent slower than without the check.
        if set(map(type, values)) != {dict}:
            raise ValueError("not all are objects")
        return values

    return LineParser(one, many, encoding, skip_blank=True)


def _decoding_first(parse: Callable[[bytes | str], T], encoding: str) -> Callable[[bytes], T]:
    if encoding.lower() in _UTF8:
        return parse
    return lambda line: parse(line.decode(encoding))
