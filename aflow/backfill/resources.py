"""What the calls of a fragment need, opened for as long as the process likes, and used by any number of partitions."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from aflow.backfill.fragments import Fragment
from aflow.graph.plan import Plan, TaskPlan
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.runtime.calls.reporting import CallReport, Reports
from aflow.runtime.calls.resources import OpenResources


class FragmentResources:
    """The resources of the steps of ``fragment``, one each, whatever the number of partitions."""

    def __init__(self, fragment: Fragment, flow: str) -> None:
        self.needed: bool = any(node.resource is not None for node in fragment.nodes)
        task = TaskPlan(0, fragment.nodes, 1, ())
        self._open = OpenResources(
            Plan(flow, (task,), DEFAULT_KEY_GROUPS), Reports(flow, _told_in_the_log)
        )

    def open(self) -> AbstractAsyncContextManager[None]:
        """Open all of them, and close them behind the block. Raises ``OperatorError`` for what fails in that."""
        return self._open.open()

    async def watch(self) -> None:
        """Wait for one to end by itself, which raises ``OperatorError``; returns at once if there are none."""
        await self._open.watch()

    def of(self, node: int, subtask: int) -> object:
        """What was opened for the step; None if it has no resource."""
        return self._open.of(node, 0)


def _told_in_the_log(report: CallReport) -> None:
    """``Reports`` has logged it, and here nobody else follows."""
