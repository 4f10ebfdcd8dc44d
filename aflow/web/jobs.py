"""The jobs of a web application: one, several, or those that a function returns at each request.

The query of a stream on Spark is observed as a job is: it has health and metrics. The page and the API are of jobs in
this process only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias, cast

from aflow.backfill.stream_metrics import ObservedStream
from aflow.errors import FlowDefinitionError, shown
from aflow.runtime.job import Job

_log = logging.getLogger("aflow.web")

Observed: TypeAlias = Job | ObservedStream
"""A job, or the query of a stream on Spark."""

Jobs: TypeAlias = Observed | Sequence[Observed] | Callable[[], Observed | Sequence[Observed]]
"""A job, several jobs, or a function that returns the present ones: for services that replace their jobs."""


class PresentJobs:
    """Returns the jobs by address, which is the name of a job unless a function returns several of that name.

    Services that replace a job have two of one name for a while. A job that has ended then has no address: its
    successor has it. If several have not ended, the further ones are at ``name~2`` and so on, in their order. If all
    have ended, the last one has the address. Raises ``FlowDefinitionError`` for a value that is none of ``Jobs``, and
    for several jobs of one name that no function returns.
    """

    def __init__(self, jobs: Jobs) -> None:
        #: Names that were logged because several jobs have them.
        self._warned: set[str] = set()
        if callable(jobs):
            self._find = jobs
        else:
            _check_names(_checked(jobs))  # raises now instead of at each request
            self._find = lambda: jobs

    def by_address(self) -> dict[str, Job]:
        """Return the present jobs of this process. Raises as ``observed``."""
        return {name: one for name, one in self.observed().items() if isinstance(one, Job)}

    def observed(self) -> dict[str, Observed]:
        """Return the present jobs, and queries of streams. Raises ``FlowDefinitionError`` for a value that is neither,
        and errors of the function."""
        jobs = _checked(self._find())
        names = {job.name for job in jobs}
        if len(names) == len(jobs):
            return {job.name: job for job in jobs}
        found: dict[str, Observed] = {}
        for name in dict.fromkeys(job.name for job in jobs):
            first, *further = _addressed([job for job in jobs if job.name == name])
            found[name] = first
            if further:
                self._warn(name)
            addresses = (f"{name}~{number}" for number in count(2))
            free = (address for address in addresses if address not in names)
            found.update(zip(free, further, strict=False))
        return found

    def _warn(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _log.warning(
                "several jobs are named %r, and have not ended: from the second on, their addresses and metrics have "
                "the names '%s~2' and so on; name their flows differently",
                name,
                name,
            )


def _addressed(jobs: list[Observed]) -> list[Observed]:
    """Return those of ``jobs``, which have one name, that have an address."""
    return [job for job in jobs if not job.status.has_ended] or jobs[-1:]


def _checked(jobs: object) -> list[Observed]:
    """Return the jobs, each once. Raises ``FlowDefinitionError`` for another value."""
    found: dict[Observed, None] = {}
    for job in [jobs] if isinstance(jobs, Observed) else _listed(jobs):
        if not isinstance(job, Observed):
            raise FlowDefinitionError(_refusal(job))
        found[job] = None
    return list(found)


def _check_names(jobs: Sequence[Observed]) -> None:
    names = [job.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise FlowDefinitionError(
                f"two jobs are named {name!r}, and their addresses and metrics would be the same; "
                f"name their flows differently"
            )


def _listed(jobs: object) -> Sequence[object]:
    if isinstance(jobs, Sequence) and not isinstance(jobs, str | bytes):
        return cast("Sequence[object]", jobs)
    raise FlowDefinitionError(_refusal(jobs))


def _refusal(value: object) -> str:
    return (
        f"aflow.web takes a Job, a sequence of jobs or a function that returns them, not {shown(value)}; the query of "
        f"stream() is one, too"
    )
