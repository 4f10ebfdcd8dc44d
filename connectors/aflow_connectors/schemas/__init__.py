"""Avro and Protobuf: formats with schemas, of a schema registry or fixed.

``Avro`` and ``Protobuf`` are formats of messages (``format=`` and ``key_format=`` of sources and sinks). With a
``SchemaRegistry``, which has the REST API and the wire format of Confluent's, messages are decoded with the schema of
their writer. Needs the extra ``schemas``.
"""

from __future__ import annotations

from aflow_connectors.schemas.avro import Avro
from aflow_connectors.schemas.avro_schema import aliases, decimal
from aflow_connectors.schemas.protobuf import Protobuf
from aflow_connectors.schemas.registry import RegistryError, SchemaRegistry
from aflow_connectors.schemas.subjects import (
    SubjectName,
    record_name,
    topic_name,
    topic_record_name,
)

__all__ = [
    "Avro",
    "Protobuf",
    "RegistryError",
    "SchemaRegistry",
    "SubjectName",
    "aliases",
    "decimal",
    "record_name",
    "topic_name",
    "topic_record_name",
]
