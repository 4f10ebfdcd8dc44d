"""A warning for a job that is never entered: without ``async with``, ``flow.start()`` runs nothing."""

from __future__ import annotations

import warnings


class StartReminder:
    """Warns when it is collected before ``settled`` is true. A job holds one, and both are collected together."""

    __slots__ = ("_flow", "settled")

    def __init__(self, flow: str) -> None:
        self._flow = flow
        #: True once the job is entered, or the host was told that it was not.
        self.settled = False

    def __del__(self) -> None:
        if not self.settled:
            warnings.warn(
                f"the job of flow {self._flow!r} was never started, so nothing ran: start() only makes it; "
                f"use 'async with flow.start() as job:' or 'await flow.run()'",
                RuntimeWarning,
                stacklevel=2,
            )
