"""Event time of a stream of micro-batches: the watermarks of its epochs.

Theory. A step that assigns timestamps to records of a source has *earned* the newest of them, less ``max_delay`` and
1 ms. A batch is read, stamped and exchanged in one pass, so its own timestamps are unknown while its records are
processed: an epoch ends at the watermarks that the records of the epochs before it have earned, and begins where the
preceding one has ended. Its records are sorted, and time advances with them between these two. So a record is late only
if it is at or before the watermark at the beginning.

Each keyed step has a watermark of its own, combined from its *channels*: the steps upstream that assign timestamps, and
the keyed steps upstream, up to the next exchange. The rule is that of ``WatermarkValve``, the minimum over the channels
that count:

- A channel that is *idle* does not count. A step with ``idle_after`` is idle if no record of its source has arrived for
  longer than that; a keyed step is idle if all its channels are.
- A channel that is active again is *unaligned*, and does not count, until it has reached the watermark of the reader.
- If all channels are idle, the reader advances to the maximum. If some are active and none counts, time stops.

If the rows of a source have splits, such as the partitions of a topic, a step has earned the minimum over the splits
that are not idle, by the rule of ``SplitMultiplexer``: unchanged if all are idle. A split is known from its first
record on.

The watermark of the stream, by which it ends, is the minimum over all channels of the flow that are not idle, also
those that are unaligned: the stream must not end before it has their records. If all are idle, it is the maximum.

An epoch without records advances time to what the last records have earned. Nothing remains to be advanced then.

Nothing about idleness is stored: a driver that starts takes all steps for active, as a restored job does. An epoch that
is repeated after a crash may end at other watermarks than before, but it was not committed then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from aflow.backfill.fragment_planner import before_time
from aflow.backfill.fragments import NEVER, Fragment, FragmentPlan
from aflow.errors import FlowDefinitionError, InternalError
from aflow.graph.nodes import Node
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.event_time import EventTimeOperator

BySplit: TypeAlias = Mapping[str, Mapping[str, Timestamp]]
"""Timestamps (epoch ms) by split, by the step that assigns them."""


@dataclass(frozen=True, slots=True)
class EpochWatermarks:
    """Watermarks (epoch ms) that the records of an epoch meet, and at which it ends."""

    before: Timestamp
    after: Timestamp

    def limited(self, cut: Timestamp) -> EpochWatermarks:
        """Return those of an epoch that does not advance to ``cut`` (epoch ms)."""
        return EpochWatermarks(self.before, max(self.before, min(self.after, cut - 1)))


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of the sources at the beginning of an epoch."""

    idle: frozenset[str] = frozenset()
    """Steps that assign timestamps and are idle."""
    idle_splits: frozenset[tuple[str, str]] = frozenset()
    """Each of these steps with a split that is idle."""
    unaligned: frozenset[tuple[str, str]] = frozenset()
    """Each keyed step with a channel that was idle, is active, and has not reached the watermark of the step."""
    began: Timestamp = 0
    """Beginning of the epoch (ms of a steady clock)."""
    looked: Timestamp = 0
    """Moment (ms of that clock) up to which sources without records in the epoch are known to be silent."""


#: All sources are active.
ACTIVE: Final = Activity()


@dataclass(frozen=True, slots=True)
class StreamWatermarks:
    """Watermarks of an epoch: of the stream, and of each keyed step."""

    stream: EpochWatermarks
    steps: Mapping[str, EpochWatermarks]
    earned: Mapping[str, Timestamp]
    """Watermark (epoch ms) that each step which assigns timestamps had earned before the epoch."""
    activity: Activity = ACTIVE

    @property
    def advance(self) -> bool:
        """True if one of them advances in the epoch."""
        return any(one.after > one.before for one in (self.stream, *self.steps.values()))

    def before(self, cut: Timestamp) -> StreamWatermarks:
        """Return the same watermarks, none of which advances to ``cut`` (epoch ms)."""
        return replace(
            self,
            stream=self.stream.limited(cut),
            steps={step: one.limited(cut) for step, one in self.steps.items()},
        )

    def of(self, fragment: Fragment) -> EpochWatermarks:
        """Return the watermarks of a fragment; one that begins at a source has those of the stream."""
        return self.steps[fragment.head.name] if fragment.keyed else self.stream


@dataclass(frozen=True, slots=True)
class EpochTime:
    """The rule for watermarks of one flow."""

    lags: Mapping[str, int]
    """Distance (ms) of the watermark from the newest timestamp, by the step that assigns timestamps."""
    idle_after: Mapping[str, int] = field(default_factory=dict[str, int])
    """Milliseconds without a record after which a step is idle, for the steps that can be."""
    channels: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Channels of each keyed step, upstream steps first."""
    split_steps: frozenset[str] = frozenset()
    """Steps that assign timestamps to records with splits."""

    @classmethod
    def of(cls, plan: FragmentPlan, split_sources: Collection[str] = ()) -> EpochTime:
        """Return the rule for a flow; ``split_sources`` are the sources whose rows have splits.

        Raises ``FlowDefinitionError`` for steps with other watermarks.
        """
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
        # All steps for one that reads records without event time.
        channels = {
            one.head.name: frozenset(_channels(plan, one)) or frozenset(lags)
            for one in plan.fragments
            if one.keyed
        }
        return cls(lags, idle_after, channels, frozenset(_split_steps(plan, split_sources)))

    def earned(
        self, before: Mapping[str, Timestamp], newest: Mapping[str, Timestamp]
    ) -> dict[str, Timestamp]:
        """Return the watermark that each step has earned, after the newest timestamps of an epoch.

        Steps whose records have splits are left as they are: see ``earned_by_split``.
        """
        earned = dict(before)
        for step, at in newest.items():
            if step in self.lags and step not in self.split_steps:
                earned[step] = max(self._watermark(step, at), earned.get(step, MIN_TIMESTAMP))
        return earned

    def earned_by_split(self, before: BySplit, newest: BySplit) -> dict[str, dict[str, Timestamp]]:
        """Return the watermark that each split has earned, by step, after the newest timestamps of an epoch."""
        earned = {step: dict(before.get(step, {})) for step in self.split_steps}
        for step, splits in earned.items():
            for split, at in newest.get(step, {}).items():
                splits[split] = max(self._watermark(step, at), splits.get(split, MIN_TIMESTAMP))
        return earned

    def over_splits(
        self,
        earned: Mapping[str, Timestamp],
        splits: BySplit,
        idle: Collection[tuple[str, str]] = (),
    ) -> dict[str, Timestamp]:
        """Return what each step has earned, with the minimum over its splits that are not ``idle``."""
        result = dict(earned)
        for step in self.split_steps:
            some = splits.get(step, {}).items()
            active = [at for split, at in some if (step, split) not in idle]
            result[step] = max(min(active, default=MIN_TIMESTAMP), earned.get(step, MIN_TIMESTAMP))
        return result

    def watermarks(
        self,
        before: Timestamp,
        steps: Mapping[str, Timestamp],
        earned: Mapping[str, Timestamp],
        activity: Activity = ACTIVE,
        *,
        splits: BySplit | None = None,
    ) -> StreamWatermarks:
        """Return the watermarks of an epoch that begins at ``before`` and, by keyed step, at ``steps``.

        ``earned`` is what the steps that assign timestamps have earned before it, and ``splits`` what their splits
        have. A keyed step that is new in the flow begins at the minimum of its channels, as in a restored job.
        """
        earned = self.over_splits(earned, splits or {}, activity.idle_splits)
        start = {one: earned.get(one, MIN_TIMESTAMP) for one in self.lags}
        after, idle = dict(start), self._idle_channels(activity.idle)
        marks: dict[str, EpochWatermarks] = {}
        for step, channels in self.channels.items():
            start[step] = steps.get(step, min(start[one] for one in channels))
            unaligned = {one for reader, one in activity.unaligned if reader == step}
            combined = _combined({one: after[one] for one in channels}, idle, unaligned)
            after[step] = max(start[step], combined)
            marks[step] = EpochWatermarks(start[step], after[step])
        whole = _combined(after, idle)
        stream = EpochWatermarks(before, max(before, whole))
        return StreamWatermarks(stream, marks, earned, activity)

    def unaligned(
        self,
        watermarks: StreamWatermarks,
        earned: Mapping[str, Timestamp],
        active: Collection[str],
    ) -> frozenset[tuple[str, str]]:
        """Return each keyed step with an unaligned channel, after an epoch with ``watermarks``.

        ``earned`` includes what its records have earned, and ``active`` are the steps that have assigned timestamps to
        some.
        """
        activity = watermarks.activity
        was_idle = self._idle_channels(activity.idle)
        idle = self._idle_channels(activity.idle.difference(active))
        reached = {**earned, **{step: one.after for step, one in watermarks.steps.items()}}
        return frozenset(
            (step, one)
            for step, channels in self.channels.items()
            for one in channels - idle
            if (one in was_idle or (step, one) in activity.unaligned)
            and reached.get(one, MIN_TIMESTAMP) < watermarks.steps[step].after
        )

    def _watermark(self, step: str, newest: Timestamp) -> Timestamp:
        """Return the watermark that a newest timestamp earns."""
        return max(newest - self.lags[step], MIN_TIMESTAMP)

    def _idle_channels(self, idle: Collection[str]) -> frozenset[str]:
        """Return the channels that are idle if the steps ``idle`` are, which assign timestamps."""
        found = set(idle)
        for step, channels in self.channels.items():
            if channels <= found:
                found.add(step)
        return frozenset(found)


class SourceActivity:
    """Sources of a running stream that are idle, from the moments (ms of a steady clock) at which records arrived.

    Time in epochs does not count, and time between them only as far as the engine is known to have looked for records:
    those that arrive meanwhile wait for the next batch.
    """

    def __init__(self, time: EpochTime, now: Timestamp, splits: BySplit | None = None) -> None:
        """``splits`` are the splits that are known at the start, ``now``."""
        self._time = time
        #: Time without epochs at which the last record arrived, or of the start, by the step that assigns timestamps.
        self._last: Mapping[str, Timestamp] = dict.fromkeys(time.idle_after, now)
        #: The same by step and split.
        self._last_of_splits: Mapping[tuple[str, str], Timestamp] = dict.fromkeys(
            self._with_idleness(splits or {}), now
        )
        #: The same of the last look of the engine.
        self._looked = now
        #: Milliseconds in epochs.
        self._in_epochs = 0
        self._unaligned = frozenset[tuple[str, str]]()

    def at(self, now: Timestamp, looked: Timestamp | None = None) -> Activity:
        """Return the activity for an epoch that begins at ``now``.

        The engine has looked for records at ``looked``, and found none. None: the epoch has those that it found, so
        nothing is known about the time since the last epoch.
        """
        known = self._looked if looked is None else max(self._looked, looked - self._in_epochs)
        after = self._time.idle_after
        idle = frozenset(step for step, last in self._last.items() if known - last > after[step])
        splits = frozenset(
            one for one, last in self._last_of_splits.items() if known - last > after[one[0]]
        )
        return Activity(idle, splits, self._unaligned, now, now if looked is None else looked)

    def on_epoch(
        self,
        watermarks: StreamWatermarks,
        earned: Mapping[str, Timestamp],
        active: Collection[str],
        now: Timestamp,
        *,
        splits: BySplit | None = None,
    ) -> None:
        """Record an epoch that has ended.

        ``earned`` and ``active`` are as for ``EpochTime.unaligned``, and ``splits`` are the splits of its records.
        """
        began = watermarks.activity.began - self._in_epochs
        looked = watermarks.activity.looked - self._in_epochs
        # Another thread may call ``at`` meanwhile.
        self._last = {step: began if step in active else last for step, last in self._last.items()}
        arrived = dict.fromkeys(self._with_idleness(splits or {}), began)
        self._last_of_splits = {**self._last_of_splits, **arrived}
        self._looked = max(self._looked, looked)
        self._in_epochs += now - watermarks.activity.began
        self._unaligned = self._time.unaligned(watermarks, earned, active)

    def _with_idleness(self, splits: BySplit) -> Iterator[tuple[str, str]]:
        for step, some in splits.items():
            if step in self._time.idle_after:
                yield from ((step, split) for split in some)


def _combined(
    channels: Mapping[str, Timestamp], idle: Collection[str], unaligned: Collection[str] = ()
) -> Timestamp:
    """Return the watermark that the channels justify; the least one if they justify none."""
    active = channels.keys() - idle
    if not active:
        return max(channels.values(), default=MIN_TIMESTAMP)
    return min((channels[one] for one in active.difference(unaligned)), default=MIN_TIMESTAMP)


def _channels(plan: FragmentPlan, fragment: Fragment) -> Iterator[str]:
    """Yield the channels of a keyed fragment."""
    for upstream, exit in plan.inputs_of(fragment):
        if upstream.keyed:
            yield upstream.head.name
        else:
            yield from _cuts_upstream(upstream, exit.origin)


def _cuts_upstream(fragment: Fragment, origin: Node) -> Iterator[str]:
    """Yield the steps of a fragment that assign the timestamps of the records of ``origin``."""
    nodes = {node.id: node for node in fragment.nodes}
    pending: list[int] = [origin.id]
    seen: set[int] = set()
    while pending:
        node = nodes.get(
            pending.pop()
        )  # None for a step of another fragment, which has an exit of its own
        if node is None or node.id in seen:
            continue
        seen.add(node.id)
        if node.name in fragment.cuts_at:
            yield node.name
        else:
            pending += [edge.origin.id for edge in node.inputs]


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


def _split_steps(plan: FragmentPlan, sources: Collection[str]) -> Iterator[str]:
    """Yield the steps that assign timestamps to records of ``sources``, whose rows have splits."""
    for fragment in plan.fragments:
        if fragment.keyed or fragment.head.name not in sources:
            continue
        before = before_time(fragment.nodes)
        for node in fragment.nodes:
            operator = None if node.operator is None else node.operator()
            if node.id in before and isinstance(operator, AsyncOperator):
                raise FlowDefinitionError(
                    f"step {node.name!r} of flow {plan.flow!r} mixes the splits of source {fragment.head.name!r}, "
                    f"since its calls end in any order, and each split has a watermark of its own: call event_time(…) "
                    f"upstream of the step, or leave out split="
                )
        yield from fragment.cuts_at
