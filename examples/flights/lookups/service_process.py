"""The weather service in a process of its own, which ends with the process that started it.

The child reads its standard input, which stays empty: it ends when the parent closes it or dies. A Ctrl-C on the
terminal does not reach the child, which is in a session of its own: it has to answer while the pipeline drains.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final
from urllib.request import urlopen

import msgspec

import aflow as af
from flights.lookups.capacity import Capacities
from flights.lookups.faults import Faults
from flights.lookups.service import HOST, Counts, WeatherService, read_observations, served

#: Timeout of a request of the counts, and of the end of the child, which has only sockets to close.
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the service."""

    weather: str
    """Folder of the observations."""
    faults: Faults
    capacities: Capacities


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A service that runs in another process."""

    port: int
    process: int
    """Process id."""

    @property
    def url(self) -> str:
        """Base URL of the service."""
        return f"http://{HOST}:{self.port}"

    def counts(self) -> Counts:
        """Request the counts of the service. Blocks."""
        with urlopen(f"{self.url}/counts", timeout=_TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(), type=Counts)


@contextmanager
def service_process(settings: Settings) -> Generator[ServiceProcess]:
    """Run the service during the block. Raises ``SourceError`` with its output if it does not start."""
    command = [sys.executable, "-m", __name__, msgspec.json.encode(settings).decode()]
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline()
            if not port:
                process.wait()
                errors.seek(0)
                raise af.errors.SourceError(
                    f"the weather service did not start:\n{errors.read().decode(errors='replace')}"
                )
            yield ServiceProcess(int(port), process.pid)
        finally:
            process.stdin.close()
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_TIMEOUT_S)
    except BaseException:  # a second Ctrl-C, too
        process.kill()
        raise


async def _serve(settings: Settings) -> None:
    service = WeatherService(
        read_observations(Path(settings.weather)),
        faults=settings.faults,
        capacities=settings.capacities,
    )
    async with served(service.application()) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await _end_of_input()


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        await reader.read()
    finally:
        transport.close()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1], type=Settings)))
