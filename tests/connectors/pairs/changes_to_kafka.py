"""Changes of a table in PostgreSQL to Kafka: each change counts exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from aflow_connectors.postgres import Change, PostgresChanges
from tests.connectors.pairs import kafka_ends, postgres_ends
from tests.connectors.pairs.pair import QUICK, Ends, Output, Pair
from tests.connectors.postgres.server import execute, run

#: Rows of the table. The first numbers are inserts, the others are updates.
ROWS: Final = 1000
#: Numbers in a transaction.
_AT_ONCE: Final = 70

_UPSERT: Final = """
    INSERT INTO numbers SELECT n % {rows}, n FROM generate_series({first}, {last}) n
    ON CONFLICT (id) DO UPDATE SET number = excluded.number"""


class Row(NamedTuple):
    id: int
    number: int


def _number(change: Change[Row]) -> int:
    assert change.after is not None
    return change.after.number


class ChangesToKafka(Pair):
    """From a table to two partitions. Either server is killed."""

    def prepare(self) -> None:
        _, self._address = postgres_ends.connect(self)
        slot = self.settings["slot"] = "s" + self._address.rpartition("pair_")[2]
        # The slot is there before the first number, so each of them is a change of its own.
        run(
            execute(
                self._address,
                "CREATE TABLE numbers (id integer PRIMARY KEY, number bigint NOT NULL)",
                f"CREATE PUBLICATION {slot} FOR TABLE numbers",
                f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
            )
        )
        self._broker = kafka_ends.connect(self)
        self._out = self.settings["out"] = kafka_ends.create_topic(self._broker, 2)

    def feed(self, numbers: range) -> None:
        statements = [
            _UPSERT.format(rows=ROWS, first=first, last=min(numbers.stop, first + _AT_ONCE) - 1)
            for first in numbers[::_AT_ONCE]
        ]
        run(execute(self._address, *statements))

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("topic", lambda: kafka_ends.results(self._broker, self._out))]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        source = PostgresChanges(
            settings["postgres"],
            "numbers",
            of=Row,
            slot=settings["slot"],
            snapshot=False,
            idle_after=None,
            reconnect=QUICK,
        )
        return Ends(source, {"out": kafka_ends.sink(settings)}, _number)


PAIR = ChangesToKafka
