"""A RabbitMQ server for tests: in a temporary folder, on free ports of loopback, as a user without privileges."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.connectors.ports import free_ports
from tests.connectors.processes import (
    accepts_in_time,
    owned_by_server,
    server_folder,
    started,
)

# Only a part of it has types.
aio_pika: Any = import_module("aio_pika")
raw: Any = import_module("aiormq.abc")
frames: Any = import_module("pamqp")
commands: Any = import_module("pamqp.commands")

PROJECT: Final = Path(__file__).parents[3]

#: Environment variable with the URL of a running server to test with.
ADDRESS: Final = "AFLOW_TEST_RABBITMQ"

_CONFIGURATION: Final = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
disk_free_limit.absolute = 10MB
log.console = false
log.file.level = error
"""
_STARTING: Final = 300.0
#: Messages that are published at a time.
_AT_ONCE: Final = 500


def program() -> Path | None:
    """Return the program of the newest version, which runs as any user."""
    found = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server")
    return None if shutil.which("epmd") is None else max(found, default=None)


@dataclass
class RabbitServer:
    """A server in ``folder``."""

    folder: Path
    port: int
    #: Environment of the server.
    environment: dict[str, str] = field(repr=False)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def kill(self) -> None:
        """End the server as a crash does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        """Start the server in its folder, and wait until it accepts connections.

        Blocks. For the main thread: the server ends with the thread that started it.
        """
        assert threading.current_thread() is threading.main_thread()
        found = program()
        assert found is not None
        deadline = time.monotonic() + _STARTING
        # A server that was killed may be registered for a moment, and its successor ends at once.
        while time.monotonic() < deadline:
            self.process = started([found], self.folder, self.environment)
            if accepts_in_time(self.process, self.port, deadline):
                return
            time.sleep(0.1)
        log = (self.folder / "output").read_text(errors="replace")
        raise RuntimeError(f"the server does not start: {log[-2000:]}")

    def control(self, *arguments: str) -> None:
        """Run a command of ``rabbitmqctl``."""
        found = program()
        assert found is not None
        process = started(
            [found.with_name("rabbitmqctl"), *arguments], self.folder, self.environment
        )
        assert process.wait(_STARTING) == 0, (self.folder / "output").read_text(errors="replace")

    def stop(self) -> None:
        """End it; its data is not needed any more."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


@contextmanager
def running() -> Generator[RabbitServer]:
    """Create and run a server; remove it at the end."""
    with server_folder() as folder:
        port, distribution, names = free_ports(3)
        environment = _environment(folder, distribution, names)
        server = RabbitServer(folder, port, environment)
        (folder / "rabbitmq.conf").write_text(_CONFIGURATION.format(port=port))
        (folder / "plugins").write_text("[].\n")
        owned_by_server(folder)
        # The service of names that servers of Erlang need. Without this one, a server starts one that outlives it.
        daemon = started(["epmd", "-port", str(names)], folder, environment)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            daemon.kill()
            daemon.wait()


def _environment(folder: Path, distribution: int, names: int) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
        "HOME": str(folder),  # has the cookie
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        # Processors are for the tests.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        "RABBITMQ_NODENAME": f"aflow-{names}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        # The script becomes the server, instead of a process in between.
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_SERVER_START_ARGS": "-noinput",
    }


class Rabbit:
    """Operations on the server at ``url``, apart from the connector."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def create(self, *, kind: str = "classic", **arguments: object) -> str:
        """Create a durable queue of ``kind``, and return its name."""
        name = f"q{uuid.uuid4().hex}"
        given = {"x-queue-type": kind} | {
            f"x-{key.replace('_', '-')}": value for key, value in arguments.items()
        }
        async with self._channel() as channel:
            await channel.queue_declare(name, durable=True, arguments=given)
        return name

    async def delete(self, queue: str) -> None:
        async with self._channel() as channel:
            await channel.queue_delete(queue)

    async def create_exchange(self, kind: str, **bindings: str) -> str:
        """Create an exchange with queues ``bindings`` by routing key, and return its name."""
        name = f"x{uuid.uuid4().hex}"
        async with self._channel() as channel:
            await channel.exchange_declare(name, exchange_type=kind, durable=True)
            for key, queue in bindings.items():
                await channel.queue_bind(queue, name, key)
        return name

    async def publish(
        self,
        queue: str,
        bodies: Sequence[bytes],
        ids: Sequence[str] = (),
        headers: Sequence[Mapping[str, object] | None] = (),
        **properties: object,
    ) -> None:
        """Publish persistent messages, with the ids "QUEUE-0", "QUEUE-1" … unless ``ids`` are given."""
        given = ids or [f"{queue}-{number}" for number in range(len(bodies))]
        tables = headers or [None] * len(bodies)
        async with self._channel() as channel:
            for start in range(0, len(bodies), _AT_ONCE):
                part = slice(start, start + _AT_ONCE)
                await asyncio.gather(
                    *(
                        channel.basic_publish(
                            body,
                            routing_key=queue,
                            properties=commands.Basic.Properties(
                                delivery_mode=2, message_id=id, headers=table, **properties
                            ),
                            wait=False,
                        )
                        for body, id, table in zip(
                            bodies[part], given[part], tables[part], strict=True
                        )
                    )
                )

    async def publish_without_ids(self, queue: str, bodies: Sequence[bytes]) -> None:
        """Publish messages without ids. The client gives one to each, so this is done with its frames."""
        async with self._channel() as channel:
            for body in bodies:
                content = [frames.body.ContentBody(body)] if body else []
                header = frames.header.ContentHeader(
                    body_size=len(body), properties=commands.Basic.Properties(delivery_mode=2)
                )
                publishing = commands.Basic.Publish(exchange="", routing_key=queue)
                await channel.write_queue.put(
                    raw.ChannelFrame.marshall(channel.number, [publishing, header, *content])
                )
            await channel.queue_declare(queue, passive=True)  # they have arrived

    async def contents(self, queue: str) -> list[Any]:
        """Remove and return the messages of ``queue``."""
        found: list[Any] = []
        async with self._channel() as channel:
            while (message := await channel.basic_get(queue, no_ack=True)).delivery.name != (
                "Basic.GetEmpty"
            ):
                found.append(message)
        return found

    async def count(self, queue: str) -> int:
        """Return the number of messages that no consumer has."""
        async with self._channel() as channel:
            return int((await channel.queue_declare(queue, passive=True)).message_count)

    @asynccontextmanager
    async def _channel(self) -> AsyncGenerator[Any]:
        connection = await aio_pika.connect(self.url)
        try:
            channel = await connection.channel()
            yield await channel.get_underlay_channel()
        finally:
            await connection.close()
            for _ in range(10):  # the last tasks of the client end
                await asyncio.sleep(0)
