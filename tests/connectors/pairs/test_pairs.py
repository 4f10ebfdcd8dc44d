"""Jobs between two systems are killed, and so are the systems; their output is what the guarantee says.

``python -m tests.connectors.pairs NAME --kills 100`` does it more often.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from aflow.checkpoints import Outcome
from tests.connectors.pairs.attempt import Attempts
from tests.connectors.pairs.job import expected, line_of
from tests.connectors.pairs.pair import MODULES, parts_of
from tests.connectors.pairs.run import Disturbance, differences, plan, run_pair, stands_still
from tests.connectors.pairs.servers import ServerMissing, Servers
from tests.connectors.skips import skip_or_fail

#: Three kills, and a lost connection.
DISTURBANCES = (Disturbance.JOB, Disturbance.ANSWERS, Disturbance.SERVER, Disturbance.JOB)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_the_output_is_what_the_guarantee_says(name: str, servers: Servers, tmp_path: Path) -> None:
    try:
        report = run_pair(name, servers, tmp_path, DISTURBANCES, seed=1)
    except ServerMissing as exc:
        skip_or_fail(str(exc))
        return

    assert report.wrong == [], str(report)
    assert report.disturbances == len(DISTURBANCES)
    assert report.restored >= 2


def test_numbers_are_divided_among_splits_whatever_the_first_one_is() -> None:
    assert parts_of(range(4, 11)) == [range(6, 11, 3), range(4, 11, 3), range(5, 11, 3)]


def test_the_expected_results_are_the_sums_of_all_numbers() -> None:
    results = expected(250)

    assert len(results) == 15
    assert results[0] == (0, 0, sum(range(0, 100, 5)))
    assert sum(total for _, _, total in results) == sum(range(250))


def test_a_result_that_is_missing_repeated_or_wrong_is_a_difference() -> None:
    wanted = [(0, 0, 7), (1, 0, 8)]

    assert differences("out", wanted, wanted, repeats=False) == []
    assert differences("out", wanted, [*wanted, (0, 0, 7)], repeats=False) == [
        "out: 1 results are wrong or repeated, as [(0, 0, 7)]"
    ]
    assert differences("out", wanted, [*wanted, (0, 0, 7)], repeats=True) == []
    assert differences("out", wanted, [(0, 0, 7), (1, 0, 9)], repeats=True) == [
        "out: 1 results are missing, as [(1, 0, 8)]",
        "out: 1 results are wrong or repeated, as [(1, 0, 9)]",
    ]


def test_results_of_later_windows_of_all_keys_show_that_a_missing_one_is_lost() -> None:
    wanted = [(0, 0, 7), (1, 0, 8)]

    assert stands_still(wanted, [(0, 0, 7)])
    assert stands_still(wanted, [(0, 0, 7), (0, 100, 9)])
    assert not stands_still(wanted, [(0, 0, 7), (0, 100, 9), (1, 100, 3)])


def test_a_failed_checkpoint_is_no_progress_of_a_job(tmp_path: Path) -> None:
    attempts = Attempts("kafka-kafka", {}, tmp_path)
    lines = [line_of(Outcome.FAILED), line_of(Outcome.COMPLETED), line_of(Outcome.SUBSUMED)]
    (tmp_path / "events").write_text("".join(f"{line}\n" for line in lines))

    attempts.look()

    assert attempts.checkpoints == 1


def test_a_plan_kills_jobs_and_servers_and_disturbs_connections() -> None:
    kinds = Counter(plan(100, Random(1)))

    assert kinds[Disturbance.JOB] == 70
    assert kinds[Disturbance.SERVER] == 20
    assert kinds[Disturbance.CUT] + kinds[Disturbance.FREEZE] + kinds[Disturbance.ANSWERS] == 10
