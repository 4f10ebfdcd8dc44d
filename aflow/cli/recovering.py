"""Checkpoints of a job on the command line: its options, and what is said about what happens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from aflow.cli.values import Duration
from aflow.runtime.checkpoints.settings import Aligned, Barriers, Checkpointing, Unaligned
from aflow.runtime.checkpoints.statistics import CheckpointInfo, Outcome
from aflow.runtime.recovery import JobEvent, JobRestarted, JobRestored, Restore, StartFrom
from aflow.runtime.restarts import FixedDelay, NoRestart, Restarts

#: Options that say nothing without a folder for checkpoints, by their parameters.
_NEED_A_FOLDER: Final = {
    "checkpoint_every": "--checkpoint-every",
    "barriers": "--barriers",
    "allow_dropped_state": "--allow-dropped-state",
}

F = TypeVar("F", bound=Callable[..., Any])

_DIRECTORY: Final = click.option(
    "--checkpoint-dir",
    metavar="FOLDER",
    help="Take checkpoints into this folder, and go on from the latest one that is there.",
)
_EVERY: Final = click.option(
    "--checkpoint-every",
    type=Duration(),
    default="10s",
    show_default=True,
    help="From one checkpoint to the next.",
)
_BARRIERS: Final = click.option(
    "--barriers",
    default="aligned",
    show_default=True,
    metavar="aligned|unaligned|DURATION",
    help="Whether barriers overtake records that are in their way: never, at once, or after a while.",
)
_FROM: Final = click.option(
    "--from",
    "restore",
    default="latest",
    show_default=True,
    metavar="latest|fresh|PATH",
    help="Where to begin: at the latest checkpoint, at the beginning, or at the savepoint in a folder.",
)
_DROP: Final = click.option(
    "--allow-dropped-state",
    is_flag=True,
    help="Go on though the pipeline has no place any more for some of what is stored.",
)
_RESTARTS: Final = click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How often to start again, a second after a failure, from the latest checkpoint.",
)


def checkpoint_options(function: F) -> F:
    """The options about checkpoints, for a command."""
    for decorate in (_RESTARTS, _DROP, _FROM, _BARRIERS, _EVERY, _DIRECTORY):
        function = decorate(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """How a job on the command line comes through failures."""

    checkpointing: Checkpointing | None = None
    restore: Restore = StartFrom.LATEST
    allow_dropped_state: bool = False
    restarts: Restarts = field(default_factory=NoRestart)


def given_on_command_line(context: click.Context) -> frozenset[str]:
    """The parameters of ``context`` that were not left to their defaults."""
    return frozenset(
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def recovering(
    *,
    given: Collection[str],
    folder: str | None,
    every: timedelta,
    barriers: str,
    restore: str,
    allow_dropped_state: bool,
    restarts: int,
) -> Recovering:
    """What the options say, of which ``given`` are the parameters that were not left to their defaults.

    Raises ``click.UsageError`` for those that make no sense together.
    """
    again = FixedDelay(restarts) if restarts else NoRestart()
    if folder is None:
        if restore not in {one.value for one in StartFrom}:
            raise click.UsageError(f"--from {restore} needs --checkpoint-dir FOLDER as well")
        for name, flag in _NEED_A_FOLDER.items():
            if name in given:
                raise click.UsageError(f"{flag} needs --checkpoint-dir FOLDER as well")
        return Recovering(restarts=again)
    settings = Checkpointing(storage=folder, every=every, barriers=_barriers(barriers))
    return Recovering(
        checkpointing=settings,
        restore=restore,
        allow_dropped_state=allow_dropped_state,
        restarts=again,
    )


def _barriers(text: str) -> Barriers:
    if text == "aligned":
        return Aligned()
    if text == "unaligned":
        return Unaligned()
    try:
        return Aligned(timeout=Duration().convert(text, None, None))
    except click.BadParameter as exc:
        raise click.UsageError(
            f"--barriers takes aligned, unaligned or a duration such as 500ms, not {text!r}"
        ) from exc


def told(event: JobEvent) -> str | None:
    """What to say about ``event``; None for what goes without saying."""
    match event:
        case JobRestored(checkpoint=checkpoint, passed_over=passed_over, path=path):
            lines = [f"passed over: {reason}" for reason in passed_over]
            where = f" in {path}" if path else ""
            return "\n".join([*lines, f"going on from checkpoint {checkpoint}{where}"])
        case JobRestarted(cause=cause, delay_ms=delay):
            return f"failed, starting again in {delay / 1000:g} s: {cause}"
        case CheckpointInfo(outcome=Outcome.FAILED):
            return f"{event.kind.value} {event.id} failed: {event.reason}"
        case _:
            return None
