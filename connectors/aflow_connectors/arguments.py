"""Argument checks shared by all connectors, for users without a type checker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

from aflow.connect import Tag
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


def checked_dead_letters(owner: str, dead_letters: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``dead_letters`` is a tag or None."""
    if dead_letters is not None and not isinstance(dead_letters, Tag):
        example = dead_letters if isinstance(dead_letters, str) else "bad lines"
        raise FlowDefinitionError(
            f"{owner}: dead_letters= must be a tag, like Tag[BadRecord]({example!r}), not {shown(dead_letters)}"
        )


def checked_interval(owner: str, discover_every: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``discover_every`` is None or a positive duration."""
    if discover_every is None:
        return
    if not isinstance(discover_every, timedelta):
        raise FlowDefinitionError(
            f"{owner}: discover_every= must be a timedelta, like timedelta(seconds=10), not {shown(discover_every)}"
        )
    if discover_every <= timedelta(0):
        raise FlowDefinitionError(f"{owner}: discover_every must be positive, not {discover_every}")
