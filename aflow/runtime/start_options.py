"""Keywords of ``Flow.start``, ``Flow.run``, ``run_flow`` and ``FlowDriver``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Final, TypedDict, get_type_hints

from aflow.runtime.checkpoints.settings import Checkpointing
from aflow.runtime.options import Options
from aflow.runtime.recovery import JobEvent, RecoveryOptions, Restore, StartFrom
from aflow.runtime.restarts import NoRestart, Restarts


class StartOptions(TypedDict, total=False):
    """Arguments of a start. All by keyword, and all optional; None stands for the default."""

    parallelism: int
    """The number of subtasks of each keyed step, and of each source that can be divided, unless the step itself says
    otherwise; 1 by default."""
    options: Options | None
    """Settings of the run; ``Options()`` by default."""
    checkpointing: Checkpointing | None
    """With it, the job takes checkpoints and continues from them: after a failure if ``restart`` allows it, and when
    the program is started again. None, the default: no checkpoints."""
    restart: Restarts | None
    """The restart strategy; ``NoRestart()`` by default."""
    restore: Restore
    """The start of the job: ``"latest"``, the default, is the newest checkpoint in its storage, or the beginning if
    there is none; ``"fresh"`` is the beginning; any other string is the path of a checkpoint or savepoint."""
    allow_dropped_state: bool
    """True lets the job continue although the pipeline has no place for some of the stored state; False by default."""
    on_event: Callable[[JobEvent], None] | None
    """Called on the event loop with the outcome of each checkpoint and with each restart and its cause."""


_NAMES: Final = tuple(get_type_hints(StartOptions))


def check_start_names(method: str, options: Mapping[str, object]) -> None:
    """Raise ``TypeError``, as Python does, if ``options`` has a name that is not in ``StartOptions``."""
    for name in options:
        if name not in _NAMES:
            close = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise TypeError(
                f"{method}() has no argument {name!r}{hint}; it takes {', '.join(_NAMES)}"
            )


def recovery_of(options: StartOptions) -> RecoveryOptions:
    """Return the part of ``options`` that is about failures. Raises ``FlowDefinitionError`` for invalid values."""
    restart = options.get("restart")
    return RecoveryOptions(
        checkpointing=options.get("checkpointing"),
        restarts=NoRestart() if restart is None else restart,
        restore=options.get("restore", StartFrom.LATEST),
        allow_dropped_state=options.get("allow_dropped_state", False),
        on_event=options.get("on_event"),
    )
