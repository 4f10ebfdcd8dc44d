"""The boundary around code that takes stored bytes apart."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from aflow.errors import AflowError, RestoreError


@contextmanager
def wrap_read_errors(what: str) -> Generator[None]:
    """Raise ``RestoreError`` in place of the errors of bytes whose checksums are right, and which are not aflow's.

    Bytes that aflow has written are cast to what it wrote. Others fail somewhere in there, with a ``TypeError``, a
    ``ValueError`` or any other error that tells a user nothing. ``what`` is what was read, for the message.
    """
    try:
        yield
    except AflowError:
        raise
    except Exception as exc:
        raise RestoreError(
            f"{what} cannot be read: {type(exc).__name__}: {exc}. Its checksums are right, so it was not written by "
            f"this version of aflow, or was changed on purpose: restore from another checkpoint or savepoint"
        ) from exc
