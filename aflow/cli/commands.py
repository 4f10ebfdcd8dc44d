"""The ``aflow`` command and what can be asked of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

import aflow
from aflow.cli.options import NAMES, PARALLELISM, TARGETED, TRACEBACK, explained, for_targets, say
from aflow.cli.recovering import (
    checkpoint_options,
    given_on_command_line,
    recovering,
    refuse_beside,
)
from aflow.cli.running import Run
from aflow.cli.savepoint import savepoint
from aflow.cli.tables import print_metrics
from aflow.cli.targeted import ordered
from aflow.cli.values import Duration
from aflow.graph.drawing import to_mermaid, to_text
from aflow.runtime.metrics import JobMetrics

_MAIN_HELP: Final = """Run pipelines over streams of records, with state, event time and windows.

A pipeline is an aflow.Flow, usually returned by a function named build in a module of yours:

\b
    import aflow as af

\b
    def build(up_to: int = 10) -> af.Flow:
        flow = af.Flow("squares")
        flow.source(range(up_to)).map(lambda n: n * n).to(af.CallbackSink(print))
        return flow

\b
With that in squares.py, in the current directory:
    aflow run squares:build                 run it
    aflow run squares:build --up-to 5       with an argument for build
    aflow run squares:build --help          what build takes
    aflow graph squares:build               see what would run, and what a crash would mean

\b
New here? 'aflow demo' replays a year of real flights.
"""


@click.group(help=_MAIN_HELP, context_settings=NAMES)
@click.version_option(aflow.__version__, prog_name="aflow", message="%(prog)s %(version)s")
def main() -> None:
    """The ``aflow`` command."""


main.add_command(savepoint)


@main.command(context_settings=TARGETED)
@for_targets
@checkpoint_options
@click.option("--metrics", is_flag=True, help="Print a table of all steps at the end, to stderr.")
@click.option(
    "--no-uvloop", is_flag=True, help="Use asyncio's own event loop even if uvloop is there."
)
@click.pass_context
def run(
    context: click.Context, /, target: str, arguments: tuple[str, ...], traceback: bool, **_: object
) -> None:
    """Run a flow until its sources have ended.

    PACKAGE.MODULE:NAME is a Flow, or a function that returns one; the current directory is searched, too. Options
    behind it go to the function's parameters: --up-to 5 becomes up_to=5, converted as the parameter is annotated.
    With --help behind it you see what there is.

    Ctrl-C (or SIGTERM) drains: sources stop, what they gave is processed, windows give their results. With
    --checkpoint-dir open windows wait in a last checkpoint instead, and the next run goes on from there. A second
    Ctrl-C stops at once.

    Exit status: 0 done or drained, 1 the pipeline failed, 2 the command line is wrong, 130 stopped at once.
    """
    with explained(context, traceback=traceback or "--traceback" in arguments):
        order = ordered(context, target, arguments)
        one = Run(
            flow=order.flow,
            parallelism=order.number("parallelism"),
            uvloop=not order.flag("no_uvloop"),
            recovering=recovering(
                given=order.given,
                folder=order.text("checkpoint_dir"),
                every=order.duration("checkpoint_every"),
                barriers=order.text("barriers") or "",
                restore=order.text("restore") or "",
                allow_dropped_state=order.flag("allow_dropped_state"),
                restarts=order.number("restarts"),
            ),
            say=say,
            report=print_metrics if order.flag("metrics") else _no_report,
        )
        context.exit(one.to_the_end())


@main.command(context_settings=TARGETED)
@for_targets
@click.option(
    "--mermaid", is_flag=True, help="Give Mermaid text, for Markdown files and mermaid.live."
)
@click.pass_context
def graph(
    context: click.Context, /, target: str, arguments: tuple[str, ...], traceback: bool, **_: object
) -> None:
    """Show what would run: tasks, exchanges, key groups, and what a crash would mean.

    Nothing is read or written. PACKAGE.MODULE:NAME and what follows are those of 'aflow run'.
    """
    with explained(context, traceback=traceback or "--traceback" in arguments):
        order = ordered(context, target, arguments)
        plan = order.flow.plan(parallelism=order.number("parallelism"))
        if order.flag("mermaid"):
            click.echo(to_mermaid(plan), nl=False)
        else:
            click.echo(to_text(plan))
            click.echo("With --mermaid it is drawn as a Mermaid flowchart instead.")


@main.command(context_settings=NAMES)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("aflow-demo"),
    show_default=True,
    help="The folder for the results, as JSON lines.",
)
@click.option("--records", type=click.IntRange(min=1), help="Stop after so many flights.")
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

    With --kill-after you see a crash, and that nothing of it shows in the results.
    """
    from aflow.cli.demo.command import Replay, run_demo  # they need more than other commands want

    given = given_on_command_line(context)
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


def _no_report(metrics: JobMetrics) -> None:
    """Without --metrics."""
