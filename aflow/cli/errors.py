"""Exit statuses, and the report of an error: one paragraph, with the frames of the user's code."""

from __future__ import annotations

import logging
import sysconfig
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

import aflow
import aflow_connectors
from aflow.errors import InternalError, message_of

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNKNOWN: Final = 3
INTERRUPTED: Final = 130

#: Folders of code that is not the user's: aflow and the standard library.
_FOREIGN: Final = frozenset(
    {
        *(Path(file).parent for file in (aflow.__file__, aflow_connectors.__file__) if file),
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")),
    }
)

#: Folders of installed packages in any environment; ``dist-packages`` on Debian.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

#: Number of frames that are shown, the nearest to the failure; a recursion would fill the screen.
_FRAMES: Final = 8


class UsageProblem(Exception):
    """The command line names something that does not exist or cannot be used; the message is for the user.

    ``command`` is the command with the details in its ``--help``, as the user would write it; None: the one that was
    called.
    """

    def __init__(self, message: str, *, command: str | None = None) -> None:
        super().__init__(message)
        self.command = command


@contextmanager
def errors_reported(context: click.Context, *, traceback: bool) -> Generator[None]:
    """Turn an error of the block into a paragraph on stderr and an exit status."""
    try:
        yield
    except (click.exceptions.Exit, click.ClickException):
        raise
    except UsageProblem as exc:
        say(f"Error: {exc}\nTry '{exc.command or context.command_path} --help'.")
        context.exit(USAGE)
    except KeyboardInterrupt:
        say("stopped before the pipeline ran")
        context.exit(INTERRUPTED)
    except Exception as exc:
        say(
            full_traceback(exc) if traceback else report(exc, hint="(--traceback shows everything)")
        )
        context.exit(FAILED)


def say(text: str) -> None:
    """Print to stderr: stdout belongs to the pipeline."""
    click.echo(text, err=True)


def report(error: BaseException, *, hint: str | None = None) -> str:
    """Return the summary of ``error``, the frames of the user's code, the notes, and ``hint``."""
    parts = [f"Error: {_summary(error)}", *_frames(error), *_notes(error)]
    if hint is not None:
        parts.append(hint)
    return "\n".join(parts)


def full_traceback(error: BaseException) -> str:
    """Return the traceback of ``error``, with the frames of aflow."""
    return "".join(traceback.format_exception(error)).rstrip()


def _summary(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        place = f"{_shown_path(error.filename or '?')}:{error.lineno}"
        text = f"\n    {error.text.strip()}" if error.text else ""
        return f"{type(error).__name__} at {place}: {error.msg}{text}"
    return message_of(error)


def _frames(error: BaseException) -> list[str]:
    """Return the user's frames of the first exception in the chain of causes that has any.

    An ``InternalError`` has the frames of aflow as well.
    """
    if isinstance(error, SyntaxError):
        return []
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        stack = traceback.extract_tb(one.__traceback__)
        frames = [frame for frame in stack if _is_user_frame(frame, error)]
        if frames:
            return [line for frame in frames[-_FRAMES:] for line in _frame_lines(frame)]
        one = one.__cause__ or one.__context__
    return []


def _is_user_frame(frame: traceback.FrameSummary, error: BaseException) -> bool:
    if isinstance(error, InternalError):
        return True
    path = Path(frame.filename)
    # Frozen and generated code has no file; compiled packages name a file that was not installed.
    if not path.is_file():
        return False
    return _FOREIGN.isdisjoint(path.parents) and _INSTALLED.isdisjoint(path.parts)


def _frame_lines(frame: traceback.FrameSummary) -> list[str]:
    code = [f"      {frame.line}"] if frame.line else []
    return [f"  at {_shown_path(frame.filename)}:{frame.lineno} in {frame.name}", *code]


def _notes(error: BaseException) -> list[str]:
    return [f"  {note}" for note in getattr(error, "__notes__", ())]


def _shown_path(filename: str) -> str:
    """Return the path, relative to the current directory if it is below it."""
    path = Path(filename)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename


@contextmanager
def logged_to_terminal(level: int) -> Generator[None]:
    """Write log records from ``level`` on to stderr in the block, as Python does if no handler is installed.

    Handlers that the program of the user has installed get all records, as before.
    """
    handler = logging.lastResort
    if handler is None:
        yield
        return
    before = handler.level
    handler.setLevel(level)
    try:
        yield
    finally:
        handler.setLevel(before)
