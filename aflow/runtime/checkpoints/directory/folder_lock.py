"""The lock by which one process holds a folder of checkpoints."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from aflow.errors import CheckpointError
from aflow.runtime.checkpoints.directory.files import Files, HeldLock, Occupied, reason
from aflow.runtime.checkpoints.directory.names import LOCK, PARTS


def hold(files: Files, folder: Path, flow: str, *, user: str) -> HeldLock:
    """Hold ``folder``, which is created if it does not exist; blocks. ``user`` is what else may hold it.

    Raises ``CheckpointError`` if it is held, or cannot be written.
    """
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "flow": flow}
    path = folder / LOCK
    if os.path.islink(folder / PARTS):
        raise CheckpointError(
            f"{folder / PARTS} is a symbolic link: {folder} itself may be one, its contents may not"
        )
    try:
        files.make_folder(folder / PARTS)
        return files.lock(path, json.dumps(owner).encode())
    except Occupied as exc:
        raise CheckpointError(
            f"{folder} is in use by another {user} ({_holder(str(exc))}): stop that one first, or give this one a "
            f"folder of its own"
        ) from exc
    except OSError as exc:
        raise CheckpointError(f"cannot write {path}: {reason(exc)}") from exc


def _holder(owner: str) -> str:
    """Return the holder of a lock, from the content of its file."""
    try:
        known = json.loads(owner)
        return f"process {known['pid']} on host {known['host']}, flow {known['flow']!r}"
    except (ValueError, LookupError, TypeError):
        return "which has not said who it is"
