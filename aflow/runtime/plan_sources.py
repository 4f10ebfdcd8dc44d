"""The sources of a plan."""

from __future__ import annotations

from typing import Any

from aflow.connect import Source
from aflow.errors import FlowDefinitionError
from aflow.graph.plan import Plan


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
