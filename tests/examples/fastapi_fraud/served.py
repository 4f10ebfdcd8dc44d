"""The service in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def environment(**variables: str) -> dict[str, str]:
    paths = [str(PROJECT / one) for one in (".", "connectors", "examples")]
    patient = {"FRAUD_ASK_SECONDS": "300"}  # a busy machine decides late
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **patient, **variables}


class Served:
    """A process that serves at ``url``."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit status."""
        self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def served(*, what: str = "payments", **variables: str) -> AsyncGenerator[Served]:
    """Start ``python -m fastapi_fraud`` on a free port; it is killed at the end unless it has ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fastapi_fraud", what, "--port", "0"),
        env=environment(**variables),
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on "), line
        yield Served(process, line.split()[-1])
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
