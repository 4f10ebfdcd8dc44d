"""Output of a program on a pseudo-terminal."""

from __future__ import annotations

import os

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def until(terminal: int, text: str | None) -> str:
    """Read the output up to ``text``, or to its end."""
    seen = b""
    while text is None or text.encode() not in seen:
        try:
            some = os.read(terminal, 65536)
        except OSError:  # Linux raises if the other side is closed
            some = b""
        if not some:
            assert text is None, f"the program ended before {text!r}: {seen!r}"
            break
        seen += some
    return seen.decode()


def assert_cursor_is_back(seen: str) -> None:
    assert HIDE_CURSOR in seen
    assert seen.rindex(SHOW_CURSOR) > seen.rindex(HIDE_CURSOR)
