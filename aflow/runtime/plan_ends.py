"""The ends of a plan that the job handles as a whole: its sources, and the sinks whose results the host takes."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from aflow.connect import Source
from aflow.errors import FlowDefinitionError
from aflow.graph.plan import Plan
from aflow.runtime.builtin_connectors.result_sink import ResultSink
from aflow.runtime.failures import first_cause


def sources_of(plan: Plan) -> list[Source[Any]]:
    """Return the sources, each once: two steps may read the same object."""
    sources = (task.head.source for task in plan.tasks)
    return list({id(one): one for one in sources if one is not None}.values())


def check_without_checkpoints(plan: Plan) -> None:
    """Raise ``FlowDefinitionError`` if a source needs checkpoints, in a job that takes none."""
    for task in plan.tasks:
        source = task.head.source
        if source is not None and source.needs_checkpoints:
            raise FlowDefinitionError(
                f"source {task.head.name!r} is a {type(source).__name__}, which releases its records when a checkpoint "
                f"covers them; start the flow with checkpointing=Checkpointing(storage=…)"
            )


def result_sinks(plan: Plan) -> Iterator[ResultSink[Any]]:
    """Yield the sinks whose results the host takes."""
    for task in plan.tasks:
        for node in task.nodes:
            if isinstance(node.sink, ResultSink):
                yield node.sink


def keep_results(plan: Plan) -> None:
    """Let the iterations over results continue after failures of the job, which is restarted."""
    for sink in result_sinks(plan):
        sink.outlive_failures()


def release_results(plan: Plan) -> None:
    """Let the job end although its results are not taken any more."""
    for sink in result_sinks(plan):
        sink.release()


def fail_results(
    plan: Plan,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Pass a failure to iterators over results before the writers are closed."""
    if error is None:
        return
    for sink in result_sinks(plan):
        sink.fail(first_cause(error))
