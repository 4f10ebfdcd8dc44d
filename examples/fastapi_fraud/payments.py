"""The records: payments, decisions, and what is remembered of a card."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """The answer to a payment."""

    APPROVE = "approve"
    REVIEW = "review"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment that was accepted; ``card`` is a token of the card, not its number."""

    card: str
    id: str
    """The idempotency key of the request."""
    merchant: str
    cents: int
    at: int
    """Epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A payment with its risk, from 0 to 100."""

    payment: Payment
    score: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for a payment, a row of the table ``decisions``."""

    card: str
    id: str
    cents: int
    at: int
    score: int
    verdict: Verdict
    number: int
    """The number of this payment among all of its card, from 1."""
    recent_cents: int
    """The sum that the card has paid since ten minutes before ``at``, with this payment unless it is blocked."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and whether it answers a payment that was decided before."""

    decision: Decision
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class Card:
    """State of a card."""

    payments: int = 0
    """The number of its payments."""
    recent: list[Decision] = field(default_factory=list[Decision])
    """Its decisions of the last fifteen minutes of event time."""


@dataclass(frozen=True, slots=True)
class Minute:
    """The payments of a card in a minute that were not blocked, a row of the table ``minutes``."""

    card: str
    start: int
    """Epoch milliseconds."""
    payments: int
    cents: int


@dataclass(frozen=True, slots=True)
class Unscored:
    """A payment without a decision: the risk service refused it, or did not answer."""

    card: str
    id: str
    merchant: str
    cents: int
    at: int
    reason: str
    message: str
    attempts: int
