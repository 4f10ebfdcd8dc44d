"""``JsonLinesSink``: one JSON value per line."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TypeVar

import orjson

from aflow.connect import Writer
from aflow.errors import shown
from aflow_connectors.files.output.bytes_writer import BytesWriter
from aflow_connectors.files.output.file_sink import FileSink
from aflow_connectors.files.output.output_file import SinkOutput
from aflow_connectors.json_encoder import STR_KEYS, encode_json, to_json
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")


class JsonLinesSink(FileSink[T]):
    """Write one JSON value per line: dicts, dataclasses, ``msgspec.Struct``, NamedTuples or plain values.

    ``path`` with a suffix is a file, compressed if it ends in ``.gz`` or ``.zst``; a sink with parallelism 2 or more
    writes a file for each subtask, ``out-00000.jsonl`` and so on. Without a suffix ``path`` is a folder of
    ``part-00000.jsonl`` and so on. Folders are created as needed. Files appear under their names, complete, when the
    input has ended; if the job fails or is cancelled, none appears. An existing file is an error, or is replaced with
    ``overwrite=True``.

    With checkpoints each record is written exactly once, in a file for each checkpoint and subtask with records:
    ``part-00000-000012.jsonl``, or ``out-00000-000012.jsonl`` if ``path`` has a suffix. It appears when the checkpoint
    is complete.

    Datetimes are written as RFC 3339: a naive one without offset, and in UTC if the offset has seconds, which RFC 3339
    does not. Decimals are written as text, bytes in base64, sets as arrays, NaN and infinity as null. ``SinkError``
    names the path and, for a record that JSON cannot hold, the record.
    """

    suffix = ".jsonl"

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        super().__init__(path, overwrite=overwrite)

    def writer_into(self, output: SinkOutput, blocking: WorkerThread) -> Writer[T]:
        return BytesWriter(output, blocking, partial(_encode, output))


def _encode(output: SinkOutput, records: list[T]) -> bytes:
    dumps = orjson.dumps
    try:
        lines = [dumps(record, to_json, STR_KEYS) for record in records]
    except TypeError:
        lines = [_encode_one(output, record) for record in records]
    lines.append(b"")
    return b"\n".join(lines)


def _encode_one(output: SinkOutput, record: object) -> bytes:
    try:
        return encode_json(record)
    except TypeError as exc:
        raise output.unwritable(f"record {shown(record)} as JSON", exc) from exc
