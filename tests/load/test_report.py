"""The report of a run as HTML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import timedelta

import pytest

import aflow as af
from aflow.bench import BenchResult, run
from aflow.bench.charts import Line, bar_chart, line_chart
from aflow.bench.report import html_report
from aflow.testing import virtual_time as virtual
from tests.load.flows import SECOND, after_50_ms, calling
from tests.load.result_page import PAGE, page


@pytest.fixture(scope="module")
def result() -> BenchResult:
    async def main() -> BenchResult:
        flow = calling(after_50_ms, capacity=5)
        flow.graph.name = "<calls> & more"
        return await run(
            flow,
            {"numbers": [1, 2]},
            rate=50,
            duration=5 * SECOND,
            warmup=SECOND,
            sample_every=SECOND,
        )

    return virtual.run(main)


def test_a_report_needs_nothing_from_elsewhere(result: BenchResult) -> None:
    page = html_report(result)

    assert re.findall(r"(?:src|href)=|url\(|@import|<script", page) == []
    assert "https://" not in page.replace("http://www.w3.org", "")


def test_a_report_is_well_formed_and_escapes_names(result: BenchResult) -> None:
    page = html_report(result)

    assert "<calls>" not in page
    body = re.sub(r"<!doctype html>\n|<meta[^>]*>", "", page)
    assert ET.fromstring(body).tag == "html"


def test_a_report_has_the_figures_findings_and_charts(result: BenchResult) -> None:
    page = html_report(result)

    for text in (
        "Latency over time",
        "Distribution of numbers to out",
        "Backlog",
        "Busy share",
        "Calls",
    ):
        assert text in page
    for one in result.findings:
        assert one.text.replace("'", "&#x27;").replace('"', "&quot;") in page
    assert page.count("<svg") >= 5


def test_a_line_shows_each_value_at_its_place() -> None:
    chart = line_chart("rate", [Line("one", [(0.0, 0.0), (10.0, 100.0)])], unit="/s")

    points = re.search(r'points="([^"]*)"', chart)
    assert points is not None
    assert points[1] == "64.0,212.0 948.0,10.0"
    assert "one, 10.0 s: 100.00 /s" in chart


def test_a_histogram_counts_every_value() -> None:
    chart = bar_chart("latency", [(0.1, 3), (1.0, 5), (100.0, 2)])

    counts = [int(one) for one in re.findall(r"ms: (\d+)</title>", chart)]
    assert sorted(counts) == [2, 3, 5]


def test_charts_without_values_are_empty() -> None:
    assert line_chart("rate", [Line("one", [])], unit="/s") == ""
    assert bar_chart("latency", []) == ""


def test_a_report_of_a_run_without_results_is_possible() -> None:
    async def main() -> BenchResult:
        flow = af.Flow("nothing")
        flow.source([0], name="numbers").filter(lambda n: False).to(
            af.CollectSink[int](), name="out"
        )
        return await run(flow, {"numbers": [1]}, rate=10, duration=SECOND, warmup=timedelta())

    result = virtual.run(main)

    assert "no latency was measured" in html_report(result)


def test_the_reference_page_describes_the_present_format() -> None:
    """If not: ``python -m tests.load.result_page``."""
    assert PAGE.read_text(encoding="utf-8") == page()
