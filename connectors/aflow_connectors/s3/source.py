"""Sources that read the objects of a bucket, with the readers of files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar, cast, overload

from anyio import to_thread

from aflow.checkpoints import BucketError, NoObject, ObjectInfo
from aflow.connect import BadRecord, Chunk, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import shown
from aflow_connectors.files.csv import CsvSource
from aflow_connectors.files.jsonl import JsonLinesSource, JsonObject
from aflow_connectors.files.parquet import ParquetSource
from aflow_connectors.files.source import MAX_LINE_BYTES, FileSource
from aflow_connectors.s3.bucket import Bucket, split_url
from aflow_connectors.s3.object_file import ObjectFile

T = TypeVar("T")

_MAGIC: Final = re.compile(r"[*?\[]")
#: The readers of files need no path.
_ANY: Final = Path("objects")


class ObjectSource(Source[T]):
    """Objects below a URL, each a split of its own, read in the order of their keys.

    A position has the ETag of the object: one that is replaced while it is read, or between two runs, is an error.
    """

    def __init__(
        self,
        url: str,
        files: FileSource[T],
        *,
        client: Mapping[str, object] | None,
        store: object | None,
    ) -> None:
        owner = type(self).__name__
        root, self._path = split_url(owner, url)
        self.url: Final = url
        self._bucket: Final = Bucket(owner, root, client=client, store=store)
        self._files: Final = files
        self.dead_letters = files.dead_letters
        self.discover_every = files.discover_every
        self.bounded = files.bounded
        self.concurrency = files.concurrency
        if not self._is_many():
            self.max_parallelism = 1

    def _is_many(self) -> bool:
        return self._path.endswith("/") or not self._path or bool(_MAGIC.search(self._path))

    async def splits(self) -> Sequence[Split]:
        """Return a split for each object. Raises ``SourceError`` if there is none, or if they cannot be listed."""
        return await to_thread.run_sync(self._splits)

    def _splits(self) -> list[Split]:
        growing = self.discover_every is not None
        if growing and not self._is_many():
            raise SourceError(
                f"discover_every is given, but {self.url} is a single object, beside which none can appear: end the "
                f"URL with '/', or give a pattern"
            )
        try:
            keys = self._keys()
        except NoObject as exc:
            raise SourceError(
                f"there is no object {self.url}; to read the objects in a folder end the URL with '/'"
            ) from exc
        except BucketError as exc:
            raise SourceError(f"cannot list {self.url}: {exc}") from exc
        if not keys and not growing:
            raise SourceError(
                f"no object matches {self.url}: below a URL that ends with '/' those are read whose names end in "
                f"{', '.join(self._files.suffixes)} and do not begin with '.' or '_'"
            )
        return [Split(self._bucket.shown(key)) for key in keys]

    def _keys(self) -> list[str]:
        if not self._is_many():
            return [self._bucket.head(self._path).key]
        fixed = _MAGIC.split(self._path, maxsplit=1)[0].rpartition("/")[0]
        keys = (one.key for one in self._bucket.objects(fixed))
        if not _MAGIC.search(self._path):
            folder, suffixes = self._path, tuple(self._files.suffixes)
            names = (key[len(folder) :] for key in keys if key.startswith(folder))
            return [
                folder + name
                for name in names
                if "/" not in name and name.endswith(suffixes) and not name.startswith((".", "_"))
            ]
        pattern = _expression(self._path)
        return [key for key in keys if pattern.fullmatch(key)]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        key = split.id.removeprefix(self._bucket.shown("") + "/")
        e_tag, inner = _of(position, split.id)
        info = await to_thread.run_sync(self._info, key)
        if e_tag is not None and info.e_tag != e_tag:
            raise SourceError(
                f"{split.id} has the ETag {info.e_tag}, and had {e_tag} when it was read before: it was replaced"
            )
        file = ObjectFile(self._bucket, info)
        return ObjectReader(self._files.file_reader(file, inner), info.e_tag)

    def _info(self, key: str) -> ObjectInfo:
        try:
            return self._bucket.head(key)
        except BucketError as exc:
            raise SourceError(f"cannot read {self._bucket.shown(key)}: {exc}") from exc


class ObjectReader(Reader[T]):
    """Reader of one object: that of a file, with the ETag in its positions."""

    def __init__(self, reader: Reader[T], e_tag: str) -> None:
        self._reader = reader
        self._e_tag = e_tag

    async def read(self, limit: int) -> Chunk[T] | None:
        # Hot path of the source. Files have no times, so a chunk has no other parts; `replace` takes twice as long.
        chunk = await self._reader.read(limit)
        if chunk is None:
            return None
        return Chunk(chunk.values, (self._e_tag, chunk.position), rejected=chunk.rejected)

    async def close(self) -> None:
        await self._reader.close()


def _of(position: Position, place: str) -> tuple[str | None, Position | None]:
    """Return the ETag and the position in the file. Raises ``SourceError``."""
    if position is None:
        return None, None
    given: object = position
    if isinstance(position, (tuple, list)):
        parts = cast(Sequence[object], position)
        if len(parts) == 2 and isinstance(parts[0], str):
            return parts[0], parts[1]
    raise SourceError(f"{place}: {shown(given)} is not a position in an object")


def _expression(pattern: str) -> re.Pattern[str]:
    """Return the expression for keys of a pattern, in which ``*``, ``?`` and ``[…]`` match no ``/``, and ``**`` does.

    As for files, they match no dot at the start of a name.
    """
    pieces: list[str] = []
    for part in pattern.split("/"):
        if part == "**":
            pieces.append(r"(?:(?!\.)[^/]+/)*")
            continue
        names = re.sub(r"\*+|\?|\[!?[^\]]+\]|[^*?\[]+|\[", _piece, part)
        hidden = "" if part.startswith(".") else r"(?!\.)"
        pieces.append(hidden + names + "/")
    return re.compile("".join(pieces).removesuffix("/"))


def _piece(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("*"):
        return "[^/]*"
    if text == "?":
        return "[^/]"
    if text.startswith("[") and len(text) > 1:
        negation = "^" if text[1] == "!" else ""
        # Of a set only "-" has a meaning.
        characters = re.sub(r"[\\^\[&~|]", r"\\\g<0>", text[1 + len(negation) : -1])
        return f"(?!/)[{negation}{characters}]"
    return re.escape(text)


class JsonLinesObjects(ObjectSource[T]):
    """Read records from objects of one JSON value per line, also compressed with gzip or zstd.

    ``url`` is ``s3://bucket/logs/`` for the objects directly in a folder, a pattern such as
    ``s3://bucket/logs/2013-*/*.jsonl.gz``, or one object. ``client`` are settings of obstore for this URL, and
    ``store`` is a store of obstore for the bucket to use instead.

    With ``discover_every`` the source never ends, and reads objects that appear later. An object that is replaced while
    it is read, or after a checkpoint in it, raises ``SourceError``. All other arguments are as for ``JsonLinesSource``.
    """

    @overload
    def __init__(
        self: JsonLinesObjects[JsonObject],
        url: str,
        *,
        of: None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        url: str,
        *,
        of: type[T],
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None: ...

    def __init__(
        self,
        url: str,
        *,
        of: type[T] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None:
        files = JsonLinesSource[T](
            _ANY,
            of=cast("type[T]", of),
            dead_letters=dead_letters,
            encoding=encoding,
            max_line_bytes=max_line_bytes,
            discover_every=discover_every,
            concurrency=concurrency,
        )
        super().__init__(url, files, client=client, store=store)


class CsvObjects(ObjectSource[T]):
    """Read records from CSV objects, also compressed with gzip or zstd.

    ``url``, ``discover_every``, ``client`` and ``store`` are as for ``JsonLinesObjects``, all other arguments as for
    ``CsvSource``.
    """

    @overload
    def __init__(
        self: CsvObjects[dict[str, str]],
        url: str,
        *,
        of: None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        url: str,
        *,
        of: type[T],
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        missing: Collection[str] = (),
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None: ...

    def __init__(
        self,
        url: str,
        *,
        of: type[T] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        missing: Collection[str] = (),
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None:
        files = CsvSource[T](
            _ANY,
            of=cast("type[T]", of),
            columns=columns,
            delimiter=delimiter,
            missing=missing,
            dead_letters=dead_letters,
            encoding=encoding,
            max_line_bytes=max_line_bytes,
            discover_every=discover_every,
            concurrency=concurrency,
        )
        super().__init__(url, files, client=client, store=store)


class ParquetObjects(ObjectSource[T]):
    """Read records from Parquet objects, by requests for the ranges of their columns; needs pyarrow.

    ``url``, ``discover_every``, ``client`` and ``store`` are as for ``JsonLinesObjects``, all other arguments as for
    ``ParquetSource``.
    """

    @overload
    def __init__(
        self: ParquetObjects[JsonObject],
        url: str,
        *,
        of: None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        columns: Sequence[str] | None = None,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        url: str,
        *,
        of: type[T],
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        columns: Sequence[str] | None = None,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None: ...

    def __init__(
        self,
        url: str,
        *,
        of: type[T] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
        columns: Sequence[str] | None = None,
        client: Mapping[str, object] | None = None,
        store: object | None = None,
    ) -> None:
        files = ParquetSource[T](
            _ANY,
            of=cast("type[T]", of),
            columns=columns,
            dead_letters=dead_letters,
            discover_every=discover_every,
            concurrency=concurrency,
        )
        super().__init__(url, files, client=client, store=store)
