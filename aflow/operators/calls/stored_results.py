"""Snapshots of settled calls whose results were not emitted: operator state, one part for each subtask.

Theory. The records of a step's calls are stored by ``stored``. This part says what some of them already have, by their
place among the records of their subtask: a result, or the decision of ``on_error`` to give up. After a restore such a
record is settled at once, in its place of the queue, and its call is not made again. The record itself is always stored
too, so a record without a usable outcome is called for again. This is the case if

- its call was under way,
- its result could not be encoded, or cannot be decoded any more, which is warned of once,
- results are encoded by another codec than before, or ``on_error`` is another policy than the one that gave it up,
- it follows such a record of its key in a step by key: the order of the key comes first.

Results are encoded at the capture, not in the worker thread that encodes the records: later steps may change a result
as soon as it was emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from aflow.errors import RestoreError, message_of
from aflow.machines.calls.call import NO_RESULT, Call, CallError
from aflow.machines.calls.failures import NOT_AWAITED
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.model.codecs import PLAIN, CodecError
from aflow.state.snapshot import OperatorSnapshot

#: The name of the outcomes in the operator state of a snapshot.
RESULTS: Final = "@results"

Encoded: TypeAlias = bool | bytes | list[bytes]
"""A stored result: of a filter, of a call, and of a call with many typed results."""


@dataclass(frozen=True, slots=True)
class StoredResults:
    """The outcomes of the settled calls of one subtask. Places count its stored records from 0."""

    subtask: int
    codec: str
    """The name of the codec of the results."""
    policy: str
    """The error policy that gave up the failed calls."""
    results: Sequence[tuple[int, Encoded]]
    """Place and result."""
    failures: Sequence[tuple[int, str, str, int]]
    """Place, class of the error, its text, and the number of attempts."""

    def encoded(self) -> bytes:
        return PLAIN.encode(
            (self.subtask, self.codec, self.policy, list(self.results), list(self.failures))
        )

    @classmethod
    def decoded(cls, data: bytes) -> StoredResults:
        """Raises ``CodecError``."""
        return cls(*cast("tuple[int, str, str, list[Any], list[Any]]", PLAIN.decode(data)))


class ResultStore:
    """Turns the outcomes of one step's calls into ``StoredResults`` and back. ``warn`` gets at most one text."""

    def __init__(self, step: str, settings: CallSettings, warn: Callable[[str], None]) -> None:
        self._step: Final = step
        self._settings: Final = settings
        self._warn: Final = warn
        self._has_warned = False
        self._codec: Final = settings.result_codec
        self._kind: Final = "bool" if settings.results is CallResults.KEEP else self._codec.name
        self._policy: Final = type(settings.on_error).__name__
        #: True if each of many results is encoded by itself.
        self._each: Final = settings.results is CallResults.MANY and settings.results_typed

    # ------------------------------------------------------------------------------------------- capture

    def capture(self, subtask: int, calls: Iterable[Call]) -> StoredResults | None:
        """Return the outcomes of ``calls``, all that the queue contains, in its order; None if there are none."""
        results: list[tuple[int, Encoded]] = []
        failures: list[tuple[int, str, str, int]] = []
        for place, call in enumerate(calls if self._settings.stores_results else ()):
            if call.result is not NO_RESULT:
                encoded = self._encode(call)
                if encoded is not None:
                    results.append((place, encoded))
            elif call.done and call.error is not None:
                error = call.error
                failures.append((place, error.type_name, error.message, call.attempt))
        if not results and not failures:
            return None
        return StoredResults(subtask, self._kind, self._policy, results, failures)

    def _encode(self, call: Call) -> Encoded | None:
        """Return the stored result of ``call``; None if it cannot be stored."""
        result = call.result
        if type(result) in NOT_AWAITED:
            return None  # the job is about to fail
        try:
            if self._settings.results is CallResults.KEEP:
                return bool(result)
            if self._each:
                return [self._codec.encode(one) for one in result]
            return self._codec.encode(result)
        except Exception as exc:  # codecs and the truth value of a result are the user's
            self._warn_once(
                f"step {self._step!r} cannot store the result of a completed call: {message_of(exc)}; such calls are "
                f"made again after a restore. Declare what they return with result_of=…, choose how it is stored with "
                f"result_codec=Pickled[…](), or turn this off with store_results=False"
            )
            return None

    # ------------------------------------------------------------------------------------------- restore

    def restored(self, snapshot: OperatorSnapshot) -> RestoredResults:
        """Return the stored outcomes of ``snapshot``. Raises ``RestoreError``."""
        results: dict[tuple[int, int], Encoded] = {}
        failures: dict[tuple[int, int], tuple[CallError, int]] = {}
        try:
            for part in map(StoredResults.decoded, snapshot.operator.get(RESULTS, ())):
                self._read(part, results, failures)
        except (CodecError, TypeError, ValueError) as exc:
            raise RestoreError(
                f"step {self._step!r} cannot read the results of its completed calls: {exc}"
            ) from exc
        by_key = self._settings.order is CallOrder.BY_KEY
        return RestoredResults(self._decode, results, failures, by_key=by_key)

    def _read(
        self,
        part: StoredResults,
        results: dict[tuple[int, int], Encoded],
        failures: dict[tuple[int, int], tuple[CallError, int]],
    ) -> None:
        if part.codec == self._kind:
            results.update({(part.subtask, place): one for place, one in part.results})
        elif part.results:
            self._warn_once(
                f"step {self._step!r}: {len(part.results)} results were stored as {part.codec}, and results are "
                f"stored as {self._kind} now: their calls are made again"
            )
        if part.policy == self._policy:
            failures.update(
                ((part.subtask, place), (CallError(name, message), attempts))
                for place, name, message, attempts in part.failures
            )

    def _decode(self, stored: Encoded) -> Any:
        """Return a stored result; ``NO_RESULT`` if it cannot be read."""
        try:
            if isinstance(stored, bool):
                return stored
            if isinstance(stored, list):
                return [self._codec.decode(one) for one in stored]
            return self._codec.decode(stored)
        except Exception as exc:  # codecs and classes are the user's
            self._warn_once(
                f"step {self._step!r} cannot read the stored result of a completed call: {message_of(exc)}; such calls "
                f"are made again"
            )
            return NO_RESULT

    def _warn_once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(text)


class RestoredResults:
    """Gives restored calls their outcomes, once each and in the order of the stored records."""

    def __init__(
        self,
        decode: Callable[[Encoded], Any],
        results: dict[tuple[int, int], Encoded],
        failures: dict[tuple[int, int], tuple[CallError, int]],
        *,
        by_key: bool,
    ) -> None:
        self._decode: Final = decode
        self._results: Final = results
        self._failures: Final = failures
        self._by_key: Final = by_key
        #: In a step by key: keys with a record that is called for again. Their later records are so too.
        self._called: Final[set[Hashable]] = set()

    def give(self, subtask: int, place: int, call: Call) -> None:
        """Give ``call`` the outcome that is stored for the record at ``place`` of a former ``subtask``, if any."""
        if self._by_key and call.key in self._called:
            return
        found = (subtask, place)
        if (stored := self._results.get(found)) is not None:
            call.result = self._decode(stored)
        elif (failure := self._failures.get(found)) is not None:
            call.error, call.attempt = failure
        if self._by_key and not call.has_outcome:
            self._called.add(call.key)
