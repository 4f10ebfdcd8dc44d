"""Pipelines under test in virtual time: run to their end, or driven step by step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Any, Unpack

from aflow.api.flow import Flow
from aflow.errors import FlowDefinitionError, JobStopped
from aflow.model.time import Instant
from aflow.runtime.builtin_connectors.push_source import PushSource
from aflow.runtime.clock import SystemClock
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics
from aflow.runtime.options import Options
from aflow.runtime.start_options import StartOptions
from aflow.testing import virtual_time


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowResult:
    """Metrics and duration of a run that succeeded."""

    metrics: JobMetrics
    took: timedelta
    """In virtual time."""


def run_flow(
    flow: Flow,
    *,
    seed: int | None = None,
    start: Instant = 0,
    patience: timedelta = timedelta(seconds=30),
    **options: Unpack[StartOptions],
) -> FlowResult:
    """Run a flow to its end in virtual time, on an event loop of its own; pauses and timers take no real time.

    ``seed``, ``start`` and ``patience`` are those of ``VirtualTimeLoop``: another seed is another interleaving of the
    tasks, and other numbers from ``Options.random``. The other arguments are those of ``Flow.run``.
    Raises what makes the job fail, and ``NothingCanHappen`` instead of waiting for ever.
    """

    async def main() -> FlowResult:
        loop = asyncio.get_running_loop()
        options["options"] = _on_virtual_time(options.get("options"), seed)
        async with flow.start(**options) as job:
            await job.wait()
        return FlowResult(metrics=job.metrics(), took=timedelta(seconds=loop.time()))

    return virtual_time.run(main, seed=seed, start=start, patience=patience)


class FlowDriver:
    """A running flow to which a test sends records, advances time and reads results.

    ``async with FlowDriver(flow) as driver:`` inside a test in virtual time; the test sends to ``PushSource`` objects
    of the flow. ``send``, ``settle``, ``advance`` and ``end`` raise the job's failure if it has failed (once, as
    ``Job.wait`` does). The end of the block stops the job if it still runs, as that of a ``Job`` does.
    """

    def __init__(self, flow: Flow, **options: Unpack[StartOptions]) -> None:
        """``options`` are the arguments of ``Flow.start``."""
        options["options"] = _on_virtual_time(options.get("options"))
        self._sources = {
            node.name: node.source for node in flow.graph if isinstance(node.source, PushSource)
        }
        #: The job that runs.
        self.job: Job = flow.start(**options)

    async def __aenter__(self) -> FlowDriver:
        await self.job.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.job.__aexit__(kind, error, trace)

    @property
    def metrics(self) -> JobMetrics:
        """The metrics of the job so far."""
        return self.job.metrics()

    async def send(
        self, value: object, timestamp: Instant | None = None, *, to: str | None = None
    ) -> None:
        """Send a record to the ``PushSource`` named ``to``, or to the only one. It may not be processed yet.

        Waits while the source is full; virtual time may pass meanwhile.
        """
        source = self._source(to)
        try:
            await source.send(value, timestamp)
        except JobStopped:
            await self.settle()  # raises the error of a job that failed
            raise

    async def settle(self) -> None:
        """Wait until the job has done all work that needs no time to pass."""
        await virtual_time.settle()
        await self._raise_failure()

    async def advance(self, duration: timedelta) -> None:
        """Let exactly ``duration`` of virtual time pass, then ``settle``."""
        await virtual_time.advance(duration)
        await self.settle()

    async def end(self) -> None:
        """Close all ``PushSource`` objects and wait until the job has ended, as at the end of a bounded input."""
        for source in self._sources.values():
            source.close()
        await self.job.wait()

    async def _raise_failure(self) -> None:
        if not self.job.running:
            await self.job.wait()

    def _source(self, name: str | None) -> PushSource[Any]:
        known = ", ".join(map(repr, self._sources)) or "none"
        if name is None:
            if len(self._sources) != 1:
                raise FlowDefinitionError(
                    f"send() needs to=… unless there is exactly one PushSource; this flow has: {known}"
                )
            return next(iter(self._sources.values()))
        if name not in self._sources:
            raise FlowDefinitionError(f"no PushSource is named {name!r}; this flow has: {known}")
        return self._sources[name]


def _on_virtual_time(options: Options | None, seed: int | None = None) -> Options:
    chosen = options or Options()
    if not isinstance(chosen.clock, SystemClock):
        raise FlowDefinitionError(
            f"the test kit runs the flow on virtual time, so Options.clock cannot be a {type(chosen.clock).__name__}; "
            f"leave it out"
        )
    return replace(chosen, clock=virtual_time.VirtualClock(), random=Random(seed or 0).random)
