"""Batches as bytes, for the records in flight of an unaligned checkpoint."""

from __future__ import annotations

from typing import Any, cast

from aflow.model.batch import Batch
from aflow.model.codecs import Codec


def encode_batch(batch: Batch[Any], codec: Codec[object]) -> bytes:
    """Return the columns of ``batch`` as bytes. Raises ``CodecError`` for values or keys that ``codec`` refuses."""
    keys = None if batch.keys is None else list(batch.keys)
    return codec.encode([batch.values, batch.timestamps, keys])


def decode_batch(data: bytes, codec: Codec[object]) -> Batch[Any]:
    """Return the batch that ``data`` was made from. Raises ``CodecError``."""
    values, timestamps, keys = cast(
        "tuple[list[Any], list[int] | None, list[Any] | None]", codec.decode(data)
    )
    return Batch(values, timestamps, keys)
