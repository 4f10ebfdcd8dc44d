"""Argument checks shared by all connectors, for users without a type checker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from aflow.errors import FlowDefinitionError, shown


def checked_path(owner: str, path: object) -> Path:
    """Return ``path`` as a Path. Raises ``FlowDefinitionError`` for other types, and for an empty path."""
    if not isinstance(path, (str, Path)):
        raise FlowDefinitionError(f"{owner}: the path must be a str or a Path, not {shown(path)}")
    if not str(path):
        raise FlowDefinitionError(f"{owner}: the path is empty")
    return Path(path)


def checked_texts(owner: str, argument: str, texts: object) -> Sequence[str]:
    """Return ``texts`` as a list. Raises ``FlowDefinitionError`` for a single str: it is iterable too."""
    all_of_it = shown(texts)
    if isinstance(texts, Iterable) and not isinstance(texts, (str, bytes)):
        given = list(cast(Iterable[object], texts))
        found = [text for text in given if isinstance(text, str)]
        if len(found) == len(given):
            return found
    example = f", like [{texts!r}]" if isinstance(texts, str) else ""
    raise FlowDefinitionError(f"{owner}: {argument}= must be several str{example}, not {all_of_it}")
