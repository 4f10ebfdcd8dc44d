"""``aflow bench``: options, results, exit statuses and files."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from aflow.bench import load_result
from aflow.bench.result import (
    SCHEMA,
    CallFigures,
    LatencySample,
    LoadSample,
    Phase,
    TaskShares,
)
from aflow.cli.bench_view import result_view, sample_display
from aflow.testing.virtual_time import VirtualTimeLoop
from tests.cli.conftest import Aflow, Write
from tests.load.made_results import run_with

PIPELINE = """
    import asyncio
    import os
    import signal
    import aflow as af

    def build(numbers: af.Source[int], doubled: af.Sink[int], factor: int = 2) -> af.Flow:
        flow = af.Flow("doubling")
        flow.source(numbers, name="numbers").map(lambda n: factor * n, name="double").to(doubled, name="doubled")
        return flow

    def make(n: int) -> int:
        return n

    def right(sent, received):
        assert received["doubled"] == [3 * n for n in sent["numbers"]]

    async def later(sent, received):
        return False

    def waiting() -> af.Flow:
        async def wait(n):
            await asyncio.sleep(0.02)
            return n
        flow = af.Flow("waiting")
        flow.source([0], name="numbers").map_async(wait, capacity=1).to(af.CollectSink(), name="out")
        return flow

    def interrupting() -> af.Flow:
        def interrupt(n):
            if n == 20:
                os.kill(os.getpid(), signal.SIGINT)
            return n
        flow = af.Flow("interrupting")
        flow.source([0], name="numbers").map(interrupt, name="interrupt").to(af.CollectSink(), name="out")
        return flow

    def logging() -> af.Flow:
        import logging
        import sys

        def show(n):
            if n == 20:
                print(logging.getLevelName(logging.lastResort.level), file=sys.stderr)
            return n
        flow = af.Flow("logging")
        flow.source([0], name="numbers").map(show, name="show").to(af.DiscardSink(), name="out")
        return flow

    def failing() -> af.Flow:
        def fail(n):
            if n == 20:
                raise ValueError("no such number")
            return n
        flow = af.Flow("failing")
        flow.source([0], name="numbers").map(fail, name="fail").to(af.CollectSink(), name="out")
        return flow
"""

LOADED = ("doubling:build", "--source", "numbers=doubling:make")
SEARCHED = (*LOADED, "--find-max", "--p99", "50ms")

SHORT = ("--duration", "400ms", "--warmup", "100ms")


@pytest.fixture(autouse=True)
def pipeline(write: Write) -> None:
    write("doubling", PIPELINE)


def _virtual_loop(wanted: bool) -> type[VirtualTimeLoop]:
    return VirtualTimeLoop


@pytest.fixture
def in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use a loop of virtual time: other programs delay no record."""
    monkeypatch.setattr("aflow.cli.bench.loop_factory", _virtual_loop)


@pytest.mark.usefixtures("in_virtual_time")
def test_a_flow_is_measured_and_the_files_are_written(aflow: Aflow, tmp_path: Path) -> None:
    result = aflow(
        *("bench", "doubling:build", "--source", "numbers=doubling:make", "--rate", "200", *SHORT),
        *("--oracle", "doubling:right", "--factor", "3"),
        *("--report", "report.html", "--json", "run.json"),
    )

    assert result.exit_code == 0, result.output
    assert "numbers → doubled" in result.stdout
    assert "measured" in result.stderr
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    saved = load_result("run.json")
    assert saved.sources[0].accepted == pytest.approx(80, abs=1)
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["schema"] == SCHEMA


def test_a_failing_pipeline_is_reported_with_what_was_measured(aflow: Aflow) -> None:
    result = aflow(
        *("bench", "run", "doubling:failing", "--source", "numbers=doubling:make", "--rate", "100"),
        *(*SHORT, "--json", "run.json", "--quiet"),
    )

    assert result.exit_code == 1
    assert "error: the pipeline failed" in result.stdout
    assert "no such number" in result.stdout
    assert load_result("run.json").failure is not None


@pytest.mark.usefixtures("in_virtual_time")
@pytest.mark.parametrize("quiet", [(), ("--quiet",)], ids=["not quiet", "quiet"])
def test_a_quiet_run_shows_errors_only(aflow: Aflow, quiet: tuple[str, ...]) -> None:
    result = aflow(
        *("bench", "doubling:logging", "--source", "numbers=doubling:make", "--rate", "100"),
        *(*SHORT, *quiet),
    )

    lines = result.stderr.splitlines()
    if quiet:
        assert lines == ["ERROR"]
    else:
        assert "WARNING" in lines
        assert len(lines) > 1


@pytest.mark.usefixtures("in_virtual_time")
def test_a_quiet_search_shows_no_trials(aflow: Aflow) -> None:
    result = aflow(
        *("bench", "doubling:waiting", "--source", "numbers=doubling:make", "--find-max"),
        *("--p99", "1ms", "--rate", "10", *SHORT, "--quiet"),
    )

    assert "no rate was sustained" in result.stdout
    assert result.stderr == ""


@pytest.mark.usefixtures("in_virtual_time")
def test_ctrl_c_ends_the_run_with_a_report(aflow: Aflow) -> None:
    result = aflow(
        *("bench", "doubling:interrupting", "--source", "numbers=doubling:make", "--rate", "100"),
        *("--duration", "60s", "--warmup", "0s", "--json", "run.json"),
    )

    assert result.exit_code == 130, result.output
    assert "stopping: the report has what was measured" in result.stderr
    saved = load_result("run.json")
    assert saved.interrupted
    assert 0 < saved.duration_s < 60


@pytest.mark.usefixtures("in_virtual_time")
def test_recorded_times_of_a_file_are_replayed(aflow: Aflow, tmp_path: Path) -> None:
    lines = [json.dumps({"n": n, "at": 1000.0 + n}) for n in range(10)]
    (tmp_path / "records.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "count.py").write_text(
        "import aflow as af\n"
        "def build():\n"
        "    flow = af.Flow('count')\n"
        "    flow.source([{}], name='rows').map(lambda row: row['n']).to(af.CollectSink(), name='out')\n"
        "    return flow\n",
        encoding="utf-8",
    )

    result = aflow(
        *("bench", "count:build", "--source", "rows=records.jsonl", "--times", "at"),
        *("--speed", "30", *SHORT, "--warmup", "0s", "--json", "run.json"),
    )

    assert result.exit_code == 0, result.output
    (source,) = load_result("run.json").sources
    assert source.accepted == 10
    assert source.arrivals == "10 recorded times, 30 times as fast"


@pytest.mark.usefixtures("in_virtual_time")
def test_the_highest_rate_is_searched(aflow: Aflow) -> None:
    """Each record takes longer than the bound, so the search ends at the lowest rate."""
    result = aflow(
        *("bench", "doubling:waiting", "--source", "numbers=doubling:make", "--rate", "0.1"),
        *("--duration", "300ms", "--warmup", "0s", "--find-max", "--p99", "1ms"),
    )

    assert result.exit_code == 1, result.output
    assert "no rate was sustained with a p99 of at most 1 ms; saturated first:" in result.stdout
    assert "trying 0.1/s: p99 was 20.0 ms" in result.stderr


@pytest.mark.usefixtures("in_virtual_time")
def test_a_ramp_lasts_for_the_warm_up_and_the_measured_part(aflow: Aflow) -> None:
    aflow(
        *("bench", *LOADED, "--rate", "10..100", "--duration", "200ms", "--json", "run.json"),
        "--quiet",
    )

    assert load_result("run.json").sources[0].arrivals == "10/s to 100/s in 0.24 s"


def test_failed_requests_of_a_load_over_http_are_errors(aflow: Aflow) -> None:
    result = aflow(
        *("bench", "http", "http://user:secret@127.0.0.1:1/score?token=secret", "--rate", "20"),
        *("--body", "doubling:make", "--header", "x=y", "--duration", "200ms", "--warmup", "0s"),
        *("--json", "http.json", "--no-uvloop"),
    )

    assert result.exit_code == 1, result.output
    assert "error: 4 of 4 requests failed: ClientConnectorError" in result.stdout
    saved = load_result("http.json")
    assert saved.flow == "POST http://127.0.0.1:1/score"
    assert saved.machine.loop.startswith("asyncio.")


def test_saved_runs_are_compared(aflow: Aflow) -> None:
    run_with(10, seed=1).save("one.json")
    run_with(30, seed=2).save("two.json")

    assert aflow("bench", "compare", "one.json", "two.json").exit_code == 1
    result = aflow("bench", "compare", "two.json", "one.json")

    assert result.exit_code == 0, result.output
    assert "95 % interval" in result.stdout


def test_a_second_run_without_latencies_is_worse(aflow: Aflow) -> None:
    one = run_with(10, seed=1)
    one.save("one.json")
    samples = [replace(sample, latencies=[]) for sample in one.samples]
    replace(one, latencies=[], samples=samples).save("two.json")

    result = aflow("bench", "compare", "one.json", "two.json")

    assert result.exit_code == 1, result.output
    assert "missing: p99 in → out (ms): 0 samples of the second run" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("doubling:build",), "--source is missing"),
        (("doubling:build", "--source", "numbers=doubling:make"), "has no rate"),
        (("doubling:build", "--source", "numbers=doubling:make", "--rate", "fast"), "is no number"),
        (("doubling:build", "--source", "numbers=doubling:make", "--rate", "1:x"), "no duration"),
        (("doubling:build", "--source", "numbers"), "is no pair"),
        (
            ("doubling:build", "--source", "numbers=doubling:nothing", "--rate", "1"),
            "has no 'nothing'",
        ),
        (("doubling:build", "--source", "numbers=no.jsonl", "--rate", "1"), "cannot be read"),
        (
            ("doubling:build", "--source", "numbers=doubling:make", "--rate", "other=1"),
            "names a source without",
        ),
        (
            ("doubling:failing", "--source", "other=doubling:make", "--rate", "1"),
            "has no source 'other'",
        ),
        (
            ("doubling:build", "--source", "numbers=doubling:make", "--find-max"),
            "--find-max needs --p99",
        ),
        (("compare", "no.json", "no.json"), "cannot be read"),
        (("http", "localhost", "--rate", "1"), "is no address"),
        (("http", "http://localhost", "http://", "--rate", "1"), "'http://' is no address"),
        (("http", "--rate", "1"), "Missing argument 'URL...'"),
        (("http", "http://localhost", "--rate", "1", "--seed", "2"), "--seed belongs to --poisson"),
        (("http", "http://localhost", "--rate", "1", "--json", "none/a"), "there is no folder"),
        ((*LOADED, "--rate", "1", "--json", "none/a.json"), "there is no folder"),
        ((*LOADED, "--rate", "1", "--report", "none/a.html"), "there is no folder"),
        ((*LOADED, "--rate", "1", "--rate", "2"), "--rate 2 is a second rate"),
        ((*LOADED, "--rate", "1", "--seed", "2"), "--seed belongs to --poisson, which is missing"),
        ((*LOADED, "--rate", "1", "--speed", "2"), "--speed belongs to --times"),
        ((*LOADED, "--rate", "1", "--p99", "1ms"), "--p99 is the bound of --find-max"),
        ((*LOADED, "--rate", "1", "--percentile", "9"), "--percentile belongs to --find-max"),
        ((*LOADED, "--times", "at", "--poisson"), "--times are the arrivals of a file"),
        ((*SEARCHED, "--times", "at"), "--find-max searches a rate, so it has no --times"),
        ((*SEARCHED, "--in-flight", "1"), "--find-max searches a rate, so it is no closed loop"),
        ((*SEARCHED, "--rate", "numbers=1"), "--find-max searches one rate, which all sources get"),
        ((*SEARCHED, "--rate", "1..5"), "--find-max searches a constant rate"),
        ((*LOADED, "--rate", "-1"), "takes a number above 0"),
        ((*LOADED, "--rate", "1", "--duration", "0s"), "duration"),
        ((*LOADED, "--rate", "1", "--oracle", "doubling:later"), "a function that is not async"),
    ],
    ids=range(31),
)
def test_wrong_command_lines_say_what_to_write(
    aflow: Aflow, arguments: tuple[str, ...], message: str
) -> None:
    result = aflow("bench", *arguments)

    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_is_no_result_is_refused(aflow: Aflow, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}', encoding="utf-8")

    result = aflow("bench", "compare", "other.json", "other.json")

    assert result.exit_code == 2
    assert "is no result of aflow bench" in result.stderr


def test_figures_are_not_cut_on_a_narrow_terminal_that_shows_fewer_percentiles() -> None:
    percentiles = {"50": 1340.7, "75": 1994.25, "90": 2140.0, "95": 2197.5, "99": 123456.78}
    percentiles |= {"99.9": 234567.8, "99.99": 345678.9}
    result = run_with(10.0, seed=1)
    one = replace(
        result.latencies[0],
        source="orders of customers",
        sink="totals",
        percentiles_ms=percentiles,
        max_ms=456789.4,
    )
    result = replace(result, latencies=[one])
    output = {width: StringIO() for width in (80, 160)}

    for width, file in output.items():
        Console(file=file, width=width).print(result_view(result))

    narrow, wide = (file.getvalue() for file in output.values())
    assert "…" not in narrow
    for text in ("p50", "p99", "1,341", "123,457", "456,789"):
        assert text in narrow
    assert "2,140" not in narrow
    for text in ("2,140", "234,568", "345,679"):
        assert text in wide


def test_a_terminal_shows_the_last_sample() -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=120)

    with sample_display(console, print, quiet=False) as show:
        assert show is not None
        show(
            LoadSample(
                at_s=2.0,
                seconds=1.0,
                phase=Phase.MEASURED,
                offered={"numbers": 1200},
                accepted={"numbers": 1190},
                processed={"numbers": 1190},
                results={"out": 1190},
                latencies=[
                    LatencySample(
                        source="numbers", sink="out", count=1, p50_ms=1.0, p99_ms=2.5, max_ms=3.0
                    )
                ],
                tasks={"numbers → out": TaskShares(busy=0.5, backpressured=0, calling=0, queued=7)},
                lag_ms={},
                calls={"call": CallFigures(in_flight=3, limit=10, made=5, retries=0)},
                loop_lag_ms=0.1,
                cpu=0.5,
                rss_bytes=1,
                gc_ms=0.0,
                checkpoints=0,
            )
        )

    for text in ("offered 1,200, backlog 10", "numbers → out", "50%", "3 calls in flight", "2.50"):
        assert text in output.getvalue()
