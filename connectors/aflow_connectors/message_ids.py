"""``MessageIds``: recognises messages that a server delivers again.

Servers with acknowledgements deliver a message again if the connection was lost before its acknowledgement has arrived,
and after a crash of the server also if it was acknowledged a moment before. An id identifies it: what the publisher has
set, or what the protocol keeps. This machine keeps the ids of the messages that were read:

- each one that is not *settled*: its acknowledgement is not known to have arrived;
- of the settled ones the last ``remember``.

Messages are numbered as they are read, and settled up to a number.

**Position.** Checkpoints store these ids at each position, and the fetcher keeps the positions of some thousand chunks.
So the ids are in blocks that consecutive positions share: a position costs the tuple of its blocks and the last,
incomplete block. An id is stored as 16 bytes of its BLAKE2b hash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

SIZE: Final = 16

#: Ids in a block.
_BLOCK: Final = 64

Ids = tuple[tuple[bytes, ...], bytes]
"""Complete blocks, and the last one."""


def hashed(id: bytes) -> bytes:
    """Return the stored form of an id."""
    return blake2b(id, digest_size=SIZE).digest()


class MessageIds:
    """See the theory at the top of the module."""

    def __init__(self, remember: int, restored: Ids = ((), b""), last: int = 0) -> None:
        """``restored`` are the ids of a position; ``last`` is the number of the last message before it."""
        self._remember = remember
        #: The number of each id that is kept. Restored ones have the number of the last.
        self._numbers: dict[bytes, int] = {}
        #: Complete blocks, oldest first, each with the number of its last id.
        self._blocks: deque[tuple[bytes, int]] = deque()
        #: The blocks without their numbers; None after a change.
        self._shared: tuple[bytes, ...] | None = None
        self._tail = bytearray()
        blocks, tail = restored
        for id in _split((*blocks, tail)):
            self.add(id, last)

    def number_of(self, id: bytes) -> int | None:
        """Return the number of a message that was read before, if its id is kept."""
        return self._numbers.get(id)

    def add(self, id: bytes, number: int) -> None:
        """Keep the id of message ``number``. An id that a later message uses again has the later number."""
        self._numbers[id] = number
        self._tail += id
        if len(self._tail) == _BLOCK * SIZE:
            self._blocks.append((bytes(self._tail), number))
            self._tail.clear()
            self._shared = None

    def settle(self, number: int) -> None:
        """Forget the oldest ids: the messages up to ``number`` are settled."""
        kept = len(self._blocks) * _BLOCK + len(self._tail) // SIZE
        while self._blocks and self._blocks[0][1] <= number and kept - _BLOCK >= self._remember:
            block, last = self._blocks.popleft()
            kept -= _BLOCK
            for id in _split([block]):
                if self._numbers.get(id, last) <= last:  # not used again since
                    self._numbers.pop(id, None)
            self._shared = None

    def position(self) -> Ids:
        """Return the ids that are kept now."""
        if self._shared is None:
            self._shared = tuple(block for block, _ in self._blocks)
        return self._shared, bytes(self._tail)


def _split(blocks: Sequence[bytes]) -> list[bytes]:
    return [block[start : start + SIZE] for block in blocks for start in range(0, len(block), SIZE)]
