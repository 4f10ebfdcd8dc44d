"""The adapter to ``aiomqtt``: the only module that imports it, and that uses what it does not publish.

aiomqtt acknowledges a message as soon as it is received, and does not return the reason codes of confirmations. The
client below it, paho-mqtt, can do both. So the adapter leaves the connection to aiomqtt, and takes messages and
confirmations from paho-mqtt.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described
from aflow_connectors.messages import Headers
from aflow_connectors.optional import load

_WANTED: Final = {"package": "aiomqtt", "extra": "mqtt", "purpose": "aflow_connectors.mqtt"}

# Only a part of them has types.
aiomqtt: Any = load("aiomqtt", **_WANTED)
paho: Any = load("paho.mqtt.client", **_WANTED)
packets: Any = load("paho.mqtt.packettypes", **_WANTED)
properties: Any = load("paho.mqtt.properties", **_WANTED)
options: Any = load("paho.mqtt.subscribeoptions", **_WANTED)

#: Time (s) after which an operation without an answer counts as a lost connection.
PATIENCE: Final = 30.0

#: Default interval (s) of pings. A broker that does not answer one counts as lost.
_KEEPALIVE: Final = 15

#: Time (s) spent on telling the broker that a connection is closed.
_CLOSING: Final = 3.0

#: Publications that wait for their confirmation at a time, unless the broker allows fewer.
_IN_FLIGHT: Final = 200

#: Turns of the loop until the last task of a closed connection has ended.
_LAST_TURNS: Final = 10

#: Reason codes of MQTT 5 after which another attempt may succeed: unspecified, server unavailable, server busy, server
#: shutting down, keep alive timeout, quota exceeded, use another server, connection rate exceeded.
_LATER: Final = frozenset({0x80, 0x88, 0x89, 0x8B, 0x8D, 0x97, 0x9C, 0x9F})
_UNSPECIFIED: Final = 0x80
_TAKEN_OVER: Final = 0x8E
_FIRST_FAILURE: Final = 0x80

#: A filter that no client subscribes to.
_NO_FILTER: Final = "aflow/round-trip"

#: Of retained messages, if the subscription is new.
_IF_NEW, _NEVER = 1, 2

#: Settings of aiomqtt that the connector chooses, or that have an argument of their own.
_RESERVED: Final = frozenset(
    {
        "hostname",
        "port",
        "username",
        "password",
        "identifier",
        "queue_type",
        "protocol",
        "clean_session",
        "clean_start",
        "properties",
        "logger",
        "max_queued_incoming_messages",
        "max_queued_outgoing_messages",
        "max_inflight_messages",
    }
)


#: Small packets, such as acknowledgements, are sent at once, as the other clients do: paho leaves Nagle's algorithm on.
_NO_DELAY: Final = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class BrokerLost(ConnectionError):
    """The connection is lost, or the broker cannot do now what it may do later."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class MqttServer:
    """Address of a broker, and arguments of the client, which may contain secrets and are in no message."""

    place: str
    """Host and port."""
    settings: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class BrokerSession:
    """A session that the broker keeps while no client is connected."""

    client_id: str
    expiry: int
    """Seconds; 0xFFFFFFFF: never."""
    prefetch: int
    """Messages that wait for their acknowledgement, at most."""


class MqttConnection:
    """A connection. ``failed`` is raised for what the broker refuses."""

    def __init__(
        self, server: MqttServer, failed: type[ConnectorError], session: BrokerSession | None = None
    ) -> None:
        """Without a ``session``, the broker keeps nothing of this client."""
        self._server = server
        self._failed = failed
        self._session = session
        #: Messages that were delivered and not taken.
        self.delivered: deque[Any] = deque()
        #: True if the broker had the session.
        self.session_present = False
        #: Set when a message was delivered, and when the connection is lost.
        self._woken = asyncio.Event()
        #: Requests and publications without a confirmation, by packet id.
        self._unconfirmed: dict[int, asyncio.Future[Any]] = {}
        self._client: Any = None

    async def open(self) -> None:
        """Connect. Raises ``BrokerLost``, or ``failed`` if the broker refuses the connection."""
        client = self._made()
        paho_client = client._client
        confirm_connect = paho_client.on_connect

        def on_connect(one: Any, data: Any, flags: Any, code: Any, more: Any) -> None:
            self.session_present = bool(flags.session_present)
            most = getattr(more, "ReceiveMaximum", _IN_FLIGHT)
            # Its setter is for clients that are not connected, and the limit of the broker comes now.
            paho_client._max_inflight_messages = min(most, _IN_FLIGHT)
            confirm_connect(one, data, flags, code, more)

        loop, confirm_disconnect = asyncio.get_running_loop(), paho_client.on_disconnect

        def fail() -> None:
            if not client._connected.done():
                client._connected.set_exception(aiomqtt.MqttError("closed before an answer"))

        def on_disconnect(*arguments: Any) -> None:
            # aiomqtt would wait for the answer until its timeout. The client may be in the thread that connects it.
            loop.call_soon_threadsafe(fail)
            confirm_disconnect(*arguments)

        paho_client.on_connect = on_connect
        paho_client.on_disconnect = on_disconnect
        paho_client.on_message = self._on_message
        paho_client.on_publish = self._on_confirmed
        paho_client.on_subscribe = self._on_confirmed
        paho_client.on_unsubscribe = self._on_confirmed
        paho_client.manual_ack_set(True)
        paho_client.max_queued_messages_set(0)
        # Not cancelled: a thread connects, and aiomqtt would leave the connection open.
        opening = asyncio.create_task(client.__aenter__(), name="connect to MQTT")
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(opening)
        except BaseException as exc:
            fail()
            opening.add_done_callback(partial(_disconnect, paho_client))
            await asyncio.wait([opening], timeout=_CLOSING)
            if isinstance(exc, aiomqtt.MqttError):
                raise self._explained(exc) from exc
            if isinstance(exc, TimeoutError):
                raise BrokerLost(f"no answer of the broker for {PATIENCE:.0f} s") from exc
            raise
        self._client = client
        client._disconnected.add_done_callback(self._on_lost)

    @property
    def is_lost(self) -> bool:
        return bool(self._client is None or self._client._disconnected.done())

    async def subscribe(self, filters: list[str], *, retained: bool) -> None:
        """Subscribe to ``filters`` with QoS 1. Raises ``failed`` for one that the broker refuses."""
        how = options.SubscribeOptions(qos=1, retainHandling=_IF_NEW if retained else _NEVER)
        self._check()
        codes = await self._answer(self._client._client.subscribe([(one, how) for one in filters]))
        for one, code in zip(filters, codes, strict=True):
            if code.is_failure:
                raise self._refused(f"subscription to {one!r}: {code}")

    async def wait(self, seconds: float) -> None:
        """Wait until a message was delivered, for at most ``seconds``. Raises ``BrokerLost``."""
        if not self.delivered:
            self._woken.clear()
            self._check()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
            if not self.delivered:
                self._check()

    def acknowledge(self, tag: int) -> None:
        """Acknowledge the message with this packet id. Raises ``BrokerLost``."""
        self._check()
        if self._client._client.ack(tag, 1) != paho.MQTT_ERR_SUCCESS:
            raise BrokerLost("an acknowledgement was not sent")

    async def round_trip(self) -> None:
        """Wait until the broker has processed all that was sent. Raises ``BrokerLost``."""
        self._check()
        await self._answer(self._client._client.unsubscribe(_NO_FILTER))

    def publish(
        self, topic: str, payload: bytes, *, retain: bool, headers: Headers
    ) -> asyncio.Future[Any]:
        """Publish a message with QoS 1. Return a future for the reason code of its confirmation."""
        self._check()
        more = None
        if headers:
            more = properties.Properties(packets.PacketTypes.PUBLISH)
            more.UserProperty = [(name, data.decode()) for name, data in headers]
        info = self._client._client.publish(topic, payload, 1, retain, more)
        return self._confirmation(info.rc, info.mid)

    def check_confirmation(self, code: Any, topic: str) -> None:
        """Raise ``BrokerLost``, or ``failed``, unless the reason code of a confirmation is a success."""
        if code.value >= _FIRST_FAILURE:
            if code.value in _LATER:
                raise BrokerLost(f"the broker does not accept a message to {topic!r} now: {code}")
            raise self._refused(f"topic {topic!r}: {code}")

    async def end_session(self) -> None:
        """Let the broker remove the session, and close the connection.

        The session remains if the connection is lost meanwhile.
        """
        if not self.is_lost:
            expiry = properties.Properties(packets.PacketTypes.DISCONNECT)
            expiry.SessionExpiryInterval = 0
            disconnected = self._client._disconnected
            if self._client._client.disconnect(properties=expiry) == paho.MQTT_ERR_SUCCESS:
                await asyncio.wait([disconnected], timeout=_CLOSING)
        await self.close()

    async def close(self) -> None:
        """Close the connection; at most a moment is spent on telling the broker."""
        client, self._client = self._client, None
        if client is None:
            return
        self._fail_unconfirmed()
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                await client.__aexit__(None, None, None)
        # A connection that was lost, or does not answer.
        _close_socket(client._client)
        if client._disconnected.done() and not client._disconnected.cancelled():
            client._disconnected.exception()  # it was reported
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)

    def _made(self) -> Any:
        settings: dict[str, Any] = {
            "keepalive": _KEEPALIVE,
            "timeout": PATIENCE,
            **self._server.settings,
        }
        if settings.get("transport") != "unix":
            settings["socket_options"] = (_NO_DELAY, *(settings.get("socket_options") or ()))
        session = self._session
        if session is None:
            return aiomqtt.Client(**settings, protocol=aiomqtt.ProtocolVersion.V5, clean_start=True)
        connect = properties.Properties(packets.PacketTypes.CONNECT)
        connect.SessionExpiryInterval = session.expiry
        connect.ReceiveMaximum = session.prefetch
        return aiomqtt.Client(
            **settings,
            protocol=aiomqtt.ProtocolVersion.V5,
            identifier=session.client_id,
            clean_start=False,
            properties=connect,
        )

    def _on_message(self, client: object, data: object, message: Any) -> None:
        self.delivered.append(message)
        self._woken.set()

    def _on_confirmed(
        self, client: object, data: object, mid: int, answer: Any, more: object
    ) -> None:
        confirmed = self._unconfirmed.pop(mid, None)
        if confirmed is not None and not confirmed.done():
            confirmed.set_result(answer)

    def _confirmation(self, result: int, mid: int) -> asyncio.Future[Any]:
        """Return a future for the answer to a packet that was sent. Raises ``BrokerLost`` if it was not."""
        if result != paho.MQTT_ERR_SUCCESS:
            raise BrokerLost(f"a packet was not sent: {paho.error_string(result)}")
        confirmed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unconfirmed[mid] = confirmed
        return confirmed

    async def _answer(self, sent: tuple[int, int]) -> Any:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._confirmation(*sent)
        except TimeoutError as exc:
            raise BrokerLost(f"no answer of the broker for {PATIENCE:.0f} s") from exc

    def _on_lost(self, disconnected: asyncio.Future[None]) -> None:
        if not disconnected.cancelled():
            disconnected.exception()  # retrieved: `_check` raises it
        self._fail_unconfirmed()
        self._woken.set()

    def _fail_unconfirmed(self) -> None:
        waiting = list(self._unconfirmed.values())
        self._unconfirmed.clear()
        for confirmed in waiting:
            if not confirmed.done():
                confirmed.set_exception(BrokerLost("the connection was closed"))
                confirmed.exception()  # it may have no waiter

    def _check(self) -> None:
        if self.is_lost:
            reason: BaseException | None = None
            if self._client is not None:
                disconnected = self._client._disconnected
                reason = None if disconnected.cancelled() else disconnected.exception()
            if reason is None:
                raise BrokerLost("the connection is closed")
            raise self._explained(reason) from reason

    def _explained(self, exc: BaseException) -> BaseException:
        """Return ``BrokerLost``, or ``failed`` if no further attempt can help."""
        code = getattr(getattr(exc, "rc", None), "value", None)
        if code == _TAKEN_OVER:
            return self._refused(
                "another client has connected with the same client_id, and a session has one client"
            )
        if isinstance(exc, aiomqtt.exceptions.MqttConnectError) and code not in _LATER:
            return self._refused(
                f"it refuses the connection: {exc}; see the user and the password of the URL, and client= for TLS"
            )
        if "CERTIFICATE_VERIFY_FAILED" in str(exc):
            return self._refused(f"it has no valid certificate: {exc}")
        text = described(exc)
        if code == _UNSPECIFIED and self._session is not None:
            # Brokers may say nothing to a client whose session is taken over.
            text += f"; is another client connected as {self._session.client_id!r}?"
        return BrokerLost(text)

    def _refused(self, reason: str) -> ConnectorError:
        return self._failed(f"MQTT broker at {self._server.place}: {reason}")


def _disconnect(paho_client: Any, opening: asyncio.Task[object]) -> None:
    """Close a connection that was not opened to its end."""
    if not opening.cancelled():
        opening.exception()  # retrieved: the caller has the first error
    _close_socket(paho_client)


def _close_socket(paho_client: Any) -> None:
    with suppress(Exception):
        if paho_client.socket() is not None:
            paho_client._sock_close()


def mqtt_server(owner: str, url: object, client: Mapping[str, object] | None) -> MqttServer:
    """Return the address. Raises ``FlowDefinitionError`` for an invalid URL, without showing it."""
    given: Mapping[str, object] = {} if client is None else client
    if not isinstance(given, Mapping):
        raise FlowDefinitionError(
            f"{owner}: client= must be a mapping of arguments of aiomqtt.Client, not a {type(given).__name__}"
        )
    if reserved := sorted(set(given) & _RESERVED):
        raise FlowDefinitionError(
            f"{owner}: client= has {', '.join(reserved)}, which the connector chooses, or the URL has"
        )
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if not host or parts.scheme not in ("mqtt", "mqtts") or parts.path.strip("/") or parts.query:
        raise FlowDefinitionError(
            f"{owner}: the server must be a URL like 'mqtt://user:password@localhost:1883'"
        )
    secure = parts.scheme == "mqtts"
    port = port or (8883 if secure else 1883)
    settings: dict[str, Any] = {"hostname": host, "port": port}
    if parts.username is not None:
        settings |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    if secure and not {"tls_context", "tls_params"} & set(given):
        settings["tls_params"] = aiomqtt.TLSParameters()
    return MqttServer(f"{host}:{port}", settings | dict(given))
