"""What several commands have in common: options, and how a failure is told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from aflow.cli.complaints import complaint, full_traceback
from aflow.cli.usage import FAILED, STOPPED_AT_ONCE, USAGE, UsageProblem

F = TypeVar("F", bound=Callable[..., Any])

NAMES: Final = {"help_option_names": ["-h", "--help"]}

#: Options of ours end at the target; what follows is parsed again, with the options of the user's function.
TARGETED: Final = {"allow_interspersed_args": False, **NAMES}

PARALLELISM: Final = click.option(
    "--parallelism",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Subtasks of each keyed step, and of each source that can be divided.",
)
TRACEBACK: Final = click.option(
    "--traceback", is_flag=True, help="Show errors with all of Python's traceback."
)


def for_targets(function: F) -> F:
    """The arguments that all commands about a flow share."""
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


@contextmanager
def explained(context: click.Context, *, traceback: bool) -> Generator[None]:
    """Turn what goes wrong inside into a paragraph on stderr, and an exit status."""
    try:
        yield
    except (click.exceptions.Exit, click.ClickException):
        raise
    except UsageProblem as exc:
        say(f"Error: {exc}\nTry '{exc.command or context.command_path} --help'.")
        context.exit(USAGE)
    except KeyboardInterrupt:
        say("stopped before the pipeline ran")
        context.exit(STOPPED_AT_ONCE)
    except Exception as exc:
        say(
            full_traceback(exc)
            if traceback
            else complaint(exc, hint="(--traceback shows everything)")
        )
        context.exit(FAILED)


def say(text: str) -> None:
    """Tell the user something; stdout belongs to the pipeline."""
    click.echo(text, err=True)
