"""Descriptors of Protobuf, the schemas of a registry, and the messages in them by their paths.

A registry has a schema as the text of a ``.proto`` file, or as its descriptor in Base64, which it accepts too. Of the
text only the names of messages are read: Protobuf itself resolves the data of one version of a message to another one,
by the numbers of the fields.

The entries of maps are messages of their own in a descriptor, and not in the text. They do not count in paths, as in
Confluent's clients for Java.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aflow_connectors.formats.format import FormatError
from aflow_connectors.schemas.client import descriptor_pb2

#: Files that each registry has.
_BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")

_TOKEN: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [\w.]+ | [{};]""",
    re.DOTALL | re.VERBOSE,
)

Paths = Mapping[tuple[int, ...], str]


def text_of(file: Any) -> str:
    """Return the schema of a file descriptor for a registry."""
    return b64encode(file.serialized_pb).decode("ascii")


def imports_of(file: Any) -> list[Any]:
    """Return the file descriptors that ``file`` imports and that a registry does not have by itself."""
    return [one for one in file.dependencies if not one.name.startswith(_BUILT_IN)]


def path_of(descriptor: Any) -> tuple[int, ...]:
    """Return the path to a message in its file."""
    outer = descriptor.containing_type
    if outer is None:
        siblings = list(descriptor.file.message_types_by_name.values())
        return (siblings.index(descriptor),)
    nested = [one for one in outer.nested_types if not one.GetOptions().map_entry]
    return (*path_of(outer), nested.index(descriptor))


def names_in(text: str) -> Paths:
    """Return the full names of the messages of a schema by their paths. Raises ``FormatError`` if it is none."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    except Exception:  # ValueError, or Protobuf's own: it is the text of a file
        return dict(_names_in_text(text))
    prefix = f"{file.package}." if file.package else ""
    return dict(_names_in_messages(file.message_type, prefix, ()))


def _names_in_messages(
    messages: Any, prefix: str, path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], str]]:
    found = [one for one in messages if not one.options.map_entry]
    for index, message in enumerate(found):
        name = prefix + message.name
        yield (*path, index), name
        yield from _names_in_messages(message.nested_type, f"{name}.", (*path, index))


def _names_in_text(text: str) -> Iterator[tuple[tuple[int, ...], str]]:
    package = ""
    #: For each open brace: the name of its message, or None for another block.
    blocks: list[str | None] = []
    path: list[int] = []
    #: Messages so far in the file, and in each open message.
    counts = [0]
    statement: list[str] = []
    for token in _TOKEN.findall(text):
        if token.startswith(("//", "/*")):
            continue
        if token == "{":
            if len(statement) == 2 and statement[0] == "message" and None not in blocks:
                path.append(counts[-1])
                counts[-1] += 1
                counts.append(0)
                blocks.append(statement[1])
                yield tuple(path), ".".join(filter(None, [package, *filter(None, blocks)]))
            else:
                blocks.append(None)
        elif token == "}":
            if not blocks:
                raise FormatError(
                    "is not a schema of Protobuf: a brace is closed that was not open"
                )
            if blocks.pop() is not None:
                path.pop()
                counts.pop()
        elif token == ";" and statement[:1] == ["package"] and len(statement) == 2:
            package = statement[1]
        if token in "{};":
            statement = []
        else:
            statement.append(token)
    if blocks:
        raise FormatError("is not a schema of Protobuf: a brace is not closed")
