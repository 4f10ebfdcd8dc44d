"""The streams of a server that a source reads, by their names or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aflow.connect import SourceError
from aflow.errors import shown
from aflow_connectors.redis.client import RedisLink, RedisServer


async def stream_names(
    server: RedisServer, streams: Sequence[str] | re.Pattern[str], *, waits: bool
) -> list[str]:
    """Return the streams to read. Raises ``SourceError`` for a missing one, and a key that is no stream.

    Unless the source ``waits`` for new streams, raises it as well if none matches the regular expression.
    """
    link = RedisLink(server, "streams", SourceError, as_text=True)
    try:
        await link.check()
        return await _named(link, streams, waits=waits)
    finally:
        await link.close()


async def _named(
    link: RedisLink, streams: Sequence[str] | re.Pattern[str], *, waits: bool
) -> list[str]:
    if isinstance(streams, re.Pattern):
        found = await _all_streams(link)
        names = [name for name in found if streams.fullmatch(name)]
        if not names and not waits:
            raise link.error(
                f"it has no stream that matches {streams.pattern!r}; it has {shown(found)}. With discover_every "
                f"the source waits for one"
            )
        return names
    for name in streams:
        kind = await link.command("TYPE", name)
        if kind == "none":
            raise link.error(
                f"it has no stream {name!r}; create it first, or use a regular expression, which waits for it"
            )
        if kind != "stream":
            raise link.error(f"the key {name!r} is a {kind}, not a stream")
    return list(streams)


async def _all_streams(link: RedisLink) -> list[str]:
    """Return the names of all streams. The server looks at all its keys for it, some at a time."""
    found: set[str] = set()
    cursor: Any = 0
    while True:
        cursor, names = await link.command("SCAN", cursor, "TYPE", "stream", "COUNT", 1000)
        found.update(names)
        if not int(cursor):
            # A name that is not UTF-8 cannot be the id of a split.
            return sorted(name for name in found if name.isascii() or _is_text(name))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
