"""Trees as text, for plans on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def branches(
    roots: Sequence[T], below: Callable[[T], Sequence[T]], indent: str
) -> Iterator[tuple[str, T]]:
    """Yield the items of a tree, each after the one that it is below, with the beginning of its line.

    It uses a stack: a chain of steps may exceed Python's recursion limit.
    """
    waiting = _lines(roots, indent)
    while waiting:
        item, indent, last = waiting.pop()
        yield f"{indent}{'└─' if last else '├─'} ", item
        waiting += _lines(below(item), indent + ("   " if last else "│  "))


def _lines(items: Sequence[T], indent: str) -> list[tuple[T, str, bool]]:
    """Return the items, last one first, with their indentation, and True for the last one."""
    last = len(items) - 1
    return [(item, indent, at == last) for at, item in enumerate(items)][::-1]


def counted(number: int, what: str) -> str:
    """Return a number with its noun, such as ``1 task`` or ``1,024 key groups``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def side_mark(side: str | None) -> str:
    """Return the mark of an item that is below a side output; empty for the main output."""
    return "" if side is None else f" ← side output {side!r}"
