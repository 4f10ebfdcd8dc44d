"""The comparison with peers: programs by hand and in aflow agree, and a wrong or failed run gives no figure."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.peers.comparison import compare_peers, notes
from bench.peers.contenders import PEERS, Peer
from bench.peers.environments import ROOT, Unavailable, python_of
from bench.peers.jobs import JOBS
from bench.peers.programs import by_hand, with_aflow
from bench.peers.programs.protocol import Outcome, Task, digest, main

OURS = next(one for one in PEERS if one.name == "aflow")
HAND = next(one for one in PEERS if one.name == "by hand")
VARIABLES = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "connectors")])}


def job(name: str) -> Any:
    return next(one for one in JOBS if one.name == name)


@pytest.mark.parametrize("name", ["stateless", "keyed_window", "calls_100"])
def test_the_programs_of_aflow_and_by_hand_have_one_result(name: str, tmp_path: Path) -> None:
    task = job(name).task(tmp_path, 5_000, tmp_path)

    program = task.job
    ours = getattr(with_aflow, program)(task)()
    theirs = getattr(by_hand, program)(task)()

    assert digest(ours.result) == digest(theirs.result)


@pytest.mark.slow
def test_a_job_is_run_in_processes_and_compared() -> None:
    comparison = compare_peers(
        job("checkpoints"), [HAND, OURS], records=3_000, rounds=2, variables=VARIABLES, on_run=print
    )

    by_hand_entry, ours = comparison.entries
    assert by_hand_entry.problem == "no checkpoints"
    assert ours.problem == ""
    assert len(ours.runs) == 2
    assert ours.rate > 0
    assert "  checkpoints: no checkpoints" in list(notes([comparison]))


@pytest.mark.slow
def test_a_program_that_fails_gives_no_figure() -> None:
    broken = Peer(name="broken", module="missing")

    comparison = compare_peers(
        job("stateless"), [broken], records=100, rounds=2, variables=VARIABLES, on_run=print
    )

    assert "No module named bench.peers.programs.missing" in comparison.entries[0].problem
    assert comparison.entries[0].runs == []


def test_a_wrong_result_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(self: object, peer: Peer, *arguments: object) -> dict[str, Any]:
        return {
            "seconds": 1.0,
            "digest": "1" if peer is HAND else "2",
            "version": "",
            "settings": "",
        }

    monkeypatch.setattr("bench.peers.comparison._JobRuns._outcome", outcome)

    comparison = compare_peers(
        job("stateless"), [HAND, OURS], records=100, rounds=2, variables={}, on_run=print
    )

    assert [(len(one.runs), one.problem) for one in comparison.entries] == [
        (2, ""),
        (0, "wrong result: 2, not 1"),
    ]


def test_a_program_writes_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task_file, outcome_file = tmp_path / "task.json", tmp_path / "outcome.json"
    task_file.write_text(json.dumps({"job": "sum", "records": 4, "folder": str(tmp_path)}))
    monkeypatch.setattr(sys, "argv", ["program", str(task_file), str(outcome_file)])

    def add(task: Task) -> Any:
        return lambda: Outcome(sum(range(task.records)), delays=[0.001, 0.003], seconds=2)

    main("", {"sum": add})

    found = json.loads(outcome_file.read_text())
    assert found["digest"] == "6"
    assert found["seconds"] == 2
    assert found["delays"] == {"p50": 3.0, "p99": 3.0}


def test_rows_are_compared_without_their_order() -> None:
    rows = [("a", 0, 1, 2), ("b", 0, 1, 3)]

    assert digest(rows) == digest([list(row) for row in reversed(rows)])
    assert digest(rows) != digest(rows[:1])


def test_a_peer_that_needs_java_is_unavailable_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(Unavailable, match="needs Java"):
        python_of(next(one for one in PEERS if one.java))


def test_each_peer_has_a_program_or_a_reason_for_each_job() -> None:
    for peer in PEERS:
        text = (
            ROOT / "bench" / "peers" / "programs" / f"{peer.module.replace('.', '/')}.py"
        ).read_text()
        for one in JOBS:
            has = f'"{one.program or one.name}":' in text
            assert has != (one.name in peer.lacks), f"{peer.name}: {one.name}"
