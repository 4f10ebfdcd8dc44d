"""What a flow gives up to a moment T over history, and live from there, is what one live job gives without a break.

Windows, sessions, timers, joins and handlers are open across T. The live job has other subtasks than the backfill, and
gets all records once more, or those from T on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backfill.comparing import Case, together
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of


def moments(case: Case) -> list[int]:
    """Before the first record, on one, between two of them, at the end of a window, behind the last."""
    items = case.sources["items"]
    middle = items[len(items) // 2].at
    taken = {item.at for some in case.sources.values() for item in some}
    between = next(at for at in range(middle, 1000) if at not in taken)
    return [0, middle, between, 300, 330, items[-1].at + 1, 5000]


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_live_job_goes_on_from_what_a_backfill_has_left(name: str, tmp_path: Path) -> None:
    case, expected = case_of(name)

    for number, until in enumerate(moments(case)):
        savepoint = tmp_path / str(until)
        past = case.over_history(until=until, savepoint=savepoint, parallelism=1 + number % 3)
        rest = {
            source: [item for item in items if number % 2 or item.at >= until]
            for source, items in case.sources.items()
        }
        live = case.live(rest, savepoint=savepoint, parallelism=1 + (number + 1) % 3)

        assert together(past, live) == expected, f"until {until}"
