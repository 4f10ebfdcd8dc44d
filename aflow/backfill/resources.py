"""Resources of the calls of a fragment, opened once and used by any number of partitions."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from aflow.backfill.fragments import Fragment
from aflow.graph.plan import Plan, TaskPlan
from aflow.model.key_groups import DEFAULT_KEY_GROUPS
from aflow.runtime.calls.reports import CallReport, Reports
from aflow.runtime.calls.resources import OpenResources
from aflow.runtime.clock import SystemClock


class FragmentResources:
    """One resource for each step of ``fragment`` that needs one, for any number of partitions."""

    def __init__(self, fragment: Fragment, flow: str) -> None:
        self.needed: bool = any(node.resource is not None for node in fragment.nodes)
        task = TaskPlan(0, fragment.nodes, 1, ())
        reports = Reports(flow, _noop, SystemClock().now)
        self._open = OpenResources(Plan(flow, (task,), DEFAULT_KEY_GROUPS), reports)

    def open(self) -> AbstractAsyncContextManager[None]:
        """Open all of them, and close them after the block. Raises ``OperatorError`` if that fails."""
        return self._open.open()

    async def watch(self) -> None:
        """Wait until one fails by itself, which raises ``OperatorError``; return at once if there are none."""
        await self._open.watch()

    def of(self, node: int, subtask: int) -> object:
        """Return the opened resource of the step; None if it has none."""
        return self._open.of(node, 0)


def _noop(report: CallReport) -> None:
    """Ignore the report, which ``Reports`` has logged."""
