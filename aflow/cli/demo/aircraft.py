"""Which aircraft was it?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import aflow as af
from aflow.cli.demo.flights import Flight

NO_TAIL: Final = af.Tag[Flight]("no tail number")


class LeaveOutUnknown(af.ProcessFunction[Flight, Flight]):
    """Sends flights without a tail number to ``NO_TAIL``, and the others on: they are not one huge aircraft."""

    def process(self, value: Flight, ctx: af.ProcessContext) -> Iterable[Flight] | None:
        """The flight, or none."""
        if value.tailnum is not None:
            return (value,)
        ctx.side(NO_TAIL, value)
        return None
