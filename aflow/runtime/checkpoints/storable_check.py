"""A check, as soon as a subtask has state, that a checkpoint will be able to store it.

Theory. State without an encoding fails the first checkpoint, and with it the job (decision 015), long after the mistake
was deployed. Types are known when values are there. So each operator is
asked for a snapshot, which is discarded, as soon as it has state: normally after the first batch. The same is done with
the position of a source, and, if barriers may overtake records, with a record in each exchange and before each sink.

A snapshot costs almost nothing while there is no state; the next checkpoint is complete. A restored operator is not
asked: it may hold much, and its types were stored before. The check runs after each of the first elements, and then
each time their number has doubled, until nothing is left to check.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from aflow.errors import UnstorableState
from aflow.model.batch import Batch
from aflow.operators.base import Operator
from aflow.operators.calls.handlers.stored import HANDLERS
from aflow.operators.calls.stored import CALLS
from aflow.operators.sink import SinkOperator
from aflow.runtime.checkpoints.inflight import InFlightCodec
from aflow.runtime.checkpoints.sections import source_progress
from aflow.runtime.edges import OutEdge
from aflow.runtime.splits import Progress
from aflow.state.snapshot import OperatorSnapshot

#: The check runs after each of so many elements, and then each time their number has doubled.
_EACH: Final = 64


class Progressing(Protocol):
    """The progress of a source."""

    def progress(self) -> Progress: ...


class StorableCheck:
    """Checks one subtask, after the elements that it processes."""

    def __init__(
        self,
        operators: Iterable[Operator],
        *,
        restored: Container[str],
        edges: Sequence[OutEdge] = (),
        codec: InFlightCodec | None = None,
        source: tuple[str, Progressing] | None = None,
    ) -> None:
        """``codec`` is that of records in flight; None if barriers overtake no records."""
        known = list(operators)
        self._operators = [
            one for one in known if not isinstance(one, SinkOperator) and one.name not in restored
        ]
        #: Queues of records that barriers may overtake.
        self._queues: list[OutEdge | SinkOperator] = []
        if codec is not None:
            self._queues += [*edges, *(one for one in known if isinstance(one, SinkOperator))]
        self._codec = codec
        self._source = source
        self._steps = 0

    def after_step(self) -> bool:
        """Check the state. Return True if nothing is left to check. Raises an ``initial`` ``UnstorableState``."""
        self._steps += 1
        if self._steps > _EACH and self._steps & (self._steps - 1):
            return False
        try:
            return self._is_stored()
        except UnstorableState as exc:
            exc.initial = True
            raise

    def _is_stored(self) -> bool:
        """Return True if nothing is left to check."""
        if self._source is not None:
            name, source = self._source
            source_progress(name, source.progress(), 0)
            self._source = None
        self._operators = [one for one in self._operators if not _stored(one)]
        self._queues = [one for one in self._queues if not self._encoded(one)]
        return not self._operators and not self._queues

    def _encoded(self, queue: OutEdge | SinkOperator) -> bool:
        """Return True if there was a record, and it could be stored."""
        batch = next(_queued(queue), None)
        if batch is None or self._codec is None:
            return False
        one = Batch(batch.values[:1], None, None if batch.keys is None else batch.keys[:1])
        to = (
            f"sink {queue.name!r}"
            if isinstance(queue, SinkOperator)
            else f"the step after {queue.step!r}"
        )
        self._codec.check(to, one)
        return True


def _queued(queue: OutEdge | SinkOperator) -> Iterator[Batch[Any]]:
    if isinstance(queue, SinkOperator):
        yield from queue.waiting
    else:
        for channel in queue.channels:
            yield from channel.batches


def _stored(operator: Operator) -> bool:
    """Return True if the operator needs no further check: it has no state, or some that could be stored."""
    snapshot = operator.snapshot()
    return snapshot is None or _has_values(snapshot)


def _has_values(snapshot: OperatorSnapshot) -> bool:
    """Return True if there are values of the user; operators always have entries of their own."""
    names = snapshot.operator
    return (
        any(snapshot.keyed.values())
        or bool(snapshot.broadcast)
        or CALLS in names
        or HANDLERS in names
    )
