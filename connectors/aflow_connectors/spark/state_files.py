"""State files written by executors, if driver and executors share the staging folder.

As with results (``result_files``), a file counts only if a row that Spark accepts names it, and the driver creates the
folder.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from aflow.connect import ConnectorError

#: Bytes of a chunk in the driver's memory.
_CHUNK: Final = 4 * 2**20


def write_state(folder: Path, number: int, chunks: Iterable[bytes]) -> str:
    """Write the state of partition ``number`` of a fragment; return the file name. Raises ``ConnectorError``."""
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
    """Yield the content that ``write_state`` wrote, in chunks; blocks. Raises ``ConnectorError``."""
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
