"""Kafka to PostgreSQL: each row is appended exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.connectors.pairs import kafka_ends, postgres_ends
from tests.connectors.pairs.pair import SPLITS, Ends, Output, Pair


class KafkaToPostgres(Pair):
    """From three partitions to a table. Either server is killed."""

    def prepare(self) -> None:
        self._broker = kafka_ends.connect(self)
        self._in = self.settings["in"] = kafka_ends.create_topic(self._broker, SPLITS)
        _, self._address = postgres_ends.connect(self)
        postgres_ends.create_tables(self._address)

    def feed(self, numbers: range) -> None:
        kafka_ends.produce(self._broker, self._in, numbers)

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("appended", lambda: postgres_ends.results(self._address, "appended"))]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        return Ends(kafka_ends.source(settings), {"appended": postgres_ends.appending(settings)})


PAIR = KafkaToPostgres
