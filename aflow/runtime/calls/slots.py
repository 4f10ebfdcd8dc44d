"""The coroutines that make the calls of an async step.

A *slot* makes one call after the other, and rests when none may start. Slots are used instead of a task for each call,
since creating a task costs more than making a call. There are as many as were ever needed at once: at most the capacity
of the step, and one more for each cancelled call that has not ended.

A slot is a task of its own and belongs to no task group: a group waits for ever for a coroutine that ignores its
cancellation. ``close`` waits for a grace time, and reports calls that are abandoned.

Calls share a task and must not notice. Context variables that a call changes would be seen by the next one, so such a
slot is replaced by a new one. A slot can be cancelled by ``close``, for a call whose result does not count any more, or
by the call itself: timeouts of older libraries cancel their task and do not take it back. So a slot ends when ``close``
was called, and forgets every other cancellation with its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final, cast

from aflow.errors import AflowError, InternalError, MailboxClosed, OperatorError, described, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.failures import not_awaited
from aflow.operators.calls.operator import AsyncOperator
from aflow.runtime.calls.slot import Slot
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop
from aflow.runtime.pieces import OperatorPieces, Room

#: Seconds that a cancelled call may take to end before it is reported as abandoned.
GRACE: Final = 5.0

#: Slots that are woken in one pass of the event loop, if fewer calls than that were started meanwhile by slots that had
#: ended a call. The other ready calls wait in line, where slots whose calls end take them without a wake-up, which is a
#: future and a pass for each call. A loop with time left has passes in which few calls end, so all slots are at work
#: within some milliseconds. A loop without it would only have longer passes if more calls were in flight.
_WAKES: Final = 64

#: Calls that slots end in one pass of the event loop, after which further slots rest. The ready calls then start in the
#: next passes, as many in each as slots are woken. If all slots continued, a pass in which a thousand calls end would
#: be long, and their next calls would end together again. With 1,000 calls of 10 ms in flight and time left, a hundred
#: end in a millisecond. So slots rest only after a stall, or if the loop has no time left and fewer of them are enough.
_ENDS: Final = 512

#: The result of a function that has not returned.
_NOTHING: Final = object()


Report = Callable[[str, str, float], None]
"""Report the step, an event, and its duration in seconds."""


class CallSlots:
    """The slots of one operator, in one subtask."""

    def __init__(
        self,
        operator: AsyncOperator,
        mails: MailboxLoop,
        loop_budget: LoopBudget,
        *,
        rooms: Sequence[Room],
        pieces: OperatorPieces,
        report: Report,
        grace: float = GRACE,
    ) -> None:
        """``rooms`` are the downstream parts that must not be full when calls start; the task blocks the step then."""
        self.step = operator.name
        self._operator = operator
        self._mails = mails
        self._loop_budget = loop_budget
        self._pieces = pieces
        self._report = report
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        #: The context variables of calls: those of the host when the job was started.
        self._context = copy_context()
        self._slots: dict[asyncio.Task[None], Slot] = {}
        self._name = f"call of {self.step}"
        self._on_end = self._ended
        #: Futures that slots rest on, the latest last.
        self._resting: list[asyncio.Future[None]] = []
        #: The number of slots that were woken or created and have not asked for a call.
        self._awake = 0
        #: The number of slots that were ever woken or created.
        self._woken = 0
        #: The number of calls that were started by slots that had ended another call, at the last wake-up.
        self._continued = 0
        #: The slot that completed a call last.
        self._last: Slot | None = None
        #: True if it completed the call before, too: calls may be of the kind that never waits.
        self._at_once = False
        #: The number of calls that have ended in this pass of the loop, in a step that is not plain.
        self._ends = 0
        #: True while a slot with such calls yields to the loop.
        self._pausing = False
        #: True if more slots are to be woken after the pause.
        self._wake_after_pause = False
        #: True while ``_wake_rest`` is scheduled.
        self._wake_scheduled = False
        self._closing = False
        self.rooms: Final = rooms
        #: The end of the grace time of cancelled calls (s, of the loop).
        self._until = 0.0

    def start(self) -> None:
        """Start to make calls."""
        self._operator.on_ready = self._wake
        self._operator.on_settled = self._post
        self._operator.on_cancel = self._cancel
        self._wake()

    def cancel(self) -> None:
        """Cancel all running calls, and start no other."""
        self._closing = True
        self._operator.on_ready = _noop
        self._operator.held = True
        for slot in self._slots.values():
            slot.cancel_check()
            slot.task.cancel()
        self._until = self._loop.time() + self._grace

    async def close(self) -> None:
        """Wait for all slots after ``cancel``. Report calls that do not end within the grace time."""
        if not self._slots:
            return
        left = max(0.0, self._until - self._loop.time())
        _, remaining = await asyncio.wait(self._slots.copy(), timeout=left)
        for task in remaining:
            self._abandoned(self._slots[task])

    def _wake(self) -> None:
        """Wake, or create, a slot for each call that may start, up to ``_WAKES``, and none if many calls end."""
        if self._wake_scheduled:
            return  # the next pass does it
        need = self._operator.waiting - self._awake
        if need <= 0:
            return
        continued = self._operator.started - self._woken + self._awake
        recently, self._continued = continued - self._continued, continued
        if self._at_once:
            if need > 1:
                need = 1
                self._wake_later()
        elif recently >= _WAKES:
            need = 0
            self._wake_later()
        elif need > _WAKES:
            need = _WAKES
            self._wake_later()
        self._woken += need
        resting = self._resting
        while need > 0:
            need -= 1
            self._awake += 1
            while resting and resting[-1].done():
                del resting[-1]  # cancelled
            if resting:
                resting.pop().set_result(None)
            else:
                self._make()

    def _wake_later(self) -> None:
        """Wake more slots in the next pass of the loop, unless others have taken the calls by then."""
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake_rest)

    def _wake_rest(self) -> None:
        self._wake_scheduled = False
        if self._pausing:
            # The pause of a job with a share of the loop takes many passes.
            self._wake_after_pause = True
        else:
            self._at_once = False
            self._operator.on_ready()

    def _make(self) -> None:
        # As few objects as possible: with thousands of slots they are memory that each call has to load.
        slot = Slot(context := self._context.copy())
        # Not with the task factory of the loop: an eager one would start before it returned the task.
        make = self._make_plain_calls if self._operator.is_plain else self._make_calls
        task = slot.task = asyncio.Task(
            self._loop_budget.driven(partial(make, slot)),
            loop=self._loop,
            name=self._name,
            context=context,
        )
        self._slots[task] = slot
        task.add_done_callback(self._on_end, context=context)

    def _ended(self, task: asyncio.Task[None]) -> None:
        slot = self._slots.pop(task)
        if not slot.begun:  # it was cancelled before its first step
            self._awake -= 1
            self._operator.on_ready()

    def _described(self, error: BaseException) -> BaseException:
        if isinstance(error, SystemExit):
            failure: Exception = OperatorError.of(self.step, error)
        elif isinstance(error, Exception):
            failure = InternalError(f"a slot of step {self.step!r} failed: {described(error)}")
        else:
            return error
        failure.__cause__ = error
        return failure

    async def _make_calls(self, slot: Slot) -> None:
        """Make one call after the other, until one changes the context variables."""
        # Hot path (benchmark `async`): once around for each call.
        slot.begun = True
        self._awake -= 1
        operator = self._operator
        take, returned = operator.take, operator.returned
        invoke = operator.invoke if operator.followed.tracer is None else operator.invoke_followed
        task, context, clean = slot.task, slot.context, self._context
        try:
            while True:
                call = take()
                if call is None:
                    await self._rest()
                    continue
                slot.call = call
                call.slot = slot
                awaitable: Any = _NOTHING
                try:
                    awaitable = invoke(call)
                    result = await awaitable
                except (Exception, asyncio.CancelledError, SystemExit) as exc:
                    self._end_call(slot)
                    if not slot.cancelled:
                        self._raised(call, awaitable, exc)
                else:
                    self._end_call(slot)
                    if not slot.cancelled:
                        returned(call, result)
                if task.cancelling():
                    await self._forget_cancellation(slot)
                try:
                    # Nearly always both share one object inside, which is quick to compare.
                    changed = context != clean
                except Exception:  # a value cannot be compared
                    changed = True
                if changed:
                    self._replace()
                    return
                if self._last is slot:
                    await self._let_others_run()
                else:
                    self._last = slot
                    self._at_once = False
                    if self._end_many() and not operator.is_limited:
                        call = None
                        await self._leave_calls()
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            self._broke(exc)

    async def _make_plain_calls(self, slot: Slot) -> None:
        """As ``_make_calls``, in a step whose calls depend on nothing but the capacity, their order and their keys.

        It does the work of ``take``, ``invoke`` and ``returned``, since each operation here takes a hundredth of a
        call. No call of such a step is ever cancelled alone.
        """
        # Hot path (benchmark `async`): once around for each call.
        slot.begun = True
        self._awake -= 1
        operator = self._operator
        attempts, ready, complete = operator.scheduler.plain_parts()
        completed = operator.scheduler.completed
        task, context, clean = slot.task, slot.context, self._context
        fn = operator.plain_call
        if operator.followed.tracer is not None:
            fn = partial(self._followed_plain, slot, fn)
        try:
            while True:
                if not ready or attempts.blocked:
                    call = slot.call = None
                    await self._rest()
                    continue
                call = slot.call = ready.popleft()
                awaitable: Any = _NOTHING
                try:
                    awaitable = fn(call.value)
                    call.result = await awaitable
                except (Exception, asyncio.CancelledError, SystemExit) as exc:
                    self._end_call(slot)
                    self._raised(call, awaitable, exc)
                else:
                    complete(call)
                    if not operator.is_emit_requested:
                        operator.request_emit()
                if task.cancelling():
                    await self._forget_cancellation(slot)
                try:
                    # Nearly always both share one object inside, which is quick to compare.
                    changed = context != clean
                except Exception:  # a value cannot be compared
                    changed = True
                if changed:
                    self._replace()
                    return
                if self._last is slot:
                    await self._let_others_run()
                else:
                    self._last = slot
                    self._at_once = False
                    # Results are emitted once in a pass of the loop.
                    if len(completed) > _ENDS and ready:
                        call = slot.call = None
                        await self._leave_calls()
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            self._broke(exc)

    def _followed_plain(
        self, slot: Slot, fn: Callable[[Any], Awaitable[Any]], value: Any
    ) -> Awaitable[Any]:
        """Return what ``slot`` awaits for its call, in a job that traces some calls."""
        assert slot.call is not None
        return self._operator.followed.invoke(slot.call, partial(fn, value))

    def _replace(self) -> None:
        """Make a slot in place of one whose call has changed the context variables."""
        self._awake += 1
        self._woken += 1
        self._make()

    async def _let_others_run(self) -> None:
        """The slot has made two calls in a row: they may be of the kind that never waits."""
        self._at_once = True
        if self._loop_budget.spent():
            await self._pause()

    async def _pause(self) -> None:
        """Yield to the loop."""
        self._pausing = True
        try:
            await self._loop_budget.hand_over()
        finally:
            self._pausing = False
            if self._wake_after_pause:
                self._wake_after_pause = False
                self._wake_later()

    def _broke(self, error: BaseException) -> None:
        """End the job: a slot failed."""
        with suppress(MailboxClosed):  # the task has ended
            self._mails.mailbox.post(partial(_raise, self._described(error)))
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _end_call(self, slot: Slot) -> None:
        """Note that the call has ended. Raise ``CancelledError`` if the job ends, even if the call swallowed it."""
        if slot.call is not None:
            slot.call.slot = None
            slot.call = None
        if self._closing:
            raise asyncio.CancelledError

    def _raised(self, call: Call, awaitable: object, error: BaseException) -> None:
        if type(error) is TypeError and awaitable is not _NOTHING and not isawaitable(awaitable):
            self._operator.misused(call, _not_awaitable(awaitable))
        else:
            self._operator.raised(call, error)

    async def _forget_cancellation(self, slot: Slot) -> None:
        """Forget cancellations of a call that has ended."""
        if self._closing:
            raise asyncio.CancelledError
        slot.cancelled = slot.reported = False
        slot.cancel_check()
        while slot.task.uncancel():
            pass
        with suppress(asyncio.CancelledError):
            # Before Python 3.13, a cancelled call that did not await passes the cancellation to the next one.
            await asyncio.sleep(0)
        if self._closing:
            raise asyncio.CancelledError

    def _end_many(self) -> bool:
        """Count a call that has ended. Return True if many have in this pass of the loop."""
        self._ends += 1
        if self._ends == 1:
            self._loop.call_soon(self._begin_pass)
        return self._ends > _ENDS

    def _begin_pass(self) -> None:
        self._ends = 0

    async def _leave_calls(self) -> None:
        """Rest. The ready calls start in the next passes of the loop."""
        self._wake_later()
        await self._rest()

    async def _rest(self) -> None:
        if self._closing:  # its last call swallowed the cancellation
            raise asyncio.CancelledError
        rest = self._loop.create_future()
        self._resting.append(rest)
        try:
            await rest
        except asyncio.CancelledError:
            if not rest.cancelled():
                # It was woken and then cancelled from outside: another slot has to take the call.
                self._awake -= 1
                self._operator.on_ready()
            raise
        self._awake -= 1

    def _cancel(self, call: Call) -> None:
        """Cancel ``call``: its result does not count any more."""
        slot: Slot = call.slot
        slot.cancelled = True
        slot.task.cancel()
        slot.cancel_check()
        slot.check = self._loop.call_later(self._grace, self._check_ended, slot, call)

    def _check_ended(self, slot: Slot, call: Call) -> None:
        if slot.call is call and not self._closing:
            self._abandoned(slot)

    def _abandoned(self, slot: Slot) -> None:
        if slot.reported:
            return
        slot.reported = True
        self._operator.calls.abandoned += 1
        value = "" if slot.call is None else f" for {shown(slot.call.value)}"
        self._report(self.step, f"a call{value} continues although it was cancelled", self._grace)

    def _post(self) -> None:
        # Hot path: once for each emission, which at a hundred calls in flight are some thirty records.
        try:
            self._mails.mailbox.post(self._emit)
        except MailboxClosed:
            return  # the task has ended

    def _emit(self) -> None:
        if self._pieces.unfinished:
            self._pieces.put(self._emit_now)
        else:
            self._emit_now()

    def _emit_now(self) -> None:
        try:
            self._operator.emit()
        except AflowError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as exc:
            # Nothing is awaited here: a CancelledError is raised by a user function and does not cancel the task.
            raise OperatorError.of(self.step, exc) from exc
        if self._concerns_task():
            self._mails.resume()

    def _concerns_task(self) -> bool:
        """Return True if the task has to look: the step is not full any more, or a part downstream is full."""
        if not self._operator.full:
            return True
        for room in self.rooms:  # noqa: SIM110 — three times as fast as any()
            if room.full:
                return True
        return False


def _not_awaitable(given: object) -> TypeError:
    if isinstance(given, AsyncGenerator):
        return not_awaited(cast("AsyncGenerator[object]", given))
    return TypeError(
        f"the function returned {shown(given)}, which cannot be awaited; write it as async def, or use the method "
        f"without _async"
    )


def _raise(error: BaseException) -> None:
    raise error


def _noop() -> None:
    """Do nothing."""
