"""Samples of the records between steps, for people who watch a job. Off unless ``Options.samples`` asks for them.

A sample is taken by one more reader of the output of a step, which only exists in a job that takes samples: in any
other job this costs nothing. It looks at the first record of a batch, and at no more than one batch in each interval.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from aflow.errors import FlowDefinitionError, shown
from aflow.graph.nodes import Node
from aflow.model.batch import Batch
from aflow.model.elements import Marker
from aflow.model.time import Timestamp, positive_millis
from aflow.operators.base import RAISED
from aflow.runtime.clock import RuntimeClock

#: Limits of the settings.
_MOST_KEPT: Final = 100
_MOST_CHARACTERS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSamples:
    """Settings for samples of the records that steps emit. Raises ``FlowDefinitionError`` for invalid values."""

    every: timedelta = timedelta(seconds=1)
    """The least time between two samples of one output of a step."""
    kept: int = 5
    """The number of latest samples that are kept for each output; 1 to 100."""
    characters: int = 200
    """The most characters of the text of a record; 1 to 10,000."""
    redact: Callable[[str, Any], Any] | None = None
    """Called with the name of the step and each sampled record, on the event loop; its result is shown in place of the
    record. It must not change the record. If it raises, the sample has the class of the error as its text."""

    def __post_init__(self) -> None:
        positive_millis(self.every, what="RecordSamples.every")
        for name, most in (("kept", _MOST_KEPT), ("characters", _MOST_CHARACTERS)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise FlowDefinitionError(
                    f"RecordSamples.{name} must be a whole number from 1 to {most:,}, not {shown(value)}"
                )
        if self.redact is not None and not callable(self.redact):
            raise FlowDefinitionError(
                f"RecordSamples.redact takes a function of the step and the record, not {shown(self.redact)}"
            )
        if inspect.iscoroutinefunction(self.redact):
            raise FlowDefinitionError(
                f"RecordSamples.redact takes a plain function, and {shown(self.redact)} is a coroutine function"
            )

    def text_of(self, step: str, record: object) -> str:
        """Return the text for a record that ``step`` has emitted. Raises nothing."""
        try:
            value = record if self.redact is None else self.redact(step, record)
        except RAISED as exc:  # without its text, which may contain the record
            return self._cut(f"<redact failed: {type(exc).__name__}>")
        try:
            text = repr(value)
        except RAISED as exc:
            return self._cut(f"<repr failed: {type(exc).__name__}>")
        return self._cut(text)

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.characters else f"{text[: self.characters - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSample:
    """A record that a step has emitted."""

    step: str
    side: str | None
    """The side output; None for the main output."""
    taken_at: Timestamp
    """Epoch ms."""
    timestamp: Timestamp | None
    """The event time of the record (epoch ms); None before event time is assigned."""
    text: str
    """Its ``repr``, or that of the result of ``RecordSamples.redact``, cut to ``RecordSamples.characters``."""


class OutputSamples:
    """The samples of one output of a step, of all its subtasks: a reader that only looks at records."""

    def __init__(
        self, settings: RecordSamples, clock: RuntimeClock, step: str, side: str | None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._step = step
        self._side = side
        self._interval = settings.every.total_seconds()
        #: Steady time (s) before which no sample is taken.
        self._next = -math.inf
        self.latest = deque[RecordSample](maxlen=settings.kept)

    def emit(self, batch: Batch[Any]) -> None:
        """Take a sample of the first record if one is due."""
        steady = self._clock.steady()
        if steady < self._next:
            return
        self._next = steady + self._interval
        self.latest.append(
            RecordSample(
                step=self._step,
                side=self._side,
                taken_at=self._clock.now(),
                timestamp=None if batch.timestamps is None else batch.timestamps[0],
                text=self._settings.text_of(self._step, batch.values[0]),
            )
        )

    def watermark(self, timestamp: Timestamp) -> None:
        """Do nothing, as for all elements that are no records."""

    def idle(self) -> None: ...

    def active(self) -> None: ...

    def marker(self, marker: Marker) -> None: ...

    def side(self, tag: str, batch: Batch[Any]) -> None: ...


class JobSamples:
    """The samples of one attempt to run a job; none without settings."""

    def __init__(self, settings: RecordSamples | None, clock: RuntimeClock) -> None:
        self._settings = settings
        self._clock = clock
        #: By the id of the step, and the side output; None for the main output.
        self._outputs: dict[tuple[int, str | None], OutputSamples] = {}

    @property
    def wanted(self) -> bool:
        """True if samples are taken."""
        return self._settings is not None

    def readers(
        self, node: Node, sides: Iterable[str | None]
    ) -> list[tuple[OutputSamples, str | None]]:
        """Return a further reader for each output in ``sides`` of a step, None being the main one."""
        if self._settings is None:
            return []
        made: list[tuple[OutputSamples, str | None]] = []
        for side in dict.fromkeys(sides):
            output = self._outputs.get((node.id, side))
            if output is None:
                output = OutputSamples(self._settings, self._clock, node.name, side)
                self._outputs[node.id, side] = output
            made.append((output, side))
        return made

    def latest(self) -> Sequence[RecordSample]:
        """Return the samples of all outputs in the order of the steps, those of one output oldest first."""
        ordered = sorted(self._outputs.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        return [sample for _, output in ordered for sample in output.latest]
