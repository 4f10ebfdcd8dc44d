"""Paths of checkpoints in the file system of this process: plain ones, or ``file:`` URIs."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aflow.errors import FlowDefinitionError, shown


def local_folder(path: str | PathLike[str], what: str) -> Path:
    """Return the folder, or file, that ``path`` names; ``what`` is the argument, for errors.

    Raises ``FlowDefinitionError`` for an invalid path, and for a URI of anything but a local or mounted folder.
    """
    named = fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(named, str) or not named:
        raise FlowDefinitionError(f"{what} takes the path of a folder, not {shown(path)}")
    if "://" not in named and not named.startswith("file:"):
        return Path(named)
    uri = urlsplit(named)
    if uri.scheme == "file" and uri.netloc in ("", "localhost") and uri.path.startswith("/"):
        return Path(unquote(uri.path))
    raise FlowDefinitionError(
        f"{named!r} is not in a file system of this machine: savepoints and checkpoints are in local or mounted "
        f"folders, such as 'savepoints/july' or 'file:///mnt/savepoints/july'"
    )
