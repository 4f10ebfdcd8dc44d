"""The service in a process of its own, which ends with the one that started it, however that ends.

The child reads its standard input, on which nothing ever comes: it is at its end when the parent has closed it, or is
no more. A Ctrl-C on the terminal does not reach it, for it is in a session of its own: while the pipeline drains, its
calls must still be answered.
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

from aflow.cli.demo.asking.desk import Capacities
from aflow.cli.demo.asking.faults import Faults
from aflow.cli.demo.asking.observed import read_observed
from aflow.cli.demo.asking.service import HOST, Counts, WeatherService, served
from aflow.cli.running import loop_factory
from aflow.errors import SourceError

#: For a process that has nothing to do but close its sockets.
_ENDS_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the service needs to know."""

    weather: str
    """The folder with the observations."""
    faults: Faults
    capacities: Capacities


@dataclass(frozen=True, slots=True)
class Apart:
    """A service that runs in another process."""

    port: int
    process: int
    """Its number."""

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://{HOST}:{self.port}"

    def counts(self) -> Counts:
        """What it has done so far; waits for the answer."""
        with urlopen(f"{self.url}/counts", timeout=_ENDS_WITHIN_S) as answer:
            return msgspec.json.decode(answer.read(), type=Counts)


@contextmanager
def service_apart(settings: Settings) -> Generator[Apart]:
    """Runs the service meanwhile. Raises ``SourceError`` with what it said if it does not start."""
    command = [sys.executable, "-m", __name__, msgspec.json.encode(settings).decode()]
    with (
        TemporaryFile() as said,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = process.stdout.readline()
            if not port:
                process.wait()
                said.seek(0)
                raise SourceError(
                    f"the weather service did not start:\n{said.read().decode(errors='replace')}"
                )
            yield Apart(int(port), process.pid)
        finally:
            process.stdin.close()
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_ENDS_WITHIN_S)
    except BaseException:  # a second Ctrl-C, too
        process.kill()
        raise


async def _serve(settings: Settings) -> None:
    service = WeatherService(
        read_observed(Path(settings.weather)),
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


def main() -> None:
    """Serve as the argument says, until standard input has ended."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    with asyncio.Runner(loop_factory=loop_factory(wanted=True)) as runner:
        runner.run(_serve(settings))


if __name__ == "__main__":
    main()
