"""The boundary around code that decodes stored bytes: all its errors become ``RestoreError``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from aflow.errors import AflowError, RestoreError, described


@contextmanager
def wrap_read_errors(what: str) -> Generator[None]:
    """Raise ``RestoreError`` in place of errors of bytes with valid checksums that aflow has not written.

    Decoders cast bytes to the types that aflow writes. Other bytes fail in them with a ``TypeError``, a ``ValueError``
    or any other error that means nothing to a user. ``what`` names the bytes in the message.
    """
    try:
        yield
    except AflowError:
        raise
    except Exception as exc:
        raise RestoreError(
            f"{what} cannot be read: {described(exc)}. Its checksums are valid, so another version of aflow "
            f"has written it, or it was modified: restore from another checkpoint or savepoint"
        ) from exc
