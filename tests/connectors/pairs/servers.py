"""Servers of the pairs, started when they are needed first."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.connectors.kafka.broker import PROJECT, Broker
from tests.connectors.nats.server import NatsServer, nats_program, running_nats
from tests.connectors.ports import free_port
from tests.connectors.postgres import server as postgres
from tests.connectors.rabbitmq import server as rabbitmq
from tests.connectors.redis.server import TestServer, redis_program, running_redis
from tests.connectors.s3.server import S3Server
from tests.connectors.s3.server import running as running_s3

_MISSING: Final = "no {} server is installed: scripts/have-{}"


class ServerMissing(Exception):
    """A server is not installed."""


class Servers:
    """Servers of this process; all of them are stopped at the end. For the main thread, which they end with."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is for the data of the broker of Kafka."""
        self._folder = folder
        self._stack = ExitStack()
        #: Port of the proxies of the broker of Kafka.
        self.kafka_proxy = free_port()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @cached_property
    def kafka(self) -> Broker:
        """A broker that names ``kafka_proxy`` as its address to clients of the proxied listener."""
        if shutil.which("java") is None:
            raise ServerMissing("the broker of the tests needs Java: scripts/have-java")
        done = subprocess.run(
            [PROJECT / "scripts" / "have-kafka", "required"],
            capture_output=True,
            text=True,
            env={**os.environ, "AFLOW_TEST_KAFKA": ""},
            check=False,
        )
        if done.returncode != 0:
            raise ServerMissing(done.stderr.strip())
        broker = Broker(done.stdout.strip(), self._folder, advertised=self.kafka_proxy)
        self._stack.callback(broker.stop)
        broker.start()
        return broker

    @cached_property
    def postgres(self) -> postgres.Server:
        programs = postgres.programs()
        if programs is None:
            raise ServerMissing(_MISSING.format("PostgreSQL", "postgres"))
        return self._stack.enter_context(postgres.running(programs))

    @cached_property
    def redis(self) -> TestServer:
        program = redis_program()
        if program is None:
            raise ServerMissing(_MISSING.format("Redis", "redis"))
        return self._stack.enter_context(running_redis(program))

    @cached_property
    def nats(self) -> NatsServer:
        program = nats_program()
        if program is None:
            raise ServerMissing(_MISSING.format("NATS", "nats"))
        return self._stack.enter_context(running_nats(program))

    @cached_property
    def rabbitmq(self) -> rabbitmq.RabbitServer:
        if rabbitmq.program() is None:
            raise ServerMissing(_MISSING.format("RabbitMQ", "rabbitmq"))
        return self._stack.enter_context(rabbitmq.running())

    @cached_property
    def s3(self) -> S3Server:
        return S3Server(self._stack.enter_context(running_s3()))
