"""Options that several commands share, and those of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from aflow.cli.parameter_types import Duration
from aflow.runtime.checkpoints.settings import Aligned, Barriers, Checkpointing, Unaligned
from aflow.runtime.recovery import Restore, StartFrom
from aflow.runtime.restarts import FixedDelay, NoRestart, Restarts

F = TypeVar("F", bound=Callable[..., Any])

NAMES: Final = {"help_option_names": ["-h", "--help"]}

#: Options of aflow end at the target. The rest is parsed again, with the options of the user's function.
TARGETED: Final = {"allow_interspersed_args": False, **NAMES}

PARALLELISM: Final = click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Subtasks of each keyed step, and of each source that can be divided.",
)
TRACEBACK: Final = click.option(
    "--traceback", is_flag=True, help="Show errors with the whole traceback of Python."
)

NO_UVLOOP: Final = click.option(
    "--no-uvloop", is_flag=True, help="Use asyncio's own event loop even if uvloop is installed."
)

#: Options without effect unless there is a folder for checkpoints, by parameter.
_NEED_A_FOLDER: Final = {
    "checkpoint_every": "--checkpoint-every",
    "barriers": "--barriers",
    "allow_dropped_state": "--allow-dropped-state",
}

_DIRECTORY: Final = click.option(
    "--checkpoint-dir",
    metavar="FOLDER",
    help="Take checkpoints into this folder, and continue from the latest one in it.",
)
_EVERY: Final = click.option(
    "--checkpoint-every",
    type=Duration(),
    default="10s",
    show_default=True,
    help="Interval of checkpoints.",
)
_BARRIERS: Final = click.option(
    "--barriers",
    default="aligned",
    show_default=True,
    metavar="aligned|unaligned|DURATION",
    help="Barriers overtake buffered records: never, at once, or after a timeout of the alignment.",
)
_FROM: Final = click.option(
    "--from",
    "restore",
    default="latest",
    show_default=True,
    metavar="latest|fresh|PATH",
    help="Start at the latest checkpoint, at the beginning, or at the savepoint in a folder.",
)
_DROP: Final = click.option(
    "--allow-dropped-state",
    is_flag=True,
    help="Continue although the pipeline has no step for some of the stored state.",
)
_RESTARTS: Final = click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Restarts from the latest checkpoint, one second after each failure.",
)


def for_targets(function: F) -> F:
    """Add the parameters of all commands about a flow."""
    for decorate in (
        click.argument(
            "arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--OPTION VALUE]..."
        ),
        click.argument("target", metavar="PACKAGE.MODULE:NAME"),
        TRACEBACK,
        PARALLELISM,
    ):
        function = decorate(function)
    return function


def checkpoint_options(function: F) -> F:
    """Add the options about checkpoints."""
    for decorate in (_RESTARTS, _DROP, _FROM, _BARRIERS, _EVERY, _DIRECTORY):
        function = decorate(function)
    return function


def arrival_options(function: F) -> F:
    """Add the options about random arrivals of a load."""
    for decorate in (
        click.option("--seed", type=int, default=1, show_default=True, help="Of --poisson."),
        click.option("--poisson", is_flag=True, help="Random arrivals with this mean rate."),
    ):
        function = decorate(function)
    return function


def measurement_options(function: F) -> F:
    """Add the options about the time of a load and the forms of its result."""
    for decorate in (
        click.option(
            "--quiet",
            is_flag=True,
            help="Show nothing but errors while it runs; the result names warnings.",
        ),
        click.option(
            "--json", "json_file", type=click.Path(dir_okay=False), help="Write the result as JSON."
        ),
        click.option(
            "--report", type=click.Path(dir_okay=False), help="Write a report, as one HTML file."
        ),
        click.option(
            "--warmup",
            type=Duration(),
            help="Time before it that does not count.  [default: a fifth, at most 5s]",
        ),
        click.option(
            "--duration", type=Duration(), default="30s", show_default=True, help="Measured time."
        ),
    ):
        function = decorate(function)
    return function


def given_on_command_line(context: click.Context) -> frozenset[str]:
    """Return the parameters of ``context`` that do not have their defaults."""
    return frozenset(
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """Checkpoints, start and restarts of a job on the command line."""

    checkpointing: Checkpointing | None = None
    restore: Restore = StartFrom.LATEST
    allow_dropped_state: bool = False
    restarts: Restarts = field(default_factory=NoRestart)


def recovery_settings(given: Collection[str], values: Mapping[str, Any]) -> RecoverySettings:
    """Return the settings of the options about checkpoints, whose ``values`` are by parameter.

    ``given`` are the parameters that do not have their defaults. Raises ``click.UsageError`` for options that
    contradict each other.
    """
    folder: str | None = values["checkpoint_dir"]
    every: timedelta = values["checkpoint_every"]
    restore: str = values["restore"]
    restarts: int = values["restarts"]
    policy = FixedDelay(restarts) if restarts else NoRestart()
    if folder is None:
        if restore not in {one.value for one in StartFrom}:
            raise click.UsageError(f"--from {restore} needs --checkpoint-dir FOLDER as well")
        for name, flag in _NEED_A_FOLDER.items():
            if name in given:
                raise click.UsageError(f"{flag} needs --checkpoint-dir FOLDER as well")
        return RecoverySettings(restarts=policy)
    settings = Checkpointing(storage=folder, every=every, barriers=_barriers(values["barriers"]))
    return RecoverySettings(
        checkpointing=settings,
        restore=restore,
        allow_dropped_state=values["allow_dropped_state"],
        restarts=policy,
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
