"""An MQTT broker for tests: in a temporary folder, on free ports of loopback, as a user without privileges."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.connectors.ports import free_ports
from tests.connectors.processes import (
    accepts_in_time,
    owned_by_server,
    server_folder,
    started,
)

# Only a part of it has types.
aiomqtt: Any = import_module("aiomqtt")


#: Environment variable with the URL of a running broker to test with.
ADDRESS: Final = "AFLOW_TEST_MQTT"
#: A user of the second listener, who may use topics below "allowed" only, and the password.
WITH_PASSWORD: Final = ("careful", "open sesame")

_CONFIGURATION: Final = """\
per_listener_settings true
persistence true
persistence_location {folder}/
max_queued_messages 0
log_type error
set_tcp_nodelay true
listener {port} 127.0.0.1
allow_anonymous true
listener {closed} 127.0.0.1
allow_anonymous false
password_file {folder}/passwords
acl_file {folder}/access
"""
_STARTING: Final = 300.0


def program(name: str) -> str | None:
    """Return the path of a program of mosquitto."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass
class Mosquitto:
    """A broker in ``folder``; ``closed_port`` is that of the listener with passwords."""

    folder: Path
    port: int
    closed_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Store all messages and sessions, and end the broker as a crash does.

        It stores them at intervals only, and when it is told to. A crash loses what came later.
        """
        assert self.process is not None
        database = self.folder / "mosquitto.db"
        before = database.stat().st_mtime_ns if database.exists() else 0
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _STARTING
        while not database.exists() or database.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline, "the broker does not store its messages"
            time.sleep(0.01)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        """Start the broker in its folder, and wait until it accepts connections.

        Blocks. For the main thread: the broker ends with the thread that started it.
        """
        assert threading.current_thread() is threading.main_thread()
        found = program("mosquitto")
        assert found is not None
        self.process = started([found, "-c", self.folder / "configuration"], self.folder)
        if not accepts_in_time(self.process, self.port, time.monotonic() + _STARTING):
            log = (self.folder / "output").read_text(errors="replace")
            raise RuntimeError(f"the broker does not start: {log[-2000:]}")

    def stop(self) -> None:
        """End it; its data is not needed any more."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def running() -> Generator[Mosquitto]:
    """Create and run a broker; remove it at the end."""
    with server_folder() as folder:
        port, closed = free_ports(2)
        server = Mosquitto(folder, port, closed)
        (folder / "configuration").write_text(
            _CONFIGURATION.format(folder=folder, port=port, closed=closed)
        )
        user, password = WITH_PASSWORD
        (folder / "access").write_text(f"user {user}\ntopic readwrite allowed/#\n")
        passwords = program("mosquitto_passwd")
        assert passwords is not None
        subprocess.run(
            [passwords, "-b", "-c", folder / "passwords", user, password],
            check=True,
            capture_output=True,
        )
        owned_by_server(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()


class Mqtt:
    """Operations on the broker at ``url``, apart from the connector."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 1883

    async def publish(
        self, topic: str, payloads: Sequence[bytes], *, retain: bool = False, properties: Any = None
    ) -> None:
        async with self.client() as client:
            await asyncio.gather(
                *(client.publish(topic, payload, 1, retain, properties) for payload in payloads)
            )

    async def subscribed(self, client_id: str, topic: str) -> None:
        """Create a session with a subscription, and leave it."""
        async with self.client(identifier=client_id, clean_start=False, expiry=3600) as client:
            await client.subscribe(topic, 1)

    async def messages(self, client_id: str, *, count: int | None = None) -> list[Any]:
        """Return and acknowledge the messages that wait in a session: ``count``, or all that are there."""
        found: list[Any] = []
        async with self.client(identifier=client_id, clean_start=False, expiry=3600) as client:
            while count is None or len(found) < count:
                try:
                    async with asyncio.timeout(0.3 if count is None else 300):
                        found.append(await anext(aiter(client.messages)))
                except TimeoutError:
                    assert count is None, f"{len(found)} messages instead of {count}"
                    break
        return found

    async def numbers(self, client_id: str, count: int) -> set[int]:
        """Return the numbers in the messages of a session, which may be repeated, when there are ``count``."""
        found: set[int] = set()
        async with self.client(identifier=client_id, clean_start=False, expiry=3600) as client:
            messages = aiter(client.messages)
            async with asyncio.timeout(300):
                while len(found) < count:
                    found.add(int((await anext(messages)).payload))
        return found

    @asynccontextmanager
    async def client(self, *, expiry: int = 0, **options: Any) -> AsyncGenerator[Any]:
        connect: Any = import_module("paho.mqtt.properties").Properties(1)
        connect.SessionExpiryInterval = expiry
        given = {"clean_start": True, **options}
        async with aiomqtt.Client(
            self.host,
            self.port,
            protocol=aiomqtt.ProtocolVersion.V5,
            properties=connect,
            **given,
        ) as client:
            client.pending_calls_threshold = 1_000_000
            yield client
        for _ in range(10):  # the last tasks of the client end
            await asyncio.sleep(0)
