"""The exit statuses of the command, and the error for command lines that cannot be carried out."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNKNOWN: Final = 3
STOPPED_AT_ONCE: Final = 130


class UsageProblem(Exception):
    """The command line names something that is not there or that cannot be used; the message is for the user.

    ``command`` is the one whose ``--help`` tells more, as a user would write it; None: the one that was called.
    """

    def __init__(self, message: str, *, command: str | None = None) -> None:
        super().__init__(message)
        self.command = command
