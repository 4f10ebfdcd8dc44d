"""One run: the files in a folder, the job with its checkpoints, and a report of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import aflow as af
from aflow_connectors.files import JsonLinesSink, JsonLinesSource
from llm_enrichment.model import Spending, connected
from llm_enrichment.pipeline import CLASSIFY, UNREADABLE, Limits, Sinks, build
from llm_enrichment.tickets import DeadTicket, EnrichedTicket, Ticket, UnreadableLine

PROGRESS_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """Settings of a run."""

    tickets: Path
    """A file of JSON lines, or a folder of such files."""
    folder: Path
    """Output and checkpoints. A second run with the same folder continues the first one."""
    url: str
    model: str
    key: str = ""
    limits: Limits = field(default_factory=Limits)
    checkpoint_every: timedelta = timedelta(seconds=5)

    def flow(self, spending: Spending) -> af.Flow:
        return build(
            JsonLinesSource(self.tickets, of=Ticket, dead_letters=UNREADABLE),
            lambda: connected(self.url, self.key, spending),
            Sinks(
                enriched=JsonLinesSink[EnrichedTicket](self.folder / "enriched"),
                dead=JsonLinesSink[DeadTicket](self.folder / "dead"),
                unreadable=JsonLinesSink[UnreadableLine](self.folder / "unreadable"),
            ),
            model=self.model,
            limits=self.limits,
        )


@dataclass(frozen=True)
class Report:
    """The work of this process. An earlier run in the same folder is not counted."""

    enriched: int
    dead: int
    unreadable: int
    calls: af.metrics.CallMetrics
    spending: Spending
    is_complete: bool
    """False if the run was interrupted."""

    def lines(self) -> list[str]:
        calls, spent = self.calls, self.spending
        price = "" if spent.dollars is None else f", ${spent.dollars:.4f}"
        return [
            f"{self.enriched:,} enriched, {self.dead:,} dead letters, {self.unreadable:,} unreadable lines",
            f"{calls.calls:,} calls ({calls.retries:,} retries); "
            f"{calls.cache_hits + calls.merged:,} tickets shared the answer of an equal one",
            f"{spent.prompt_tokens:,} + {spent.answer_tokens:,} tokens of {spent.model!r}{price}",
        ]


async def execute(run: Run) -> Report:
    """Run until all tickets are processed, or SIGINT or SIGTERM. Raises the error that made the job fail."""
    spending = Spending(run.model)
    checkpointing = af.Checkpointing(storage=run.folder / "state", every=run.checkpoint_every)
    flow = run.flow(spending)
    async with flow.start(checkpointing=checkpointing, on_event=_tell) as job:
        watch = asyncio.ensure_future(_watch(job))
        try:
            await job.wait()
        finally:
            watch.cancel()
    return _report(job, spending)


async def _watch(job: af.Job) -> None:
    """Show progress until cancelled. After SIGINT or SIGTERM, end the job so that the next run continues it.

    ``job.stop()`` would make the calls of all tickets that were read. A checkpoint and ``cancel()`` leave them to the
    next run, and the calls in flight, too.
    """
    with _interrupts() as interrupted:
        while not interrupted.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_EVERY_S):
                    await interrupted.wait()
            _show_progress(job)
    try:
        await job.checkpoint()
    except af.JobStopped:
        pass  # it has just ended by itself
    except af.errors.CheckpointError as error:
        print(f"the next run continues from an earlier checkpoint: {error}", flush=True)
    await job.cancel()


def _tell(event: af.JobEvent) -> None:
    if isinstance(event, af.restart.JobRestored):
        print(f"continuing from checkpoint {event.checkpoint}", flush=True)


def _calls(job: af.Job) -> af.metrics.CallMetrics:
    calls = job.metrics().steps[CLASSIFY].calls
    assert calls is not None
    return calls


def _show_progress(job: af.Job) -> None:
    calls, classified = _calls(job), job.metrics().steps[CLASSIFY].records_out
    print(
        f"{classified:,} classified, {calls.in_flight} calls in flight of at most {calls.limit}, "
        f"{calls.retries:,} retries, {calls.dead_letters:,} dead letters",
        flush=True,
    )


@contextmanager
def _interrupts() -> Generator[asyncio.Event]:
    """Set the event at SIGINT and SIGTERM during the block."""
    loop, interrupted = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupted.set)
    try:
        yield interrupted
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _report(job: af.Job, spending: Spending) -> Report:
    steps = job.metrics().steps
    return Report(
        enriched=steps["enriched"].records_in,
        dead=steps["dead"].records_in,
        unreadable=steps["unreadable"].records_in,
        calls=_calls(job),
        spending=spending,
        is_complete=job.status is not af.metrics.JobStatus.CANCELLED,
    )
