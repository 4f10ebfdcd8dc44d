"""A store whose requests fail, and processes that die, before or after the effect of any single request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from obstore.store import MemoryStore


class Killed(BaseException):
    """The process has ended: its later requests have no effect."""


class Unreachable(Exception):
    """The answer to a request did not arrive."""


@dataclass
class FaultyStore:
    """A store in memory, with request number ``fails_at`` (from 1) going wrong, and all after it if ``for_good``.

    With ``after`` the request has its effect, and only the answer is lost. ``instead`` is called at that request, which
    then succeeds.
    """

    store: MemoryStore = field(default_factory=MemoryStore)
    fails_at: int | None = None
    after: bool = False
    for_good: bool = False
    killed: bool = False
    instead: Callable[[], None] | None = None
    calls: list[str] = field(default_factory=list[str])
    _lock: Lock = field(default_factory=Lock)

    def put(self, path: str, data: Any, **options: Any) -> Any:
        return self._do(f"put {path}", lambda: self.store.put(path, data, **options))

    def get(self, path: str, **options: Any) -> Any:
        return self._do(f"get {path}", lambda: self.store.get(path, **options))

    def head(self, path: str) -> Any:
        return self._do(f"head {path}", lambda: self.store.head(path))

    def list(self, prefix: str | None) -> Any:
        return self._do(f"list {prefix}", lambda: list(self.store.list(prefix)))

    def copy(self, source: str, target: str) -> Any:
        return self._do(f"copy {target}", lambda: self.store.copy(source, target))

    def delete(self, paths: Any) -> Any:
        return self._do("delete", lambda: self.store.delete(paths))

    def fell(self) -> bool:
        """Return True if a request has failed."""
        return self.fails_at is not None and len(self.calls) >= self.fails_at

    def stored(self) -> set[str]:
        return {one["path"] for page in self.store.list() for one in page}

    def _do(self, call: str, done: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
        due = self.fails_at is not None and number >= self.fails_at
        if due and self.instead is not None:
            if number == self.fails_at:
                self.instead()
            return done()
        if due and (number == self.fails_at or self.for_good or self.killed):
            if self.after and number == self.fails_at:
                done()
            raise Killed(call) if self.killed else Unreachable(f"no answer to {call}")
        return done()
