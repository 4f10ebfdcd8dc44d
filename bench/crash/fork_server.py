"""The end of a process that was forked from a program that has imported everything."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Final

#: Seconds between two looks at the process.
_CHECK_EVERY: Final = 0.005


def ended_status(pid: int) -> int:
    """Wait until a forked process has ended. If the program that reads the output ends first, end both."""
    parent = os.getppid()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if os.getppid() != parent:
            os.kill(pid, signal.SIGKILL)
            sys.exit(1)
        time.sleep(_CHECK_EVERY)
