"""The interface of an adaptive limit: how many calls may run at once, learned from how the service answers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Limiter(Protocol):
    """A limit of the calls of one subtask. ``Adaptive`` has one; write your own and pass ``Adaptive(limiter=…)``.

    A limiter is called from the event loop only. It must be quick: ``ended`` is called for each attempt. If a member
    raises, or ``limit`` is no ``int`` of at least 1, the job fails with an ``OperatorError`` that names the limiter.
    """

    @property
    def limit(self) -> int:
        """The number of calls that may run now, at least 1.

        The step keeps it between ``least`` and ``most`` of ``Adaptive``.
        """
        ...

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        """A call ended at ``now`` after ``latency`` (seconds of a steady clock); ``in_flight`` ran, including it.

        ``ok`` is False if it failed with one of the errors ``on`` of ``Adaptive``. Calls that were cancelled, or failed
        with other errors, are not reported.
        """
        ...
