"""``aflow savepoint``: the contents of a savepoint or a checkpoint, and the compatibility of a changed pipeline."""

from __future__ import annotations

import asyncio
from itertools import islice

import click

from aflow.cli.errors import DONE, FAILED, UNKNOWN, errors_reported
from aflow.cli.options import NAMES, TARGETED, TRACEBACK, for_targets
from aflow.cli.savepoint_report import key_lines, print_contents
from aflow.cli.target import invocation
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.restoration import changes_of
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.change_plan import ChangePlan


@click.group(context_settings=NAMES)
def savepoint() -> None:
    """Inspect savepoints and checkpoints.

    PATH is the folder of a savepoint, a folder of checkpoints (the newest is read), or one manifest in it. Nothing is
    changed, and a job that writes there is not disturbed.
    """


@savepoint.command(context_settings=NAMES)
@click.argument("path")
@TRACEBACK
@click.pass_context
def show(context: click.Context, path: str, traceback: bool) -> None:
    """Show steps, states with their types, positions of sources, and pending commits of sinks."""
    with errors_reported(context, traceback=traceback):
        print_contents(_read(path))


@savepoint.command(context_settings=NAMES)
@click.argument("path")
@click.argument("step")
@click.option("--state", metavar="NAME", help="Show this state only, of the keys that have it.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of lines.")
@TRACEBACK
@click.pass_context
def keys(
    context: click.Context,
    path: str,
    step: str,
    state: str | None,
    limit: int | None,
    traceback: bool,
) -> None:
    """Print a line of JSON for each key of STEP: its states by name, and its timers.

    The code of the pipeline is not needed, so values have no classes: a dataclass is an object, an enum its value, a
    map a list of pairs, and types that JSON lacks are text (bytes are base64).
    """
    with errors_reported(context, traceback=traceback):
        for line in islice(key_lines(_read(path), step, state), limit):
            click.echo(line)


@savepoint.command(context_settings=TARGETED)
@click.argument("path")
@for_targets
@click.pass_context
def plan(
    context: click.Context,
    /,
    path: str,
    target: str,
    arguments: tuple[str, ...],
    traceback: bool,
    **_: object,
) -> None:
    """Show the effect on each stored state if the pipeline continued from PATH.

    States are kept, migrated (with the changes), new (initially empty), unknown until restored, dropped or refused.
    PACKAGE.MODULE:NAME and the options after it are those of 'aflow run'. The state types of windows, joins and calls
    are compared only when a job restores them.

    Exit status: 0 all states can be restored, 1 a state would be refused or dropped, 2 the command line is wrong, 3 no
    known state would be refused or dropped, and some are unknown until a job restores them.
    """
    with errors_reported(context, traceback=traceback or "--traceback" in arguments):
        restored = _read(path)
        invoked = invocation(context, target, arguments)
        wanted = invoked.flow.plan(parallelism=invoked.number("parallelism"))
        manifest = restored.manifest
        changes = changes_of(wanted, restored)
        click.echo(
            f"flow {wanted.flow!r} from {manifest.kind.value} {manifest.id} of flow {manifest.flow!r}:"
        )
        click.echo(str(changes))
        context.exit(_status(changes))


def _status(changes: ChangePlan) -> int:
    if changes.refused or changes.dropped:
        return FAILED
    return UNKNOWN if changes.unknown else DONE


def _read(path: str) -> Restored:
    return asyncio.run(read_checkpoint(path))
