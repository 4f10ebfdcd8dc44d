"""The watermarks that the records of one batch have earned, for a bounded delay.

Before a record, the watermark is ``behind`` ms before the newest preceding record (the delay and 1 ms), and at most
that of the ``others``, the slowest of the other splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from aflow.model.time import Timestamp

Cut: TypeAlias = tuple[int, Timestamp]
"""An index in a batch, and the watermark to send before the record there."""


def scan(times: Sequence[Timestamp], newest: Timestamp, behind: int) -> tuple[Timestamp, bool]:
    """Return the newest timestamp, and True if no record is behind the watermark of the preceding ones."""
    # Hot path (benchmark `keyed_window`): a fifth of the time that computing the cuts at once takes.
    watermark = newest - behind
    for time in times:
        if time > newest:
            newest = time
            watermark = newest - behind
        elif time <= watermark:
            return max(newest, max(times)), False
    return newest, True


def cuts_of(
    times: Iterable[Timestamp],
    earned: Timestamp,
    behind: int,
    others: Timestamp,
    sent: Timestamp,
    periods: Sequence[int],
) -> list[Cut]:
    """Return the cuts at which a watermark must be sent: earned by the preceding records and after the last ``sent``.

    The next record is behind it, or it has passed a multiple of one of the ``periods``.
    """
    cuts: list[Cut] = []
    for index, time in enumerate(times):
        watermark = min(earned, others)
        if sent < watermark and (watermark >= time or _passes(sent, watermark, periods)):
            cuts.append((index, watermark))
            sent = watermark
        if time - behind > earned:
            earned = time - behind
    return cuts


def met_by(
    times: Iterable[Timestamp],
    earned: Timestamp,
    behind: int,
    others: Timestamp,
    sent: Timestamp,
) -> list[Timestamp] | None:
    """Return the watermark that each record meets; None if none is greater than the last one that was ``sent``."""
    newest = list(accumulate(times, max, initial=earned + behind))
    newest.pop()  # earned by the last record
    if min(newest[-1] - behind, others) <= sent:
        return None
    if newest[-1] - behind <= others:
        return [at - behind for at in newest]
    return [min(at - behind, others) for at in newest]


def _passes(sent: Timestamp, watermark: Timestamp, periods: Iterable[int]) -> bool:
    """Return True if a multiple of a period is after ``sent`` and not after ``watermark``."""
    return any(sent // period < watermark // period for period in periods)
