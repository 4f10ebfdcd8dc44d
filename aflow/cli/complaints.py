"""What a user reads when something failed: one paragraph, and the places in their own code."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import aflow
import aflow_connectors
from aflow.errors import AflowError, InternalError

#: Folders of code that is not the user's: ours and the standard library.
_FOREIGN: Final = frozenset(
    {
        *(Path(file).parent for file in (aflow.__file__, aflow_connectors.__file__) if file),
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")),
    }
)

#: Where packages are installed, wherever that is; ``dist-packages`` on Debian.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

#: The frames nearest to the failure that are shown; a recursion would fill the screen.
_FRAMES: Final = 8


def complaint(error: BaseException, *, hint: str | None = None) -> str:
    """``error`` for a terminal: what happened, where in the user's code, and ``hint``, each on lines of its own."""
    parts = [f"Error: {_summary(error)}", *_where(error), *_notes(error)]
    if hint is not None:
        parts.append(hint)
    return "\n".join(parts)


def full_traceback(error: BaseException) -> str:
    """Everything that Python knows about ``error``, aflow's own frames included."""
    return "".join(traceback.format_exception(error)).rstrip()


def _summary(error: BaseException) -> str:
    if isinstance(error, AflowError):
        return str(error) or type(error).__name__
    if isinstance(error, SyntaxError):
        place = f"{_shown_path(error.filename or '?')}:{error.lineno}"
        text = f"\n    {error.text.strip()}" if error.text else ""
        return f"{type(error).__name__} at {place}: {error.msg}{text}"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(error: BaseException) -> list[str]:
    """The user's frames of the first exception in the chain of causes that has some; all frames of a bug of ours."""
    if isinstance(error, SyntaxError):
        return []
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        frames = [frame for frame in _frames(one.__traceback__) if _is_users(frame, error)]
        if frames:
            return [line for frame in frames[-_FRAMES:] for line in _frame_lines(frame)]
        one = one.__cause__ or one.__context__
    return []


def _frames(trace: TracebackType | None) -> traceback.StackSummary:
    return traceback.extract_tb(trace)


def _is_users(frame: traceback.FrameSummary, error: BaseException) -> bool:
    if isinstance(error, InternalError):
        return True
    path = Path(frame.filename)
    # Frozen and generated code has no file; that of compiled packages has one that was not installed.
    if not path.is_file():
        return False
    return _FOREIGN.isdisjoint(path.parents) and _INSTALLED.isdisjoint(path.parts)


def _frame_lines(frame: traceback.FrameSummary) -> list[str]:
    code = [f"      {frame.line}"] if frame.line else []
    return [f"  at {_shown_path(frame.filename)}:{frame.lineno} in {frame.name}", *code]


def _notes(error: BaseException) -> list[str]:
    return [f"  {note}" for note in getattr(error, "__notes__", ())]


def _shown_path(filename: str) -> str:
    """Relative to the current directory where it is below it."""
    path = Path(filename)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename
