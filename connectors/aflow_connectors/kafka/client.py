"""The adapter to ``aiokafka``: the only module that imports it, and that uses what it does not publish.

It checks the settings of users, says which errors mean a lost connection, and finds the reason when no connection is
possible at all. ``aiokafka`` reports each of those alike, wrong credentials too, and the adapter must fail at once
for those (``diagnose``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Final, TypeVar

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.optional import load

_WANTED: Final = {"package": "aiokafka", "extra": "kafka", "purpose": "aflow_connectors.kafka"}

# aiokafka has no complete types.
aiokafka: Any = load("aiokafka", **_WANTED)
errors: Any = load("aiokafka.errors", **_WANTED)
connections: Any = load("aiokafka.conn", **_WANTED)
partitioner: Any = load("aiokafka.partitioner", **_WANTED)

R = TypeVar("R")

LOST: Final[tuple[type[BaseException], ...]] = (
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
    errors.KafkaTimeoutError,
    errors.KafkaUnavailableError,
    errors.NoBrokersAvailable,
    errors.StaleMetadata,
    errors.CorrelationIdError,
    errors.LeaderNotAvailableError,
    errors.NotLeaderForPartitionError,
    errors.BrokerNotAvailableError,
    errors.ReplicaNotAvailableError,
    errors.NotEnoughReplicasError,
    errors.NotEnoughReplicasAfterAppendError,
    errors.GroupCoordinatorNotAvailableError,
    errors.GroupLoadInProgressError,
    errors.NotCoordinatorForGroupError,
    errors.KafkaStorageError,
    errors.UnknownTopicOrPartitionError,  # for a moment after a start of the broker
    TimeoutError,
    ConnectionError,
)
"""Errors that mean a lost connection, or a broker that is about to be back."""

REFUSED: Final[tuple[type[BaseException], ...]] = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    ssl.SSLError,
)
"""Errors that no further attempt can change."""

#: Time (s) after which an operation that aiokafka repeats without end counts as a lost connection.
PATIENCE: Final = 30.0


class Unreachable(errors.KafkaConnectionError):  # type: ignore[misc]
    """No connection is possible now; the message says why."""

    def __str__(self) -> str:
        return str(self.args[0])  # without the name of the class, as other errors


@dataclass(frozen=True)
class Connection:
    """Servers, and the settings of the client, which may contain secrets and are in no message."""

    servers: tuple[str, ...]
    settings: Mapping[str, Any] = field(repr=False)

    @property
    def place(self) -> str:
        """The servers, for messages."""
        return ",".join(self.servers)

    def options(self) -> dict[str, Any]:
        """Return the arguments of a client of aiokafka."""
        return {"bootstrap_servers": list(self.servers), **self.settings}

    def common_options(self) -> dict[str, Any]:
        """Return those arguments that clients of each kind have."""
        known = _arguments(aiokafka.AIOKafkaClient)
        return {name: value for name, value in self.options().items() if name in known}

    async def diagnose(self, failed: type[ConnectorError], cause: BaseException) -> BaseException:
        """Return the reason why no server can be reached: ``failed`` if it is final, else ``Unreachable``."""
        settings = self.common_options()
        reason: BaseException = cause
        for server in self.servers:
            host, _, port = server.rpartition(":")
            try:
                connection = await connections.create_conn(
                    host.strip("[]"),
                    int(port),
                    request_timeout_ms=5000,
                    **{name: value for name, value in settings.items() if name in _OF_CONNECTIONS},
                )
            except REFUSED as exc:
                return failed(
                    f"Kafka at {server} refuses the connection: {described(exc)}; see client= for the settings of "
                    f"security"
                )
            except (OSError, errors.KafkaError, TimeoutError) as exc:
                reason = exc
            else:
                connection.close()
        return Unreachable(f"Kafka at {self.place} cannot be reached: {described(reason)}")

    async def start(self, client: Any, failed: type[ConnectorError]) -> None:
        """Start ``client``, a consumer or a producer. Raises ``failed`` if it is refused, and lost connections."""
        _retry_coordinator_lookup(client)
        try:
            async with asyncio.timeout(PATIENCE):
                await client.start()
                await asyncio.sleep(0)  # its background tasks begin, so that `stop` can end them
        except BaseException as exc:
            await abandon(client)
            if isinstance(exc, errors.KafkaConnectionError):
                raise await self.diagnose(failed, exc) from exc
            if isinstance(exc, errors.KafkaError) and not isinstance(exc, LOST):
                raise failed(f"Kafka at {self.place}: {described(exc)}") from exc
            raise

    async def topics(self, failed: type[ConnectorError]) -> dict[str, list[int]]:
        """Return the partitions of all topics. Raises as ``start``.

        It asks for all topics, since asking for one by its name may create it.
        """
        client = aiokafka.AIOKafkaClient(**self.common_options())
        try:
            await client.bootstrap()
            metadata = await client.fetch_all_metadata()
        except errors.KafkaConnectionError as exc:
            raise await self.diagnose(failed, exc) from exc
        except errors.KafkaError as exc:
            kind = (
                Unreachable if type(exc) is errors.KafkaError else failed
            )  # no broker has answered
            raise kind(f"Kafka at {self.place}: {described(exc)}") from exc
        finally:
            await client.close()
        names = metadata.topics(exclude_internal_topics=True)
        return {name: sorted(metadata.partitions_for_topic(name) or ()) for name in sorted(names)}


def _retry_coordinator_lookup(client: Any) -> None:
    """Let a client ask again for its coordinator if it knows no brokers: one that has just started names none.

    aiokafka raises ``AssertionError`` there, which neither it nor anything else repeats.
    """
    inner = client.client if isinstance(client, aiokafka.AIOKafkaProducer) else client._client
    ask = inner.coordinator_lookup

    async def coordinator_lookup(kind: int, key: str) -> Any:
        if not inner.cluster.brokers():
            raise errors.GroupCoordinatorNotAvailableError("no brokers are known yet")
        return await ask(kind, key)

    inner.coordinator_lookup = coordinator_lookup


async def abandon(client: Any) -> None:
    """Close a consumer or a producer at once, without sending what it holds.

    ``stop`` of a producer waits for its messages, which may be as long as the broker is away. That of a consumer raises
    ``CancelledError`` if one of its tasks has not begun, although the caller was not cancelled.
    """
    with suppress(Exception):
        if isinstance(client, aiokafka.AIOKafkaProducer):
            client._closed = True
            await client.client.close()
            await client._sender.close()
            return
        caller = asyncio.current_task()
        cancelled = 0 if caller is None else caller.cancelling()
        try:
            await client.stop()
        except asyncio.CancelledError:
            if caller is not None and caller.cancelling() > cancelled:
                raise
            await _end_tasks(client._fetcher)
            await client._client.close()


async def _end_tasks(fetcher: Any) -> None:
    tasks = [fetcher._fetch_task, *fetcher._pending_tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def committed_offset(consumer: Any, place: Any) -> tuple[int, str] | None:
    """Return the offset of the group of ``consumer`` for ``place``, with its metadata; None if there is none."""
    found = await consumer._coordinator.fetch_committed_offsets([place])
    offset = found.get(place)
    return None if offset is None else (offset.offset, offset.metadata or "")


async def patient(operation: Awaitable[R]) -> R:
    """Return the result of ``operation``. Raises ``TimeoutError`` after ``PATIENCE``.

    Raises ``Unreachable`` for a producer of which the background task has failed.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            return await operation
    except errors.KafkaError as exc:
        if type(exc) is errors.KafkaError:  # the background task of the producer has failed
            raise Unreachable(described(exc)) from exc
        raise


#: Settings of a single connection.
_OF_CONNECTIONS: Final = (
    "client_id",
    "ssl_context",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
)

#: Settings that the connector chooses, or that have an argument of their own.
_RESERVED: Final = frozenset(
    {
        "loop",
        "api_version",
        "bootstrap_servers",
        "group_id",
        "group_instance_id",
        "key_deserializer",
        "value_deserializer",
        "key_serializer",
        "value_serializer",
        "auto_offset_reset",
        "enable_auto_commit",
        "auto_commit_interval_ms",
        "isolation_level",
        "max_poll_records",
        "consumer_timeout_ms",
        "partition_assignment_strategy",
        "acks",
        "enable_idempotence",
        "transactional_id",
        "partitioner",
        "hostnames",
    }
)


def connection(
    owner: str,
    servers: str | Sequence[str],
    settings: Mapping[str, object] | None,
    of: Callable[..., Any],
) -> Connection:
    """Return the connection. Raises ``FlowDefinitionError`` for settings that ``of``, a class of aiokafka, lacks."""
    given: Mapping[str, object] = {} if settings is None else settings
    if not isinstance(given, Mapping):
        raise FlowDefinitionError(
            f"{owner}: client= must be a mapping of settings of aiokafka, not a {type(given).__name__}"
        )
    known = _arguments(of) - _RESERVED
    if wrong := sorted(str(name) for name in given if name not in known):
        reason = (
            "are chosen by other arguments" if set(wrong) <= _RESERVED else "are not settings of it"
        )
        raise FlowDefinitionError(
            f"{owner}: client= has {', '.join(wrong)}, which {reason}; {of.__name__} of aiokafka has "
            f"{', '.join(sorted(known))}"
        )
    return Connection(_checked_servers(owner, servers), dict(given))


def _arguments(of: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(of).parameters) - {"topics"}


def _checked_servers(owner: str, servers: str | Sequence[str]) -> tuple[str, ...]:
    given: Sequence[object] = servers.split(",") if isinstance(servers, str) else ()
    if isinstance(servers, (list, tuple)):
        given = servers
    found: list[str] = []
    for one in given:
        text = one.strip() if isinstance(one, str) else ""
        host, colon, port = text.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536) or "@" in text:
            raise FlowDefinitionError(
                f"{owner}: a server is host:port, like 'localhost:9092', and {_without_credentials(one)} is none"
            )
        found.append(text)
    if not found:
        raise FlowDefinitionError(
            f"{owner}: the servers must be 'host:port' or several of them, not {_without_credentials(servers)}"
        )
    return tuple(found)


def _without_credentials(text: object) -> str:
    if isinstance(text, str) and "@" in text:
        return shown("…@" + text.rpartition("@")[2])
    return shown(text)
