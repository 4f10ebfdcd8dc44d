"""Records in the order of their arrival, also where windows merge.

Each of the merging windows keeps a list of records. Appended to each other, the lists would hold the records by window.
So each record is numbered when it arrives in its subtask, and lists are merged by these numbers. All records of a key
arrive in one subtask; the numbers of restored records are smaller than all that follow.
"""

from __future__ import annotations

from array import array
from operator import attrgetter
from typing import Any, Final, cast

from aflow.model.codecs import PLAIN, CodecError
from aflow.operators.accumulation import Accumulation
from aflow.state.layouts import Many


class Arrivals:
    """Records and their numbers, ascending."""

    __slots__ = ("numbers", "records")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.numbers: array[int] = array("q")


class ArrivalOrder:
    """Numbers of the records of one subtask."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def number(self) -> int:
        """Return the number of the next record."""
        number = self._next
        self._next = number + 1
        return number

    def first(self, record: Any) -> Arrivals:
        """Return a list of one record."""
        return self.add(Arrivals(), record)

    def add(self, held: Arrivals, record: Any) -> Arrivals:
        """Append a record, and return ``held``."""
        # Hot path: once for each record of a session that keeps its records.
        held.records.append(record)
        held.numbers.append(self._next)
        self._next += 1
        return held

    def merge(self, held: Arrivals, other: Arrivals) -> Arrivals:
        """Add the records of ``other``, which is not changed, and return ``held``."""
        in_order = not held.numbers or not other.numbers or held.numbers[-1] < other.numbers[0]
        held.records += other.records
        held.numbers += other.numbers
        if not in_order:
            numbers, records = held.numbers, held.records
            order = sorted(range(len(numbers)), key=numbers.__getitem__)
            held.records = [records[index] for index in order]
            held.numbers = array("q", sorted(numbers))
        return held

    def restored(self, number: int) -> int:
        """Return the number of a restored record; those that follow are greater."""
        self._next = max(self._next, number + 1)
        return number


class ArrivalsCodec:
    """Codec of records with their numbers."""

    def __init__(self, order: ArrivalOrder, layout: Many[Any]) -> None:
        self._order = order
        self._layout = layout
        self.name: Final = layout.name

    def encode(self, value: Arrivals) -> bytes:
        """Raises ``CodecError``."""
        records = self._layout.encode(value.records)
        return PLAIN.encode({"records": records, "numbers": value.numbers.tolist()})

    def decode(self, data: bytes) -> Arrivals:
        """Raises ``CodecError``."""
        stored: object = PLAIN.decode(data)
        kind = type(stored).__name__
        parts = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
        if parts.keys() != {"records", "numbers"}:
            raise CodecError(f"{kind} is not a list of numbered records")
        held = Arrivals()
        held.records = self._layout.decode(parts["records"])
        held.numbers.extend(map(self._order.restored, parts["numbers"]))
        if len(held.numbers) != len(held.records):
            raise CodecError(
                f"{len(held.records)} records are stored with {len(held.numbers)} numbers"
            )
        return held


def arrivals(layout: Many[Any]) -> Accumulation:
    """Keep the records in the order of arrival. The result is a list, which is changed by the next record."""
    order = ArrivalOrder()
    return Accumulation(
        order.first,
        order.add,
        attrgetter("records"),
        order.merge,
        Arrivals,
        codec=ArrivalsCodec(order, layout),
    )
