"""``aflow top``: a live view of the jobs that an ``aflow.web`` application serves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import click
import orjson
from rich.console import Console
from rich.live import Live

from aflow.cli.options import NAMES
from aflow.cli.top_view import JobsAtMoment, view

#: Seconds until a request is given up.
_TIMEOUT: Final = 10.0

#: The most bytes of a response.
_LARGEST: Final = 16 << 20

#: The environment variable with the token for reads.
TOKEN: Final = "AFLOW_READ_TOKEN"


class NoAnswerError(click.ClickException):
    """The application did not answer as expected."""


class NotThereError(NoAnswerError):
    """The application answered with status 404."""


@click.command(context_settings=NAMES)
@click.argument("url")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option(
    "--once", is_flag=True, help="Print one view, with the rates of one interval, and end."
)
def top(url: str, every: float, *, once: bool) -> None:
    """Show the jobs of a running program, updated each second, until Ctrl-C.

    URL is the address of an aflow.web application, such as http://127.0.0.1:8000/aflow. If it needs a token for
    reads, set the environment variable AFLOW_READ_TOKEN.

    For each step: records per second, the share of time in which its task works and in which it waits for others,
    queued records, lag of the watermark, and calls in flight.
    """
    base = _checked(url)
    console = Console(markup=False, highlight=False)
    before = _snapshot(base)
    if once:
        time.sleep(every)
        console.print(view(_snapshot(base), before))
        return
    try:
        with Live(
            view(before, None), console=console, auto_refresh=False, screen=console.is_terminal
        ) as live:
            while True:
                time.sleep(every)
                now = _snapshot(base)
                live.update(view(now, before), refresh=True)
                before = now
    except KeyboardInterrupt:
        return


def _checked(url: str) -> str:
    """Return the address without a final slash. Raises ``click.UsageError`` for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise click.UsageError(f"{url!r} is no address; write http://127.0.0.1:8000, for example")
    if parts.query or parts.fragment:
        raise click.UsageError(f"{url!r} has more than a path; tokens belong into {TOKEN}")
    return url.rstrip("/")


def _snapshot(base: str) -> JobsAtMoment:
    return JobsAtMoment(time.monotonic(), list(_jobs(base)))


def _jobs(base: str) -> Iterator[dict[str, Any]]:
    jobs = _get(f"{base}/api/jobs").get("jobs")
    if jobs is None:
        raise NoAnswerError(f"{base} has no list of jobs; is it an aflow.web application?")
    for job in jobs:
        # Otherwise the program has removed it meanwhile.
        with suppress(NotThereError):
            yield _get(f"{base}/api/jobs/{quote(job['name'], safe='')}")


def _get(url: str) -> dict[str, Any]:
    """Return the JSON object at ``url``. Raises ``NoAnswerError``."""
    headers = {"accept": "application/json"}
    if token := os.environ.get(TOKEN):
        headers["authorization"] = f"Bearer {token}"
    try:
        with urlopen(Request(url, headers=headers), timeout=_TIMEOUT) as response:
            answer = orjson.loads(response.read(_LARGEST))
    except HTTPError as error:
        with error:
            raise _refusal(url, error) from error
    except (URLError, HTTPException, OSError) as error:
        raise NoAnswerError(f"{url} cannot be read: {getattr(error, 'reason', error)}") from error
    except orjson.JSONDecodeError as error:
        raise NoAnswerError(f"{url} answered no JSON; is it an aflow.web application?") from error
    if not isinstance(answer, dict):
        raise NoAnswerError(f"{url} answered no JSON object; is it an aflow.web application?")
    return cast("dict[str, Any]", answer)


def _refusal(url: str, error: HTTPError) -> NoAnswerError:
    """Return the error for an answer with an error status, with what to do."""
    text = f"{url} answered {error.code}: {_reason(error)}"
    if error.code == 401:
        wrong = os.environ.get(TOKEN)
        advice = f"{TOKEN} has another token" if wrong else f"set the environment variable {TOKEN}"
        return NoAnswerError(
            f"{text}\n{advice}: it must be the read_token, or token, of the program"
        )
    if error.code == 404:
        return NotThereError(
            f"{text}\nURL must be the address of the page of aflow.web, with the path at which the program mounts it, "
            f"such as http://127.0.0.1:8000/aflow"
        )
    return NoAnswerError(text)


def _reason(error: HTTPError) -> str:
    """Return the message of an error response of aflow.web, or the phrase of the status."""
    try:
        message = orjson.loads(error.read(_LARGEST))["error"]["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError, OSError):
        message = error.reason
    return str(message)
