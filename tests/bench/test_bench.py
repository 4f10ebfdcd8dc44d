"""The benchmarks run, verify their results and report them; their speed is not tested."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bench import connectors, restore, state
from bench.__main__ import BENCHMARKS, main
from bench.harness import Measurement, compare, run_async

RECORDS = 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # Fairness takes long; others have tests of their own: tests/bench/nexmark, tests/spark, and tests/connectors.
    [
        one.name
        for one in BENCHMARKS
        # The generator measures nothing on a busy machine.
        if one.name
        not in {
            "fairness",
            "spark",
            "spark_stream",
            "connectors",
            "nexmark",
            "nexmark_history",
            "generator",
        }
    ],
)
def test_a_benchmark_verifies_its_result_and_writes_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    monkeypatch.setattr("bench.calls.rates.SLOW", 0.02)  # the run waits for the last calls
    monkeypatch.setattr("bench.calls.limits.FIXED", (200,))
    for numbers in ("KEYS", "SUBTASKS", "STEPS", "JOBS"):
        monkeypatch.setattr(f"bench.scale.{numbers}", (1, 5))
    # Ten and four programs, whose memory no test measures. Tests below run one of each.
    monkeypatch.setattr(state, "run", state.run_here)
    monkeypatch.setattr(restore, "in_new_process", restore.start_and_decode)
    # Collections of benchmarks would visit all tests that were collected.
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    monkeypatch.setattr(
        sys, "argv", ["bench", name, "--records", str(RECORDS), "--rounds", "1", "--json", str(out)]
    )

    main()

    figures = json.loads(out.read_text())
    assert (figures["name"], figures["records"], figures["verified"]) == (name, RECORDS, True)
    assert name in capsys.readouterr().out


@pytest.mark.slow
def test_a_program_of_state_runs_in_a_process_of_its_own() -> None:
    there, here = (run("windows", "in_aflow", 100) for run in (state.run, state.run_here))

    assert (there.results, there.total) == (here.results, here.total)
    assert there.rss_mb > 0


@pytest.mark.slow
def test_a_job_is_restored_in_a_process_of_its_own(tmp_path: Path) -> None:
    run_async(restore.fill(tmp_path, 100))

    start = restore.in_new_process(tmp_path, 100, False, 1)

    assert start.seconds > 0
    assert start.rss > 0


def test_without_a_name_the_benchmarks_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench"])

    main()

    listed = capsys.readouterr().out
    assert all(one.name in listed for one in BENCHMARKS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stateless", "--only", "map"], "stateless takes no --only: it is for crash, connectors"),
        (["all", "--only", "q1"], "all takes no --only"),
        (
            ["crash", "--only", "q1"],
            "--only: crash kills pipelines, service, stream, stream-workers",
        ),
        (["crash", "--rounds", "2"], "crash takes no --rounds: it is for all, a benchmark"),
        (["stateless", "--history"], "stateless takes no --history: it is for all"),
        (["stateless", "--kills", "225"], "stateless takes no --kills: it is for crash"),
        (["all", "--seed", "7"], "all takes no --seed: it is for crash"),
        (["compare", "--json", "out.json"], "compare takes no --json"),
        (["stateless", "a.json"], "stateless takes no files: it is for compare"),
        (["--records", "5"], "the list takes no --records"),
        (["stateless", "--records", "0"], "0 is not a number from 1 on"),
    ],
    ids=[
        "parts",
        "all",
        "kinds",
        "rounds",
        "history",
        "kills",
        "seed",
        "json",
        "files",
        "list",
        "zero",
    ],
)
def test_what_a_command_would_ignore_is_refused(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])

    with pytest.raises(SystemExit, match="2"):
        main()

    assert message in capsys.readouterr().err


def test_a_run_with_another_result_than_the_baseline_measures_nothing() -> None:
    with pytest.raises(SystemExit, match="different result"):
        compare("wrong", 1, lambda: 1, lambda: 2, at_least=0.5, rounds=1)


def test_the_worst_figures_of_the_connectors_are_those_of_one_case_if_only_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def case(ratio: float, added: float) -> ModuleType:
        def measure(records: int, rounds: int) -> Iterator[Measurement]:
            yield Measurement("a_source", {"ratio": ratio, "records_per_s": records})
            yield Measurement("a_to_a", {"latency_added_p50_ms": added})

        module = ModuleType("a case")
        monkeypatch.setattr(module, "measure", measure, raising=False)
        return module

    monkeypatch.setattr(connectors, "CASES", {"slow": 0.5, "fast": 1})
    monkeypatch.setitem(sys.modules, "bench.connectors.slow", case(0.5, 1.5))
    monkeypatch.setitem(sys.modules, "bench.connectors.fast", case(0.9, 0.5))

    both = connectors.measure(100, 1).figures
    fast = connectors.measure(100, 1, ["fast"]).figures

    assert (both["ratio"], both["latency_added_p50_ms"]) == (0.5, 1.5)
    assert (fast["ratio"], fast["latency_added_p50_ms"]) == (0.9, 0.5)
    assert fast["a_source_records_per_s"] == 100


@pytest.mark.parametrize("arguments", [("crash", "kafka"), ("connectors", "service")])
def test_a_part_of_another_benchmark_is_refused(
    arguments: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, only = arguments
    monkeypatch.setattr(sys, "argv", ["bench", name, "--only", only])

    with pytest.raises(SystemExit) as refused:
        main()

    assert f"{only!r}" in str(refused.value) or only in capsys.readouterr().err
