"""The open questions of a job: ``Job.ask``."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from aflow.connect import Source
from aflow.errors import FlowDefinitionError, JobStopped, shown
from aflow.graph.plan import Plan
from aflow.model.questions import Question
from aflow.model.time import Instant, positive_millis
from aflow.runtime.builtin_connectors.reply_sink import ReplySink
from aflow.runtime.plan_ends import sources_of


@runtime_checkable
class Asked(Protocol):
    """A source that takes the record of a question."""

    replayable: bool

    async def send_question(
        self, value: Any, timestamp: Instant | None, question: Question
    ) -> None:
        """Send the record; return when it is accepted."""
        ...


class OpenQuestions:
    """The questions of one job that have no answer yet."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open: set[Question] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def ask(
        self,
        running: asyncio.Task[None],
        source: Source[Any],
        value: Any,
        timestamp: Instant | None,
        timeout: timedelta | None,
    ) -> Any:
        """As ``Job.ask``, of the job that runs in the task ``running``."""
        if running.get_loop() is not asyncio.get_running_loop():
            raise FlowDefinitionError(
                "ask() was called on another event loop than that of the job; from another thread, use "
                "asyncio.run_coroutine_threadsafe(job.ask(source, value), loop)"
            )
        if running.done():
            raise self._ended()
        if not isinstance(source, Asked):
            raise FlowDefinitionError(
                f"ask() takes a PushSource or a DurablePushSource of the job, not {shown(source)}"
            )
        if source not in sources_of(self._plan):
            raise FlowDefinitionError(f"job {self._plan.flow!r} does not read this source")
        if not any(
            isinstance(node.sink, ReplySink) for task in self._plan.tasks for node in task.nodes
        ):
            raise FlowDefinitionError(
                f"flow {self._plan.flow!r} never replies; end a stream with .to(ReplySink())"
            )
        seconds = None if timeout is None else positive_millis(timeout, what="timeout") / 1000
        question = Question(is_kept=source.replayable)
        self._open.add(question)
        try:
            async with asyncio.timeout(seconds):
                await source.send_question(value, timestamp, question)
                return await question.answer
        finally:
            self._open.discard(question)
            if not question.answer.cancel() and not question.answer.cancelled():
                # Retrieved here: the host may have stopped waiting at the moment of a failure.
                question.answer.exception()

    def attempt_failed(self) -> None:
        """Fail the questions whose records the next attempt does not get again."""
        for question in self._open:
            if not question.is_kept:
                question.fail_restarted()

    def job_ended(self) -> None:
        """Fail all questions."""
        for question in self._open:
            question.fail(self._ended())

    def _ended(self) -> JobStopped:
        return JobStopped(f"job {self._plan.flow!r} has ended before it replied")
