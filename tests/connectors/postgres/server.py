"""A PostgreSQL server for tests: in a temporary folder, on a free port of loopback, as a user without privileges."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tests import temporary_files
from tests.connectors.ports import free_port

T = TypeVar("T")

# It has no types.
asyncpg: Any = import_module("asyncpg")

#: Environment variable with the address of a running server to test with.
ADDRESS: Final = "AFLOW_TEST_POSTGRES"
#: The role and the password of the server for tests of passwords.
WITH_PASSWORD: Final = ("careful", "open sesame")

_SETTINGS: Final = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    # A test loses no power. After kill -9 the system still has what was written.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "logical_decoding_work_mem": "64kB",
    "jit": "off",
    "log_min_messages": "fatal",
    "scram_iterations": "4096",
}
_ACCESS: Final = """\
host all careful 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""
_STARTING: Final = 300.0
_PARENT_DEATH_SIGNAL: Final = 1


def programs() -> Path | None:
    """Return the folder of the server's programs, of the newest version."""
    found = shutil.which("postgres")
    if found is not None:
        return Path(found).parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((one.parent for one in folders), default=None, key=lambda one: int(one.parent.name))


@dataclass
class Server:
    """A running server. ``process`` is None for one that a user has named."""

    address: str
    folder: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition("@")[2].partition("/")[0].partition(":")
        return host, int(port or 5432)

    def address_of(self, schema: str, *, via: tuple[str, int] | None = None) -> str:
        """Return the address with ``schema`` as search path, through a proxy if ``via`` is given."""
        address = self.address
        if via is not None:
            host, port = self.host_and_port
            address = address.replace(f"{host}:{port}", f"{via[0]}:{via[1]}")
        return f"{address}?options={quote(f'-csearch_path={schema}')}"

    def kill(self) -> None:
        """End the server as a crash does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        """Start the server in its folder, and wait until it accepts connections.

        Blocks. For the main thread: the server ends with the thread that started it.
        """
        assert self.folder is not None
        assert threading.current_thread() is threading.main_thread()
        deadline = time.monotonic() + _STARTING
        while time.monotonic() < deadline:
            self.process = _started(self.folder, self.host_and_port[1])
            while self.process.poll() is None and time.monotonic() < deadline:
                if _answers(self.address):
                    return
                time.sleep(0.02)
            # The processes of a killed server still hold its memory for a moment.
            time.sleep(0.1)
        log = (self.folder / "log").read_text(errors="replace")
        raise RuntimeError(f"the server does not start: {log[-2000:]}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=_STARTING)


@contextmanager
def running(found: Path) -> Generator[Server]:
    """Create and run a server with the programs in ``found``; remove it at the end."""
    memory = temporary_files.is_suitable(temporary_files.MEMORY)
    # The parent must be open to the user of the server.
    parent = temporary_files.MEMORY if memory else Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix=f"aflow-tests-{os.getpid()}-", dir=parent))
    server = Server(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres", folder)
    try:
        user = _user()
        if user is not None:
            os.chown(folder, user, -1)
        subprocess.run(
            [
                found / "initdb",
                "--no-sync",
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
                folder / "data",
            ],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        (folder / "data" / "pg_hba.conf").write_text(_ACCESS)
        version = int((folder / "data" / "PG_VERSION").read_text())
        with (folder / "data" / "postgresql.conf").open("a") as file:
            for name, value in _SETTINGS.items():
                if name != "scram_iterations" or version >= 16:
                    file.write(f"{name} = '{value}'\n")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> int | None:
    """Return a user without privileges if this process is root's: the server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise RuntimeError("there is no user postgres or nobody to run a server")


def _started(folder: Path, port: int) -> subprocess.Popen[bytes]:
    found = programs()
    assert found is not None
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                found / "postgres",
                "-D",
                folder / "data",
                "-k",
                folder,
                "-p",
                str(port),
                "-h",
                "127.0.0.1",
            ],
            stdout=log,
            stderr=log,
            user=_user(),
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for the tests
            preexec_fn=_end_with_parent,
        )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGQUIT)


def _answers(address: str) -> bool:
    try:
        # In a thread, since a test's event loop may be running in this one.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: run(execute(address, "SELECT 1"))).result()
    except (OSError, asyncpg.PostgresError):
        return False
    return True


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run ``coroutine`` outside of a test's event loop."""
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


async def execute(address: str, *statements: str) -> None:
    """Run ``statements``, each in a transaction of its own."""
    connection: Any = await asyncpg.connect(address)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def fetch(address: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    connection: Any = await asyncpg.connect(address)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *values)]
    finally:
        await connection.close()
