"""The writers of ``HttpSink``: at once, or when the checkpoint that covers the records is complete.

**At once.** Requests wait in a queue for ``in_flight`` tasks, which send them. ``write`` waits while as many requests
are queued as are sent at a time: that is the backpressure. A request that is not full waits for more records for
``linger``, and longer while the queue is full. ``flush`` sends all. An error is raised by the next ``write`` or
``flush``. Keys are new after a restart, so records since the last checkpoint are sent again with other keys.

**With checkpoints.** ``prepare`` stores the requests of a checkpoint, byte for byte, in it. ``commit`` sends them, and
after a crash ``recover`` sends them again, with the same keys: owner, subtask, number of the checkpoint, number in it.
An owner is a lineage of runs (``owners.py``), and no number of a checkpoint is used twice in it, so no two requests
have one key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeGuard, TypeVar, cast

from aflow.connect import Batch, Committable, SinkError, Writer
from aflow_connectors.commit_errors import foreign_committable, uncovered_records
from aflow_connectors.http.post import Poster
from aflow_connectors.http.requests import Request, RequestBuilder
from aflow_connectors.owners import is_owner

T = TypeVar("T")


@dataclass(frozen=True)
class PreparedRequests:
    """The requests of one writer and one checkpoint."""

    owner: str
    subtask: int
    checkpoint: int
    bodies: Sequence[bytes]

    def stored(self) -> Committable:
        """Return it as plain data."""
        return {
            "owner": self.owner,
            "subtask": self.subtask,
            "checkpoint": self.checkpoint,
            "bodies": list(self.bodies),
        }

    @staticmethod
    def of(committable: Committable, *, sink: str) -> PreparedRequests:
        """Return the requests. Raises ``RestoreError`` for a committable of another kind."""
        stored: dict[str, Any] = committable if _is_dict(committable) else {}
        if set(stored) == _FIELDS and is_owner(str(stored["owner"])):
            numbers, bodies = (stored["subtask"], stored["checkpoint"]), stored["bodies"]
            if all(type(one) is int and one >= 0 for one in numbers) and _are_bodies(bodies):
                return PreparedRequests(**stored)
        raise foreign_committable(sink, committable)

    def key(self, number: int) -> str:
        """Return the key of a request."""
        return f"aflow-{self.owner}-{self.subtask}-{self.checkpoint}-{number}"


_FIELDS: Final = {"owner", "subtask", "checkpoint", "bodies"}


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _are_bodies(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(one, bytes) for one in cast("Sequence[object]", value)
    )


async def send_prepared(
    poster: Poster,
    prepared: PreparedRequests,
    in_flight: int,
    requests: Sequence[Request] | None = None,
    *,
    repeated: bool = False,
) -> None:
    """Send requests, ``in_flight`` at a time; ``requests`` are the same with their records. Raises ``SinkError``.

    ``repeated`` is True if an earlier run may have sent them.
    """
    if requests is None:
        requests = [Request(body) for body in prepared.bodies]
    waiting = deque(enumerate(requests))
    failures: list[SinkError] = []

    async def send() -> None:
        while waiting and not failures:
            number, request = waiting.popleft()
            try:
                await poster.send(prepared.key(number), request, repeated=repeated)
            except SinkError as exc:  # a group of tasks would wrap it
                failures.append(exc)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, len(waiting))):
            group.create_task(send())
    if failures:
        raise failures[0]


class CheckpointWriter(Writer[T], Generic[T]):
    """Keeps the requests of a checkpoint, which ``commit`` sends."""

    def __init__(
        self,
        sink: str,
        poster: Poster,
        builder: RequestBuilder[T],
        in_flight: int,
        owner: str,
        subtask: int,
    ) -> None:
        self._sink = sink
        self._poster = poster
        self._builder = builder
        self._in_flight = in_flight
        self._owner = owner
        self._subtask = subtask
        self._requests: list[Request] = []
        #: By checkpoint, the requests that wait for their commit.
        self._pending: dict[int, list[Request]] = {}

    async def write(self, batch: Batch[T]) -> None:
        self._requests += await self._builder.add(batch.values)

    async def prepare(self, checkpoint: int) -> Committable:
        requests, self._requests = self._requests, []
        if len(self._builder):
            requests.append(self._builder.take())
        if requests:
            self._pending[checkpoint] = requests
        bodies = [request.body for request in requests]
        # Also without requests: it tells a resumed job from a fresh one.
        return PreparedRequests(self._owner, self._subtask, checkpoint, bodies).stored()

    async def commit(self, committable: Committable) -> None:
        prepared = PreparedRequests.of(committable, sink=self._sink)
        if (prepared.owner, prepared.subtask) != (self._owner, self._subtask):
            raise SinkError(
                f"sink {self._sink!r}: checkpoint {prepared.checkpoint} has requests of another writer"
            )
        requests = self._pending.get(prepared.checkpoint)
        await send_prepared(self._poster, prepared, self._in_flight, requests)
        self._pending.pop(prepared.checkpoint, None)

    async def flush(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._requests or self._pending or len(self._builder):
            raise uncovered_records(self._sink)

    async def close(self) -> None:
        await self._poster.close()


class PostingWriter(Writer[T], Generic[T]):
    """Sends requests at once. See the theory at the top of the module; ``linger`` (s) may be 0."""

    def __init__(
        self,
        poster: Poster,
        builder: RequestBuilder[T],
        in_flight: int,
        linger: float,
        key_prefix: str,
    ) -> None:
        self._poster = poster
        self._builder = builder
        self._in_flight = in_flight
        self._linger = linger
        self._key_prefix = key_prefix
        #: Number of the next request.
        self._number = 0
        self._waiting: deque[tuple[str, Request]] = deque()
        #: Requests that are being sent.
        self._sending = 0
        self._failure: SinkError | None = None
        #: Set, and replaced, when one of the three has changed.
        self._changed = asyncio.Event()
        #: Calls ``_on_linger_end``; None unless records linger.
        self._timer: asyncio.TimerHandle | None = None
        #: True if records have lingered long enough, and wait for room in the queue.
        self._is_due = False
        # Its tasks raise nothing, so it may be left by another task than the one that has entered it.
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Start the tasks that send."""
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(self._send()) for _ in range(self._in_flight)]

    async def write(self, batch: Batch[T]) -> None:
        for request in await self._builder.add(batch.values):
            self._put(request)
        if not len(self._builder):
            self._stop_timer()
        elif not self._linger:
            self._put(self._builder.take())
        elif self._timer is None and not self._is_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._linger, self._on_linger_end)
        while not self._has_room() and self._failure is None:
            await self._changed.wait()
        self._check()

    async def flush(self) -> None:
        """Send all records, and wait until the service has taken them. Raises ``SinkError``."""
        self._stop_timer()
        if len(self._builder):
            self._put(self._builder.take())
        while (self._waiting or self._sending) and self._failure is None:
            await self._changed.wait()
        self._check()

    async def close(self) -> None:
        self._stop_timer()
        for task in self._tasks:
            task.cancel()
        tasks, self._tasks = self._tasks, []
        try:
            if tasks:
                await self._group.__aexit__(None, None, None)
        finally:
            await self._poster.close()

    async def _send(self) -> None:
        """Send requests until the writer is closed or one has failed."""
        while self._failure is None:
            if not self._waiting:
                await self._changed.wait()
                continue
            key, request = self._waiting.popleft()
            self._sending += 1
            self._on_room()
            try:
                await self._poster.send(key, request)
            except SinkError as exc:
                self._failure = exc
            except Exception as exc:  # a bug, which must not leave `flush` waiting
                self._failure = SinkError(f"cannot send a request: {exc!r}")
                self._failure.__cause__ = exc
            finally:
                self._sending -= 1
                self._notify()

    def _put(self, request: Request) -> None:
        self._waiting.append((f"{self._key_prefix}-{self._number}", request))
        self._number += 1
        self._notify()

    def _on_room(self) -> None:
        if self._is_due:
            self._on_linger_end()
        self._notify()

    def _on_linger_end(self) -> None:
        self._timer, self._is_due = None, True
        if self._has_room():
            self._stop_timer()
            if len(self._builder):
                self._put(self._builder.take())

    def _stop_timer(self) -> None:
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _has_room(self) -> bool:
        return len(self._waiting) < self._in_flight

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
