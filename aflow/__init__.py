"""aflow: an asyncio-native reactive stream processor.

A pipeline is described by a ``Flow`` and its streams, and runs on the event loop of any Python program::

    import asyncio, aflow as af

    flow, doubled = af.Flow("double"), af.CollectSink[int]()
    flow.source([1, 2, 3]).map(lambda n: n * 2).to(doubled)
    asyncio.run(flow.run())

This is the front door: the names that most pipelines need are here, others in groups, such as ``af.aggregates``,
``af.calls``, ``af.triggers`` and ``af.checkpoints`` (see docs/decisions/035). ``aflow.connect`` is for authors of
connectors, ``aflow.testing`` for tests. Read ``api/flow.py`` and ``api/stream.py`` first, then ``runtime/job.py``.
"""

from aflow import (
    aggregates,
    backends,
    calls,
    checkpoints,
    connect,
    errors,
    evictors,
    metrics,
    restart,
    streams,
    triggers,
    watermarks,
    windows,
)
from aflow.api.connected import BroadcastConnectedStreams, ConnectedStreams, JoinResults
from aflow.api.flow import Flow
from aflow.api.joins import AsOfJoinedStreams, JoinedStreams
from aflow.api.keyed import KeyedStream
from aflow.api.stream import Stream
from aflow.api.windowed import WindowedStream, WindowResults
from aflow.api.windows import Count, DynamicSession, Global, Session, Sliding, Tumbling
from aflow.connect import BadRecord, Delivery, Sink, Source
from aflow.errors import (
    AflowError,
    CheckpointError,
    ConnectorError,
    FlowDefinitionError,
    InternalError,
    JobStopped,
    MailboxClosed,
    OperatorError,
    RestoreError,
    SinkError,
    SourceError,
    SourceFull,
)
from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.breaker import CircuitBreaker, CircuitOpen
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.on_error import DeadLetter, Drop, Fail, FailedCall, Fallback
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Attempt, Retry, RetryPolicy
from aflow.machines.watermarks.generators import (
    BoundedOutOfOrderness,
    Monotonic,
    Periodic,
    Punctuated,
    WatermarkGenerator,
)
from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.evictor import Evictor
from aflow.machines.windows.stagger import WindowStagger
from aflow.machines.windows.trigger import Trigger
from aflow.model.codecs import Pickled
from aflow.model.distribution import VERSION
from aflow.model.resource import Resource
from aflow.model.tags import Tag
from aflow.model.time import TimeDomain
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow, Windowed
from aflow.operators.alignment import Alignment
from aflow.operators.broadcast_context import BroadcastContext, ControlContext
from aflow.operators.broadcast_process import BroadcastProcess
from aflow.operators.calls.async_process import AsyncContext, AsyncKeyedProcess, FiredTimer
from aflow.operators.co_process import CoProcess
from aflow.operators.context import Context, ProcessContext
from aflow.operators.keyed_process import KeyedProcess
from aflow.operators.process import ProcessFunction
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.runtime.builtin_connectors import (
    AsyncIterableSource,
    CallbackSink,
    CollectSink,
    IterableSource,
    PushSource,
    Results,
    ResultSink,
    ThreadSource,
)
from aflow.runtime.calls.options import CallOptions
from aflow.runtime.calls.reporting import CallAbandoned, CodeLocation, LoopBlocked
from aflow.runtime.checkpoints.settings import (
    Aligned,
    Checkpointing,
    ProcessingGuarantee,
    Unaligned,
)
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome, SubtaskCheckpoint
from aflow.runtime.job import Job
from aflow.runtime.metrics import (
    BlockedMetrics,
    CallMetrics,
    CheckpointMetrics,
    JobMetrics,
    StepMetrics,
    TaskMetrics,
)
from aflow.runtime.options import Options
from aflow.runtime.recovery import JobEvent, JobRestarted, JobRestored, StartFrom
from aflow.runtime.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from aflow.state.aggregate import Aggregate
from aflow.state.backend_choice import DiskEngine, InMemory, OnDisk
from aflow.state.broadcast import BroadcastCell, BroadcastState, BroadcastView
from aflow.state.specs import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    TtlOn,
    ValueState,
)

__version__ = VERSION

__all__ = [
    "GLOBAL_WINDOW",
    "Adaptive",
    "AflowError",
    "Aggregate",
    "AggregatingState",
    "Aligned",
    "Alignment",
    "AsOfJoinedStreams",
    "AsyncContext",
    "AsyncIterableSource",
    "AsyncKeyedProcess",
    "Attempt",
    "BadRecord",
    "BlockedMetrics",
    "BoundedOutOfOrderness",
    "BroadcastCell",
    "BroadcastConnectedStreams",
    "BroadcastContext",
    "BroadcastProcess",
    "BroadcastState",
    "BroadcastView",
    "Cache",
    "CallAbandoned",
    "CallMetrics",
    "CallOptions",
    "CallbackSink",
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointMetrics",
    "Checkpointing",
    "CircuitBreaker",
    "CircuitOpen",
    "CoProcess",
    "CodeLocation",
    "CollectSink",
    "ConnectedStreams",
    "ConnectorError",
    "Context",
    "ControlContext",
    "Count",
    "DeadLetter",
    "Delivery",
    "DiskEngine",
    "Drop",
    "DynamicSession",
    "Evictor",
    "ExponentialDelay",
    "Fail",
    "FailedCall",
    "FailureRate",
    "Fallback",
    "FiredTimer",
    "FixedDelay",
    "Flow",
    "FlowDefinitionError",
    "Global",
    "InMemory",
    "InternalError",
    "IterableSource",
    "Job",
    "JobEvent",
    "JobMetrics",
    "JobRestarted",
    "JobRestored",
    "JobStopped",
    "JoinResults",
    "JoinedStreams",
    "KeyedProcess",
    "KeyedStream",
    "ListState",
    "LoopBlocked",
    "MailboxClosed",
    "MapState",
    "Monotonic",
    "NoRestart",
    "OnDisk",
    "OperatorError",
    "Options",
    "Outcome",
    "Periodic",
    "Pickled",
    "ProcessContext",
    "ProcessFunction",
    "ProcessingGuarantee",
    "Punctuated",
    "PushSource",
    "RateLimit",
    "ReducingState",
    "Resource",
    "RestoreError",
    "ResultSink",
    "Results",
    "Retry",
    "RetryPolicy",
    "Session",
    "Sink",
    "SinkError",
    "Sliding",
    "Source",
    "SourceError",
    "SourceFull",
    "StartFrom",
    "StepMetrics",
    "Stream",
    "SubtaskCheckpoint",
    "Tag",
    "TaskMetrics",
    "ThreadSource",
    "TimeDomain",
    "TimeWindow",
    "Trigger",
    "TtlOn",
    "Tumbling",
    "Unaligned",
    "ValueState",
    "WatermarkGenerator",
    "WindowAssigner",
    "WindowContext",
    "WindowFunction",
    "WindowResults",
    "WindowStagger",
    "Windowed",
    "WindowedStream",
    "aggregates",
    "backends",
    "calls",
    "checkpoints",
    "connect",
    "errors",
    "evictors",
    "metrics",
    "restart",
    "streams",
    "triggers",
    "watermarks",
    "windows",
]
