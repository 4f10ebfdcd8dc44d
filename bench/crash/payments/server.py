"""The service, and the moments at which it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from bench.crash.attempt import ProgramFailed
from bench.crash.cpu import limited

_PROJECT: Final = Path(__file__).parents[3]
#: Seconds between two looks at the folder of checkpoints.
_CHECK_EVERY: Final = 0.001
#: Timeout in seconds of a service that does not reach the moment of its kill. Those in which it waits for a CPU do not
#: count.
_TIMEOUT: Final = 60.0


class Moment(Enum):
    """The event from which the delay of a kill is counted."""

    START = "start of the process"
    SERVING = "first request"
    PART = "a checkpoint begins to be written"
    COMPLETED = "a checkpoint is complete, and its results are being committed"


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill ``delay`` seconds after a moment; for checkpoints, after the ``nth`` of this process."""

    moment: Moment
    delay: float
    nth: int = 1


def random_kill(random: Random) -> Kill:
    """Return a kill at a random moment."""
    moment = random.choice(list(Moment))
    longest = {Moment.START: 0.3, Moment.SERVING: 1.5}.get(moment, 0.03)
    return Kill(moment, random.uniform(0.0, longest), random.randint(1, 6))


class Server:
    """Starts the service in one folder, again and again."""

    def __init__(self, program: asyncio.subprocess.Process, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._pid = 0
        self._starts = 0
        #: Set while the service accepts connections at ``url``.
        self.accepts: Final = asyncio.Event()
        self.url = ""

    @property
    def place(self) -> Path:
        """Folder of the only shard."""
        return self._folder / "data" / "shard-0-of-1"

    async def start_and_kill(self, kill: Kill) -> None:
        """Start the service, and kill it at a moment. Raises ``ProgramFailed`` if it ends by itself, or hangs."""
        try:
            await limited(self._start_until(kill), _TIMEOUT, lambda: self._pid)
        except TimeoutError:
            raise ProgramFailed(f"{kill.moment.value} is not reached:\n{self._errors()}") from None
        await self._end(signal.SIGKILL)

    async def _start_until(self, kill: Kill) -> None:
        await self._start()
        if kill.moment is not Moment.START:
            await self._listen()
            await self._reach(kill)
        await asyncio.sleep(kill.delay)

    async def start(self) -> None:
        """Start the service, and wait until it listens."""
        await self._start()
        await self._listen()

    async def stop(self) -> None:
        """Stop the service as a process manager does."""
        await self._end(signal.SIGTERM)

    async def _start(self) -> None:
        assert self._program.stdin is not None
        self._starts += 1
        self._program.stdin.write(f"{self._folder}/{self._starts:03}.err\n".encode())
        self._pid = int(await self._read("started"))

    async def _listen(self) -> None:
        self.url = (await self._read("listening")).removeprefix("on ")
        self.accepts.set()

    async def _reach(self, kill: Kill) -> None:
        state = self.place / "state"
        pattern = {Moment.PART: "parts/*", Moment.COMPLETED: "checkpoint-*.json"}.get(kill.moment)
        if pattern is None:
            return
        seen = set(state.glob(pattern))
        for _ in range(kill.nth):
            while not (new := set(state.glob(pattern)) - seen):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(_CHECK_EVERY)
            seen |= new

    async def _end(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)
        self.accepts.clear()
        others: list[str] = []
        try:
            status = await limited(self._status(others), _TIMEOUT, lambda: self._pid)
        except TimeoutError:
            raise ProgramFailed(
                f"process {self._pid} does not end after signal {number.name}; its output: {others}\n{self._errors()}"
            ) from None
        if int(status) != -number:
            raise ProgramFailed(f"it ended with {status}:\n{self._errors()}")

    async def _status(self, others: list[str]) -> str:
        """Return the exit status; add the lines before it to ``others``."""
        while not (line := await self._line()).startswith("ended "):
            # One that was killed while it started may have begun to listen.
            others.append(line)
        return line.removeprefix("ended ")

    async def _read(self, word: str) -> str:
        line = await self._line()
        if not line.startswith(f"{word} "):
            raise ProgramFailed(f"{line!r} instead of {word!r}:\n{self._errors()}")
        return line.removeprefix(f"{word} ")

    async def _line(self) -> str:
        assert self._program.stdout is not None
        line = (await self._program.stdout.readline()).decode().strip()
        if not line:
            raise ProgramFailed("the program that starts the service has ended")
        return line

    def _errors(self) -> str:
        path = self._folder / f"{self._starts:03}.err"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


@asynccontextmanager
async def running(folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[Server]:
    """Yield a server for ``folder``, which must exist. ``settings`` are variables of the environment."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.crash.payments.preforked"),
        env={
            **os.environ,
            **settings,
            "FRAUD_FOLDER": str(folder / "data"),
            "PYTHONPATH": os.pathsep.join(
                str(_PROJECT / one) for one in (".", "connectors", "examples")
            ),
        },
        cwd=_PROJECT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Server(program, folder)
    finally:
        os.killpg(program.pid, signal.SIGKILL)  # with a service that runs
        await program.wait()
