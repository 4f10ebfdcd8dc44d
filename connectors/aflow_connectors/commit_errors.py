"""Refusals that the sinks with exactly-once output share.

Errors are returned, so that a type checker sees the ``raise``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from aflow.connect import Committable, SinkError
from aflow.errors import RestoreError, shown

FENCED: Final = "fenced: another job has resumed from a checkpoint of this one and writes now"
"""The reason why a writer of an earlier run that still lives cannot write."""


def foreign_committable(sink: str, committable: Committable) -> RestoreError:
    """Return the error for a committable that a sink of another kind prepared."""
    return RestoreError(
        f"sink {sink!r} cannot commit {shown(committable)}: the checkpoint was taken with another kind of sink under "
        f"this name"
    )


def check_one_owner(sink: str, owners: Collection[Any], *, output: str = "output") -> None:
    """Raise ``RestoreError`` if a checkpoint has output of several ``owners`` (see ``owners.py``).

    ``output`` is the noun for it.
    """
    if len(owners) > 1:
        raise RestoreError(
            f"sink {sink!r} cannot resume: the checkpoint names {output} of several owners, {sorted(owners)}, and one "
            f"sink has one"
        )


def repeated_checkpoint(sink: str, last: int, checkpoint: int) -> SinkError:
    """Return the error for a ``checkpoint`` to prepare that does not follow the ``last`` one."""
    return SinkError(
        f"sink {sink!r}: checkpoint {last} of this sink was written already, and now it gets {checkpoint}; was the "
        f"storage of checkpoints replaced? Start fresh (restore='fresh')"
    )


def uncovered_records(sink: str) -> SinkError:
    """Return the error for an input that has ended without a checkpoint of its last records."""
    return SinkError(
        f"sink {sink!r}: the input has ended, but no checkpoint covers the last records"
    )
