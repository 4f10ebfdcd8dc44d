"""The ends that come with aflow: where a pipeline begins and ends inside the process that runs it."""

from aflow.runtime.builtin_connectors.async_iterable_source import AsyncIterableSource
from aflow.runtime.builtin_connectors.callback_sink import CallbackSink
from aflow.runtime.builtin_connectors.collect_sink import CollectSink
from aflow.runtime.builtin_connectors.iterable_source import IterableSource
from aflow.runtime.builtin_connectors.push_source import PushSource
from aflow.runtime.builtin_connectors.result_sink import Results, ResultSink
from aflow.runtime.builtin_connectors.thread_source import ThreadSource

__all__ = [
    "AsyncIterableSource",
    "CallbackSink",
    "CollectSink",
    "IterableSource",
    "PushSource",
    "ResultSink",
    "Results",
    "ThreadSource",
]
