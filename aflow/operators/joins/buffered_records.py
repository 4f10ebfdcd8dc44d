"""Buffered records of a join for readers of the state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from aflow.errors import FlowDefinitionError
from aflow.model.time import Timestamp
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.readable_state import KeySelection


class TimedRecord(NamedTuple):
    """A buffered record of a join."""

    timestamp: Timestamp
    """Epoch ms."""
    record: Any


TimedRecords: TypeAlias = list[TimedRecord]
"""Records, by their timestamps."""


class BufferedRecords(NamedTuple):
    """The records of a key in an interval join that may still find a partner, by input."""

    left: TimedRecords
    right: TimedRecords


class BufferingStep(Protocol):
    """A join in one subtask."""

    @abstractmethod
    def peek(self, key: Hashable) -> object:
        """Return copies of the buffered records of ``key``, or ``ABSENT``, without any change."""

    @abstractmethod
    def record_keys(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys with buffered records, as ``ReadableState.scan`` does."""


class JoinState:
    """The buffered records of a join as ``ReadableState``, under one ``name``."""

    def __init__(self, step: BufferingStep, key_codec: KeyGroupCodec, name: str) -> None:
        self._step = step
        self.names: Final[Sequence[str]] = (name,)
        self.key_codec: Final = key_codec

    def read(self, name: str, key: Hashable) -> object:
        """Return the records of ``key``."""
        self._check(name)
        return self._step.peek(key)

    def scan(self, name: str, wanted: KeySelection) -> Iterator[Sequence[Hashable]]:
        """Yield the keys with records."""
        self._check(name)
        return self._step.record_keys()

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise FlowDefinitionError(
                f"step {self.key_codec.operator!r} has no state named {name!r}; its state is {self.names[0]!r}"
            )
