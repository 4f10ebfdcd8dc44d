"""The command line of the application: ``python -m flights replay``, ``weather``, ``backfill`` and ``stream``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

import aflow as af
from flights.job import ExitStatus, Recovery

if TYPE_CHECKING:
    from flights.replay import Replay

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Duration(click.ParamType[timedelta]):
    """``250ms``, ``5s``, ``10m``, ``2h`` or ``1d``."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration; write it like 250ms, 5s, 10m or 2h", param, ctx)
        return timedelta(**{_UNITS[found[2]]: float(found[1])})


def _output(default: str) -> Callable[[F], F]:
    return click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(default),
        show_default=True,
        help="Folder for all files that are written.",
    )


_RECORDS: Final = click.option(
    "--records", type=click.IntRange(min=1), help="Number of flights; default: the whole year."
)
_PARALLELISM: Final = click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Subtasks of each keyed step.",
)
_DAY: Final = click.DateTime(["%Y-%m-%d"])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Pipelines over the flights that left New York in 2013, and over the weather there."""


@main.command()
@_output("flights-output/replay")
@_RECORDS
@_PARALLELISM
@click.option(
    "--max-delay",
    type=Duration(),
    default="2h",
    show_default=True,
    help="Longest delay of a departure that still counts for its hour and its day.",
)
@click.option(
    "--kill-after",
    type=Duration(),
    help="Start the replay in another process, kill that one after this time, and continue here.",
)
@click.option(
    "--checkpoint-dir",
    type=click.Path(file_okay=False),
    help="Take checkpoints into this folder, and continue from its latest checkpoint.",
)
@click.option(
    "--checkpoint-every",
    type=Duration(),
    default="10s",
    show_default=True,
    help="Interval of checkpoints.",
)
@click.option(
    "--from",
    "restore",
    default=af.checkpoints.StartFrom.LATEST.value,
    show_default=True,
    metavar="|".join([*(one.value for one in af.checkpoints.StartFrom), "PATH"]),
    help="Start at the latest checkpoint, at the beginning, or at a savepoint.",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Restarts after failures, one second after each.",
)
@click.option(
    "--web", is_flag=True, help="Print the address of a page that shows the job, until Ctrl-C."
)
@click.option(
    "--through",
    type=click.Choice(["kafka"]),
    help="Publish the inputs to Kafka, read them from there, and write hours and days to PostgreSQL. "
    "Topics and tables of an earlier replay are removed.",
)
@click.option(
    "--kafka",
    envvar="KAFKA",
    default="localhost:9092",
    show_default=True,
    show_envvar=True,
    help="Servers of Kafka, for --through.",
)
@click.option(
    "--postgres",
    envvar="DATABASE_URL",
    default="postgresql://localhost/postgres",
    show_envvar=True,
    help="Database of --through: postgresql://user:password@host:port/name.",
)
@click.option("--published", is_flag=True, hidden=True)
@click.option("--no-tables", is_flag=True, hidden=True)
def replay(
    output: Path,
    records: int | None,
    parallelism: int,
    max_delay: timedelta,
    kill_after: timedelta | None,
    checkpoint_dir: str | None,
    checkpoint_every: timedelta,
    restore: str,
    restarts: int,
    web: bool,
    through: str | None,
    kafka: str,
    postgres: str,
    published: bool,
    no_tables: bool,
) -> None:
    """Replay the year: worst hours and days, delays in wind and around storms, days of aircraft.

    With --kill-after you see a crash and a recovery; the results are those of a run without a crash.

    Exit status: 0 done or drained, 1 failed, 2 wrong command line, 130 cancelled by a second Ctrl-C.
    """
    from flights.replay import Replay, run_replay

    others = {
        "--checkpoint-dir": checkpoint_dir is not None,
        "--from": restore != af.checkpoints.StartFrom.LATEST.value,
        "--restarts": restarts > 0,
    }
    given = [flag for flag, is_given in others.items() if is_given]
    if kill_after is not None and given:
        raise click.UsageError(f"--kill-after has its own checkpoints; omit {' and '.join(given)}")
    if checkpoint_dir is None and restore not in {one.value for one in af.checkpoints.StartFrom}:
        raise click.UsageError(f"--from {restore} needs --checkpoint-dir as well")
    checkpointing = (
        None
        if checkpoint_dir is None
        else af.Checkpointing(storage=checkpoint_dir, every=checkpoint_every)
    )
    recovery = Recovery(
        checkpointing=checkpointing,
        restore=restore,
        restart=af.restart.FixedDelay(restarts) if restarts else af.restart.NoRestart(),
    )
    chosen = Replay(
        output=output,
        records=records,
        parallelism=parallelism,
        max_delay=max_delay,
        recovery=recovery,
        kill_after=kill_after,
        tables=not no_tables,
        web=web,
        published=published,
    )
    _exit_with(lambda: run_replay(_through(chosen, kafka, postgres) if through else chosen))


def _through(replay: Replay, kafka: str, postgres: str) -> Replay:
    """Return ``replay`` with its ends at servers. Raises ``ConnectorError`` if a client is not installed."""
    from flights.through.servers import Servers

    return dataclasses.replace(replay, through=Servers(kafka, postgres))


@main.command()
@_output("flights-output/weather")
@_RECORDS
@_PARALLELISM
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the faults and the latencies of the service.",
)
def weather(output: Path, records: int | None, parallelism: int, seed: int) -> None:
    """Look up the weather of each flight at an HTTP service, many at once.

    The service runs on this machine. At times it is slow, rejects requests (429), fails (500) or breaks a connection.
    You see the concurrency that the pipeline chooses, its retries and its cache hits. An as-of join checks all answers.

    Exit status: 0 all answers are right, 1 an answer is wrong or missing, 130 cancelled by a second Ctrl-C.
    """
    from flights.lookups.command import LookupOptions, run_lookups

    options = LookupOptions(output=output, records=records, parallelism=parallelism, seed=seed)
    _exit_with(lambda: run_lookups(options))


def _hand_over(default: str) -> Callable[[F], F]:
    options = (
        _output(default),
        click.option(
            "--until",
            type=_DAY,
            metavar="YYYY-MM-DD",
            default="2013-07-01",
            show_default=True,
            help="Day (UTC) on which the part on Spark ends and the live job starts.",
        ),
        click.option(
            "--since", type=_DAY, metavar="YYYY-MM-DD", help="Omit flights before this day."
        ),
        click.option(
            "--end", type=_DAY, metavar="YYYY-MM-DD", help="Omit flights from this day on."
        ),
        click.option(
            "--partitions",
            type=click.IntRange(min=1),
            default=2,
            show_default=True,
            help="Cores of Spark, and tasks of each step there.",
        ),
        _PARALLELISM,
    )

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@main.command()
@_hand_over("flights-output/backfill")
def backfill(
    output: Path,
    until: datetime,
    since: datetime | None,
    end: datetime | None,
    partitions: int,
    parallelism: int,
) -> None:
    """Compute January to June on Spark, continue live with July to December, and compare with a live year.

    One pipeline runs three times: over history on Spark; live, from a savepoint with the open windows, sessions and
    timers; and live from the beginning. Needs Java.

    Exit status: 0 both ways give the same rows, 1 they differ, 130 interrupted.
    """
    _run_hand_over(output, until, since, end, partitions, parallelism)


@main.command()
@_hand_over("flights-output/stream")
@click.option(
    "--files",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Files in which each table arrives, one each second; each is a batch.",
)
def stream(
    output: Path,
    until: datetime,
    since: datetime | None,
    end: datetime | None,
    partitions: int,
    parallelism: int,
    files: int,
) -> None:
    """Process files that arrive in a folder by a stream on Spark, continue live, and compare with a live year.

    One pipeline runs three times: on Spark, in micro-batches, until its event time is July 1st; live, from a savepoint
    with the open windows, sessions and timers; and live from the beginning. Needs Java.

    Exit status: 0 both ways give the same rows, 1 they differ, 130 interrupted.
    """
    _run_hand_over(output, until, since, end, partitions, parallelism, arriving=files)


def _run_hand_over(
    output: Path,
    until: datetime,
    since: datetime | None,
    end: datetime | None,
    partitions: int,
    parallelism: int,
    *,
    arriving: int | None = None,
) -> None:
    from flights.backfill.command import HandOver, run_hand_over
    from flights.backfill.tables import Period

    if not ((since or until) <= until <= (end or until)):
        raise click.UsageError("--until must not be before --since, nor after --end")
    chosen = HandOver(
        output=output,
        until=until.replace(tzinfo=UTC),
        period=Period(_midnight(since), _midnight(end)),
        partitions=partitions,
        parallelism=parallelism,
        arriving=arriving,
    )
    _exit_with(lambda: run_hand_over(chosen))


def _midnight(day: datetime | None) -> datetime | None:
    return None if day is None else day.replace(tzinfo=UTC)


def _exit_with(run: Callable[[], ExitStatus]) -> None:
    """Exit with the status that ``run`` returns; an error of aflow becomes one paragraph and status 1."""
    with _errors_as_exit_status():
        status = run()
    click.get_current_context().exit(status)


@contextmanager
def _errors_as_exit_status() -> Generator[None]:
    try:
        yield
    except af.AflowError as exc:
        raise click.ClickException("\n".join([str(exc), *getattr(exc, "__notes__", ())])) from exc
    except KeyboardInterrupt:
        click.echo("interrupted before the pipeline ran", err=True)
        click.get_current_context().exit(ExitStatus.INTERRUPTED)
