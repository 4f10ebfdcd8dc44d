"""What came into an asynchronous step and has not left it: order, fences, results, state.

Which calls are made, when and how often, is not known here; see ``AsyncOperator``, which tells it what becomes of each
record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from aflow.errors import InternalError, OperatorError
from aflow.machines.calls.call import NO_RESULT, Call
from aflow.machines.calls.counters import CallCounters
from aflow.machines.calls.on_error import DeadLetter, Drop, Fallback
from aflow.machines.calls.queues import CallQueue, KeyTurns, OrderedCalls, UnorderedCalls
from aflow.machines.calls.settings import CallOrder, CallResults, CallSettings
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE, Active, Idle, Watermark
from aflow.model.keys import UnsupportedKey, check_key
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RAISED, Operator, OperatorContext
from aflow.operators.calls.leaving import failed, send_failure, send_results
from aflow.operators.calls.stored import StoredCalls
from aflow.operators.calls.stored_fences import CapturedCalls, StoredFences, restored_queue
from aflow.operators.first_call import refuse_coroutine
from aflow.operators.handler_results import iterable
from aflow.state.snapshot import Captured, OperatorSnapshot

#: After so many keys that were checked all are forgotten, so that ever new keys cost bounded memory.
_KNOWN_KEYS: Final = 65_536


class RecordsInFlight(Operator):
    """Keeps each record, as a call, until it is settled and what came of it was emitted, in the order of the step."""

    def __init__(self, settings: CallSettings) -> None:
        self.settings = settings
        self.calls = CallCounters()
        #: True while no call may be made for a further record: what comes of it would find no room behind the step.
        self.held = False
        #: Called when ``emit`` has something to do; given by the runtime.
        self.on_settled: Callable[[], None] = nobody
        #: Calls whose results were not emitted, and the fences between them.
        self._queue: CallQueue = (
            OrderedCalls() if settings.order is CallOrder.ORDERED else UnorderedCalls()
        )
        self._turns = KeyTurns() if settings.order is CallOrder.BY_KEY else None
        #: True if ``_decided`` has something to do.
        self._watched = False
        #: Set by the task when it begins to wait until the step is no longer full.
        self.input_waits = False
        #: True from ``on_settled`` to ``emit``.
        self._told = False
        #: How many calls that are settled and not emitted have no result, for which the fast way out is too simple.
        self._without_results = 0
        #: The last watermark received or restored (epoch ms).
        self._received = MIN_TIMESTAMP
        #: Keys that were checked, for steps with keys. At most ``_KNOWN_KEYS`` and those of one batch.
        self._known_keys: set[Any] = set()
        #: True while the input is idle.
        self._idle = False
        #: Why the job has to fail; raised by ``emit``.
        self._failure: Exception | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        settings = self.settings
        self._stored = StoredCalls(
            context.name, settings.codec, settings.typed, self._turns is not None
        )

    @property
    def busy(self) -> bool:
        """True while something came in that has not left."""
        return len(self._queue) > 0

    def _put(self, calls: Sequence[Call]) -> None:
        """Take calls in, in order."""
        self._queue.put(calls)
        self._make_ready(calls if self._turns is None else self._turns.admit(calls))

    @abstractmethod
    def _make_ready(self, calls: Iterable[Call]) -> None:
        """Let ``calls`` be made as soon as may be: it is their turn."""

    def _keys_of(self, batch: Batch[Any]) -> Sequence[Any]:
        keys = batch.keys
        if keys is None:
            raise InternalError(f"step {self.name!r} is keyed and got a batch without keys")
        try:
            if self._known_keys.issuperset(keys):
                return keys
        except TypeError:
            pass  # one cannot be hashed: the check names it
        self._check_keys(keys, batch)
        return keys

    def _check_keys(self, keys: Sequence[Any], batch: Batch[Any]) -> None:
        """Raise ``OperatorError`` for the first of ``keys`` that no keyed step takes."""
        known = self._known_keys
        for index, key in enumerate(keys):
            try:
                check_key(key)
            except UnsupportedKey as exc:
                raise self.failure_at(exc, batch, index) from exc
            known.add(key)
        if len(known) > _KNOWN_KEYS:
            known.clear()

    def on_start(self) -> None:
        """The runtime can emit: request ``emit`` for restored watermarks that no call precedes.

        A request that was made while the task was built was not received: a source without splits ends event time
        then.
        """
        self._told = False
        self._tell()

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self._received:
            return  # after a restore the inputs repeat watermarks that were restored
        self._received = timestamp
        if self.busy:
            self._put_fence(Watermark(timestamp))
        else:
            super().on_watermark(timestamp)

    def on_idle(self) -> None:
        self._idle = True
        if self.busy:
            self._put_fence(IDLE)
        else:
            super().on_idle()

    def on_active(self) -> None:
        self._idle = False
        if self.busy:
            self._put_fence(ACTIVE)
        else:
            super().on_active()

    def _put_fence(self, fence: Watermark | Idle | Active) -> None:
        self._queue.put_fence(fence)
        self._tell()

    # ------------------------------------------------------------------------------------------- leaving

    def _settle(self, call: Call, result: Any) -> None:
        """It is decided what becomes of a record."""
        # Hot path (benchmark `async`).
        call.result = result
        self._queue.settle(call)
        if self._watched:
            self._decided(call)
        if self._turns is not None:
            self._next_of_key(call)
        if not self._told:
            self._tell()

    def _decided(self, call: Call) -> None:
        """A record is settled, in a step where more has to be done for it than to make its call."""

    def _next_of_key(self, call: Call) -> None:
        assert self._turns is not None
        following = self._turns.release(call.key)
        if following is not None:
            self._make_ready((following,))

    def _tell(self) -> None:
        if self._told:
            return
        if self._failure is not None or self._queue.has_out:
            self._told = True
            self.on_settled()
        elif self.input_waits and not self.full:
            self.input_waits = False
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        """The step may take more input, though nothing leaves it now."""
        if not self._told:
            self._told = True
            self.on_settled()

    @property
    @abstractmethod
    def full(self) -> bool:
        """True while the task should take no more input."""

    def _give_up(self, call: Call, error: BaseException) -> None:
        """No attempt is left: the policy decides."""
        policy = self.settings.on_error
        match policy:
            case Fallback(result):
                try:
                    instead = result(call.value, error)
                    refuse_coroutine(instead, "Fallback()")
                    if self.settings.results is CallResults.MANY:
                        instead = list(iterable(instead))
                except RAISED as exc:
                    self._fail(self._error(call, exc), exc)
                    return
                self.calls.fallbacks += 1
                self._settle(call, instead)
            case Drop() | DeadLetter():
                if isinstance(policy, Drop):
                    self.calls.dropped += 1
                else:
                    self.calls.dead_letters += 1
                call.error = error
                self._without_results += 1
                self._settle(call, NO_RESULT)
            case _:
                self._fail(self._error(call, error), error)

    def _error(self, call: Call, error: BaseException) -> OperatorError:
        return failed(self.name, call, error)

    def _fail(self, error: Exception, cause: BaseException | None = None) -> None:
        """Let the job fail, by the next mail."""
        if self._failure is None:
            error.__cause__ = cause
            self._failure = error
        self.held = True
        self._tell()

    def emit(self) -> None:
        """Send on what is settled and may leave."""
        self._told = False
        if self._failure is not None:
            raise self._failure
        for one in self._queue.take():
            if isinstance(one, list):
                self._emit_run(one)
            else:
                self._emit_fence(one)

    def _emit_run(self, run: list[Call]) -> None:
        # Hot path.
        if self._without_results:
            self._emit_with_failures(run)
        else:
            send_results(run, self.settings, self.output, self.name)

    def _emit_with_failures(self, run: list[Call]) -> None:
        """Emit results and dead letters of ``run`` in its order, so that consumers of both see that order."""
        dead_letters = isinstance(self.settings.on_error, DeadLetter)
        results: list[Call] = []
        for call in run:
            if call.result is not NO_RESULT:
                results.append(call)
                continue
            self._without_results -= 1
            if dead_letters:
                if results:
                    send_results(results, self.settings, self.output, self.name)
                    results = []
                send_failure(call, self.settings, self.output)
        send_results(results, self.settings, self.output, self.name)

    def _emit_fence(self, fence: Watermark | Idle | Active) -> None:
        match fence:
            case Watermark(timestamp):
                super().on_watermark(timestamp)
            case Idle():
                super().on_idle()
            case Active():
                super().on_active()

    # --------------------------------------------------------------------------------------------- state

    def capture(self, *, changes: bool) -> Captured:
        """The records whose results were not emitted, and the watermarks between them.

        They are few, so all of them are captured each time.
        """
        fences = StoredFences.of(
            self._queue.fences, self.context, received=self._received, idle=self._idle
        )
        return CapturedCalls(self._stored, self.context.subtask, self._queue.calls, fences)

    def snapshot(self) -> OperatorSnapshot:
        return self.capture(changes=False).encoded()

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Call for the restored records before all others. Their watermarks follow them again."""
        for one in restored_queue(snapshot, self._stored, self.context):
            if isinstance(one, Watermark):
                self._received = one.timestamp
                self._queue.put_fence(one)  # emitted from ``on_start`` on
            else:
                self._put(calls_of(one, one.keys))


def calls_of(batch: Batch[Any], keys: Sequence[Any] | None) -> list[Call]:
    """A call for each record."""
    times = repeat(None) if batch.timestamps is None else batch.timestamps
    return list(map(Call, batch.values, times, repeat(None) if keys is None else keys))


def nobody(*_: object) -> None:
    """Stands in until the runtime is there."""
