"""The flow: payments from the log, the total of each card, JSON lines."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

import aflow as af
from aflow_connectors.files import JsonLinesSink


class Payment(msgspec.Struct, frozen=True):
    """A request of a client."""

    order: str
    card: str
    cents: int


class Total(msgspec.Struct, frozen=True):
    """The total of a card after a payment."""

    card: str = ""
    cents: int = 0
    order: str = ""
    """The order of that payment."""

    def plus(self, payment: Payment) -> Total:
        return Total(payment.card, self.cents + payment.cents, payment.order)


#: The step with the totals of the cards, which handlers read.
TOTALS: Final = "totals"


class Ingest:
    """The source, the flow and the settings of one folder."""

    def __init__(self, folder: Path, *, max_bytes: int = 1 << 30) -> None:
        self.payments = af.DurablePushSource(folder / "log", of=Payment, max_bytes=max_bytes)
        self._output = folder / "output"
        self.checkpointing = af.Checkpointing(
            storage=folder / "state", every=timedelta(milliseconds=200)
        )

    def flow(self) -> af.Flow:
        """Return the flow. The state of its step ``TOTALS`` has the total of each card."""
        flow = af.Flow("payments")
        cards = flow.source(self.payments, name="payments").key_by(lambda payment: payment.card)
        totals = cards.fold(Total, lambda total, payment: total.plus(payment), name=TOTALS)
        totals.map(_as_row, name="rows").to(JsonLinesSink(self._output), name="output")
        return flow


def _as_row(total: Total) -> dict[str, Any]:
    return msgspec.structs.asdict(total)
