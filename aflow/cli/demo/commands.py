"""``aflow demo``, ``aflow demo weather`` and ``aflow demo backfill`` on the command line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from aflow.cli.options import NAMES, PARALLELISM, TRACEBACK, explained
from aflow.cli.recovering import (
    checkpoint_options,
    given_on_command_line,
    recovering,
    refuse_beside,
)
from aflow.cli.values import Duration
from aflow.errors import SourceError
from aflow.model.distribution import install_command

F = TypeVar("F", bound=Callable[..., Any])

_RECORDS: Final = click.option(
    "--records", type=click.IntRange(min=1), help="Stop after so many flights."
)
_DAY: Final = click.DateTime(["%Y-%m-%d"])


def _output(default: str) -> Callable[[F], F]:
    return click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(default),
        show_default=True,
        help="The folder for the results, as JSON lines.",
    )


@click.group(
    invoke_without_command=True, context_settings=NAMES, subcommand_metavar="[COMMAND [ARGS]...]"
)
@_output("aflow-demo")
@_RECORDS
@PARALLELISM
@click.option(
    "--max-delay",
    type=Duration(),
    default="2h",
    show_default=True,
    help="How late after its schedule a flight may leave and still count in time.",
)
@click.option(
    "--kill-after",
    type=Duration(),
    help="Have the replay begun by a process that is killed after so long, and go on from its last checkpoint.",
)
@checkpoint_options
@click.option("--no-tables", is_flag=True, hidden=True)
@TRACEBACK
@click.pass_context
def demo(
    context: click.Context,
    /,
    output: Path,
    records: int | None,
    parallelism: int,
    max_delay: timedelta,
    kill_after: timedelta | None,
    no_tables: bool,
    traceback: bool,
    **checkpoints: Any,
) -> None:
    """Replay the flights of 2013 from New York with the weather: worst hours and days, storms, days of aircraft.

    With --kill-after you see a crash, and that nothing of it shows in the results. There are two other demos. In
    'aflow demo weather' each flight asks a service for its weather; 'aflow demo backfill' computes half a year on
    Spark and goes on live.
    """
    given = given_on_command_line(context)
    if context.invoked_subcommand is not None:
        _refuse_in_front_of(context.invoked_subcommand, context, given)
        return
    from aflow.cli.demo.command import Replay, run_demo  # they need more than other commands want

    with explained(context, traceback=traceback):
        if kill_after is not None:
            refuse_beside("--kill-after", given)
        replay = Replay(
            output=output,
            records=records,
            parallelism=parallelism,
            max_delay=max_delay,
            recovering=recovering(
                given=given,
                folder=checkpoints["checkpoint_dir"],
                every=checkpoints["checkpoint_every"],
                barriers=checkpoints["barriers"],
                restore=checkpoints["restore"],
                allow_dropped_state=checkpoints["allow_dropped_state"],
                restarts=checkpoints["restarts"],
            ),
            kill_after=kill_after,
            tables=not no_tables,
        )
        context.exit(run_demo(replay))


@demo.command(context_settings=NAMES)
@_output("aflow-demo/asked")
@_RECORDS
@PARALLELISM
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Which requests fail, and how long each takes.",
)
@TRACEBACK
@click.pass_context
def weather(
    context: click.Context,
    /,
    output: Path,
    records: int | None,
    parallelism: int,
    seed: int,
    traceback: bool,
) -> None:
    """Let each flight of 2013 ask a service for its weather, over HTTP, many at once.

    The service is started on this machine. It is slow at times, too busy at times (429), and broken at times (500, or
    a connection that breaks). You see how many calls the pipeline dares to make at once, what it asks again, and what
    it need not ask, since it knows. At the end each answer is compared with a join of flights and weather.

    Exit status: 0 all answers are right, 1 some are not, or there is none; others are those of 'aflow run'.
    """
    with explained(context, traceback=traceback):
        _needs_aiohttp()
        from aflow.cli.demo.asking.command import Asking, run_asking

        asking = Asking(output=output, records=records, parallelism=parallelism, seed=seed)
        context.exit(run_asking(asking))


@demo.command(context_settings=NAMES)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("aflow-demo/backfill"),
    show_default=True,
    help="The folder for tables, results and the savepoint.",
)
@click.option(
    "--until",
    type=_DAY,
    metavar="YYYY-MM-DD",
    default="2013-07-01",
    show_default=True,
    help="The day (UTC) on which the history on Spark ends and the live job begins.",
)
@click.option(
    "--since", type=_DAY, metavar="YYYY-MM-DD", help="Leave out what was before that day."
)
@click.option("--end", type=_DAY, metavar="YYYY-MM-DD", help="Leave out what is from that day on.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Cores of Spark, and tasks of each step there.",
)
@PARALLELISM
@TRACEBACK
@click.pass_context
def backfill(
    context: click.Context,
    /,
    output: Path,
    until: datetime,
    since: datetime | None,
    end: datetime | None,
    partitions: int,
    parallelism: int,
    traceback: bool,
) -> None:
    """Compute January to June on Spark, July to December live from what that leaves, and compare with a live year.

    One pipeline runs three times: over the history, on Spark's executors; live, from the savepoint with all windows,
    sessions and timers that were open; and live from the beginning. You see what was computed where. Spark needs Java.

    Exit status: 0 both ways give the same rows, 1 they do not; others are those of 'aflow run'.
    """
    with explained(context, traceback=traceback):
        from aflow.cli.demo.history.command import HandOver, run_hand_over
        from aflow.cli.demo.history.tables import Period

        period = Period(_midnight(since), _midnight(end))
        cut = until.replace(tzinfo=UTC)
        if not ((since or until) <= until <= (end or until)):
            raise click.UsageError("--until must not be before --since, nor after --end")
        chosen = HandOver(
            output=output,
            until=cut,
            period=period,
            partitions=partitions,
            parallelism=parallelism,
        )
        context.exit(run_hand_over(chosen))


def _midnight(day: datetime | None) -> datetime | None:
    return None if day is None else day.replace(tzinfo=UTC)


def _needs_aiohttp() -> None:
    try:
        import_module("aiohttp")
    except ImportError as exc:
        raise SourceError(
            f"this demo asks and answers with aiohttp, which is not installed: {install_command('demo')}"
        ) from exc


def _refuse_in_front_of(command: str, context: click.Context, given: frozenset[str]) -> None:
    """Raises ``click.UsageError`` for options of the replay in front of ``command``, which would not see them."""
    flags = [
        option.opts[0]
        for option in context.command.params
        if option.name in given and isinstance(option, click.Option)
    ]
    if flags:
        raise click.UsageError(
            f"{' and '.join(flags)} in front of {command!r} would have no effect; "
            f"'aflow demo {command} --help' says what can be given behind it"
        )
