"""``embed``: latency of the host's request handlers beside a saturated pipeline on the same event loop.

A web service (uvicorn and Starlette) answers requests of a client in another process, which sends 300 a second whether
answers arrive or not. The service runs alone, beside windows over an endless source, and beside 1,000 calls of 10 ms,
without and with ``Options(share=…)``. A request needs several passes of the event loop, and each pass waits for a turn
of the job.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aflow as af
from bench.events import Event, make_events
from bench.harness import Budget, Measurement, percentile, run_async
from bench.keyed_window import windowed

#: Requests a second.
RATE: Final = 300

#: Seconds of one measurement with the usual number of records.
SECONDS: Final = 4.0

#: The usual number of records.
RECORDS: Final = 100_000

CASES: Final = ("windows", "calls", "shared_calls")

#: ``Options.share`` of the case ``shared_calls``.
SHARE: Final = 0.9

#: At most so many times the latency without a pipeline.
BUDGETS: Final = {"windows": 2.0, "calls": 3.0, "shared_calls": 3.0}


def measure(records: int, rounds: int) -> Measurement:
    """Measure the p99 of the requests, and the records a second of each pipeline with requests and without."""
    seconds = max(0.1, SECONDS * min(1.0, records / RECORDS))
    events = make_events(records)
    gc.freeze()  # a full collection of the events would block the loop for 30 ms
    latencies: dict[str, list[float]] = {name: [] for name in ("alone", *CASES)}
    rates: dict[str, list[float]] = {name: [] for name in CASES}
    quiet: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds):
        latencies["alone"] += run_async(_served("alone", events, seconds))[0]
        for name in CASES:
            times, processed = run_async(_served(name, events, seconds))
            latencies[name] += times
            rates[name].append(processed / seconds)
            quiet[name].append(run_async(_without_host(name, events, seconds)) / seconds)
    p99 = {name: percentile(times, 0.99) * 1000 for name, times in latencies.items()}
    figures: dict[str, float | int | bool] = {
        "records": records,
        "requests": len(latencies["alone"]),
    }
    for name, value in p99.items():
        figures[f"{name}_p99_ms"] = round(value, 2)
    for name in CASES:
        figures[f"{name}_ratio"] = round(p99[name] / p99["alone"], 2)
        figures[f"{name}_share_of_quiet"] = round(sum(rates[name]) / sum(quiet[name]), 3)
        figures[f"{name}_records_per_s"] = round(max(rates[name]))
    return Measurement(
        "embed",
        {**figures, "rounds": rounds, "verified": True},
        [Budget(f"{name}_ratio", at_most=most) for name, most in BUDGETS.items()],
    )


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
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
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


async def _served(name: str, events: list[Event], seconds: float) -> tuple[list[float], int]:
    """Return the latencies (s) of requests beside a case, and the number of records that it has processed."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(_service())
        job = None
        if name != "alone":
            job = await stack.enter_async_context(_start(name, events))
        client = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "bench.embed_client", str(port), str(RATE), str(seconds)],
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None
        try:
            await client.stdout.readline()  # it begins
            before = _records(job)
            output = await client.stdout.readline()
            processed = _records(job) - before
        except BaseException:
            client.kill()
            raise
        finally:
            await client.wait()
        if job is not None:
            await job.cancel()
    latencies: list[float] = json.loads(output or b"[]")
    if len(latencies) != round(RATE * seconds) or (job is not None and not processed):
        raise SystemExit(
            f"embed: {name}: {len(latencies):,} of {round(RATE * seconds):,} requests were answered, and {processed:,} "
            f"records processed; nothing was measured"
        )
    return latencies, processed


async def _without_host(name: str, events: list[Event], seconds: float) -> int:
    async with _start(name, events) as job:
        await asyncio.sleep(min(0.5, seconds))
        before = _records(job)
        await asyncio.sleep(seconds)
        processed = _records(job) - before
        await job.cancel()
    return processed


def _records(job: af.Job | None) -> int:
    return 0 if job is None else job.metrics().steps["events"].records_out
