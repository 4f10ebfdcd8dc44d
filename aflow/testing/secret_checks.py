"""Search for secrets in what a connector shows: texts, positions, errors, plans and log records."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast

from aflow.errors import FlowDefinitionError, shown


class Secrets:
    """Texts that must not occur anywhere."""

    def __init__(self, secrets: Sequence[str]) -> None:
        texts = [secrets] if isinstance(secrets, str) else secrets
        if not all(isinstance(one, str) and len(one) >= 4 for one in texts):
            raise FlowDefinitionError(
                "secrets takes several texts of at least four characters, so that none occurs by chance"
            )
        self._secrets = tuple(texts)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def check(self, owner: str, where: str, value: object) -> None:
        """Raise ``AssertionError``, which does not show it, if ``value`` or its ``repr`` contains a secret."""
        if not self._secrets:
            return
        texts = (str(value), repr(value))
        for number, secret in enumerate(self._secrets):
            if any(secret in text for text in texts):
                raise AssertionError(f"{owner} shows secrets[{number}]: {where} contains it")

    @contextmanager
    def watched(self, owner: str) -> Generator[None]:
        """Check the errors and log records of the block."""
        if not self._secrets:
            yield
            return
        handler = _Recorder()
        root, own = logging.getLogger(), logging.getLogger("aflow")
        level = own.level
        root.addHandler(handler)
        own.setLevel(logging.DEBUG)
        try:
            yield
        except Exception as exc:
            self.check_error(owner, exc)
            raise
        finally:
            root.removeHandler(handler)
            own.setLevel(level)
        for text in handler.texts:
            self.check(owner, "a log record", text)

    def check_error(self, owner: str, error: BaseException) -> None:
        """Raise if a secret is in the text of ``error`` or of another one that its traceback shows."""
        for one in _shown_errors(error):
            self.check(owner, f"the text of a {type(one).__name__}", one)


def _shown_errors(error: BaseException) -> list[BaseException]:
    """Return the errors that the traceback of ``error`` shows: it, its causes or contexts, and parts of groups."""
    found: list[BaseException] = []
    todo = [error]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.append(one)
        context = None if one.__suppress_context__ else one.__context__
        todo += [other for other in (one.__cause__, context) if other is not None]
        if isinstance(one, BaseExceptionGroup):
            todo += cast("BaseExceptionGroup[BaseException]", one).exceptions
    return found


class _Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        extra = {name: one for name, one in vars(record).items() if name not in ("msg", "args")}
        error = record.exc_info[1] if record.exc_info else None
        errors = [] if error is None else _shown_errors(error)
        self.texts.append(f"{record.getMessage()} {shown(extra)} {extra} {errors}")
