"""``HttpSink``: requests with records to a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, get_args

from aflow.connect import Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.commit_errors import check_one_owner
from aflow_connectors.formats import Format
from aflow_connectors.http.arguments import (
    checked_count,
    checked_format,
    checked_function,
    checked_seconds,
)
from aflow_connectors.http.client import endpoint_of
from aflow_connectors.http.post import Poster, PostSettings
from aflow_connectors.http.requests import Body, RefusedRequest, RequestBuilder, content_type
from aflow_connectors.http.writers import (
    CheckpointWriter,
    PostingWriter,
    PreparedRequests,
    send_prepared,
)
from aflow_connectors.owners import new_owner
from aflow_connectors.reconnect import Reconnect, checked_reconnect

T = TypeVar("T")

_TIMEOUT: Final = timedelta(seconds=30)


class HttpSink(Sink[T], Generic[T]):
    """POST records to ``url``, several in a request: a JSON array, with ``body="lines"`` a line for each (JSON lines),
    with "single" one record for each request.

    Records are encoded as JSON, or in another ``format``; of a ``Message`` the value. A request has at most
    ``max_records`` (1,000) and ``max_bytes`` (1 MiB) of records, except for a single larger one. Of requests,
    ``in_flight`` are sent at a time; with more than 1 they may overtake each other.

    Each request has the header ``Idempotency-Key``, which is the same in all attempts. By default requests are sent at
    once, those that are not full after ``linger`` (0): records since the last checkpoint are sent again after a crash,
    with other keys. With ``exactly_once=True`` and checkpoints, requests are stored in the checkpoint, and are sent
    with the same keys, after a crash too, once it is complete: a service that honours keys has each record exactly
    once, and any other at least once.

    A request takes ``timeout`` (30 seconds) at most. Busy servers (429, 5xx) and lost connections are repeated
    (``reconnect``), not before ``Retry-After``. A request that the service refuses because of its records (400, 406,
    409, 413, 415, 422) raises ``SinkError``, or goes to ``on_refused``, a plain or ``async`` function, which may get it
    again after a crash. Other statuses raise ``SinkError``. ``client`` are settings of ``aiohttp.ClientSession`` such
    as ``headers`` and ``auth``, and ``ssl``.
    """

    def __init__(
        self,
        url: str,
        *,
        format: Format[Any] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        exactly_once: bool = False,
        body: Body = "array",
        max_records: int = 1000,
        max_bytes: int = 1 << 20,
        linger: timedelta = timedelta(0),
        in_flight: int = 1,
        on_refused: Callable[[RefusedRequest[T]], Awaitable[None] | None] | None = None,
        timeout: timedelta = _TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "HttpSink"
        self.delivery = Delivery.TRANSACTIONAL if exactly_once else Delivery.AT_LEAST_ONCE
        self._exactly_once = exactly_once
        if body not in get_args(Body):
            raise FlowDefinitionError(
                f"{owner}: body= must be 'array', 'lines' or 'single', not {shown(body)}"
            )
        self._body: Body = body
        self._format = checked_format(owner, None, format)
        self._max_records = checked_count(owner, "max_records", max_records)
        self._max_bytes = checked_count(owner, "max_bytes", max_bytes)
        self._linger = _checked_linger(owner, linger)
        self._in_flight = checked_count(owner, "in_flight", in_flight)
        self._settings = PostSettings(
            endpoint_of(owner, url, client),
            content_type(body, self._format),
            checked_seconds(owner, "timeout", timeout),
            checked_reconnect(owner, reconnect),
            checked_function(owner, "on_refused", on_refused),
        )
        #: The owner of the requests, by the name of the sink in its flow.
        self._owners: dict[str, str] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        poster = Poster(context.name, self._settings)
        builder = RequestBuilder[T](
            context.name, self._format, self._body, self._max_records, self._max_bytes
        )
        if self._exactly_once and context.checkpoints:
            owner = self._owners.setdefault(context.name, new_owner())
            return CheckpointWriter(
                context.name, poster, builder, self._in_flight, owner, context.subtask
            )
        prefix = f"aflow-{new_owner()}-{context.subtask}"
        writer = PostingWriter(poster, builder, self._in_flight, self._linger, prefix)
        await writer.open()
        return writer

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Send the requests of the checkpoint again, with their keys. Raises ``RestoreError`` and ``SinkError``."""
        if not (self._exactly_once or committables):
            return  # requests that an earlier run has prepared are sent in any case
        prepared = [PreparedRequests.of(one, sink=name) for one in committables]
        owners = {one.owner for one in prepared}
        check_one_owner(name, owners, output="requests")
        poster = Poster(name, self._settings)
        try:
            for one in sorted(prepared, key=lambda one: (one.checkpoint, one.subtask)):
                await send_prepared(poster, one, self._in_flight, repeated=True)
        finally:
            await poster.close()
        self._owners[name] = owners.pop() if owners else new_owner()


def _checked_linger(owner: str, linger: object) -> float:
    if not isinstance(linger, timedelta) or linger < timedelta(0):
        raise FlowDefinitionError(
            f"{owner}: linger= must be a timedelta that is not negative, not {shown(linger)}"
        )
    return linger.total_seconds()
