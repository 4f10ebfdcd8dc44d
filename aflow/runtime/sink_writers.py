"""Writers of sinks: opened and closed for an attempt, and recovered from a checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aflow.connect import Writer, WriterContext
from aflow.errors import SinkError, described
from aflow.graph.plan import Plan
from aflow.runtime.cancellation import user_code
from aflow.runtime.checkpoints.restoration import Restoration
from aflow.runtime.close_limit import close_in_time


async def recover_sinks(plan: Plan, restoration: Restoration | None) -> None:
    """Let all sinks of a job with checkpoints commit what was prepared, and remove output written after that."""
    for task in plan.tasks:
        for node in task.nodes:
            if node.sink is not None:
                prepared = [] if restoration is None else restoration.committables(node.name)
                with user_code(partial(_failed, node.name, "recover from the checkpoint")):
                    await node.sink.recover(node.name, prepared)


async def open_writers(
    plan: Plan, closers: list[Callable[[], Awaitable[None]]], *, checkpoints: bool
) -> dict[int, list[Writer[Any]]]:
    """Open a writer for each subtask of each sink. Its closer is added to ``closers``, even if a later one fails."""
    writers: dict[int, list[Writer[Any]]] = {}
    for task in plan.tasks:
        for node in task.nodes:
            if node.sink is None:
                continue
            writers[node.id] = []
            for subtask in range(task.parallelism):
                context = WriterContext(
                    node.name,
                    subtask=subtask,
                    parallelism=task.parallelism,
                    checkpoints=checkpoints,
                )
                with user_code(partial(_failed, node.name, "be opened")):
                    writer = await node.sink.writer(context)
                closers.append(partial(close_in_time, partial(_close_writer, node.name, writer)))
                writers[node.id].append(writer)
    return writers


async def _close_writer(name: str, writer: Writer[Any]) -> None:
    with user_code(partial(_failed, name, "be closed")):
        await writer.close()


def _failed(name: str, what: str, cause: BaseException) -> SinkError:
    return SinkError(f"sink {name!r} could not {what}: {described(cause)}")
