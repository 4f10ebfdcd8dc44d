"""A TCP proxy that cuts and freezes the connections between a client and its server."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards connections to ``host`` and ``port``; ``address`` is where it listens, on loopback.

    It listens at the port ``listen``, or at a free one.
    """

    def __init__(self, host: str, port: int, *, listen: int = 0) -> None:
        self._target = (host, port)
        self._listen = listen
        self._server: asyncio.Server | None = None
        #: Open connections, to the client and to the server.
        self._writers: set[asyncio.StreamWriter] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()
        #: Set unless the connections are frozen.
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._losing = False
        #: Number of accepted connections.
        self.accepted = 0
        #: Connections are cut after this number of further bytes from the client; None: never.
        self.cut_after: int | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._listen)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.thaw()
        self.cut()
        await self._server.wait_closed()
        await self._none_left.wait()

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return host, port

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers:
            writer.transport.abort()

    def refuse(self) -> None:
        """Reset all connections, and new ones at once."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Accept new connections again."""
        self._refusing = False

    def freeze(self) -> None:
        """Keep connections open, but forward nothing."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Forward again, including what arrived meanwhile."""
        self._flowing.set()
        self._losing = False

    def lose_answers(self) -> None:
        """Forward to the server, and drop what it sends, until ``thaw``."""
        self._losing = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refusing:
            writer.transport.abort()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, to_writer}
        self._writers |= ends
        self._none_left.clear()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, to_writer, counted=True))
                both.create_task(self._forward(to_reader, writer, counted=False))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()
            if not self._writers:
                self._none_left.set()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        try:
            while data := await source.read(65536):
                await self._flowing.wait()
                if counted and self.cut_after is not None:
                    self.cut_after -= len(data)
                    if self.cut_after < 0:
                        self.cut_after = None
                        self.cut()
                        return
                if self._losing and not counted:
                    continue
                target.write(data)
                await target.drain()
        except OSError:
            pass
        target.transport.abort()
