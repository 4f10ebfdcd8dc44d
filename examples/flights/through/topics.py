"""Topics of the flights and the weather, and the pipeline that fills them."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aflow as af
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.kafka import KafkaSink
from flights.files import Files
from flights.flight import MALFORMED, Flight, malformed
from flights.weather import Observation

#: Flights in the order of departure: a topic of one partition, since partitions have no order among each other.
FLIGHTS: Final = "flights-2013"

#: Time (s) until a removed topic is gone, at most.
REMOVAL: Final = 30.0

#: Error code of Kafka: a topic exists, here since its removal is not complete.
_EXISTS: Final = 36

#: A topic for each airport, of one partition. In one partition, the year of an airport would follow that of another.
WEATHER: Final = re.compile(r"weather-2013-[A-Z]+")


def weather_of(airport: str) -> str:
    """Return the name of the topic of ``airport``."""
    return f"weather-2013-{airport}"


async def publish(servers: str, files: Files) -> None:
    """Make the topics anew, and write flights and weather of ``files`` into them, each record exactly once.

    Raises ``SinkError`` if the servers cannot be reached or refuse.
    """
    airports = [path.stem for path in files.weather.glob("*.csv")]
    await _make_topics(servers, [FLIGHTS, *map(weather_of, airports)])
    with TemporaryDirectory() as folder:
        storage = af.Checkpointing(storage=Path(folder), every=timedelta(seconds=1))
        await _flow(servers, files).run(checkpointing=storage)


def _flow(servers: str, files: Files) -> af.Flow:
    flow = af.Flow("publish-flights-of-2013")
    flights = flow.source(files.source(), name="flights")
    weather = flow.source(files.weather_source(), name="weather")
    # Kafka removes messages by their timestamps, and those of 2013 at once. Records have their time as a field.
    flights.to(KafkaSink[Flight](servers, FLIGHTS, timestamps=False), name="topic of flights")
    weather.to(
        KafkaSink[Observation](
            servers,
            lambda hour: weather_of(hour.origin),
            offsets_topic=FLIGHTS,
            timestamps=False,
        ),
        name="topics of weather",
    )
    bad = flights.side(MALFORMED).union(weather.side(MALFORMED)).map(malformed)
    bad.to(JsonLinesSink(files.result("malformed-lines"), overwrite=True), name="malformed")
    return flow


async def _make_topics(servers: str, names: list[str]) -> None:
    """Remove the topics of an earlier run, and make empty ones."""
    # aiokafka has no complete types.
    administration: Any = import_module("aiokafka.admin")
    errors: Any = import_module("aiokafka.errors")
    admin = administration.AIOKafkaAdminClient(bootstrap_servers=servers)
    try:
        await admin.start()
        earlier = [
            name for name in await admin.list_topics() if name == FLIGHTS or WEATHER.fullmatch(name)
        ]
        if earlier:
            await admin.delete_topics(earlier)
        new = [administration.NewTopic(name, 1, 1) for name in names]
        async with asyncio.timeout(REMOVAL):
            while failures := _failures(await admin.create_topics(new)):
                if any(code != _EXISTS for _, code, _ in failures):
                    raise af.errors.SinkError(
                        f"Kafka at {servers} refuses to make topics: "
                        + "; ".join(f"{name}: {text or code}" for name, code, text in failures)
                    )
                new = [topic for topic in new if topic.name in {name for name, _, _ in failures}]
                await asyncio.sleep(0.1)
    except (errors.KafkaError, OSError, TimeoutError) as exc:
        raise af.errors.SinkError(
            f"Kafka at {servers} makes no topics: {exc or type(exc).__name__}; --kafka names other servers"
        ) from exc
    finally:
        await admin.close()


def _failures(response: Any) -> list[tuple[str, int, str | None]]:
    """Return name, error code and text of each topic that was not made."""
    return [(name, code, text) for name, code, text in response.topic_errors if code]
