"""``aflow top`` shows the jobs that an aflow.web application serves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console

import aflow as af
import aflow.web
from aflow.cli.top_view import JobsAtMoment, view
from tests.cli.conftest import Aflow


async def same(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def shown(aflow_command: Aflow, *arguments: str, read_token: str | None = None) -> Result:
    """Return what ``aflow top --once`` prints about a job with a call."""
    source = af.PushSource[int]()
    flow = af.Flow("numbers")
    flow.source(source, name="numbers").map_async(same, capacity=7, name="call").to(
        af.CollectSink[int](), name="out"
    )
    async with flow.start() as job, aflow.web.serve(job, read_token=read_token) as server:

        async def send() -> None:
            while True:
                await source.send(1)
                await asyncio.sleep(0.001)

        sending = asyncio.create_task(send())
        command = [server.url, "--once", "--every", "0.3", *arguments]
        result = await asyncio.to_thread(aflow_command, "top", *command)
        sending.cancel()
    return result


def test_it_shows_the_rates_and_calls_of_each_step(aflow: Aflow) -> None:
    result = asyncio.run(shown(aflow))

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("numbers: running\n")
    rows = [[cell.strip() for cell in line.split("│")] for line in result.stdout.splitlines()]
    cells = {row[1]: row for row in rows if len(row) > 3}
    assert int(cells["call"][2].replace(",", "")) > 0
    assert re.fullmatch("[01] of 7", cells["call"][8])
    assert "latency numbers to out: " in result.stdout


def test_a_token_is_taken_from_the_environment(
    aflow: Aflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.run(shown(aflow, read_token="a-token-of-some-length"))
    monkeypatch.setenv("AFLOW_READ_TOKEN", "another")
    wrong = asyncio.run(shown(aflow, read_token="a-token-of-some-length"))
    monkeypatch.setenv("AFLOW_READ_TOKEN", "a-token-of-some-length")
    allowed = asyncio.run(shown(aflow, read_token="a-token-of-some-length"))

    assert (refused.exit_code, wrong.exit_code) == (1, 1)
    assert "answered 401: the request has no token" in refused.stderr
    assert "set the environment variable AFLOW_READ_TOKEN: it must be" in refused.stderr
    assert "answered 401: the token of the request is wrong" in wrong.stderr
    assert "AFLOW_READ_TOKEN has another token: it must be" in wrong.stderr
    assert allowed.exit_code == 0


@contextmanager
def answering(body: bytes, *, missing: str = "") -> Generator[str]:
    """Answer each request with ``body``, and those for the path ``missing`` with status 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == missing else 200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}"], ids=["html", "list", "object"])
def test_another_server_is_named(aflow: Aflow, body: bytes) -> None:
    with answering(body) as url:
        result = aflow("top", url)

    assert result.exit_code == 1
    assert "is it an aflow.web application?" in result.stderr


def test_an_address_without_the_application_is_told_what_the_address_must_be(aflow: Aflow) -> None:
    with answering(b"<html>", missing="/api/jobs") as url:
        result = aflow("top", url)

    assert result.exit_code == 1
    assert (
        "answered 404: Not Found\nURL must be the address of the page of aflow.web" in result.stderr
    )


def test_a_job_that_is_removed_meanwhile_is_left_out(aflow: Aflow) -> None:
    with answering(b'{"jobs": [{"name": "gone"}]}', missing="/api/jobs/gone") as url:
        result = aflow("top", url, "--once", "--every", "0.1")

    assert result.exit_code == 0, result.output


def test_without_a_server_the_reason_is_shown(aflow: Aflow) -> None:
    with answering(b"{}") as url:
        pass

    result = aflow("top", url)

    assert result.exit_code == 1
    assert "cannot be read" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/", "http://host/?token=1"])
def test_what_is_no_address_is_refused(aflow: Aflow, url: str) -> None:
    assert aflow("top", url).exit_code == 2


def job_of(records: int, name: str = "step", busy: float = 0.0) -> dict[str, Any]:
    task = {"name": name, "subtask": 0, "busy_s": busy, "queued_records": 3}
    waits = dict.fromkeys(("idle_s", "backpressured_s", "calling_s", "aligning_s"), 0.0)
    step = {"records_in": records, "records_out": records, "lag_ms": 1500, "calls": None}
    return {
        "name": "job",
        "status": "running",
        "failure": {"type": "ValueError", "message": "wrong"},
        "restarts": [{}] * 100,  # the latest ones
        "graph": {
            "tasks": [{"index": 0, "name": name, "parallelism": 1}],
            "steps": [{"name": name, "task": 0}],
        },
        "metrics": {"steps": {name: step}, "tasks": [{**task, **waits}], "restarts": 1_234},
    }


def printed(now: dict[str, Any], before: dict[str, Any] | None) -> str:
    plain = Console(width=120, force_terminal=False)
    with plain.capture() as capture:
        plain.print(
            view(
                JobsAtMoment(12.0, [now]), None if before is None else JobsAtMoment(10.0, [before])
            )
        )
    return capture.get()


@pytest.mark.parametrize(
    ("before", "now", "rate", "busy"),
    [(job_of(10), job_of(30, busy=1.0), "10", "50%"), (job_of(30, busy=9.0), job_of(5), "–", "–")],
    ids=["running", "restarted"],
)
def test_rates_are_those_between_two_snapshots_unless_the_job_was_restarted(
    before: dict[str, Any], now: dict[str, Any], rate: str, busy: str
) -> None:
    text = printed(now, before)

    (row,) = [line for line in text.splitlines() if "step" in line and "in/s" not in line]
    assert [cell.strip() for cell in row.split("│")][1:8] == [
        *("step", rate, rate, busy),
        *("0%" if busy == "50%" else "–", "3", "1.5 s"),
    ]
    assert text.startswith("job: running, restarts: 1,234\n")
    assert "ValueError: wrong" in text


def test_names_cannot_control_the_terminal() -> None:
    assert "\x1b" not in printed(job_of(1, name="a\x1b[2Jb"), None)


def test_no_jobs_are_no_error() -> None:
    plain = Console(width=80)
    with plain.capture() as capture:
        plain.print(view(JobsAtMoment(0.0, []), None))
    assert capture.get() == "there are no jobs\n"
