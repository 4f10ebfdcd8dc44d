"""The files of the page, which are in the package: read once, and served by their names only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from aflow.web.messages import WebError, WebResponse

_FOLDER: Final = Path(__file__).parent / "static"

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}

#: Only files of this application, no inline code, no frames around the page, and requests to this application only.
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its type and the hash of its content."""

    content: bytes
    content_type: str
    etag: str


def static_response(
    files: Mapping[str, StaticFile], name: str, headers: Mapping[str, str]
) -> WebResponse:
    """Return one of ``files``; without its content if the client has it. Raises ``WebError`` 404."""
    file = files.get(name)
    if file is None:
        raise WebError(404, "unknown_path", f"the page has no file {name!r}")
    more = {**_HEADERS, "etag": file.etag}
    if file.etag in [one.strip() for one in headers.get("if-none-match", "").split(",")]:
        return WebResponse(304, file.content_type, b"", more)
    return WebResponse(200, file.content_type, file.content, more)


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return all files of the page by their paths below the folder. Blocks when it is called first."""
    return {
        path.relative_to(_FOLDER).as_posix(): _read(path)
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    digest = blake2b(content, digest_size=12).hexdigest()
    return StaticFile(content, _TYPES[path.suffix], f'"{digest}"')
