"""Settings of a run that are not part of the pipeline, with defaults that rarely need a change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from aflow.errors import FlowDefinitionError, shown
from aflow.graph.nodes import Node
from aflow.machines.batch_size import BatchSize
from aflow.machines.turns import Turn
from aflow.model.batch import BATCH_RECORDS, LARGE_BATCH_RECORDS
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, MOST_KEY_GROUPS
from aflow.model.time import positive_millis
from aflow.runtime.channel import DEFAULT_CAPACITY
from aflow.runtime.clock import RuntimeClock, SystemClock, clock_on
from aflow.runtime.samples import RecordSamples
from aflow.runtime.telemetry import Telemetry
from aflow.state.backend_choice import InMemory, OnDisk, StateBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one run. Raises ``FlowDefinitionError`` for invalid values."""

    key_groups: int = DEFAULT_KEY_GROUPS
    """The number of groups into which keys are divided: the largest parallelism that the job's state can ever have."""
    batch_records: int = LARGE_BATCH_RECORDS
    """The most records that a task processes at once: fewer if they take longer than ``loop_budget``, and at most 1,024
    if it has a step with async calls, since records that wait for their calls are in checkpoints."""
    channel_records: int = DEFAULT_CAPACITY
    """The most records that may be queued between two subtasks before the writer is suspended."""
    loop_budget: timedelta = timedelta(milliseconds=2)
    """The time for which the job keeps the event loop before it yields to everything else on it."""
    share: float = 1.0
    """The most of the time that the job may work on the event loop, above 0 to 1: its tasks and calls rest when they
    have taken more, also while nothing else runs. 1: no limit."""
    chaining: bool = True
    """False gives every step a task of its own; slower, for tests and for measuring the load of a single step."""
    state: StateBackend = field(default_factory=InMemory)
    """The store of keyed state: memory, or disk for more state than fits in memory."""
    random: Callable[[], float] = random.random
    """Random numbers from 0 to 1, used for jitter."""
    watchdog: timedelta | None = timedelta(milliseconds=250)
    """The time for which the event loop may be blocked before that is reported with the step and the function: in the
    log while it lasts, and to ``on_event`` after it. Blockages shorter than one and a half times this may be missed.
    None: no watchdog. A loop of virtual time has none either."""
    latency_interval: timedelta | None = timedelta(seconds=1)
    """The least time between two markers that a subtask of a source emits to measure the latency to the sinks; it emits
    them after records only. None: latency is not measured."""
    telemetry: Telemetry | None = None
    """A tool for traces and metrics, such as ``OpenTelemetry()`` of ``aflow.telemetry``. None: no tracing."""
    samples: RecordSamples | None = None
    """Samples of the records that steps emit, for ``Job.samples`` and the page of ``aflow.web``, where all who may read
    see them. Maps and filters in a row then run one by one, which is slower. None: no samples."""
    clock: RuntimeClock = field(default_factory=SystemClock)
    """The clock of processing time: that of the machine by default, or that of the loop on a loop of virtual time."""

    def __post_init__(self) -> None:
        for name in ("key_groups", "batch_records", "channel_records"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise FlowDefinitionError(
                    f"Options.{name} must be a whole number from 1 on, not {shown(value)}"
                )
        if self.key_groups > MOST_KEY_GROUPS:
            raise FlowDefinitionError(
                f"Options.key_groups must be at most {MOST_KEY_GROUPS}, not {self.key_groups}"
            )
        positive_millis(self.loop_budget, what="Options.loop_budget")
        if type(self.share) not in (int, float) or not 0 < self.share <= 1:
            raise FlowDefinitionError(
                f"Options.share must be a number above 0 and at most 1, not {shown(self.share)}"
            )
        if self.watchdog is not None:
            positive_millis(self.watchdog, what="Options.watchdog")
        if self.latency_interval is not None:
            positive_millis(self.latency_interval, what="Options.latency_interval")
        if self.samples is not None and not isinstance(self.samples, RecordSamples):
            raise FlowDefinitionError(
                f"Options.samples takes RecordSamples(…) or None, not {shown(self.samples)}"
            )
        if not isinstance(self.state, InMemory | OnDisk):
            raise FlowDefinitionError(
                f"Options.state takes InMemory() or OnDisk(), not {shown(self.state)}"
            )
        if self.telemetry is not None and not isinstance(self.telemetry, Telemetry):
            raise FlowDefinitionError(
                f"Options.telemetry takes OpenTelemetry() of aflow.telemetry, not {shown(self.telemetry)}"
            )

    def batch_size(self, nodes: Iterable[Node], turn: Turn) -> BatchSize:
        """Return the bound on the batches of a task with the steps ``nodes``, which take one ``turn`` at most."""
        calls = any(node.calls for node in nodes)
        most = min(self.batch_records, BATCH_RECORDS) if calls else self.batch_records
        return BatchSize(most, turn)

    def on(self, loop: asyncio.AbstractEventLoop) -> Options:
        """Return the options for a job on ``loop``, which may have a clock of its own."""
        return replace(self, clock=clock_on(loop, self.clock))
