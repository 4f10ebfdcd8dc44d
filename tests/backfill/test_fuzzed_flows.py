"""Whatever the flow: over history it gives what it gives live, and so do both, one after the other."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.backfill.comparing import together
from tests.backfill.fuzzed_flows import RandomCase, moment

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_flow_gives_over_history_what_it_gives_live(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def check(seed: int, folder: Path) -> None:
    """Run the flow of ``seed`` in all three ways."""
    random = Random(seed)
    drawn = RandomCase.of(random)
    case = drawn.case
    until = moment(random, case.sources)
    blocks = random.choice([1, 7, 1000])
    batches = random.choice([1, 3, 1024])
    story = f"seed {seed} until {until}:\n{drawn.flow}"

    expected = case.live(parallelism=random.randint(1, 3), batch=random.choice([1, 1024]))
    whole = case.over_history(
        drawn.history(random),
        parallelism=random.choice([1, 2, 3, 5]),
        block=blocks,
        batch=batches,
        seed=seed,
    )
    assert whole == expected, story

    past = case.over_history(
        drawn.history(random),
        until=until,
        savepoint=folder / "savepoint",
        parallelism=random.choice([1, 2, 3, 5]),
        block=blocks,
        batch=batches,
    )
    rest = {
        name: [item for item in items if item.at >= until] if random.random() < 0.5 else items
        for name, items in case.sources.items()
    }
    live = case.live(
        rest, savepoint=folder / "savepoint", parallelism=random.randint(1, 3), batch=batches
    )
    assert together(past, live) == expected, story
