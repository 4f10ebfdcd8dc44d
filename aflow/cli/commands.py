"""The ``aflow`` command, with ``run`` and ``graph``."""

from __future__ import annotations

from typing import Final

import click

import aflow
from aflow.cli.bench import bench
from aflow.cli.errors import errors_reported, say
from aflow.cli.metrics_table import print_metrics
from aflow.cli.options import (
    NAMES,
    NO_UVLOOP,
    TARGETED,
    checkpoint_options,
    for_targets,
    recovery_settings,
)
from aflow.cli.runner import FlowRun
from aflow.cli.savepoint import savepoint
from aflow.cli.target import invocation
from aflow.cli.top import top
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
    aflow run squares:build --help          list the arguments of build
    aflow graph squares:build               show tasks and exchanges, and the effect of a crash
    aflow bench squares:build …             measure it under load
    aflow top http://127.0.0.1:8000         watch the jobs of a running program (aflow.web)
"""


@click.group(help=_MAIN_HELP, context_settings=NAMES)
@click.version_option(aflow.__version__, prog_name="aflow", message="%(prog)s %(version)s")
def main() -> None:
    """The ``aflow`` command."""


main.add_command(savepoint)
main.add_command(top)
main.add_command(bench)


@main.command(context_settings=TARGETED)
@for_targets
@checkpoint_options
@click.option("--metrics", is_flag=True, help="Print a table of all steps at the end, to stderr.")
@NO_UVLOOP
@click.pass_context
def run(
    context: click.Context, /, target: str, arguments: tuple[str, ...], traceback: bool, **_: object
) -> None:
    """Run a flow until its sources have ended.

    PACKAGE.MODULE:NAME is a Flow, or a function that returns one; the current directory is searched, too. Options
    after it are parameters of the function: --up-to 5 becomes up_to=5, converted according to the annotation. --help
    after it lists them.

    Ctrl-C (or SIGTERM) drains: sources stop, records in flight are processed, open windows emit. With
    --checkpoint-dir a last checkpoint keeps open windows instead, and the next run continues from it. A second Ctrl-C
    stops at once.

    Exit status: 0 done or drained, 1 the pipeline failed, 2 the command line is wrong, 130 stopped at once.
    """
    with errors_reported(context, traceback=traceback or "--traceback" in arguments):
        invoked = invocation(context, target, arguments)
        flow_run = FlowRun(
            flow=invoked.flow,
            parallelism=invoked.number("parallelism"),
            uvloop=not invoked.flag("no_uvloop"),
            recovery=recovery_settings(invoked.given, invoked.settings),
            say=say,
            report=print_metrics if invoked.flag("metrics") else _no_report,
        )
        context.exit(flow_run.run())


@main.command(context_settings=TARGETED)
@for_targets
@click.option(
    "--mermaid", is_flag=True, help="Print Mermaid text, for Markdown files and mermaid.live."
)
@click.pass_context
def graph(
    context: click.Context, /, target: str, arguments: tuple[str, ...], traceback: bool, **_: object
) -> None:
    """Show the tasks, exchanges and key groups of a flow, and the effect of a crash.

    Nothing is read or written. PACKAGE.MODULE:NAME and the options after it are those of 'aflow run'.
    """
    with errors_reported(context, traceback=traceback or "--traceback" in arguments):
        invoked = invocation(context, target, arguments)
        plan = invoked.flow.plan(parallelism=invoked.number("parallelism"))
        if invoked.flag("mermaid"):
            click.echo(to_mermaid(plan), nl=False)
        else:
            click.echo(to_text(plan))
            click.echo("--mermaid prints a Mermaid flowchart instead.")


def _no_report(metrics: JobMetrics) -> None:
    """Print nothing, without --metrics."""
