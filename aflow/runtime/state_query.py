"""Reads of keyed state by the host while the job runs.

All tasks run on the loop of the job, and a task changes state without an await. So a read by the host is between two
batches of each task, or between two pieces of a long firing. It sees one key of one subtask, and no state of other
steps at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from aflow.errors import FlowDefinitionError, JobStopped, shown
from aflow.graph.plan import Plan
from aflow.model.key_groups import key_group
from aflow.model.keys import UnsupportedKey
from aflow.operators.base import Operator
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.operators.keyed_function import KeyedFunctionOperator
from aflow.runtime.job_status import JobStatus
from aflow.runtime.task import StreamTask


class StateReader:
    """Reads one state of one step, by key. Valid over restarts of the job; created by ``Job.state``."""

    def __init__(
        self,
        plan: Plan,
        step: str,
        name: str | None,
        running: Callable[[], tuple[JobStatus, Iterable[StreamTask]]],
    ) -> None:
        """``running`` returns the status of the job, and its tasks. ``name`` None is the only state of the step.

        Raises ``FlowDefinitionError`` for a step that the flow does not have.
        """
        steps = [node.name for task in plan.tasks for node in task.nodes]
        if step not in steps:
            raise FlowDefinitionError(
                f"flow {plan.flow!r} has no step {shown(step)}; its steps are {', '.join(map(repr, steps))}"
            )
        self._plan = plan
        self._step = step
        self._name = name
        self._running = running

    async def get(self, key: Hashable) -> Any:
        """Return the value of ``key`` now; None if there is none. A list or map is a copy, an aggregate its result.

        Raises ``FlowDefinitionError`` for a key that no record can have, a step without state that can be read, and an
        unknown name; ``JobStopped`` while the job does not run.
        """
        try:
            group = key_group(key, self._plan.key_groups)
        except UnsupportedKey as exc:
            raise FlowDefinitionError(f"{shown(key)} is the key of no record: {exc}") from exc
        for operator in self._operators():
            if group in operator.context.key_groups:
                return self._read(operator, key)
        raise JobStopped(f"no subtask of step {self._step!r} has key {shown(key)} now; try again")

    def _operators(self) -> list[Operator]:
        status, tasks = self._running()
        if status not in (JobStatus.RUNNING, JobStatus.DRAINING):
            raise JobStopped(
                f"job {self._plan.flow!r} is {status.value}, so it has no state to read"
            )
        return [
            operator
            for task in tasks
            for operator in task.chain.operators
            if operator.name == self._step
        ]

    def _read(self, operator: Operator, key: Hashable) -> object:
        if not isinstance(operator, KeyedAccumulateOperator | KeyedFunctionOperator):
            raise FlowDefinitionError(
                f"step {self._step!r} has no state that can be read; after key_by, reduce, fold, aggregate and process "
                f"have"
            )
        names = operator.state_names
        name = self._name
        if name is None:
            if len(names) != 1:
                raise FlowDefinitionError(
                    f"step {self._step!r} has the states {', '.join(map(repr, names)) or 'none'}; name one of them: "
                    f"job.state({self._step!r}, name)"
                )
            (name,) = names
        return operator.read_state(name, key)
