"""A pair of systems that a job connects: its source and sinks, and access to both from outside of the job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from aflow.connect import Sink, Source
from aflow_connectors.reconnect import Reconnect

if TYPE_CHECKING:  # a job does not need them
    from tests.connectors.pairs.proxies import Proxies, ThreadedProxy
    from tests.connectors.pairs.servers import Servers

#: Partitions, streams or queues of the input. The number n is in number n modulo this.
SPLITS: Final = 3

#: A key, the start of a window, and the sum of its numbers.
Result = tuple[int, int, int]

#: Delays of reconnects that are short for tests.
QUICK: Final = Reconnect(
    delay=timedelta(milliseconds=10),
    most=timedelta(milliseconds=300),
    give_up_after=timedelta(minutes=2),
)

#: The module of each pair, whose class is ``PAIR``.
MODULES: Final = {
    "kafka-kafka": "kafka_to_kafka",
    "kafka-postgres": "kafka_to_postgres",
    "changes-kafka": "changes_to_kafka",
    "redis-redis": "redis_to_redis",
    "redis-group": "redis_group_to_redis",
    "nats-postgres": "nats_to_postgres",
    "rabbitmq-files": "rabbitmq_to_files",
    "http-kafka": "http_to_kafka",
    "s3-delta": "s3_to_delta",
}


class Killable(Protocol):
    """A server that can crash, and be started with its data."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


def _number(record: Any) -> int:
    return int(record)


@dataclass(frozen=True)
class Ends:
    """The ends of the job, and what depends on them."""

    source: Source[Any]
    sinks: Mapping[str, Sink[Any]]
    number: Callable[[Any], int] = _number
    """Returns the number of a record of the source."""
    max_delay: timedelta = timedelta(0)
    """Disorder of the numbers in a split."""
    restarts: int = 0
    """Restarts of the job within its process after an error: a lost connection of some ends is one."""
    storage: Any = None
    """Storage of the checkpoints; None: a folder."""
    serving: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    """Entered while the job runs."""


@dataclass(frozen=True)
class Output:
    """An output of the job, read with a client of its own."""

    name: str
    read: Callable[[], list[Result]]
    repeats: bool = False
    """True if the guarantee is at-least-once: results may be there several times."""


class Pair(ABC):
    """A pair of systems, prepared for one run: the source is empty, and so is the sink.

    ``settings`` is all that the job is given: ``ends`` runs in its process, all else in the one of the test.
    """

    #: True if numbers are sent to the job itself, so they can be fed only while it runs.
    feeds_job = False

    def __init__(self, servers: Servers, proxies: Proxies, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        #: Between the job and the servers.
        self.proxies: list[ThreadedProxy] = []
        self.killable: list[Killable] = []
        self.settings: dict[str, str] = {"folder": str(folder)}
        self._all_proxies = proxies
        self.prepare()

    def proxied(self, host: str, port: int, *, listen: int = 0) -> tuple[str, int]:
        """Return the address of a new proxy before ``host`` and ``port``."""
        proxy = self._all_proxies.open(host, port, listen=listen)
        self.proxies.append(proxy)
        return proxy.address

    @abstractmethod
    def prepare(self) -> None:
        """Create what the run needs, and set ``settings``, ``proxies`` and ``killable``."""

    @abstractmethod
    def feed(self, numbers: range) -> None:
        """Append ``numbers`` to the source. Return when they are stored."""

    @property
    @abstractmethod
    def outputs(self) -> Sequence[Output]:
        """The outputs of the job."""

    @staticmethod
    @abstractmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        """Return the ends of the job."""


def pair_named(name: str) -> type[Pair]:
    """Return the class of a pair. Raises ``KeyError`` for an unknown name."""
    found: Any = import_module(f"tests.connectors.pairs.{MODULES[name]}")
    pair: type[Pair] = found.PAIR
    return pair


def parts_of(numbers: range) -> list[range]:
    """Return the numbers of each split."""
    return [numbers[(split - numbers.start) % SPLITS :: SPLITS] for split in range(SPLITS)]


def result_of(one: Mapping[str, Any]) -> Result:
    """Return a row of the output as a result."""
    return int(one["key"]), int(one["start"]), int(one["sum"])
