"""Message classes as protoc generates them, from descriptors that are written here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Protobuf has no types.
descriptor_pb2: Any = import_module("google.protobuf.descriptor_pb2")
descriptor_pool: Any = import_module("google.protobuf.descriptor_pool")
message_factory: Any = import_module("google.protobuf.message_factory")

#: Files that come with the package.
WELL_KNOWN = ("duration", "struct", "timestamp", "wrappers")

Field = descriptor_pb2.FieldDescriptorProto

TYPES = {
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "uint64": Field.TYPE_UINT64,
    "double": Field.TYPE_DOUBLE,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}


def proto_file(
    name: str,
    messages: dict[str, dict[str, str]],
    *,
    package: str = "shop",
    enums: dict[str, list[str]] | None = None,
    imports: tuple[str, ...] = (),
) -> Any:
    """Return a file of proto3.

    A message is written as its fields: a name, with ``=number`` if it is not the next one, and a type such as "int64",
    "optional string", "repeated .shop.Item", "enum .shop.Kind" or "map .shop.Item". A message "A.B" is nested in "A".
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", dependency=imports
    )
    for enum, values in (enums or {}).items():
        made = file.enum_type.add(name=enum)
        for number, value in enumerate(values):
            made.value.add(name=value, number=number)
    known: dict[str, Any] = {}
    for path, fields in messages.items():
        outer, _, own = path.rpartition(".")
        message = known[outer].nested_type.add() if outer else file.message_type.add()
        message.name = own
        known[path] = message
        for number, (field, kind) in enumerate(fields.items(), start=1):
            _add_field(message, f"{package}.{path}", field, kind, number)
    return file


def classes(*files: Any) -> dict[str, Any]:
    """Return the classes of all messages of ``files`` by their full names."""
    pool = descriptor_pool.DescriptorPool()
    for name in WELL_KNOWN:
        one = import_module(f"google.protobuf.{name}_pb2")
        pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
    found: dict[str, Any] = {}
    for file in files:
        pool.Add(file)
    for file in files:
        found |= message_factory.GetMessageClassesForFiles([file.name], pool)
        for message in pool.FindFileByName(file.name).message_types_by_name.values():
            found |= _nested(message)
    return found


def _nested(descriptor: Any) -> dict[str, Any]:
    found = {descriptor.full_name: message_factory.GetMessageClass(descriptor)}
    for one in descriptor.nested_types:
        found |= _nested(one)
    return found


def _add_field(message: Any, full_name: str, name: str, kind: str, number: int) -> None:
    name, _, given = name.partition("=")
    *words, of = kind.split()
    field = message.field.add(name=name, number=int(given or number))
    field.label = Field.LABEL_REPEATED if "repeated" in words else Field.LABEL_OPTIONAL
    if "map" in words:
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "key", "string", 1)
        _add_field(entry, "", "value", of, 2)
        field.label, of = Field.LABEL_REPEATED, f".{full_name}.{entry.name}"
    if of in TYPES:
        field.type = TYPES[of]
    else:
        field.type = Field.TYPE_ENUM if "enum" in words else Field.TYPE_MESSAGE
        field.type_name = of
    if "optional" in words:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
