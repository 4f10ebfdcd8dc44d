"""The jobs in whose tasks the present code runs: inherited by all tasks of a job, and by tasks that its code creates.

It answers two questions: would a call on a job wait for its own caller, and is something used by two jobs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from aflow.errors import FlowDefinitionError


class RunningJob(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def running(self) -> bool: ...


#: The innermost job is last: code of one job may run another.
_RUNNING: ContextVar[tuple[RunningJob, ...]] = ContextVar("aflow_running", default=())


def enter_job(job: RunningJob) -> None:
    """Let the current task, and all tasks that it creates from now on, belong to ``job``."""
    _RUNNING.set((*_RUNNING.get(), job))


def is_inside(job: RunningJob) -> bool:
    """Return True in a task of ``job``, or in one that was created in such a task."""
    return any(one is job for one in _RUNNING.get())


def current_job() -> RunningJob | None:
    """Return the job in whose tasks the present code runs; None outside of any."""
    running = _RUNNING.get()
    return running[-1] if running else None


@contextmanager
def inside_of(job: RunningJob) -> Generator[None]:
    """Let calls on ``job`` in the block count as those of its own code: ``stop`` does not wait for its end."""
    token = _RUNNING.set((*_RUNNING.get(), job))
    try:
        yield
    finally:
        _RUNNING.reset(token)


@contextmanager
def outside_of_jobs() -> Generator[None]:
    """Let tasks that are created in the block belong to no job."""
    token = _RUNNING.set(())
    try:
        yield
    finally:
        _RUNNING.reset(token)


def refuse_inside(job: RunningJob, what: str) -> None:
    """Raise ``FlowDefinitionError`` in the tasks of ``job``, for which the call ``what`` on it would wait."""
    if job.running and is_inside(job):
        raise FlowDefinitionError(
            f"{what} of job {job.name!r} was called from within its pipeline (a step, a source or a sink, or a task "
            f"created by one of them), and would wait for its own caller: call it from the program that has "
            f"started the job, which an asyncio.Event can wake"
        )
