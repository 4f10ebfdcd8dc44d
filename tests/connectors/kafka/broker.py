"""A Kafka broker of one node for tests, and their access to it from outside, through a client of their own."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.connectors.ports import free_ports

# aiokafka has no complete types.
aiokafka: Any = import_module("aiokafka")
administration: Any = import_module("aiokafka.admin")

PROJECT = Path(__file__).parents[3]

#: As for Spark: a JVM takes a third less processor time to start.
_JAVA: Final = (
    "-Xmx192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},PROXIED://127.0.0.1:{proxied},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},PROXIED://127.0.0.1:{advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_reader="right";
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
message.max.bytes=33554432
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=4194304
log.initial.task.delay.ms=200
"""

#: Settings of a broker that is killed often: its successor starts when the session of the killed one has ended.
_SHORT_SESSIONS: Final = """
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=200
"""


#: Seconds within which the broker starts. Long: one that cannot start ends, and the machine may be busy.
_STARTING: Final = 300.0


class Broker:
    """A broker in a process of its own, with its data in ``folder``.

    Clients that connect to ``proxied`` are told the port ``advertised``, where a proxy to ``proxied`` listens. A broker
    behind a proxy is soon back after a kill.
    """

    def __init__(self, classpath: str, folder: Path, *, advertised: int | None = None) -> None:
        self._command = ["java", *_JAVA, "-cp", classpath]
        self._properties = folder / "server.properties"
        self._log = folder / "log"
        port, sasl, controller, proxied = free_ports(4)
        self._port = port
        self.servers = f"127.0.0.1:{port}"
        self.sasl_servers = f"127.0.0.1:{sasl}"
        self.proxied = proxied
        self.advertised = proxied if advertised is None else advertised
        text = _PROPERTIES.format(
            port=port,
            sasl=sasl,
            controller=controller,
            proxied=proxied,
            advertised=self.advertised,
            folder=folder,
        )
        self._properties.write_text(text if advertised is None else text + _SHORT_SESSIONS)
        # With a first byte of 0, for one that begins with "-" would be taken for an option.
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties))
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([*self._command, *arguments], capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self._properties)], stdout=log, stderr=log
            )
        until = time.monotonic() + _STARTING
        while True:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, (
                f"no broker after {_STARTING:.0f} s: {self._log.read_text()}"
            )
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it; its data is not needed any more."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it: connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue after ``pause``."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(120)


class Cluster:
    """Operations on the broker at ``servers``, apart from the connector."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    async def create(
        self, *, partitions: int = 1, name: str | None = None, **configuration: str
    ) -> str:
        """Create a topic, and return its name."""
        topic = name or f"t{uuid.uuid4().hex}"
        # Event times of tests are old: retention would remove them.
        given = {"retention_ms": "-1", **configuration}
        configs = {key.replace("_", "."): value for key, value in given.items()}
        new = administration.NewTopic(topic, partitions, 1, topic_configs=configs)
        await self._administer(lambda admin: admin.create_topics([new]))
        return topic

    async def delete(self, topic: str) -> None:
        await self._administer(lambda admin: admin.delete_topics([topic]))

    async def add_partitions(self, topic: str, total: int) -> None:
        await self._administer(
            lambda admin: admin.create_partitions({topic: administration.NewPartitions(total)})
        )

    async def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        """Delete the records before ``offset``, as retention does."""
        place = aiokafka.TopicPartition(topic, partition)
        await self._administer(
            lambda admin: admin.delete_records(
                {place: administration.RecordsToDelete(before_offset=offset)}
            )
        )

    async def _administer(self, work: Callable[[Any], Awaitable[object]]) -> None:
        admin = administration.AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        try:
            await work(admin)
        finally:
            await admin.close()

    async def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        partition: int | None = 0,
        key: bytes | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        transactions: Sequence[bool] | None = None,
    ) -> None:
        """Write ``values``; ``transactions``: each in a transaction of its own, which commits (True) or aborts."""
        options: dict[str, Any] = {"max_request_size": 32_000_000}
        if transactions is not None:
            options["transactional_id"] = uuid.uuid4().hex
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=self.servers, **options) as producer:
            futures: list[Any] = []
            for index, value in enumerate(values):
                if transactions is not None:
                    await producer.begin_transaction()
                time_ms = None if timestamps is None else timestamps[index]
                futures.append(
                    await producer.send(
                        topic,
                        value,
                        key,
                        partition=partition,
                        timestamp_ms=time_ms,
                        headers=list(headers),
                    )
                )
                if transactions is not None:
                    await producer.flush()
                    if transactions[index]:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
            await asyncio.gather(*futures)

    async def contents(self, topic: str) -> list[Any]:
        """Return what a ``read_committed`` reader sees, partition by partition, once no transaction is under way."""
        ends = await self.ends(topic)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed",
            auto_offset_reset="none",
            fetch_max_wait_ms=20,
        )
        async with _started(consumer):
            consumer.assign(list(ends))
            for place, start in (await consumer.beginning_offsets(list(ends))).items():
                consumer.seek(place, start)
            found: dict[Any, list[Any]] = {place: [] for place in ends}
            for place, end in ends.items():
                while await consumer.position(place) < end:
                    for one, messages in (await consumer.getmany(timeout_ms=20)).items():
                        found[one] += messages
            return [message for place in ends for message in found[place]]

    async def ends(self, topic: str) -> dict[Any, int]:
        """Return the end of each partition, after the messages of open transactions too."""
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.servers)
        async with _started(consumer):
            metadata = await consumer._client.fetch_all_metadata()
            numbers = sorted(metadata.partitions_for_topic(topic) or ())
            assert numbers, f"there is no topic {topic}"
            found: dict[Any, int] = await consumer.end_offsets(
                [aiokafka.TopicPartition(topic, number) for number in numbers]
            )
            return found

    async def commit(self, group: str, topic: str, offset: int) -> None:
        """Set the offset of a group for partition 0."""
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers, group_id=group, enable_auto_commit=False
        )
        async with _started(consumer):
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            await consumer.commit({place: offset})

    async def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """Return the offset that ``group`` has committed."""
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self.servers, group_id=group)
        async with _started(consumer):
            offset: int | None = await consumer.committed(aiokafka.TopicPartition(topic, partition))
            return offset


@asynccontextmanager
async def _started(consumer: Any) -> AsyncGenerator[None]:
    await consumer.start()
    await asyncio.sleep(0)  # see the adapter of the connector
    try:
        yield
    finally:
        await consumer.stop()
