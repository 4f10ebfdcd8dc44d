"""A program that is killed with SIGKILL and started again has the output of an undisturbed one.

The short form of ``python -m bench crash``. Nothing here depends on how long anything takes: the program cannot end
before the wanted number of kills, and a kill waits for the operation to interrupt.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.crash.attempt import From, Kill
from bench.crash.outputs import DATABASE, Output, differences, leftovers, prepare, written
from bench.crash.proof import inputs
from bench.crash.rounds import Plan, run_round, undisturbed
from bench.crash.settings import Mode, Settings

RECORDS = 400


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return replace(inputs(tmp_path_factory.mktemp("crash"), RECORDS), every_ms=30)


@pytest.fixture(scope="module")
def expected(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Output:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return undisturbed(replace(settings, slow=False), folder)


def four_kills(random: Random) -> list[Kill]:
    """Kill once before the job runs, once as soon as it runs, and then after checkpoints."""
    kills = [
        Kill(From.START, random.uniform(0.0, 0.3)),
        Kill(From.RUNNING, random.uniform(0.0, 0.3)),
        Kill(From.CHECKPOINT, random.uniform(0.0, 0.03), random.randint(1, 3)),
        Kill(From.CHECKPOINT, random.uniform(0.0, 0.03), random.randint(1, 3)),
    ]
    random.shuffle(kills)
    return kills


#: Keys in memory of each start; None: all state is in memory.
IN_MEMORY, ON_DISK, IN_BOTH = (None,), (1, 3), (2, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "residents"),
    list(zip(Mode, [IN_MEMORY, ON_DISK, IN_BOTH], strict=True)),
    ids=lambda value: value.value if isinstance(value, Mode) else str(value),
)
def test_the_output_of_a_killed_program_is_that_of_an_undisturbed_one(
    mode: Mode,
    residents: tuple[int | None, ...],
    settings: Settings,
    expected: Output,
    tmp_path: Path,
) -> None:
    """The expected output is that of a program with all state in memory."""
    random = Random(f"killed {mode.value} with {residents}")
    plan = Plan(parallelisms=(1, 2, 3), residents=residents, kills=four_kills(random))

    played = run_round(
        replace(settings, mode=mode, endless=True), tmp_path / "run", plan, expected, random
    )

    assert list(played.wrong) == []
    assert played.kills == 4
    assert played.attempts[-1].restored is not None
    if None not in residents:
        assert list((tmp_path / "run" / "state").iterdir()) == []


@pytest.mark.slow
def test_the_output_depends_on_nothing_but_the_input(
    settings: Settings, expected: Output, tmp_path: Path
) -> None:
    other = replace(settings, slow=False, parallelism=3, batch_records=5)

    found = undisturbed(other, tmp_path / "run")

    assert differences(expected, found) == []
    assert {name: bool(lines) for name, lines in found.items()} == dict.fromkeys(found, True)


def test_duplicate_and_missing_lines_are_reported() -> None:
    expected = {"sums": [b"1", b"2"], "rows": [b"x"]}

    told = differences(expected, {"sums": [b"1", b"1"], "rows": [b"x"]})

    assert told == ["sums: 1 lines missing, 1 extra", "  - 2", "  + 1"]


def test_unfinished_files_are_reported_and_are_no_output(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(out)
    (out / "sums").mkdir()
    (out / "sums" / ".part-00000-000003.jsonl").write_text("1\n")
    with closing(sqlite3.connect(out / DATABASE)) as database:
        database.execute("CREATE TABLE _aflow_commits AS SELECT 'sums/1f' AS sink")
        # The other row is of a run that was killed before its first checkpoint.
        database.execute("CREATE TABLE _aflow_staged (sink)")
        database.execute("INSERT INTO _aflow_staged VALUES ('sums/1f'), ('sums/2e')")
        database.commit()

    told = leftovers(out)

    assert told == [
        f"uncommitted: {out / 'sums' / '.part-00000-000003.jsonl'}",
        "uncommitted: 1 staged rows",
    ]
    assert written(out) == {"sums": [], DATABASE: []}
