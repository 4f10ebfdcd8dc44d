"""The setup of a job: all that it was created from."""

from __future__ import annotations

from dataclasses import dataclass

from aflow.graph.plan import Plan
from aflow.runtime.options import Options
from aflow.runtime.recovery import RecoveryOptions


@dataclass(frozen=True, slots=True)
class JobSetup:
    """The plan of a job, its options and its recovery; for tools that show a job, and not changed by its run."""

    plan: Plan
    options: Options
    recovery: RecoveryOptions
