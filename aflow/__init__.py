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

import warnings
from typing import TYPE_CHECKING, Any

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
from aflow.api.flow import Flow
from aflow.api.keyed import KeyedStream
from aflow.api.stream import Stream
from aflow.api.windowed import WindowedStream
from aflow.api.windows import Count, Global, Session, Sliding, Tumbling
from aflow.connect import Sink, Source
from aflow.errors import (
    AflowError,
    CheckpointError,
    FlowDefinitionError,
    JobStopped,
    OperatorError,
    RestoreError,
)
from aflow.machines.calls.retry import Retry
from aflow.model.codecs import Pickled
from aflow.model.distribution import VERSION
from aflow.model.resource import Resource
from aflow.model.tags import Tag
from aflow.model.time import TimeDomain
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.broadcast_process import BroadcastContext, BroadcastProcess, ControlContext
from aflow.operators.calls.async_process import AsyncContext, AsyncKeyedProcess, FiredTimer
from aflow.operators.context import Context, ProcessContext
from aflow.operators.keyed_function import CoProcess, KeyedProcess
from aflow.operators.process import ProcessFunction
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.runtime.builtin_connectors import (
    Ack,
    AsyncIterableSource,
    CallbackSink,
    CollectSink,
    DiscardSink,
    DurablePushSource,
    IterableSource,
    PushSource,
    ReplySink,
    ResultSink,
    ThreadSource,
)
from aflow.runtime.checkpoints.settings import Checkpointing
from aflow.runtime.job import Job
from aflow.runtime.options import Options
from aflow.runtime.recovery import JobEvent
from aflow.state.aggregate import Aggregate
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
    "Ack",
    "AflowError",
    "Aggregate",
    "AggregatingState",
    "AsyncContext",
    "AsyncIterableSource",
    "AsyncKeyedProcess",
    "BroadcastCell",
    "BroadcastContext",
    "BroadcastProcess",
    "BroadcastState",
    "BroadcastView",
    "CallbackSink",
    "CheckpointError",
    "Checkpointing",
    "CoProcess",
    "CollectSink",
    "Context",
    "ControlContext",
    "Count",
    "DiscardSink",
    "DurablePushSource",
    "FiredTimer",
    "Flow",
    "FlowDefinitionError",
    "Global",
    "IterableSource",
    "Job",
    "JobEvent",
    "JobStopped",
    "KeyedProcess",
    "KeyedStream",
    "ListState",
    "MapState",
    "OperatorError",
    "Options",
    "Pickled",
    "ProcessContext",
    "ProcessFunction",
    "PushSource",
    "ReducingState",
    "ReplySink",
    "Resource",
    "RestoreError",
    "ResultSink",
    "Retry",
    "Session",
    "Sink",
    "Sliding",
    "Source",
    "Stream",
    "Tag",
    "ThreadSource",
    "TimeDomain",
    "TimeWindow",
    "TtlOn",
    "Tumbling",
    "ValueState",
    "WindowContext",
    "WindowFunction",
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

#: Groups all of whose names were in this module before.
_MOVED_GROUPS = (
    backends,
    calls,
    checkpoints,
    errors,
    metrics,
    restart,
    streams,
    watermarks,
    windows,
)
#: Names that were in this module before, of groups that have others.
_MOVED_NAMES = {
    "BadRecord": connect,
    "Delivery": connect,
    "Evictor": evictors,
    "Trigger": triggers,
}

if not TYPE_CHECKING:  # for type checkers a moved or misspelt name is an error

    def __getattr__(name: str) -> Any:
        """Return a name that has moved to a group, with a ``DeprecationWarning`` that tells its place."""
        groups = (group for group in _MOVED_GROUPS if name in group.__all__)
        group = _MOVED_NAMES.get(name) or next(groups, None)
        if group is None:
            raise AttributeError(f"module 'aflow' has no attribute {name!r}")
        place = f"{group.__name__}.{name}"
        warnings.warn(f"aflow.{name} is {place} now", DeprecationWarning, stacklevel=2)
        return getattr(group, name)
