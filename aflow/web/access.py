"""Tokens: the right to read, and the right to write."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from aflow.errors import FlowDefinitionError
from aflow.web.messages import WebError

_ASK: Final = {"www-authenticate": "Bearer"}


class Access:
    """Decides from the ``Authorization`` header if a request may read or write.

    Raises ``FlowDefinitionError`` for a token that no header can contain.
    """

    def __init__(self, token: str | None, read_token: str | None) -> None:
        self._write = _bytes_of(token, "token")
        self._read = _bytes_of(read_token, "read_token")

    def check_read(self, headers: Mapping[str, str]) -> None:
        """Raise ``WebError`` 401 if reads need a token and ``headers`` have neither that nor the one for writes."""
        if self._read is None:
            return
        given = _bearer(headers)
        reads = hmac.compare_digest(given, self._read)
        if not (reads or (self._write is not None and hmac.compare_digest(given, self._write))):
            raise _unauthorized(given, "read_token")

    def check_write(self, headers: Mapping[str, str]) -> None:
        """Raise ``WebError``: 403 if there is no token for writes, 401 if ``headers`` do not have it."""
        if self._write is None:
            raise WebError(
                403,
                "writes_disabled",
                "this application does not accept writes: give it a token, as in "
                "aflow.web.app(job, token=os.environ['AFLOW_TOKEN']), and send 'Authorization: Bearer <token>'",
            )
        given = _bearer(headers)
        if not hmac.compare_digest(given, self._write):
            raise _unauthorized(given, "token")


def _unauthorized(given: bytes, needed: str) -> WebError:
    """Return the response to a request with the token ``given``, which is none or a wrong one."""
    if given:
        text = f"the token of the request is wrong: 'Authorization: Bearer …' must have the {needed} of aflow.web"
    else:
        text = f"the request has no token: send 'Authorization: Bearer <{needed}>'"
    return WebError(401, "unauthorized", text, _ASK)


def _bytes_of(token: object, name: str) -> bytes | None:
    if token is None:
        return None
    # The characters are not part of the message: it may be logged.
    if not isinstance(token, str):
        raise FlowDefinitionError(f"{name} takes a string or None, not a {type(token).__name__}")
    if not token or not all("!" <= char <= "~" for char in token):
        raise FlowDefinitionError(
            f"{name} must be one or more ASCII characters without spaces, since it is sent in a header"
        )
    return token.encode("ascii")


def _bearer(headers: Mapping[str, str]) -> bytes:
    """Return the token of a request; empty without one, which equals no token."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode("utf-8", "replace") if scheme.lower() == "bearer" else b""
