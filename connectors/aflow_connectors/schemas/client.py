"""The packages of the extra ``schemas``."""

from __future__ import annotations

from typing import Any

from aflow_connectors.optional import load

_EXTRA = "schemas"

# Not all of them have complete types.
aiohttp: Any = load("aiohttp", package="aiohttp", extra=_EXTRA, purpose="a schema registry")
fastavro: Any = load("fastavro", package="fastavro", extra=_EXTRA, purpose="Avro")
descriptor_pb2: Any = load(
    "google.protobuf.descriptor_pb2", package="protobuf", extra=_EXTRA, purpose="Protobuf"
)
message_factory: Any = load(
    "google.protobuf.message_factory", package="protobuf", extra=_EXTRA, purpose="Protobuf"
)
protobuf_message: Any = load(
    "google.protobuf.message", package="protobuf", extra=_EXTRA, purpose="Protobuf"
)
