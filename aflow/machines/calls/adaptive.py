"""The settings of an adaptive limit: its bounds, and the limiter that implements it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.calls.adaptive_limiter import AdaptiveLimiter
from aflow.machines.calls.limiter import Limiter
from aflow.machines.calls.retry import Errors, check_errors

#: The first limit, unless the user sets one.
_START: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Limit the concurrent calls of each subtask to what the service can take, by the CUBIC algorithm.

    The limit grows while latency stays what it is without a queue. It decreases when calls queue at the service, are
    refused, or time out. It starts at ``start`` calls (None: 10, or the nearest number within the bounds) and stays
    between ``least`` and ``most``. ``on`` selects the errors that mean overload; leave out those that depend on the
    record. A share of failures up to a half that does not depend on the limit is tolerated. Each attempt counts.

    The limit changes about every two round trips, and at least 16 calls apart. Expect latency of about 1.1 to 1.3 times
    that without load, and a few refused calls in a hundred. ``limiter`` creates a ``Limiter`` of your own for each
    subtask, in place of this algorithm; it gets these settings. Raises ``FlowDefinitionError``.
    """

    start: int | None = None
    least: int = 1
    most: int = 1000
    on: Errors = Exception
    limiter: Callable[[Adaptive], Limiter] | None = None

    def __post_init__(self) -> None:
        start = () if self.start is None else (("start", self.start),)
        for what, number in (*start, ("least", self.least), ("most", self.most)):
            if type(number) is not int or number < 1:
                raise FlowDefinitionError(
                    f"Adaptive.{what} must be a whole number of calls from 1 on, not {shown(number)}"
                )
        if self.least > self.most:
            raise FlowDefinitionError(
                f"Adaptive.least is {self.least} and so more than Adaptive.most, {self.most}; exchange them"
            )
        if not self.least <= _first_limit(self) <= self.most:
            raise FlowDefinitionError(
                f"Adaptive begins with {self.start} calls at once, which is not between the {self.least} and the "
                f"{self.most} that it may make; give start, least and most that fit together"
            )
        check_errors(self.on, "Adaptive.on")
        if self.limiter is not None and not callable(self.limiter):
            raise FlowDefinitionError(
                f"Adaptive.limiter takes a function that makes a Limiter, or its class, not {shown(self.limiter)}"
            )

    def new_limiter(self) -> Limiter:
        """Return the limiter of a subtask. Raises ``FlowDefinitionError`` if ``limiter`` does not make one."""
        if self.limiter is None:
            return AdaptiveLimiter(start=_first_limit(self), least=self.least, most=self.most)
        made: object = self.limiter(self)
        if not _is_limiter(made):
            raise FlowDefinitionError(
                f"Adaptive.limiter must make a Limiter, with an attribute limit and a method ended(), not {shown(made)}"
            )
        return made


def _is_limiter(made: object) -> TypeGuard[Limiter]:
    try:
        return isinstance(made, Limiter)
    except (
        Exception
    ):  # Python 3.11 evaluates a property: its error is reported where the limit is read
        return True


def _first_limit(settings: Adaptive) -> int:
    """Return the initial limit."""
    if settings.start is not None:
        return settings.start
    return min(max(_START, settings.least), settings.most)
