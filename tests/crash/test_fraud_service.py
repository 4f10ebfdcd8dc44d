"""A FastAPI service that is killed under requests has each accepted payment in its results, exactly once.

The short form of ``python -m bench crash --only service``; the tests of the oracle show that it finds errors.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.crash.payments.clients import Ledger, Sent
from bench.crash.payments.oracle import differences, duplicates, lost
from bench.crash.payments.proof import run_round
from bench.crash.payments.results import Results
from bench.crash.payments.server import Kill, Moment

MINUTE = 2_000


def ten_kills(random: Random) -> list[Kill]:
    """Kill at each kind of moment."""
    moments = [*Moment, *Moment, Moment.PART, Moment.COMPLETED]
    random.shuffle(moments)
    return [Kill(one, random.uniform(0.0, 0.05), random.randint(1, 3)) for one in moments]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_accepted_payment_is_in_one_sink_exactly_once(tmp_path: Path) -> None:
    kills = ten_kills(Random("ten kills"))

    played = await run_round(tmp_path, kills, "ten kills")

    assert list(played.wrong) == []
    assert played.results is not None
    assert played.results.decisions
    assert len(played.ledger.accepted) > len(kills)
    assert played.ledger.decisions
    assert played.ledger.repeats > 0


def sent(id: str, cents: int = 500, merchant: str = "shop") -> Sent:
    return Sent("card", id, merchant, cents, at=1_000, is_valid=True)


def row(id: str, number: int, cents: int = 500, **other: Any) -> dict[str, Any]:
    usual = {"score": 1, "verdict": "approve", "recent_cents": 500 * number}
    return {"card": "card", "id": id, "cents": cents, "at": 1_000, "number": number} | usual | other


def minute(payments: int, cents: int) -> dict[str, Any]:
    return {"card": "card", "start": 0, "payments": payments, "cents": cents}


def found(ledger: Ledger, results: Results) -> list[str]:
    return differences(ledger, results, minute_ms=MINUTE, closed_before=10_000)


def results(*decisions: dict[str, Any], **other: Any) -> Results:
    total = minute(len(decisions), sum(one["cents"] for one in decisions))
    usual: dict[str, Any] = {"minutes": [total], "unscored": [], "late": [], "leftovers": []}
    return Results(list(decisions), **usual | other)


BOTH = Ledger(accepted=[sent("a"), sent("b")])


def test_right_results_are_accepted() -> None:
    assert found(BOTH, results(row("a", 1), row("b", 2))) == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (results(row("a", 1)), "('card', 'b') was accepted, and is not in the results"),
        (
            results(row("a", 1), row("b", 2), row("b", 3)),
            "('card', 'b') is in the results 2 times",
        ),
        (results(row("a", 1), row("b", 2), row("c", 3)), "('card', 'c') was never accepted"),
        (results(row("a", 1), row("b", 3)), "have the numbers [1, 3]"),
        (results(row("a", 1), row("b", 2, verdict="review")), "should have ('approve', 1000)"),
        (results(row("a", 1), row("b", 2, score=90)), "should have ('block', 500)"),
        (results(row("a", 1), row("b", 2, score=70)), "should have ('review', 1000)"),
        (results(row("a", 1), row("b", 2, cents=501)), "has other values than"),
        (results(row("a", 1), row("b", 2), minutes=[]), "minute ('card', 0, 2, 1000) is missing"),
        (
            results(row("a", 1), row("b", 2), minutes=[minute(2, 1000), minute(2, 1000)]),
            "minute ('card', 0, 2, 1000) should not be there",
        ),
        (
            results(row("a", 1), row("b", 2), late=[row("b", 2)]),
            "minute ('card', 0, 1, 500) is missing",
        ),
        (
            results(row("a", 1), unscored=[{"card": "card", "id": "b", "cents": 500, "at": 1_000}]),
            "('card', 'b') of 'shop' is in the wrong sink",
        ),
        (results(row("a", 1), row("b", 2), leftovers=["1 staged row"]), "1 staged row"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "results",
)
def test_each_error_of_the_results_is_found(wrong: Results, told: str) -> None:
    assert any(told in line for line in found(BOTH, wrong))


def test_a_refused_payment_in_the_results_is_found() -> None:
    ledger = Ledger(accepted=[sent("a")], refused=[sent("b")])

    assert found(ledger, results(row("a", 1), row("b", 2))) == [
        "('card', 'b') was never accepted, and is in the results"
    ]


def test_an_answer_that_differs_from_the_result_is_found() -> None:
    ledger = Ledger(accepted=[sent("a")], decisions=[row("a", 1, verdict="block")])

    (line,) = found(ledger, results(row("a", 1)))

    assert "differs from the result" in line


def test_duplicates_and_losses_are_counted() -> None:
    wrong = results(row("a", 1), row("a", 2), row("a", 3))

    assert duplicates(wrong) == 2
    assert lost(BOTH, wrong) == 1
