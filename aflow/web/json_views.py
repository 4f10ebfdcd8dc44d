"""Jobs, graphs, checkpoints and configurations as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from aflow.errors import OperatorError, described, message_of, shown
from aflow.graph.nodes import Node
from aflow.graph.plan import Plan, TaskPlan
from aflow.graph.plan_graph import exchange_type
from aflow.runtime.calls.stacks import raised_at
from aflow.runtime.checkpoints.statistics import CheckpointInfo
from aflow.runtime.job import Job
from aflow.runtime.recovery import JobRestarted, RecoveryOptions, StartFrom, start_from

View: TypeAlias = dict[str, Any]

#: Settings that are objects of the program instead of values.
_NO_SETTINGS: Final = frozenset({"random", "clock", "on_event"})


def job_summary(job: Job, name: str) -> View:
    """Return the entry of ``job`` in the list of jobs; ``name`` is that of its address."""
    return {
        "name": name,
        "status": job.status.value,
        "failure": failure_view(job.failure),
        "restarts": job.metrics().restarts,
    }


def job_view(job: Job, name: str) -> View:
    """Return all about ``job`` but its checkpoints; ``name`` is that of its address."""
    setup = job.setup
    return {
        "name": name,
        "status": job.status.value,
        "failure": failure_view(job.failure),
        "restarts": [restart_view(one) for one in job.restarts],
        "graph": graph_view(setup.plan),
        "metrics": job.metrics(),
        "configuration": configuration_view(job),
    }


def configuration_view(job: Job) -> View:
    """Return the options and the recovery of ``job``."""
    setup = job.setup
    return {"options": settings_view(setup.options), **_recovery_view(setup.recovery)}


def failure_view(failure: BaseException | None) -> View | None:
    """Return an error: its class, text and cause, its place in the code, and for that of a step the record."""
    if failure is None:
        return None
    of_step = failure if isinstance(failure, OperatorError) else None
    origin = failure if failure.__cause__ is None else failure.__cause__
    return {
        "type": type(failure).__name__,
        "message": message_of(failure),
        "step": None if of_step is None else of_step.operator,
        "record": None if of_step is None or of_step.record is None else shown(of_step.record),
        "key": None if of_step is None or of_step.key is None else shown(of_step.key),
        "timestamp": None if of_step is None else of_step.timestamp,
        "cause": None if origin is failure else described(origin),
        "location": raised_at(origin),
        "notes": getattr(failure, "__notes__", []),
    }


def restart_view(restart: JobRestarted) -> View:
    """Return one restart: its number, cause, time (epoch ms) and delay."""
    return {
        "attempt": restart.attempt,
        "failed_at": restart.failed_at,
        "delay_ms": restart.delay_ms,
        "cause": failure_view(restart.cause),
    }


def checkpoint_view(info: CheckpointInfo) -> View:
    """Return one checkpoint with the parts of its subtasks."""
    return {
        "id": info.id,
        "kind": info.kind.value,
        "outcome": info.outcome.value,
        "triggered_at": info.triggered_at,
        "duration_ms": info.duration_ms,
        "bytes": info.bytes,
        "reason": info.reason,
        "path": info.path,
        "subtasks": info.subtasks,
    }


def graph_view(plan: Plan) -> View:
    """Return the tasks, steps and edges of a plan."""
    return {
        "key_groups": plan.key_groups,
        "tasks": [
            {"index": task.index, "name": task.name, "parallelism": task.parallelism}
            for task in plan.tasks
        ],
        "steps": [_step_view(node, task) for task in plan.tasks for node in task.nodes],
        "edges": [
            edge for task in plan.tasks for node in task.nodes for edge in _edges(node, task)
        ],
    }


def _step_view(node: Node, task: TaskPlan) -> View:
    return {
        "name": node.name,
        "kind": node.kind.value,
        "operation": node.what,
        "detail": node.detail,
        "task": task.index,
        "parallelism": task.parallelism,
        "keyed_state": node.stateful,
        "async_calls": node.calls,
    }


def _edges(node: Node, task: TaskPlan) -> Iterator[View]:
    for number, edge in enumerate(node.inputs):
        yield {
            "from": edge.origin.name,
            "to": node.name,
            "side": edge.side,
            "role": node.roles[number] if node.roles else None,
            "exchange": exchange_type(edge),
            "chained": node is not task.head,
        }


def _recovery_view(recovery: RecoveryOptions) -> View:
    begins = start_from(recovery.restore)
    return {
        "checkpointing": settings_view(recovery.checkpointing),
        "restart": settings_view(recovery.restarts),
        "restore": begins.value if isinstance(begins, StartFrom) else begins,
        "allow_dropped_state": recovery.allow_dropped_state,
    }


def settings_view(value: object) -> object:
    """Return settings as plain values: durations in seconds, enums by name, other objects as their classes.

    So are those of other packages, such as a storage of the user, whose fields may be secret.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case timedelta():
            return value.total_seconds()
        case Enum():
            return value.name
        case PurePath():
            return str(value)
        case _ if is_dataclass(value) and _is_own(type(value)):
            named = [one.name for one in fields(value) if one.name not in _NO_SETTINGS]
            return {
                "type": type(value).__name__,
                **{name: settings_view(getattr(value, name)) for name in named},
            }
        case _:
            return type(value).__name__


def _is_own(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "aflow"
