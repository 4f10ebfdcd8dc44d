"""``embed``: latency of the host's request handlers beside a saturated pipeline on the same event loop.

A web service (uvicorn and Starlette) answers requests of a client in another process, which sends 300 a second whether
answers arrive or not. A case is windows over an endless source, or 1,000 calls of 10 ms, without and with
``Options(share=…)``. A request needs several passes of the event loop, and each pass waits for a turn of the job.

Each round has a pair of short phases for each case, in one process: the service alone, and beside the case. A ratio is
the median of those of the pairs. So a stall of the machine, which is longer than what is measured, changes the pairs
that it meets, and not the result. ``…_waited`` is the share of the time for which the service was ready and waited for
a processor: a number that is not small says that the machine was busy, and a busy service waits more often than an idle
one.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aflow as af
from aflow.runtime.calls.processor_wait import ProcessorWait
from bench.events import Event, make_events
from bench.harness import Budget, Measurement, percentile, run_async
from bench.keyed_window import windowed

#: Requests a second.
RATE: Final = 300

#: Seconds of one phase with the usual number of records.
SECONDS: Final = 2.0

#: The usual number of records.
RECORDS: Final = 100_000

CASES: Final = ("windows", "calls", "shared_calls")

#: ``Options.share`` of the case ``shared_calls``.
SHARE: Final = 0.9

#: At most so many times the latency without a pipeline.
BUDGETS: Final = {"windows": 2.0, "calls": 3.0, "shared_calls": 3.0}

#: Seconds from the start of a job to the first request that is measured, and at most the length of a phase.
_STARTS: Final = 0.5


@dataclass(slots=True)
class _Phase:
    """Measurements of one phase."""

    latencies: list[float]
    """Of all requests (s)."""
    waited: float
    """The share of the time for which the service waited for a processor."""
    records_per_s: float = 0.0
    """Records that the pipeline processed."""

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 0.99)


@dataclass(slots=True)
class _Case:
    """The phases of all rounds of one case."""

    alone: list[_Phase] = field(default_factory=list[_Phase])
    beside: list[_Phase] = field(default_factory=list[_Phase])
    quiet_per_s: list[float] = field(default_factory=list[float])
    """Records that the pipeline processed without requests."""

    def figures(self, name: str) -> dict[str, float]:
        ratios = [beside.p99 / alone.p99 for alone, beside in self.pairs]
        rate = statistics.mean(phase.records_per_s for phase in self.beside)
        return {
            f"{name}_p99_ms": _p99_ms(self.beside),
            f"{name}_alone_p99_ms": _p99_ms(self.alone),
            f"{name}_ratio": round(statistics.median(ratios), 2),
            f"{name}_ratio_least": round(min(ratios), 2),
            f"{name}_ratio_most": round(max(ratios), 2),
            f"{name}_waited": _waited(self.beside),
            f"{name}_share_of_quiet": round(rate / statistics.mean(self.quiet_per_s), 3),
            f"{name}_records_per_s": round(rate),
        }

    @property
    def pairs(self) -> Iterator[tuple[_Phase, _Phase]]:
        return zip(self.alone, self.beside, strict=True)


def measure(records: int, rounds: int) -> Measurement:
    """Measure the p99 of the requests, and the records a second of each pipeline with requests and without."""
    seconds = max(0.1, SECONDS * min(1.0, records / RECORDS))
    events = make_events(records)
    cases = run_async(_measured(events, seconds, rounds))
    alone = [phase for case in cases.values() for phase in case.alone]
    figures: dict[str, float | int | bool | str] = {
        "records": records,
        "requests": sum(len(phase.latencies) for phase in alone),
        "alone_p99_ms": _p99_ms(alone),
        "alone_waited": _waited(alone),
    }
    for name, case in cases.items():
        figures |= case.figures(name)
    return Measurement(
        "embed",
        {**figures, "rounds": rounds, "verified": True},
        [Budget(f"{name}_ratio", at_most=most) for name, most in BUDGETS.items()],
    )


def _p99_ms(phases: list[_Phase]) -> float:
    return round(percentile([one for phase in phases for one in phase.latencies], 0.99) * 1000, 2)


def _waited(phases: list[_Phase]) -> float:
    return round(statistics.mean(phase.waited for phase in phases), 3)


async def _wait(event: Event) -> Event:
    await asyncio.sleep(0.01)
    return event


def _endless(events: list[Event]) -> Iterator[Event]:
    """Yield ``events`` again and again, later each time."""
    last = events[-1]["ts"] + 1
    for turn in itertools.count():
        for event in events:
            yield {**event, "ts": event["ts"] + turn * last}


def _flow(name: str, events: list[Event]) -> af.Flow:
    flow = af.Flow(name)
    source = flow.source(_endless(events), name="events")
    if name == "windows":
        source.pipe(windowed).to(af.CallbackSink(_ignore), name="out")
    else:
        calls = source.map_async(_wait, ordered=False, capacity=1_000, name="call")
        calls.to(af.CallbackSink(_ignore), name="out")
    return flow


def _ignore(_: Any) -> None:
    """Take a result."""


class _Client:
    """Another process that sends requests when it is asked for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._wait = ProcessorWait()

    def close(self) -> None:
        """Let the process end when it has sent all requests."""
        self._wait.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _waited(self) -> float:
        """Return the seconds for which the service has waited for a processor; 0 where they are not counted."""
        return self._wait.seconds() or 0.0

    async def requests(self, seconds: float, job: af.Job | None = None) -> _Phase:
        """Send requests for so long beside ``job``, and return their measurements."""
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        sent.write(f"{seconds}\n".encode())
        begun, waited, records = time.perf_counter(), self._waited(), _records(job)
        output = await received.readline()
        took = time.perf_counter() - begun
        processed = _records(job) - records
        latencies: list[float] = json.loads(output or b"[]")
        if len(latencies) != round(RATE * seconds) or (job is not None and not processed):
            raise SystemExit(
                f"embed: {len(latencies):,} of {round(RATE * seconds):,} requests were answered, and {processed:,} "
                f"records processed; nothing was measured"
            )
        return _Phase(latencies, (self._waited() - waited) / took, processed / took)


@asynccontextmanager
async def _client(port: int) -> AsyncGenerator[_Client]:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "bench.embed_client", str(port), str(RATE)],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    client = _Client(process)
    try:
        yield client
    except BaseException:
        if process.returncode is None:
            process.kill()
        raise
    finally:
        client.close()
        await process.wait()


@asynccontextmanager
async def _service() -> AsyncGenerator[int]:
    """Serve on a free port, which is yielded."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Request) -> JSONResponse:
        return JSONResponse({"page": request.path_params["page"]})

    app = Starlette(routes=[Route("/pages/{page}", answer)])
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            log_level="error",
            lifespan="off",
            timeout_keep_alive=300,  # the client sends nothing between two phases
        )
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def _start(name: str, events: list[Event]) -> af.Job:
    share = SHARE if name == "shared_calls" else 1.0
    return _flow(name, events).start(options=af.Options(share=share))


async def _measured(events: list[Event], seconds: float, rounds: int) -> dict[str, _Case]:
    """Return the measurements of all cases, whose phases alternate."""
    cases = {name: _Case() for name in CASES}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            _client(await stack.enter_async_context(_service()))
        )
        await client.requests(seconds / 2)  # connections are opened
        gc.collect()
        gc.freeze()  # as the guide advises services; the events alone would block the loop for 30 ms
        for turn in range(rounds):
            for name, case in cases.items():
                if turn % 2:
                    await _beside(client, name, case, events, seconds)
                gc.collect()  # what an earlier job left is not charged to this phase
                case.alone.append(await client.requests(seconds))
                if not turn % 2:
                    await _beside(client, name, case, events, seconds)
    return cases


async def _beside(
    client: _Client, name: str, case: _Case, events: list[Event], seconds: float
) -> None:
    """Measure one phase with the pipeline and the client, and a shorter one with the pipeline alone."""
    gc.collect()
    async with _start(name, events) as job:
        await asyncio.sleep(min(_STARTS, seconds))
        case.beside.append(await client.requests(seconds, job))
        begun, records = time.perf_counter(), _records(job)
        await asyncio.sleep(seconds / 2)
        while _records(job) == records and job.running:  # noqa: ASYNC110 - the machine is busy
            await asyncio.sleep(seconds / 10)
        case.quiet_per_s.append((_records(job) - records) / (time.perf_counter() - begun))
        await job.cancel()


def _records(job: af.Job | None) -> int:
    return 0 if job is None else job.metrics().steps["events"].records_out
