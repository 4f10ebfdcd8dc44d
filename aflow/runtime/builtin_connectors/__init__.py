"""Sources and sinks for data of the process that runs the pipeline: iterables, pushed records, lists, callbacks.

Connectors to files, databases and other systems are packages of their own, under ``connectors/``. Read
``iterable_source`` first; ``push_source`` and ``result_sink`` connect a running program with a pipeline;
``durable_push`` does so without losing a record.
"""

from aflow.runtime.builtin_connectors.async_iterable_source import AsyncIterableSource
from aflow.runtime.builtin_connectors.callback_sink import CallbackSink
from aflow.runtime.builtin_connectors.collect_sink import CollectSink
from aflow.runtime.builtin_connectors.discard_sink import DiscardSink
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Ack
from aflow.runtime.builtin_connectors.durable_push.source import DurablePushSource
from aflow.runtime.builtin_connectors.iterable_source import IterableSource
from aflow.runtime.builtin_connectors.push_source import PushSource
from aflow.runtime.builtin_connectors.reply_sink import ReplySink
from aflow.runtime.builtin_connectors.result_sink import Results, ResultSink
from aflow.runtime.builtin_connectors.thread_source import ThreadSource

__all__ = [
    "Ack",
    "AsyncIterableSource",
    "CallbackSink",
    "CollectSink",
    "DiscardSink",
    "DurablePushSource",
    "IterableSource",
    "PushSource",
    "ReplySink",
    "ResultSink",
    "Results",
    "ThreadSource",
]
