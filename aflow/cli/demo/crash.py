"""``aflow demo --kill-after``: the replay runs in a process of its own, which is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from aflow.errors import CheckpointError

#: Between two checkpoints of the replay, which takes seconds.
EVERY = timedelta(milliseconds=500)


def killed(options: Sequence[str], checkpoints: Path, after: timedelta) -> bool:
    """Run ``aflow demo`` with ``options`` and checkpoints, and kill it ``after`` a while, as a crash would.

    False if it ended before. Raises ``CheckpointError`` if it failed instead.
    """
    command = [sys.executable, "-m", "aflow", "demo", *options]
    every = f"{EVERY.total_seconds():g}s"
    command += ["--checkpoint-dir", str(checkpoints), "--checkpoint-every", every]
    command += ["--from", "fresh", "--no-tables"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, said = process.communicate(timeout=after.total_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True
    if process.returncode:
        raise CheckpointError(f"the replay that was to be killed failed before:\n{said}")
    return False


def completed(checkpoints: Path) -> int:
    """How many checkpoints there are to go on from."""
    return len(list(checkpoints.glob("checkpoint-*.json")))
