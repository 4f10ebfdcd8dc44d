"""The ends that come with aflow: where a pipeline begins and ends inside the process that runs it."""

from aflow.runtime.ends.async_iterable_source import AsyncIterableSource
from aflow.runtime.ends.callback_sink import CallbackSink
from aflow.runtime.ends.collect_sink import CollectSink
from aflow.runtime.ends.iterable_source import IterableSource
from aflow.runtime.ends.push_source import PushSource
from aflow.runtime.ends.result_sink import Results, ResultSink
from aflow.runtime.ends.thread_source import ThreadSource

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
