"""``aflow savepoint``: what is in a savepoint or a checkpoint, and what a changed pipeline would make of it."""

from __future__ import annotations

import asyncio
from itertools import islice

import click

from aflow.cli.options import NAMES, TARGETED, TRACEBACK, explained, for_targets
from aflow.cli.savepoint_contents import key_lines
from aflow.cli.savepoint_tables import print_contents
from aflow.cli.targeted import ordered
from aflow.cli.usage import DONE, FAILED, UNKNOWN
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.restoration import changes_of
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.change_plan import ChangePlan


@click.group(context_settings=NAMES)
def savepoint() -> None:
    """Look into savepoints and checkpoints.

    PATH is the folder of a savepoint, a folder of checkpoints (whose newest is read), or one manifest in it. Nothing
    is changed, and a job that writes there is not disturbed.
    """


@savepoint.command(context_settings=NAMES)
@click.argument("path")
@TRACEBACK
@click.pass_context
def show(context: click.Context, path: str, traceback: bool) -> None:
    """Show what is inside: steps, states with their types, positions of sources, what sinks have to commit."""
    with explained(context, traceback=traceback):
        print_contents(_read(path))


@savepoint.command(context_settings=NAMES)
@click.argument("path")
@click.argument("step")
@click.option("--state", metavar="NAME", help="This state only, of keys that have something there.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many lines.")
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
    """Write what each key of STEP has, as a line of JSON: its states by name, and its timers.

    The pipeline's code is not needed, so values have no classes: a dataclass is an object, an enum its value, a map is
    a list of pairs, and what JSON has no type for is text (bytes are base64).
    """
    with explained(context, traceback=traceback):
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
    """Show what would become of each stored state if the pipeline went on from PATH.

    States are kept, migrated (with what changes), new (start empty), unknown until restored, dropped or refused.
    PACKAGE.MODULE:NAME and what follows are those of 'aflow run'. The types of what windows, joins and calls hold are
    compared only when a job restores them.

    Exit status: 0 all can go on, 1 something would be refused or dropped, 2 the command line is wrong, 3 nothing would
    be refused or dropped as far as is known, and the rest shows when a job goes on.
    """
    with explained(context, traceback=traceback or "--traceback" in arguments):
        restored = _read(path)
        order = ordered(context, target, arguments)
        wanted = order.flow.plan(parallelism=order.number("parallelism"))
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
