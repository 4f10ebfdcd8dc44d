"""Parameters of build functions that are sources and sinks of a pipeline, by their annotations."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class EndKind(Enum):
    """The kind of an end of a pipeline."""

    SOURCE = "Source"
    SINK = "Sink"


#: The outermost name of an annotation, without its module, in its text or in the ``repr`` of a class or an alias.
#: ``Optional``, ``Union`` and ``Annotated`` are looked through, and so is a ``None`` that precedes a name.
_OUTERMOST: Final = re.compile(
    r"""['"]?(?:<class ')?(?:None\s*\|\s*)?"""
    r"""(?:(?:\w+\.)*(?:Optional|Union|Annotated)\[)?(?:None\s*,\s*)?(?:\w+\.)*(\w+)"""
)


def annotated_end(annotation: object) -> EndKind | None:
    """Return the kind of end that ``annotation`` names: ``Source[…]``, ``aflow.Sink``, ``Source[int] | None``.

    Only the outermost name counts: a ``list[Source[int]]``, and a function of a sink, are no ends.
    """
    found = _OUTERMOST.match(annotation if isinstance(annotation, str) else repr(annotation))
    names = {kind.value: kind for kind in EndKind}
    return None if found is None else names.get(found[1])
