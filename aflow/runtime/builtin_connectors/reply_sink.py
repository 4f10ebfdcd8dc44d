"""A sink whose records answer questions of the host."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.model.questions import current_correlation

T = TypeVar("T")


class ReplySink(Sink[T], Generic[T]):
    """Answers ``await job.ask(source, value)`` with the first record that was made of ``value``.

    Records that belong to no question are ignored, so the other records of the source may end here, too. The reply
    precedes the next checkpoint: after a crash, the record may be processed again.
    """

    async def writer(self, context: WriterContext) -> Writer[T]:
        return _ReplyWriter()


class _ReplyWriter(Writer[Any]):
    def write(self, batch: Batch[Any]) -> None:
        correlation = current_correlation()
        if correlation is not None:
            correlation.reply(batch.values[0])
