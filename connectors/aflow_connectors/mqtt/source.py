"""``MqttSource``: topics of an MQTT broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters
from aflow_connectors.broker_arguments import checked_idle_after, checked_names
from aflow_connectors.formats import Format, Text
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder
from aflow_connectors.mqtt.client import BrokerLost, BrokerSession, mqtt_server
from aflow_connectors.mqtt.session_reader import LostSession, SessionReader, SessionSettings
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect
from aflow_connectors.value_format import checked_value_format

V = TypeVar("V")
T = TypeVar("T")

_IDLE_AFTER: Final = timedelta(seconds=5)
_PREFETCH: Final = 10_000
_MOST_PREFETCH: Final = 65_535

#: Seconds that mean never.
_NEVER: Final = 0xFFFF_FFFF
#: Bytes of a client id that each broker takes are 23; most take more.
_LONGEST_ID: Final = 65_535


class MqttOptions(TypedDict, total=False):
    """The arguments of ``MqttSource`` that have no influence on the type of its records."""

    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    idle_after: timedelta | None
    session_expiry: timedelta | None
    on_lost_session: LostSession
    retained: bool
    prefetch: int
    client: Mapping[str, object] | None


class MqttSource(Source[T]):
    """Read the messages of ``topics``, a filter or several, with QoS 1, and acknowledge them after checkpoints.

    ``url`` is like "mqtt://user:password@host:1883", or "mqtts". Filters may have the wildcards ``+`` and ``#``.
    Payloads are JSON, decoded as ``of``, or in another ``format``. With ``messages=True`` the records are ``Message``,
    with the topic as key, and user properties as headers; retained messages have the header "mqtt-retained". Needs
    checkpoints and a broker of MQTT 5.

    ``client_id`` names the session, in which the broker keeps messages while the job is down, for ``session_expiry``
    (None: for ever). Give each job an id of its own. If the broker has lost the session, ``on_lost_session`` decides:
    "fail" (the default) raises ``SourceError``, "continue" logs a warning and begins a new one.

    At least once: messages are acknowledged once a checkpoint covers them. Those that are delivered again after a
    failure of the job or the connection are recognised and dropped; after a crash of the broker they may be read twice.

    At most ``prefetch`` messages (1 to 65,535) wait for their checkpoint: then no more are delivered until it is
    complete. Messages of QoS 0 are not bounded. ``retained`` messages are read when the session begins, unless it is
    False. A source that has had no message for ``idle_after`` does not hold event time back. ``client`` are arguments
    of ``aiomqtt.Client``. Wrong credentials raise ``SourceError`` at once, while a lost connection is renewed
    (``reconnect``).
    """

    bounded = False
    max_parallelism = 1
    needs_checkpoints = True
    repeats_records = True
    #: Redelivered messages may be in another order.
    divides_chunks = False

    @overload
    def __init__(
        self: MqttSource[Any],
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str,
        messages: Literal[False] = False,
        **options: Unpack[MqttOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: MqttSource[V],
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[MqttOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: MqttSource[V],
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[MqttOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: MqttSource[Message[str, V]],
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[MqttOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: MqttSource[Message[str, V]],
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[MqttOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        topics: str | Sequence[str],
        *,
        client_id: str,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        idle_after: timedelta | None = _IDLE_AFTER,
        session_expiry: timedelta | None = None,
        on_lost_session: LostSession = "fail",
        retained: bool = True,
        prefetch: int = _PREFETCH,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "MqttSource"
        checked_dead_letters(owner, dead_letters)
        self.dead_letters = dead_letters
        self._format = checked_value_format(owner, of, format)
        self._messages = messages
        self._reconnect = checked_reconnect(owner, reconnect)
        session = BrokerSession(
            _checked_id(owner, client_id),
            _checked_expiry(owner, session_expiry),
            _checked_prefetch(owner, prefetch),
        )
        self._settings = SessionSettings(
            mqtt_server(owner, url, client),
            session,
            _checked_filters(owner, topics),
            checked_idle_after(owner, idle_after),
            _checked_lost(owner, on_lost_session),
            retained,
        )

    async def splits(self) -> Sequence[Split]:
        return [Split(self._settings.session.client_id)]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        settings = self._settings
        decoder = MessageDecoder[T](
            ", ".join(settings.filters),
            self._format,
            key_format=Text(),
            messages=self._messages,
            dead_letters=self.dead_letters,
            unit="message",
        )
        place = f"{settings.server.place}, client {split.id!r}"
        retries = Retries(place, self._reconnect, lost=(BrokerLost,), failed=SourceError)
        reader = SessionReader[T](settings, decoder, retries, position)
        await reader.open()
        return reader


def _checked_filters(owner: str, topics: str | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(topics, (str, list, tuple)):
        raise FlowDefinitionError(
            f"{owner}: the topics must be a filter or several filters, not {shown(topics)}"
        )
    filters = cast("tuple[str, ...]", checked_names(owner, "topics", topics))
    for one in filters:
        levels = one.split("/")
        wrong = [level for level in levels if len(level) > 1 and {"+", "#"} & set(level)]
        if wrong or "#" in levels[:-1] or "\0" in one:
            raise FlowDefinitionError(
                f"{owner}: {shown(one)} is no filter: '+' is a whole level, and '#' the last one"
            )
    return filters


def _checked_id(owner: str, client_id: object) -> str:
    if isinstance(client_id, str) and 0 < len(client_id.encode("utf-8", "replace")) <= _LONGEST_ID:
        return client_id
    raise FlowDefinitionError(
        f"{owner}: client_id= must be a text that is not empty, not {shown(client_id)}"
    )


def _checked_expiry(owner: str, expiry: object) -> int:
    if expiry is None:
        return _NEVER
    if isinstance(expiry, timedelta) and timedelta(0) < expiry < timedelta(seconds=_NEVER):
        return max(1, round(expiry.total_seconds()))
    raise FlowDefinitionError(
        f"{owner}: session_expiry= must be a positive timedelta of at most 136 years, or None, not {shown(expiry)}"
    )


def _checked_prefetch(owner: str, prefetch: object) -> int:
    if type(prefetch) is int and 1 <= prefetch <= _MOST_PREFETCH:
        return prefetch
    raise FlowDefinitionError(
        f"{owner}: prefetch= must be a number from 1 to {_MOST_PREFETCH:,}, not {shown(prefetch)}"
    )


def _checked_lost(owner: str, policy: object) -> LostSession:
    if policy not in get_args(LostSession):
        raise FlowDefinitionError(
            f"{owner}: on_lost_session= must be 'fail' or 'continue', not {shown(policy)}"
        )
    return cast(LostSession, policy)
