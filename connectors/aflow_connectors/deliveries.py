"""``DeliveryLedger``: the messages of a server with acknowledgements, from their delivery to the acknowledgement.

**Numbers.** Messages that are read are numbered from 1, also over restarts. A position is the number of the last
message before it, and the ids of messages that may be delivered again (``message_ids.py``).

**Deliveries.** A message with a known id was read before: on a connection that was lost, or before the restored
checkpoint. It is not read again, and its delivery is acknowledged with the checkpoint that covers its number. A message
without an id is read again, since nothing tells it from a new one.

**Tags.** The server names deliveries by tags that grow on a connection. Unacknowledged ones end with the connection,
and are delivered again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from aflow.connect import Position, SourceError
from aflow.errors import shown
from aflow_connectors.message_ids import SIZE, Ids, MessageIds


class TaggedMessage(NamedTuple):
    """A delivered message that is not acknowledged: its number, and the tag of the delivery."""

    number: int
    tag: int


@dataclass(frozen=True, slots=True)
class Recognised:
    """Deliveries that will be read: their numbers, and the places of those that are new among them."""

    numbers: list[int]
    fresh: list[int]
    ids: dict[bytes, int]
    """The new ids, with the numbers of their messages."""
    last: int


class DeliveryLedger:
    """See the theory at the top of the module. ``name`` is that of the input, for messages.

    A restored position does not tell which of its messages were not acknowledged. There are at most as many as its
    ``prefetch``, so at least as many ids are kept, and ``remember`` if that is more. A run with a smaller ``prefetch``
    gets them in several portions, with checkpoints in between, so positions keep the largest ``prefetch`` of all runs.
    """

    def __init__(
        self, name: str, position: Position | None, *, remember: int, prefetch: int
    ) -> None:
        self._name = name
        #: The number of the last message that was read.
        self.last, ids, former = self._decoded(position)
        self._prefetch = max(prefetch, former)
        self._remember = max(remember, self._prefetch)
        self._ids = MessageIds(self._remember, ids, self.last)
        #: In the order of their tags.
        self._waiting: deque[TaggedMessage] = deque()

    @property
    def unacknowledged(self) -> int:
        """Number of deliveries that wait for a checkpoint."""
        return len(self._waiting)

    def unacknowledged_tags(self) -> set[int]:
        """Return the tags of the deliveries that wait for a checkpoint."""
        return {one.tag for one in self._waiting}

    def recognise(
        self, ids: Sequence[bytes | None], repeated: Sequence[bool] | None = None
    ) -> Recognised:
        """Return the numbers of the next deliveries, by the ids of their messages.

        With ``repeated``, a message is a new one unless the server says that it was delivered before.
        """
        # Hot path (benchmark `connectors`): once for each message.
        numbers: list[int] = []
        fresh: list[int] = []
        new: dict[bytes, int] = {}
        last, known = self.last, self._ids.number_of
        for place, id in enumerate(ids):
            number = None
            if id is not None and (repeated is None or repeated[place]):
                number = new.get(id) or known(id)
            if number is None:
                last += 1
                number = last
                fresh.append(place)
                if id is not None:
                    new[id] = number
            numbers.append(number)
        return Recognised(numbers, fresh, new, last)

    def read(self, recognised: Recognised, tags: Sequence[int]) -> None:
        """Add what was recognised, which is read now."""
        for id, number in recognised.ids.items():
            self._ids.add(id, number)
        self._waiting += map(TaggedMessage, recognised.numbers, tags)
        self.last = recognised.last

    def position(self) -> Position:
        """Return the position after the last message that was read."""
        return self.last, *self._ids.position(), self._prefetch

    def number_at(self, position: Position) -> int:
        """Return the number of the last message before ``position``."""
        return self._decoded(position)[0]

    def take_covered(self, covered: int) -> list[int]:
        """Remove the deliveries of messages up to ``covered`` that no other one precedes. Return their tags."""
        tags: list[int] = []
        while self._waiting and self._waiting[0].number <= covered:
            tags.append(self._waiting.popleft().tag)
        return tags

    def take_late(self, covered: int) -> list[int]:
        """Remove the deliveries of messages up to ``covered`` that others precede. Return their tags.

        There are some if the server has delivered known messages after new ones.
        """
        late = [one.tag for one in self._waiting if one.number <= covered]
        if late:
            self._waiting = deque(one for one in self._waiting if one.number > covered)
        return late

    def settle(self, covered: int) -> None:
        """Record that the acknowledgements of the messages up to ``covered`` have arrived."""
        self._ids.settle(covered)

    def on_connection_lost(self) -> None:
        """Forget the deliveries of a connection: those that are not acknowledged are made again."""
        self._waiting.clear()

    def on_session_lost(self) -> None:
        """Forget the ids: the server has no message of before."""
        self._ids = MessageIds(self._remember)

    def _decoded(self, position: Position | None) -> tuple[int, Ids, int]:
        """Return the number of the last message, the ids and the prefetch of a position. Raises ``SourceError``."""
        if position is None:
            return 0, ((), b""), 0
        if type(position) in (list, tuple):
            # Positions of earlier versions have no prefetch.
            parts = [*cast("Sequence[object]", position), 0][:4]
            if len(parts) == 4:
                last, blocks, tail, prefetch = parts
                if type(last) is int and type(prefetch) is int and type(blocks) in (list, tuple):
                    given = [*cast("Sequence[object]", blocks), tail]
                    ids = [one for one in given if isinstance(one, bytes) and not len(one) % SIZE]
                    if len(ids) == len(given):
                        return last, (tuple(ids[:-1]), ids[-1]), prefetch
        raise SourceError(
            f"{self._name} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
        )
