"""``async``: how many calls a second ``map_async`` makes, beside programs by hand and what cannot be exceeded."""

from __future__ import annotations

from bench.calls import limits, rates
from bench.harness import Measurement

#: The service is watched for as many seconds as this goes into the records.
RECORDS_PER_SECOND = 5_000


def measure(records: int, rounds: int) -> Measurement:
    """``records`` are called for where 1,000 calls are under way, and a fifth of them where it is 100."""
    values = range(records)
    few = range(records // 5)
    figures = {
        "records": records,
        **rates.at_the_limit(few, rounds),
        **rates.beside_programs_by_hand(values, rounds),
        **rates.saturated(values, rounds),
        **rates.with_some_slow(few, rounds),
        **rates.behind_watermarks(range(records // 20), rounds),
        **rates.at_once(values, rounds),
        **limits.adaptive(records / RECORDS_PER_SECOND, rounds),
        "rounds": rounds,
        "verified": True,
    }
    return Measurement("async", figures, [*rates.BUDGETS, *limits.BUDGETS])
