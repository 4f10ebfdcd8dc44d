"""From the exception groups of structured concurrency to the one failure that a host wants to see."""

from __future__ import annotations

from typing import cast

from aflow.errors import AflowError


def first_cause(error: BaseException) -> BaseException:
    """The failure to report: the first error of aflow's own in the group, else the first of all.

    Further failures are named in a note, since they are usually consequences of the first.
    """
    leaves = _leaves(error)
    chosen = next((leaf for leaf in leaves if isinstance(leaf, AflowError)), leaves[0])
    others = [leaf for leaf in leaves if leaf is not chosen]
    if others:
        kinds = ", ".join(f"{type(leaf).__name__}: {leaf}" for leaf in others[:3])
        chosen.add_note(f"{len(others)} more failed while the job was being stopped: {kinds}")
    return chosen


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for inner in group.exceptions for leaf in _leaves(inner)]
    return [error]
