"""The faults of tasks in the crash test of streams depend on the seed alone, and end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.crash.stream.faults import (
    REPEATED,
    Fault,
    TaskFaults,
    counted_faults,
    faults_of,
    record,
    running_mark,
    strikes_at,
    wait_for_attempts,
    write_faults,
)

FAULTS = TaskFaults(seed="1", shares={Fault.WORKER: 0.3, Fault.DELAY: 0.2}, longest=2.0)
PLACES = [f"{epoch}-{fragment}-0" for epoch in range(500) for fragment in range(4)]


def test_equal_seeds_plan_equal_faults_and_others_do_not() -> None:
    def planned(seed: str) -> list[object]:
        faults = TaskFaults(seed=seed, shares=FAULTS.shares, longest=2.0)
        return [faults.planned(place, 0) for place in PLACES]

    assert planned("1") == planned("1")
    assert planned("1") != planned("2")


def test_each_fault_has_its_share_of_the_attempts() -> None:
    planned = [FAULTS.planned(place, 0) for place in PLACES]

    kinds = [one.fault for one in planned if one is not None]
    assert 0.25 < kinds.count(Fault.WORKER) / len(PLACES) < 0.35
    assert 0.15 < kinds.count(Fault.DELAY) / len(PLACES) < 0.25
    assert all(0.0 <= one.seconds <= 2.0 for one in planned if one is not None)


def test_a_task_that_had_its_most_faults_has_no_more() -> None:
    assert any(FAULTS.planned(place, FAULTS.most - 1) for place in PLACES)
    assert not any(FAULTS.planned(place, FAULTS.most) for place in PLACES)


def test_faults_of_a_round_are_read_and_counted_from_its_folder(tmp_path: Path) -> None:
    assert faults_of(tmp_path) is None
    write_faults(tmp_path, FAULTS)

    record(tmp_path, "WORKER-STATE", "3-1-0 17")
    record(tmp_path, REPEATED, "3-1-0 18")
    record(tmp_path, "DELAY-START", "3-1-0 18")
    record(tmp_path, "WORKER-STATE", "3-1-1 19")

    assert faults_of(tmp_path) == FAULTS
    assert strikes_at(tmp_path, "3-1-0") == 2
    assert counted_faults(tmp_path) == {"WORKER-STATE": 2, "DELAY-START": 1, REPEATED: 1}


def test_attempts_are_waited_for_until_their_processes_have_ended(tmp_path: Path) -> None:
    write_faults(tmp_path, FAULTS)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    running_mark(tmp_path, process.pid).touch()

    with pytest.raises(TimeoutError, match=str(process.pid)):
        wait_for_attempts(tmp_path, 0.0)
    process.communicate()
    wait_for_attempts(tmp_path, 0.0)
    running_mark(tmp_path, os.getpid()).touch()
    with pytest.raises(TimeoutError, match=str(os.getpid())):
        wait_for_attempts(tmp_path, 0.0)
