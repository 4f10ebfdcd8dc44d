"""Sources and sinks of a replay through Kafka and PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field

from aflow_connectors.kafka import KafkaSource
from flights.delays import AirportHour, CarrierDay
from flights.files import Files
from flights.flight import MALFORMED, Flight
from flights.pipeline import Sinks
from flights.through import rows, topics
from flights.weather import Observation


@dataclass(frozen=True, slots=True)
class Servers:
    """A Kafka cluster (``host:port``, several with commas) and a PostgreSQL database (its URL)."""

    kafka: str
    postgres: str = field(repr=False)

    def publish(self, files: Files) -> None:
        """Make topics and tables anew, and write the inputs of ``files`` into the topics.

        Lines that are no records are written to a file. Raises ``SourceError`` or ``SinkError`` if a server refuses.
        """

        async def main() -> None:
            await rows.make_tables(self.postgres)
            await topics.publish(self.kafka, files)

        asyncio.run(main())

    def source(self) -> KafkaSource[Flight]:
        """Return the source of the flights. It ends at the present end of the topic, as a file does."""
        return KafkaSource(
            self.kafka, topics.FLIGHTS, of=Flight, until="now", dead_letters=MALFORMED
        )

    def weather_source(self) -> KafkaSource[Observation]:
        """Return the source of the weather, which reads the topics of all airports in parallel."""
        return KafkaSource(
            self.kafka, topics.WEATHER, of=Observation, until="now", dead_letters=MALFORMED
        )

    def sinks(self, files: Files) -> Sinks:
        """Return the sinks of all results: hours and days in the database, the others in files."""
        return dataclasses.replace(
            files.sinks(),
            hourly=rows.hours_sink(self.postgres),
            daily=rows.days_sink(self.postgres),
        )

    def hours(self) -> list[AirportHour]:
        """Return the delays of all hours that the database has."""
        return asyncio.run(rows.hours(self.postgres))

    def days(self) -> list[CarrierDay]:
        """Return the delays of all days that the database has."""
        return asyncio.run(rows.days(self.postgres))
