"""The ``aflow`` command and what can be asked of it."""

from __future__ import annotations

from typing import Final

import click

import aflow
from aflow.cli.options import NAMES, TARGETED, explained, for_targets, say
from aflow.cli.recovering import checkpoint_options, recovering
from aflow.cli.running import Run
from aflow.cli.savepoint import savepoint
from aflow.cli.tables import print_metrics
from aflow.cli.targeted import ordered
from aflow.graph.plan_graph import to_mermaid, to_text
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


def _no_report(metrics: JobMetrics) -> None:
    """Without --metrics."""
