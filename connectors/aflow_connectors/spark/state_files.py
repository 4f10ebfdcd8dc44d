"""State that executors write themselves, where driver and executors see the staging folder alike.

As of results (``result_files``), a file counts if a row that Spark takes names it, and the driver makes the folder.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from aflow.connect import ConnectorError

#: Bytes that the driver holds at a time.
_CHUNK: Final = 4 * 2**20


def write_state(folder: Path, number: int, chunks: Iterable[bytes]) -> str:
    """Write what partition ``number`` of a fragment leaves; the name of the file. Raises ``ConnectorError``."""
    path = folder / f"{number:05}-{uuid4().hex}"
    try:
        with path.open("xb") as file:
            file.writelines(chunks)
    except OSError as exc:
        raise ConnectorError(
            f"executor {socket.gethostname()} cannot write state to {path}: {exc.strerror or exc}; the staging folder "
            f"must be one that driver and executors see alike, with room for the state"
        ) from exc
    return path.name


def read_state(folder: Path, name: str) -> Iterator[bytes]:
    """What ``write_state`` has written, piece by piece; blocks. Raises ``ConnectorError``."""
    path = folder / name
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as exc:
        raise ConnectorError(
            f"cannot read state from {path}, where an executor has written it: {exc.strerror or exc}; the staging "
            f"folder must be one that driver and executors see alike"
        ) from exc
