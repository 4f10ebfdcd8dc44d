"""``RedisSink`` and ``RedisUpsert``: streams, hashes and strings of a Redis server as a destination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Committable, Delivery, Sink, SinkError, Writer, WriterContext
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.broker_arguments import checked_format, checked_function
from aflow_connectors.commit_errors import check_one_owner
from aflow_connectors.formats import Format, Json, Raw
from aflow_connectors.message import Message
from aflow_connectors.messages import HeadersOf, MessageEncoder
from aflow_connectors.owners import new_owner
from aflow_connectors.plain_key import PlainKey
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis.arguments import checked_field
from aflow_connectors.redis.client import TIMEOUT, RedisLink, RedisServer
from aflow_connectors.redis.entries import FieldsEncoder, PayloadEncoder
from aflow_connectors.redis.epochs import OutputRun, PreparedCommands, RedisCommand, new_run
from aflow_connectors.redis.writers import BlockWriter, CommandsOf, ImmediateWriter

T = TypeVar("T")

_PREFIX: Final = "aflow:"
_RECONNECT: Final = Reconnect()


class _CommandSink(Sink[T], Generic[T]):
    """A sink that writes commands: those of each checkpoint once, or each batch at once."""

    def __init__(
        self, server: RedisServer, tag: str, state_prefix: str, *, exactly_once: bool
    ) -> None:
        self._server = server
        self._tag = tag
        self._prefix = checked_field(server.owner, "state_prefix", state_prefix)
        self._exactly_once = exactly_once
        #: The key of the state, the owner and the run, by the name of the sink in its flow.
        self._outputs: dict[str, tuple[str, str, str]] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        link = self._link(context.name)
        try:
            await link.check()
            commands = self._commands(f"sink {context.name!r}")
            if not (self._exactly_once and context.checkpoints):
                return ImmediateWriter(link, commands, self._state_key("none"))
            output = await self._output(link, context.name)
            committer = output.committer(context.subtask, commands.kind)
            await committer.open()
            return BlockWriter(context.name, link, commands, committer)
        except BaseException:
            await link.close()
            raise

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Recover as ``Sink.recover``. Raises ``RestoreError``, and ``SinkError`` if the output is ahead of the
        checkpoint, or was lost.
        """
        if not (self._exactly_once or committables):
            return  # output that an earlier run has prepared is written in any case
        epochs = [PreparedCommands.of(one, sink=name) for one in committables]
        states = {(epoch.state, epoch.owner) for epoch in epochs}
        check_one_owner(name, states)
        self._outputs.pop(name, None)
        link = self._link(name)
        try:
            await link.check()
            if states:
                ((key, owner),) = states
                output = OutputRun(name, link, key, owner, new_run())
                await output.resume(epochs)
                self._outputs[name] = (key, owner, output.run)
            else:
                await self._output(link, name)
        finally:
            await link.close()

    async def _output(self, link: RedisLink, name: str) -> OutputRun:
        if name in self._outputs:
            return OutputRun(name, link, *self._outputs[name])
        owner = new_owner()
        output = OutputRun(name, link, self._state_key(owner), owner, new_run())
        self._outputs[name] = (output.key, owner, output.run)
        await output.begin()
        return output

    def _commands(self, place: str) -> CommandsOf[T]:
        """Return the mapper of records to commands."""
        raise NotImplementedError

    def _link(self, name: str) -> RedisLink:
        return RedisLink(self._server, f"sink {name!r}", SinkError)

    def _state_key(self, owner: str) -> str:
        return f"{self._prefix}{{{self._tag}}}:{owner}"


class RedisSink(_CommandSink[T], Generic[T]):
    """Add each record as an entry to ``stream``: a name, or a function of the record.

    ``url`` is like "redis://user:password@host:6379/0". The fields of a record (a dict, a dataclass, a
    ``msgspec.Struct`` or a NamedTuple) are the fields of its entry, as text; those that are None are left out. With a
    ``format``, the field named ``field`` has the encoded record, ``key_field`` its ``key`` (bytes or text, or what
    ``key_format`` encodes), and ``headers`` are further fields. A ``Message`` brings its own key and headers.
    ``maxlen`` trims the stream to about this number of entries, ``exact_maxlen`` to exactly this number.

    With checkpoints each record is written exactly once, once its checkpoint is complete: until then records are kept
    in memory and in the checkpoint. ``state_prefix`` begins the key of a small hash with the number of the last
    checkpoint. Without checkpoints, or with ``exactly_once=False``, entries are visible at once, and written again
    after a restart. A server that loses its last writes at a restart (``appendfsync``) makes the job fail, since
    results are missing.

    A server that does not answer for ``timeout`` is away. ``client`` are settings of ``redis.asyncio.Redis``. Raises
    ``SinkError`` for wrong credentials and records that are no entry; a lost connection is renewed (``reconnect``).
    """

    def __init__(
        self,
        url: str,
        stream: str | Callable[[T], str],
        *,
        format: Format[Any] | None = None,
        key: Callable[[T], Any] | None = None,
        key_format: Format[Any] | None = None,
        headers: HeadersOf[T] | None = None,
        reconnect: Reconnect = _RECONNECT,
        exactly_once: bool = True,
        maxlen: int | None = None,
        exact_maxlen: bool = False,
        field: str = "value",
        key_field: str = "key",
        state_prefix: str = _PREFIX,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RedisSink"
        server = RedisServer(owner, url, client, reconnect, timeout)
        if not callable(stream) and not (isinstance(stream, str) and stream):
            raise FlowDefinitionError(
                f"{owner}: the stream must be a name or a function of the record, not {shown(stream)}"
            )
        super().__init__(server, _hash_tag(stream), state_prefix, exactly_once=exactly_once)
        self.delivery = Delivery.TRANSACTIONAL if exactly_once else Delivery.AT_LEAST_ONCE
        if format is None and (key is not None or key_format is not None or headers is not None):
            raise FlowDefinitionError(
                f"{owner}: key=, key_format= and headers= need format=; without it the fields of a record are those of "
                f"its entry"
            )
        self._stream = stream
        self._format = None if format is None else checked_format(owner, "format", format, Json())
        self._key = checked_function(owner, "key", key)
        self._key_format = checked_format(owner, "key_format", key_format, PlainKey())
        self._headers = checked_function(owner, "headers", headers)
        self._limit = _checked_limit(owner, maxlen, exact=exact_maxlen)
        self._field = checked_field(owner, "field", field)
        self._key_field = checked_field(owner, "key_field", key_field)

    def _commands(self, place: str) -> CommandsOf[T]:
        encoder: FieldsEncoder[T] | PayloadEncoder[T] = FieldsEncoder(place)
        if self._format is not None:
            encoder = PayloadEncoder(
                place,
                self._format,
                key=self._key,
                key_format=self._key_format,
                headers=self._headers,
                value_field=self._field,
                key_field=self._key_field,
            )
        return _EntryCommands(place, encoder, self._stream, self._limit)


class RedisUpsert(_CommandSink[T], Generic[T]):
    """Store each record under ``key``, a function of the record, and replace the former one.

    ``url`` is like "redis://user:password@host:6379/0". The fields of a record are those of a hash, as text; with a
    ``format`` the encoded record is a string. A ``Message`` without value removes the key. Keys expire after
    ``expire``.

    Each record is written at once, and again after a restart, so the final content is correct. With
    ``exactly_once=True`` it is written once its checkpoint is complete, as by ``RedisSink``, so others never see a
    record that a restart takes back. The other arguments, and errors, are those of ``RedisSink``.
    """

    def __init__(
        self,
        url: str,
        key: Callable[[T], str],
        *,
        format: Format[Any] | None = None,
        reconnect: Reconnect = _RECONNECT,
        exactly_once: bool = False,
        expire: timedelta | None = None,
        state_prefix: str = _PREFIX,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "RedisUpsert"
        server = RedisServer(owner, url, client, reconnect, timeout)
        super().__init__(server, "aflow", state_prefix, exactly_once=exactly_once)
        self.delivery = Delivery.TRANSACTIONAL if exactly_once else Delivery.IDEMPOTENT
        if not callable(key):
            raise FlowDefinitionError(
                f"{owner}: the key must be a function of the record, not {shown(key)}"
            )
        if expire is not None and not (isinstance(expire, timedelta) and expire > timedelta(0)):
            raise FlowDefinitionError(
                f"{owner}: expire= must be a positive timedelta or None, not {shown(expire)}"
            )
        self._key = key
        self._format = None if format is None else checked_format(owner, "format", format, Json())
        self._expire = None if expire is None else max(1, expire // timedelta(milliseconds=1))

    def _commands(self, place: str) -> CommandsOf[T]:
        return _UpsertCommands(place, self._key, self._format, self._expire)


class _EntryCommands(Generic[T]):
    """``XADD`` of each record."""

    kind = "stream"

    def __init__(
        self,
        place: str,
        encoder: FieldsEncoder[T] | PayloadEncoder[T],
        stream: str | Callable[[T], str],
        limit: Sequence[str],
    ) -> None:
        self._place = place
        self._encoder = encoder
        self._stream = stream
        self._head = ["XADD", *limit, "*"]

    async def of(self, values: Sequence[T]) -> list[list[RedisCommand]]:
        entries = await self._encoder.encode(values)
        head, stream = self._head, self._stream
        if isinstance(stream, str):
            return [[(stream, [*head, *fields])] for fields in entries]
        return [
            [(_named(self._place, "stream", stream, value), [*head, *fields])]
            for value, fields in zip(values, entries, strict=True)
        ]


class _UpsertCommands(Generic[T]):
    """``SET``, or ``DEL`` and ``HSET``, of each record."""

    def __init__(
        self,
        place: str,
        key: Callable[[T], str],
        format: Format[Any] | None,
        expire: int | None,
    ) -> None:
        self.kind = "hash" if format is None else "string"
        self._place = place
        self._key = key
        self._expire = expire
        # The key of a Message is not stored: the function of the record names the key.
        self._hashes = FieldsEncoder[T](place, ignore_key=True)
        self._strings = (
            None
            if format is None
            else MessageEncoder[T](place, format, key=_no_key, key_format=Raw())
        )

    async def of(self, values: Sequence[T]) -> list[list[RedisCommand]]:
        return [await self._one(value) for value in values]

    async def _one(self, record: T) -> list[RedisCommand]:
        key = _named(self._place, "key", self._key, record)
        commands: list[RedisCommand] = [(key, ["DEL"])]
        envelope: object = record
        if isinstance(envelope, Message) and envelope.value is None:  # pyright: ignore[reportUnknownMemberType]
            return commands
        if self._strings is None:
            (fields,) = await self._hashes.encode([record])
            commands.append((key, ["HSET", *fields]))
        else:
            (raw,) = await self._strings.encode([record])
            assert raw.value is not None
            commands = [(key, ["SET", raw.value])]
        if self._expire is not None:
            commands.append((key, ["PEXPIRE", str(self._expire)]))
        return commands


def _no_key(record: object) -> None:
    return None


def _named(place: str, argument: str, function: Callable[[T], object], record: T) -> str:
    """Return the key of ``record``. Raises ``SinkError`` with the record if there is none."""
    try:
        name = function(record)
    except Exception as exc:
        raise SinkError(
            f"{place}: the function of the {argument} failed for record {shown(record)}: {described(exc)}"
        ) from exc
    if isinstance(name, str) and name:
        return name
    raise SinkError(
        f"{place}: the {argument} of record {shown(record)} must be a text that is not empty, not {shown(name)}"
    )


def _checked_limit(owner: str, maxlen: object, *, exact: bool) -> list[str]:
    """Return the arguments of ``XADD`` that trim the stream."""
    if maxlen is None:
        return []
    if type(maxlen) is int and maxlen > 0:
        return ["MAXLEN", "=" if exact else "~", str(maxlen)]
    raise FlowDefinitionError(
        f"{owner}: maxlen= must be a positive int or None, not {shown(maxlen)}"
    )


def _hash_tag(stream: object) -> str:
    """Return the part of a key that chooses its slot, so that the state is in the same one."""
    if not isinstance(stream, str):
        return "aflow"
    start = stream.find("{")
    end = stream.find("}", start + 1)
    return stream[start + 1 : end] if -1 < start < end - 1 else stream
