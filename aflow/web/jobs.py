"""The jobs of a web application: one, several, or those that a function returns at each request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from aflow.errors import FlowDefinitionError, shown
from aflow.runtime.job import Job

Jobs: TypeAlias = Job | Sequence[Job] | Callable[[], Job | Sequence[Job]]
"""A job, several jobs, or a function that returns the present ones: for services that replace their jobs."""


class PresentJobs:
    """Returns the jobs by name. Raises ``FlowDefinitionError`` for a value that is none of ``Jobs``."""

    def __init__(self, jobs: Jobs) -> None:
        if callable(jobs):
            self._find = jobs
        else:
            _by_name(jobs)  # raises now instead of at each request
            self._find = lambda: jobs

    def by_name(self) -> dict[str, Job]:
        """Return the present jobs. Raises ``FlowDefinitionError`` if two have one name, and errors of the function."""
        return _by_name(self._find())


def _by_name(jobs: object) -> dict[str, Job]:
    found: dict[str, Job] = {}
    for job in [jobs] if isinstance(jobs, Job) else _listed(jobs):
        if not isinstance(job, Job):
            raise FlowDefinitionError(_refusal(job))
        if job.name in found:
            raise FlowDefinitionError(
                f"two jobs are named {job.name!r}, and their addresses and metrics would be the same; "
                f"name their flows differently"
            )
        found[job.name] = job
    return found


def _listed(jobs: object) -> Sequence[object]:
    if isinstance(jobs, Sequence) and not isinstance(jobs, str | bytes):
        return cast("Sequence[object]", jobs)
    raise FlowDefinitionError(_refusal(jobs))


def _refusal(value: object) -> str:
    return f"aflow.web takes a Job, a sequence of jobs or a function that returns them, not {shown(value)}"
