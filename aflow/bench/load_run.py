"""One run of a flow under load: ``run`` from Python, and ``aflow bench`` on the command line."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Unpack

from aflow.api.flow import Flow
from aflow.bench.arrivals import ArrivalSchedule, ConstantRate
from aflow.bench.ends import FlowEnds, flow_of
from aflow.bench.findings import findings_of
from aflow.bench.job_observer import JobObserver
from aflow.bench.load_source import LoadSource
from aflow.bench.machine import LoopLag, MachineNoise, ProcessMeter, machine_info, measure_noise
from aflow.bench.oracle import Oracle, check_oracle, check_results
from aflow.bench.record_supply import Records, RecordSupply, SourceLoad
from aflow.bench.recorder import MeasuredSink, RecorderSink, SinkRecord
from aflow.bench.result import BenchError, BenchResult, Finding, LoadSample, Phase, Severity
from aflow.bench.result_builder import RunFacts, build_result
from aflow.bench.sampler import LoadMeters, LoadSampler
from aflow.connect import Sink, Source
from aflow.errors import FlowDefinitionError, described, shown
from aflow.graph.plan import make_plan
from aflow.graph.replaced_ends import with_ends
from aflow.model.time import positive_millis
from aflow.runtime.clock import ClockedLoop
from aflow.runtime.failures import first_cause
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics
from aflow.runtime.options import Options
from aflow.runtime.recovery import StartFrom
from aflow.runtime.start_options import StartOptions, check_start_names, recovery_of

#: The watchdog of a run: it finds shorter blockages than that of a service.
_WATCHDOG: Final = timedelta(milliseconds=25)

#: Markers that the runtime keeps for each source and sink, which should cover the measured part.
_MARKERS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The load of a run, and what is measured. Raises ``FlowDefinitionError`` for invalid values."""

    loads: Mapping[str, SourceLoad]
    """By the name of the source."""
    arrivals: ArrivalSchedule | None
    """Of the sources without a schedule of their own."""
    duration: timedelta
    warmup: timedelta
    in_flight: int | None = None
    keep: Collection[str] = ()
    """Sinks that are not replaced by recorders."""
    patience: timedelta = timedelta(seconds=5)
    """The time after the load in which records that are due are still accepted."""
    drain: timedelta = timedelta(seconds=30)
    """The time after that in which the pipeline must process what it has accepted."""
    sample_every: timedelta = timedelta(seconds=1)
    oracle: Oracle | None = None
    equal: Sequence[tuple[str, str]] = ()
    """Pairs of sinks that must receive equal results, in any order."""

    def __post_init__(self) -> None:
        for name in ("duration", "patience", "drain", "sample_every"):
            positive_millis(getattr(self, name), what=f"{name} of a load")
        if not isinstance(self.warmup, timedelta) or self.warmup < timedelta():
            raise FlowDefinitionError(
                f"warmup of a load is a timedelta from 0 on, not {shown(self.warmup)}"
            )
        check_oracle(self.oracle)
        if self.in_flight is not None:
            if type(self.in_flight) is not int or self.in_flight < 1:
                raise FlowDefinitionError(
                    f"in_flight of a load is a whole number from 1 on, not {shown(self.in_flight)}"
                )
            if self.arrivals is not None or any(one.arrivals for one in self.loads.values()):
                raise FlowDefinitionError(
                    "a load is an open loop with a rate or a schedule, or a closed loop with in_flight=…, not both"
                )
        elif self.arrivals is None:
            for name, load in self.loads.items():
                if load.arrivals is None:
                    raise FlowDefinitionError(
                        f"the load of source {name!r} has no rate; give run() rate=… or arrivals=…, or in_flight=… for "
                        f"a closed loop"
                    )


async def run(
    flow: Flow | Callable[..., Flow],
    sources: Mapping[str, Records | SourceLoad],
    *,
    rate: float | None = None,
    arrivals: ArrivalSchedule | None = None,
    duration: timedelta = timedelta(seconds=30),
    warmup: timedelta | None = None,
    in_flight: int | None = None,
    keep: Collection[str] = (),
    patience: timedelta = timedelta(seconds=5),
    drain: timedelta = timedelta(seconds=30),
    sample_every: timedelta | None = None,
    oracle: Oracle | None = None,
    equal: Sequence[tuple[str, str]] = (),
    on_sample: Callable[[LoadSample], None] | None = None,
    stop: asyncio.Event | None = None,
    **options: Unpack[StartOptions],
) -> BenchResult:
    """Run ``flow`` on the running event loop with other ends, and measure it.

    ``flow`` is a flow, or a function that builds one: its parameters for sources and sinks get placeholders.

    ``sources`` gives the records of each source that is replaced: a function, an iterable, or a ``SourceLoad``. Each
    gets ``rate`` records per second, or the schedule ``arrivals``: an open loop, in which latency counts from the
    intended time of each record. ``in_flight`` is a closed loop instead, with so many records in the pipeline. Sinks
    are replaced by recorders, except those in ``keep``.

    The load lasts for ``warmup`` (a fifth of the duration, at most 5 s, by default), which does not count, and
    ``duration``. After it, records that are due are accepted for ``patience``, and what was accepted is processed
    within ``drain``. ``oracle`` is called with the records of each source and the results of each sink, which are
    kept in memory then, and raises for wrong ones; ``equal`` are pairs of sinks with equal results. ``on_sample`` is
    called with each sample, ``sample_every`` (1 s, or a tenth of the duration if that is less). Setting ``stop`` ends
    the run early.

    Other arguments are those of ``Flow.start``; ``restore`` is ``"fresh"`` by default. The failure of the pipeline is
    in the result, with what was measured until then. Raises ``FlowDefinitionError`` for ends that cannot be replaced
    and invalid values, and ``BenchError`` for a rate that the generator cannot make on this machine.
    """
    check_start_names("run", options)
    options.setdefault("restore", StartFrom.FRESH)
    positive_millis(duration, what="duration of a load")
    settings = LoadSettings(
        loads={
            name: one if isinstance(one, SourceLoad) else SourceLoad(one)
            for name, one in sources.items()
        },
        arrivals=_schedule(rate, arrivals),
        duration=duration,
        warmup=default_warmup(duration) if warmup is None else warmup,
        in_flight=in_flight,
        keep=keep,
        patience=patience,
        drain=drain,
        sample_every=_period(duration) if sample_every is None else sample_every,
        oracle=oracle,
        equal=equal,
    )
    prepared = _LoadRun(flow_of(flow, settings.loads), settings, options, on_sample)
    return await prepared.run(stop or asyncio.Event())


def default_warmup(duration: timedelta) -> timedelta:
    """Return the warm-up before a measured part of ``duration``: a fifth, at most 5 s."""
    return min(timedelta(seconds=5), duration / 5)


def _period(duration: timedelta) -> timedelta:
    return min(timedelta(seconds=1), duration / 10)


def _schedule(rate: float | None, arrivals: ArrivalSchedule | None) -> ArrivalSchedule | None:
    if rate is not None and arrivals is not None:
        raise FlowDefinitionError("run() takes rate=… or arrivals=…, not both")
    return arrivals if rate is None else ConstantRate(rate)


@dataclass(slots=True)
class _Timeline:
    """Moments of a run, in seconds since the start of the load."""

    warmup: float
    end: float
    """The end of the measured part."""
    deadline: float

    def phase(self, seconds: float) -> Phase:
        if seconds <= self.warmup:
            return Phase.WARMUP
        return Phase.MEASURED if seconds <= self.end else Phase.SETTLING


@dataclass(slots=True)
class _Outcome:
    """The end of a run."""

    refused: BaseException | None = None
    """The error for which the job did not start: there is no result."""
    failure: str | None = None
    interrupted: bool = False
    unfinished: str | None = None
    problems: list[str] = field(default_factory=list[str])


class _LoadRun:
    """The parts of one run."""

    def __init__(
        self,
        flow: Flow,
        settings: LoadSettings,
        options: StartOptions,
        on_sample: Callable[[LoadSample], None] | None,
    ) -> None:
        self._flow = flow
        self._settings = settings
        self._on_sample = on_sample
        self._options = options
        self._observer = JobObserver(options.get("on_event"), self._on_job_restarted)
        self._ends = FlowEnds(flow.graph, settings.loads.keys(), settings.keep)
        warmup = settings.warmup.total_seconds()
        end = warmup + settings.duration.total_seconds()
        last = end + settings.patience.total_seconds() + settings.drain.total_seconds()
        self._timeline = _Timeline(warmup, end, last)
        self._check_equal()
        keeps = settings.oracle is not None
        compared = {name for pair in settings.equal for name in pair}
        self._records = {
            node.name: SinkRecord(node.name, number, keeps_values=keeps or node.name in compared)
            for number, (node, _) in enumerate(self._ends.sinks())
        }
        self._loads = [self._load(node.name) for node in self._ends.replaced()]
        self._speeds = {load.name: load.supply.speed() for load in self._loads}
        self._process = ProcessMeter()
        self._lag = LoopLag()
        self._outcome = _Outcome()
        self._sampler: LoadSampler | None = None
        #: True once the sample at the end of the measured part was taken.
        self._measured_to_end = False
        self._metrics = JobMetrics(steps={}, tasks=[])

    def _on_job_restarted(self) -> None:
        for load in self._loads:
            load.on_job_restarted()

    def _check_equal(self) -> None:
        names = {node.name for node, _ in self._ends.sinks()}
        for pair in self._settings.equal:
            for name in pair:
                if name not in names:
                    raise FlowDefinitionError(
                        f"equal names sink {name!r}, and flow {self._flow.name!r} has {', '.join(sorted(names))}"
                    )

    def _load(self, name: str) -> LoadSource:
        settings = self._settings
        node = next(one for one in self._ends.replaced() if one.name == name)
        assert node.source is not None
        load = settings.loads[name]
        supply = RecordSupply(load.records, name, keeps_values=settings.oracle is not None)
        schedule = (
            load.arrivals or settings.arrivals or ConstantRate(1.0)
        )  # of a closed loop: unused
        wanted = node.parallelism or self._options.get("parallelism", 1)
        most = node.source.max_parallelism
        return LoadSource(
            name,
            node.source,
            supply,
            schedule,
            end=self._timeline.end,
            patience=settings.patience.total_seconds(),
            in_flight=settings.in_flight,
            traced_rate=self._ends.traced_rate(node),
            timestamps=load.timestamps,
            splits=wanted if most is None else min(wanted, most),
        )

    def _new_job(self) -> Job:
        records, keep = self._records, self._settings.keep
        sinks: dict[str, Sink[Any]] = {
            node.name: MeasuredSink(sink, records[node.name])
            if node.name in keep
            else RecorderSink(records[node.name])
            for node, sink in self._ends.sinks()
        }
        loads: dict[str, Source[Any]] = {load.name: load for load in self._loads}
        graph = with_ends(self._flow.graph, loads, sinks)
        chosen = self._options.get("options") or Options()
        millis = int(self._settings.duration.total_seconds() * 1000 / _MARKERS)
        interval = timedelta(milliseconds=max(20, millis))
        watchdog = chosen.watchdog
        chosen = replace(
            chosen,
            latency_interval=interval,
            watchdog=None if watchdog is None else min(watchdog, _WATCHDOG),
        )
        plan = make_plan(
            graph,
            parallelism=self._options.get("parallelism", 1),
            key_groups=chosen.key_groups,
            chaining=chosen.chaining,
        )
        options = StartOptions(**self._options)
        options["on_event"] = self._observer.on_event
        return Job(plan, chosen, recovery_of(options))

    def check_rates(self) -> None:
        """Raise ``BenchError`` if a generator alone cannot make its records at the rate."""
        for load in self._loads:
            wanted = load.highest_rate
            speed = self._speeds[load.name]
            if wanted > speed:
                raise BenchError(
                    f"this machine cannot measure {wanted:,.0f} records per second: the generator of source "
                    f"{load.name!r} alone makes {speed:,.0f}; lower the rate, or make records ahead: a list is repeated"
                )

    async def run(self, stop: asyncio.Event) -> BenchResult:
        """Run, and return the result of whatever was measured."""
        if self._settings.in_flight is None:
            self.check_rates()
        loop = asyncio.get_running_loop()
        virtual = isinstance(loop, ClockedLoop)
        idle = MachineNoise(0.0, 0.0, 0.0) if virtual else await measure_noise()
        started = datetime.now(UTC)
        job = self._new_job()
        with self._process.watching():
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._stop_loads(stop))]
                if not virtual:
                    helpers.append(group.create_task(self._lag.watch()))
                try:
                    await self._run_job(job, group)
                finally:
                    for one in helpers:
                        one.cancel()
        if self._outcome.refused is not None:
            raise self._outcome.refused
        return self._result(started, idle)

    async def _stop_loads(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._outcome.interrupted = True
        for load in self._loads:
            load.stop()

    async def _run_job(self, job: Job, group: asyncio.TaskGroup) -> None:
        entered = False
        try:
            async with job:
                entered = True
                clock = job.setup.options.on(asyncio.get_running_loop()).clock
                sampler = self._begin(job, clock.steady)
                for load in self._loads:
                    load.begin(clock.steady(), clock.steady, clock)
                sampling = group.create_task(self._sample(sampler, clock.steady))
                try:
                    await self._until_end(job)
                finally:
                    sampling.cancel()
                    sampler.take(self._last_phase(clock.steady() - self._loads[0].origin))
        except Exception as exc:
            cause = first_cause(exc)
            if entered:
                self._outcome.failure = described(cause)
            else:
                self._outcome.refused = cause
        self._metrics = job.metrics()

    def _last_phase(self, seconds: float) -> Phase:
        """Return the phase of the last sample: a job may end before the timer of the end of the measured part."""
        if self._measured_to_end:
            return Phase.SETTLING
        phase = self._timeline.phase(seconds)
        return Phase.MEASURED if phase is Phase.SETTLING else phase

    def _begin(self, job: Job, steady: Callable[[], float]) -> LoadSampler:
        """Start the clocks of all parts, and return the sampler."""
        origin = steady()
        for record in self._records.values():
            record.steady = steady
            record.counted_from = origin + self._timeline.warmup
        instruments = LoadMeters(
            job.metrics,
            steady,
            self._loads,
            list(self._records.values()),
            self._process,
            self._lag,
        )
        self._sampler = LoadSampler(instruments, origin)
        return self._sampler

    async def _until_end(self, job: Job) -> None:
        """Wait until the job has processed the load. Cancel it at the deadline."""
        seconds = self._timeline.deadline
        try:
            async with asyncio.timeout(seconds):
                loaded = {load.name for load in self._loads}
                others = any(
                    node.source is not None and node.name not in loaded for node in self._flow.graph
                )
                if others:
                    await self._until_loaded(job)
                    await job.stop()
                else:
                    await job.wait()
        except TimeoutError:
            self._outcome.unfinished = job.unfinished_work()
            await job.cancel()

    async def _until_loaded(self, job: Job) -> None:
        """Wait until all loads have ended, or the job has."""
        async with asyncio.TaskGroup() as group:
            waiting: asyncio.Task[Any] = group.create_task(job.wait())
            ending: list[asyncio.Task[Any]] = [
                group.create_task(load.finished.wait()) for load in self._loads
            ]
            while ending and not waiting.done():
                done, _ = await asyncio.wait(
                    [waiting, *ending], return_when=asyncio.FIRST_COMPLETED
                )
                ending = [one for one in ending if one not in done]
            for one in (waiting, *ending):
                one.cancel()

    async def _sample(self, sampler: LoadSampler, steady: Callable[[], float]) -> None:
        """Take samples until cancelled, one of them at each end of a phase."""
        timeline = self._timeline
        every = self._settings.sample_every.total_seconds()
        origin = self._loads[0].origin
        if not timeline.warmup:
            self._count()
        due = 0.0
        while True:
            before = due
            # A loop that was blocked for several periods gets one sample of them.
            late = max(0.0, steady() - origin - before)
            due += every * (math.floor(late / every) + 1)
            for end in (timeline.warmup, timeline.end):
                if before < end < due:
                    due = end
            await asyncio.sleep(max(0.0, origin + due - steady()))
            sample = sampler.take(timeline.phase(due))
            self._measured_to_end |= due >= timeline.end
            if due == timeline.warmup:
                self._count()
            if self._on_sample is not None:
                self._on_sample(sample)

    def _count(self) -> None:
        """Begin the measured part."""
        self._observer.counted = self._lag.counted = True
        self._process.restart()
        for load in self._loads:
            load.restart_figures()

    def _result(self, started: datetime, idle: MachineNoise) -> BenchResult:
        outcome = self._outcome
        if outcome.failure is None and outcome.unfinished is None:
            outcome.problems += check_results(
                self._settings.oracle, self._settings.equal, self._loads, self._records
            )
        facts = RunFacts(
            flow=self._flow.name,
            started=started,
            machine=machine_info(),
            noise=self._process.noise(idle),
            warmup=self._timeline.warmup,
            end=self._timeline.end,
            in_flight=self._settings.in_flight,
            loads=self._loads,
            speeds=self._speeds,
            records=list(self._records.values()),
            kept=self._settings.keep,
            sampler=self._sampler,
            metrics=self._metrics,
            observer=self._observer,
            process=self._process,
            lag=self._lag,
            failure=outcome.failure,
            interrupted=outcome.interrupted,
        )
        result = build_result(facts)
        early = [load.name for load in self._loads if load.supply.ended]
        found = findings_of(result, outcome.unfinished, early)
        wrong = [Finding(severity=Severity.ERROR, text=one) for one in outcome.problems]
        return replace(result, findings=[*wrong, *found])
