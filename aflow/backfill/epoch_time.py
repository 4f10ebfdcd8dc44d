"""Event time of a stream of micro-batches: the watermarks of its epochs.

Theory. The watermark of a source is that which the live job would have: the newest timestamp of its records, less
``max_delay`` and 1 ms. That of the stream is the least of all steps that assign timestamps to records of a source, and
never goes back. A batch is read, stamped and exchanged in one pass, so its own timestamps are unknown while its records
are processed: an epoch ends at the watermark that the records of the epochs before it have earned, and begins where the
preceding one has ended. Its records are sorted, and time advances with them between these two. So a record is late only
if it is older than the watermark at the beginning: never here and not in a live job to which the batches arrive one
after the other, though some that are late there are not late here.

An epoch without records advances time to what the last records have earned. Nothing remains to be advanced then.

A step with ``idle_after`` is *idle* while no record of its source has arrived for that long, by the driver's clock. It
does not hold back the others then; if all are idle, time stands still, as in the ``SplitMultiplexer`` of a live job.
Nothing of this is stored: a driver that starts takes all steps for active, as a restored job does. An epoch that is
repeated after a crash may end at another watermark than before, but it was not committed then.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aflow.backfill.fragments import NEVER, FragmentPlan
from aflow.errors import FlowDefinitionError, InternalError
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.event_time import EventTimeOperator


@dataclass(frozen=True, slots=True)
class EpochWatermarks:
    """Watermarks (epoch ms) that the records of an epoch meet, and at which it ends."""

    before: Timestamp
    after: Timestamp


@dataclass(frozen=True, slots=True)
class EpochTime:
    """The rule for watermarks of one flow."""

    lags: Mapping[str, int]
    """Distance (ms) of the watermark from the newest timestamp, by the step that assigns timestamps."""
    idle_after: Mapping[str, int] = field(default_factory=dict[str, int])
    """Milliseconds without a record after which a step is idle, for the steps that can be."""

    @classmethod
    def of(cls, plan: FragmentPlan) -> EpochTime:
        """Return the rule for a flow. Raises ``FlowDefinitionError`` for steps with other watermarks."""
        if not plan.cuts:
            raise FlowDefinitionError(
                f"flow {plan.flow!r} has no event_time(…), and a stream of micro-batches needs event time: call it on "
                f"the records of each source"
            )
        for fragment in plan.fragments:
            if fragment.keyed and fragment.end_margin >= NEVER:
                raise FlowDefinitionError(
                    f"step {fragment.head.name!r} of flow {plan.flow!r} is downstream of a second event_time(…), whose "
                    f"timestamps may be any, so no epoch could advance its watermark; assign timestamps once"
                )
        lags: dict[str, int] = {}
        idle_after: dict[str, int] = {}
        for name, operator in _event_times(plan):
            lags[name] = _lag(plan, name, operator)
            if operator.advances_when_idle:
                raise FlowDefinitionError(
                    f"step {name!r} of flow {plan.flow!r} has advance_when_idle=True, and in a stream of micro-batches "
                    f"only records advance event time: leave it out"
                )
            if operator.idle_after is not None:
                idle_after[name] = operator.idle_after
        return cls(lags, idle_after)

    def earned(
        self, before: Mapping[str, Timestamp], newest: Mapping[str, Timestamp]
    ) -> dict[str, Timestamp]:
        """Return the watermark that each step has earned, after the newest timestamps of an epoch."""
        earned = dict(before)
        for step, at in newest.items():
            if step in self.lags:
                watermark = max(at - self.lags[step], MIN_TIMESTAMP)
                earned[step] = max(watermark, earned.get(step, MIN_TIMESTAMP))
        return earned

    def after(
        self, watermark: Timestamp, earned: Mapping[str, Timestamp], idle: Container[str] = ()
    ) -> Timestamp:
        """Return the watermark at the end of an epoch that begins at ``watermark``.

        ``earned`` is what the steps have earned before it, and ``idle`` are the steps that do not hold time back.
        """
        active = (earned.get(step, MIN_TIMESTAMP) for step in self.lags if step not in idle)
        return max(watermark, min(active, default=MIN_TIMESTAMP))


class SourceActivity:
    """The steps of a stream that are idle, from the moments (epoch ms) at which their records arrived."""

    def __init__(self, time: EpochTime, now: Timestamp) -> None:
        self._idle_after = time.idle_after
        #: Moment of the last record, or of the start, by the step that assigns timestamps.
        self._last = dict.fromkeys(time.idle_after, now)

    def observe(self, steps: Iterable[str], now: Timestamp) -> None:
        """Record that ``steps`` have assigned timestamps."""
        self._last.update(dict.fromkeys(self._last.keys() & set(steps), now))

    def idle(self, now: Timestamp) -> frozenset[str]:
        """Return the steps that are idle."""
        return frozenset(
            step for step, last in self._last.items() if now - last >= self._idle_after[step]
        )


def _event_times(plan: FragmentPlan) -> Iterator[tuple[str, EventTimeOperator]]:
    for name, fragment in plan.cuts.items():
        node = next(one for one in fragment.nodes if one.name == name)
        operator = None if node.operator is None else node.operator()
        if not isinstance(operator, EventTimeOperator):
            raise InternalError(f"step {name!r} is a {type(operator).__name__}")
        yield name, operator


def _lag(plan: FragmentPlan, name: str, operator: EventTimeOperator) -> int:
    if operator.lag is None:
        raise FlowDefinitionError(
            f"step {name!r} of flow {plan.flow!r} has watermarks of its own or of its source, and a stream of "
            f"micro-batches has those of max_delay: .event_time(…, max_delay=…)"
        )
    return operator.lag
