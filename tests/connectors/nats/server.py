"""A NATS server with JetStream for tests, and their access to it from outside, through a client of their own."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from tests.connectors.ports import free_port
from tests.connectors.server_process import ServerProcess, program_of, server_folder

T = TypeVar("T")

# Its types are incomplete.
_nats: Any = import_module("nats")
_api: Any = import_module("nats.js.api")

#: Environment variable with the address of a running server to test with.
ADDRESS: Final = "AFLOW_TEST_NATS"

_CONFIGURATION: Final = """
listen: 127.0.0.1:{port}
max_payload: 16MB
max_pending: 128MB
jetstream {{ store_dir: "{folder}/data", max_mem: 256MB, max_file: 4GB }}
accounts {{
  A {{
    jetstream: enabled
    users: [
      {{ user: tester, password: right }}
      {{ user: limited, password: right, permissions: {{
           publish: {{ deny: ["$JS.API.STREAM.INFO.>"] }} }} }}
    ]
  }}
}}
no_auth_user: tester
"""


@dataclass
class NatsServer:
    """A running server. ``process`` is None for one that a user has named."""

    url: str
    process: ServerProcess | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return parts.hostname, parts.port or 4222

    def url_via(self, proxy: tuple[str, int]) -> str:
        """Return the address through a proxy."""
        host, port = self.host_and_port
        return self.url.replace(f"{host}:{port}", f"{proxy[0]}:{proxy[1]}")

    def url_of(self, credentials: str) -> str:
        """Return the address with a user and a password."""
        return self.url.replace("nats://", f"nats://{credentials}@")

    def kill(self) -> None:
        """End the server as a crash does."""
        assert self.process is not None
        self.process.kill()

    def start(self) -> None:
        """Start the server with its data."""
        assert self.process is not None
        self.process.start()

    @asynccontextmanager
    async def jetstream(self) -> AsyncGenerator[Any]:
        """A client of the tests."""
        client = await _nats.connect(self.url, max_reconnect_attempts=1)
        try:
            yield client.jetstream()
        finally:
            await client.close()

    async def create(self, stream: str, **settings: Any) -> str:
        """Create a stream with subjects ``<stream>`` and ``<stream>.>``, and return its name."""
        async with self.jetstream() as context:
            await context.add_stream(name=stream, subjects=[stream, f"{stream}.>"], **settings)
        return stream

    async def publish(
        self, subject: str, *bodies: bytes, headers: dict[str, str] | None = None
    ) -> None:
        async with self.jetstream() as context:
            for start in range(0, len(bodies), 500):
                sent = [
                    await context.publish_async(subject, body, headers=headers)
                    for body in bodies[start : start + 500]
                ]
                for one in sent:
                    await one

    async def administer(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async with self.jetstream() as context:
            return await work(context)

    async def contents(self, stream: str) -> list[Any]:
        """Return all messages in order."""
        async with self.jetstream() as context:
            state = (await context.stream_info(stream)).state
            found: list[Any] = []
            if not state.messages:
                return found
            consumer = _api.ConsumerConfig(ack_policy="none", deliver_policy="all")
            subscription = await context.pull_subscribe("", stream=stream, config=consumer)
            while len(found) < state.messages:
                found += await subscription.fetch(min(1000, state.messages - len(found)), timeout=5)
            return found

    async def bodies(self, stream: str) -> list[bytes]:
        return [one.data for one in await self.contents(stream)]


@contextmanager
def running_nats(program: Path) -> Generator[NatsServer]:
    """Run a server; remove its data at the end."""
    port = free_port()
    with server_folder() as folder:
        configuration = folder / "nats.conf"
        configuration.write_text(_CONFIGURATION.format(port=port, folder=folder))
        command: Sequence[str | Path] = [program, "--config", configuration]
        process = ServerProcess(command, folder, lambda: _answers(port))
        try:
            process.start()
            yield NatsServer(f"nats://127.0.0.1:{port}", process)
        finally:
            process.kill()


def nats_program() -> Path | None:
    return program_of("nats-server")


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(4) == b"INFO"
    except OSError:
        return False
