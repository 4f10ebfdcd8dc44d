"""A Redis server for tests, and their access to it from outside, through a client of their own."""

from __future__ import annotations

import socket
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.connectors.ports import free_port
from tests.connectors.server_process import ServerProcess, program_of, server_folder

#: A node of a cluster also listens at its port + 10,000, which is below the ports of outgoing connections, too.
_CLUSTER_PORTS: Final = 22_768

# Its types are incomplete.
_redis: Any = import_module("redis")

#: Environment variable with the address of a running server to test with.
ADDRESS: Final = "AFLOW_TEST_REDIS"


@dataclass
class TestServer:
    """A running server. ``process`` is None for one that a user has named."""

    __test__ = False

    url: str
    process: ServerProcess | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return parts.hostname, parts.port or 6379

    def url_via(self, proxy: tuple[str, int]) -> str:
        """Return the address through a proxy."""
        host, port = self.host_and_port
        return self.url.replace(f"{host}:{port}", f"{proxy[0]}:{proxy[1]}")

    def url_of(self, credentials: str) -> str:
        """Return the address with a user and a password."""
        return self.url.replace("redis://", f"redis://{credentials}@")

    def kill(self) -> None:
        """End the server as a crash does."""
        assert self.process is not None
        self.process.kill()

    def start(self) -> None:
        """Start the server with its data."""
        assert self.process is not None
        self.process.start()

    def command(self, *arguments: Any) -> Any:
        """Run a command, and return its answer."""
        with closing(_redis.Redis.from_url(self.url)) as client:
            return client.execute_command(*arguments)

    def add(self, stream: str, *entries: dict[Any, Any], ids: Sequence[str] = ()) -> list[str]:
        """Add entries to ``stream``, and return their ids."""
        with closing(_redis.Redis.from_url(self.url)) as client:
            pipeline = client.pipeline(transaction=False)
            for index, fields in enumerate(entries):
                pipeline.xadd(stream, fields, id=ids[index] if ids else "*")
            return [id.decode() for id in pipeline.execute()]

    def contents(self, stream: str) -> list[dict[str, str]]:
        """Return the fields of all entries."""
        with closing(_redis.Redis.from_url(self.url, decode_responses=True)) as client:
            return [fields for _, fields in client.xrange(stream)]


@contextmanager
def running_redis(program: Path, *options: str, fsync: str = "no") -> Generator[TestServer]:
    """Run a server with an append-only file; remove it at the end."""
    port = free_port(below=_CLUSTER_PORTS)
    with server_folder() as folder:
        command: list[str | Path] = [program, "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--dir", folder, "--save", "", "--appendonly", "yes", "--appendfsync", fsync]
        command += ["--databases", "2", *options]
        process = ServerProcess(command, folder, lambda: _answers(port))
        try:
            process.start()
            yield TestServer(f"redis://127.0.0.1:{port}/0", process)
        finally:
            process.kill()


def redis_program() -> Path | None:
    return program_of("redis-server")


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"  # an error while it loads its data
    except OSError:
        return False
