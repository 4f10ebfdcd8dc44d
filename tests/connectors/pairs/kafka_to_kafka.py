"""Kafka to Kafka: exactly once, as ``read_committed`` readers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.connectors.pairs import kafka_ends
from tests.connectors.pairs.pair import SPLITS, Ends, Output, Pair


class KafkaToKafka(Pair):
    """From three partitions to two."""

    def prepare(self) -> None:
        self._broker = kafka_ends.connect(self)
        self._in = self.settings["in"] = kafka_ends.create_topic(self._broker, SPLITS)
        self._out = self.settings["out"] = kafka_ends.create_topic(self._broker, 2)

    def feed(self, numbers: range) -> None:
        kafka_ends.produce(self._broker, self._in, numbers)

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("topic", lambda: kafka_ends.results(self._broker, self._out))]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        return Ends(kafka_ends.source(settings), {"out": kafka_ends.sink(settings)})


PAIR = KafkaToKafka
