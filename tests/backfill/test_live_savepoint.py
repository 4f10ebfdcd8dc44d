"""State of a live job continues over history, and from there in a live job, as in one live job."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from aflow.backfill.live_savepoint import LiveSavepoint
from tests.backfill.comparison import Case, Results, together
from tests.backfill.live_legs import live_leg, newest_of, unread
from tests.backfill.test_each_step import PAIR_STEPS, STEPS, case_of
from tests.backfill.test_fuzzed_flows import shape


def three_legs(case: Case, random: Random, folder: Path) -> tuple[Results, str]:
    """Results live, over history from there, and live from there, each on other partitions."""
    first = {name: random.randint(0, len(items)) for name, items in case.sources.items()}
    live = live_leg(
        case,
        folder / "live",
        first,
        waited=random.choice([0, 1, 2, 5, 40]),
        parallelism=random.randint(1, 3),
    )
    rest = unread(case, folder / "live")
    newest = newest_of(case, rest)
    until = random.choice([newest + 1, newest + 20, newest + 150, 10_000])
    history = case.over_history(
        rest,
        until=until,
        savepoint=folder / "history",
        restore=LiveSavepoint(folder / "live"),
        **shape(random),
    )
    last = case.live(savepoint=folder / "history", parallelism=random.randint(1, 3))
    return together(together(live, history), last), f"{first} until {until}"


@pytest.mark.parametrize("name", [*STEPS, *PAIR_STEPS])
def test_a_step_continues_over_history_and_live_again(name: str, tmp_path: Path) -> None:
    case, expected = case_of(name)

    results, story = three_legs(case, Random(f"{name} from a live job"), tmp_path)

    assert results == expected, story
