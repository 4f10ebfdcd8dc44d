"""The application in a server of its own, on the event loop of the host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn

from aflow.web.asgi import router_of
from aflow.web.jobs import Jobs
from aflow.web.routes import WebApi

#: Seconds for requests under way when the block ends; then they are cancelled.
_GRACE: Final = 5


@dataclass(frozen=True, slots=True)
class WebServer:
    """A server that is accepting connections."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address without a slash at the end: ``http://127.0.0.1:8080``."""
        return (
            f"http://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"http://{self.host}:{self.port}"
        )


@asynccontextmanager
async def serve(
    jobs: Jobs,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    read_token: str | None = None,
) -> AsyncGenerator[WebServer]:
    """Serve the application during the block: ``async with aflow.web.serve(job) as server: print(server.url)``.

    ``port`` 0 chooses a free one. The server runs on the present event loop, handles no signals and configures no
    logging: uvicorn logs each request to ``uvicorn.access`` at level INFO. At the end of the block, requests under way
    have 5 seconds. The other arguments are those of ``app``.

    Raises ``OSError`` if the address is in use or cannot be used, and the errors of ``app``.
    """
    api = WebApi(jobs, token=token, read_token=read_token)
    config = uvicorn.Config(
        router_of(api),
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )
    failure: BaseException | None = None
    with _listening(host, port) as listener:
        server = _Guest(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]), name="aflow web")
            await server.listening.wait()
            try:
                yield WebServer(*listener.getsockname()[:2])
            except BaseException as exc:  # raised below: a group would wrap it
                failure = exc
            api.close()
            server.should_exit = True
    if failure is not None:
        raise failure


class _Guest(uvicorn.Server):
    """A server that leaves signals to the host, and says when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Close what a server leaves open that is cancelled; an orderly end has left nothing."""
        for listener in getattr(self, "servers", ()):
            listener.close()
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        yield listener
