"""The required results, written from the README of the service, and not from its code.

- A payment with the answer 202, 200 or 502 is in the results exactly once: in ``decisions``, or in ``unscored`` if the
  risk service does not know its merchant. One that was only refused is in neither.
- The decisions of a card are numbered from 1. Each follows from the score and the decisions before it: a score from 90
  on is blocked; one from 70 on is reviewed, and so is a payment with which the card has paid more than 1,000.00 since
  ten minutes before it.
- An answer to a question is the decision in the table.
- ``minutes`` has one row for each card and minute with payments that were not blocked, except those in ``late``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from bench.crash.payments.clients import Ledger, Sent
from bench.crash.payments.results import Results, Row

_RECENT_MS: Final = 600_000
_RECENT_CENTS: Final = 100_000
_BLOCK_AT: Final = 90
_REVIEW_AT: Final = 70

Key: TypeAlias = tuple[str, str]


def differences(
    ledger: Ledger, results: Results, *, minute_ms: int, closed_before: int
) -> list[str]:
    """Return a line for each difference between what clients know and the results.

    ``closed_before`` is the time in epoch ms before which all minutes have ended.
    """
    return [
        *_accepted(ledger, results),
        *_decided(results.decisions),
        *_answered(ledger, results.decisions),
        *_minutes(results, minute_ms, closed_before),
        *results.leftovers,
    ]


def duplicates(results: Results) -> int:
    """Return the number of payments that are in the results more than once, counted without the first time."""
    return sum(count - 1 for count in _found(results).values())


def lost(ledger: Ledger, results: Results) -> int:
    """Return the number of accepted payments that are not in the results."""
    found = _found(results)
    return sum(_key(sent) not in found for sent in ledger.accepted)


def _found(results: Results) -> Counter[Key]:
    return Counter((row["card"], row["id"]) for row in [*results.decisions, *results.unscored])


def _key(sent: Sent) -> Key:
    return sent.card, sent.id


def _accepted(ledger: Ledger, results: Results) -> Iterator[str]:
    found = _found(results)
    accepted = {_key(sent): sent for sent in ledger.accepted}
    for key, count in found.items():
        if key not in accepted:
            yield f"{key} was never accepted, and is in the results"
        if count > 1:
            yield f"{key} is in the results {count} times"
    for key in accepted:
        if key not in found:
            yield f"{key} was accepted, and is not in the results"
    unscored = {(row["card"], row["id"]) for row in results.unscored}
    for key, sent in accepted.items():
        if (key in unscored) is not sent.merchant.startswith("unknown"):
            yield f"{key} of {sent.merchant!r} is in the wrong sink"
    for row in [*results.decisions, *results.unscored]:
        one = accepted.get((row["card"], row["id"]))
        if one is not None and (row["cents"], row["at"]) != (one.cents, one.at):
            yield f"{row} has other values than {one}"
    for sent in ledger.unscored:
        if _key(sent) not in unscored:
            yield f"{_key(sent)} was said to have no score"


def _decided(decisions: Sequence[Row]) -> Iterator[str]:
    cards: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(decisions, key=lambda row: int(row["number"])):
        cards[row["card"]].append(row)
    for card, rows in cards.items():
        if [row["number"] for row in rows] != list(range(1, len(rows) + 1)):
            yield f"the decisions of {card} have the numbers {[row['number'] for row in rows]}"
        for place, row in enumerate(rows):
            expected = _expected(row, rows[:place])
            if (row["verdict"], row["recent_cents"]) != expected:
                yield f"{row} should have {expected}"


def _expected(row: Row, before: Sequence[Row]) -> tuple[str, int]:
    since = row["at"] - _RECENT_MS
    cents = sum(one["cents"] for one in before if one["verdict"] != "block" and one["at"] > since)
    if row["score"] >= _BLOCK_AT:
        return "block", cents
    cents += row["cents"]
    if row["score"] >= _REVIEW_AT or cents > _RECENT_CENTS:
        return "review", cents
    return "approve", cents


def _answered(ledger: Ledger, decisions: Sequence[Row]) -> Iterator[str]:
    rows = {(row["card"], row["id"]): row for row in decisions}
    for answer in ledger.decisions:
        row = rows.get((answer["card"], answer["id"]))
        if row != answer:
            yield f"the answer {answer} differs from the result {row}"


def _minutes(results: Results, minute_ms: int, closed_before: int) -> Iterator[str]:
    late = Counter((row["card"], row["id"]) for row in results.late)
    decided = {(row["card"], row["id"]) for row in results.decisions}
    for key, count in late.items():
        if count > 1 or key not in decided:
            yield f"{key} is in 'late' {count} times"
    expected: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for row in results.decisions:
        start = row["at"] // minute_ms * minute_ms
        is_open = start + minute_ms > closed_before
        if row["verdict"] != "block" and not late[row["card"], row["id"]] and not is_open:
            expected[row["card"], start].append(row["cents"])
    rows: Counter[tuple[Any, ...]] = Counter(
        (row["card"], row["start"], row["payments"], row["cents"]) for row in results.minutes
    )
    wanted = Counter((*key, len(cents), sum(cents)) for key, cents in expected.items())
    for minute in wanted - rows:
        yield f"minute {minute} is missing"
    for minute in rows - wanted:
        yield f"minute {minute} should not be there"
