"""The coroutines that make the calls of an asynchronous step.

A *slot* makes one call after the other and rests when there is none: slots, not tasks for each call, since to make a
task costs more than to make a call. There are as many as were ever needed at once, at most the step's capacity, and one
more for each call that is still at it although its record's time is up.

A slot is a task of its own and belongs to no task group: a group waits for ever for a coroutine that ignores its
cancellation. ``close`` waits for a grace time, and reports what it leaves behind.

Calls share a task, and must not notice. What a call leaves in context variables would be seen by the next one, so such
a slot makes room for a new one. And who cancels a slot is either ``close``, or whoever gave the call up, or the call
itself: timeouts of older libraries cancel their task and never take it back. So a slot ends when ``close`` says so, and
forgets every other cancellation with its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final, Protocol, cast

from aflow.errors import AflowError, InternalError, MailboxClosed, OperatorError, shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.failures import not_awaited
from aflow.operators.calls.operator import AsyncOperator
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop

#: Seconds that a call may go on after it was cancelled before it is given up.
GRACE: Final = 5.0

#: Slots that are woken in one pass of the event loop. If more calls are ready they wait for a pass: slots whose calls
#: end meanwhile take them without being woken, which costs a future and a pass for each call. A busy loop has long
#: passes, so few slots are woken; an idle one has short passes, so all are within some milliseconds.
_WAKES: Final = 64

#: Stands for what a function returns, as long as it has not.
_NOTHING: Final = object()


class Room(Protocol):
    """Something that can be too full for the task to go on: an exchange, a sink, or a step whose calls are many."""

    @property
    def full(self) -> bool: ...


Report = Callable[[str, str, float], None]
"""Gets the step, what happened, and the seconds that it took."""


class Slot:
    """One coroutine that makes calls."""

    __slots__ = ("begun", "call", "cancelled", "context", "looking", "reported", "task")

    def __init__(self, context: Context) -> None:
        #: In which it makes its calls.
        self.context = context
        #: Set when the slot is made.
        self.task: asyncio.Task[None]
        #: True from the first step of its task.
        self.begun = False
        #: What it is awaiting; None while it rests.
        self.call: Call | None = None
        #: True if its call was cancelled because it counts no more.
        self.cancelled = False
        #: True if it was reported that its call does not end.
        self.reported = False
        #: Set while it is to be seen whether a call that was cancelled has ended.
        self.looking: asyncio.TimerHandle | None = None

    def look_no_more(self) -> None:
        """It has ended, or the job has."""
        if self.looking is not None:
            self.looking.cancel()
            self.looking = None


class CallSlots:
    """Makes the calls of one operator, in one subtask."""

    def __init__(
        self,
        operator: AsyncOperator,
        mails: MailboxLoop,
        loop_budget: LoopBudget,
        *,
        report: Report,
        grace: float = GRACE,
    ) -> None:
        self.step = operator.name
        self._operator = operator
        self._mails = mails
        self._loop_budget = loop_budget
        self._report = report
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        #: In which calls run: what the host had set when the job was started.
        self._context = copy_context()
        self._slots: set[Slot] = set()
        #: Futures that slots rest on, the latest last.
        self._resting: list[asyncio.Future[None]] = []
        #: Slots that were woken, or made, and have not asked for a call yet.
        self._coming = 0
        #: The slot that has finished a call last.
        self._last: Slot | None = None
        #: True if that one had finished the call before, too: so calls may be of the kind that never waits.
        self._at_once = False
        #: True while a slot with such calls lets others have the loop.
        self._pausing = False
        #: True while ``_wake_rest`` is on its way.
        self._looking = False
        self._closing = False
        #: What must not be full for calls to begin; given by the task, which holds the step up then.
        self.rooms: Sequence[Room] = ()
        #: Until when calls may take to end, once they were cancelled (s, of the loop).
        self._until = 0.0

    def start(self) -> None:
        """Make calls from now on."""
        self._operator.on_ready = self._wake
        self._operator.on_settled = self._post
        self._operator.on_cancel = self._cancel
        self._wake()

    def cancel(self) -> None:
        """Cancel all calls under way, and begin no other."""
        self._closing = True
        self._operator.on_ready = _nobody
        for slot in self._slots:
            slot.look_no_more()
            slot.task.cancel()
        self._until = self._loop.time() + self._grace

    async def close(self) -> None:
        """End all slots, behind ``cancel``. Calls that go on for longer than the grace time are reported."""
        tasks = {slot.task: slot for slot in self._slots}
        if not tasks:
            return
        left = max(0.0, self._until - self._loop.time())
        _, going_on = await asyncio.wait(tasks, timeout=left)
        for task in going_on:
            self._abandoned(tasks[task])

    def _wake(self) -> None:
        """Have as many slots ask for calls as there are calls that may begin."""
        need = self._operator.waiting - self._coming
        if need > 1 and self._at_once:
            need = 1
            self._look_again()
        elif need > _WAKES:
            need = _WAKES
            self._look_again()
        resting = self._resting
        while need > 0:
            need -= 1
            self._coming += 1
            while resting and resting[-1].done():
                del resting[-1]  # cancelled
            if resting:
                resting.pop().set_result(None)
            else:
                self._make()

    def _look_again(self) -> None:
        """One slot may make all calls, if none of them waits: in the next pass of the loop it shows."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._wake_rest)

    def _wake_rest(self) -> None:
        self._looking = False
        if self._pausing:
            self._look_again()
        else:
            self._at_once = False
            self._operator.on_ready()

    def _make(self) -> None:
        slot = Slot(self._context.copy())
        self._slots.add(slot)
        # Not by the loop's task factory: an eager one would begin before it has given the task.
        slot.task = asyncio.Task(
            self._serve(slot),
            loop=self._loop,
            name=f"call of {self.step}",
            context=slot.context,
        )
        slot.task.add_done_callback(partial(self._ended, slot))

    def _ended(self, slot: Slot, _task: asyncio.Task[None]) -> None:
        if not slot.begun:  # it was cancelled before its first step, so that nothing of it has run
            self._slots.discard(slot)
            self._coming -= 1
            self._operator.on_ready()

    def _described(self, error: BaseException) -> BaseException:
        if isinstance(error, SystemExit):
            described: Exception = OperatorError.of(self.step, error)
        elif isinstance(error, Exception):
            described = InternalError(
                f"a slot of step {self.step!r} failed: {type(error).__name__}: {error}"
            )
        else:
            return error
        described.__cause__ = error
        return described

    async def _serve(self, slot: Slot) -> None:
        """Make calls until cancelled. Errors of this code, and more than errors of a call, end the job."""
        slot.begun = True
        self._coming -= 1
        try:
            await (self._make_plain_calls if self._operator.is_plain else self._make_calls)(slot)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            self._broke(exc)
        finally:
            self._slots.discard(slot)

    async def _make_calls(self, slot: Slot) -> None:
        """Make one call after the other, until one changes the context variables."""
        # Hot path (benchmark `async`): once around for each call.
        operator = self._operator
        take, invoke, returned = operator.take, operator.invoke, operator.returned
        cancelling, context, clean = slot.task.cancelling, slot.context, self._context
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
                self._over(slot)
                if not slot.cancelled:
                    self._raised(call, awaitable, exc)
            else:
                self._over(slot)
                if not slot.cancelled:
                    returned(call, result)
            if cancelling():
                await self._forget_cancellation(slot)
            try:
                changed = (
                    context != clean
                )  # nearly always both are one object inside, which is quick
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

    async def _make_plain_calls(self, slot: Slot) -> None:
        """As ``_make_calls``, in a step whose calls depend on nothing but the capacity: none is ever cancelled alone.

        It does what ``take``, ``invoke`` and ``returned`` do, since each operation here takes a hundredth of a call.
        """
        # Hot path (benchmark `async`): once around for each call.
        operator = self._operator
        attempts, ready, completed = operator.scheduler.plain_parts()
        counters, most, fn = attempts.counters, operator.settings.capacity, operator.plain_call
        cancelling, context, clean = slot.task.cancelling, slot.context, self._context
        while True:
            if not ready or attempts.running >= most or attempts.blocked:
                slot.call = None
                await self._rest()
                continue
            attempts.running += 1
            counters.calls += 1
            call = slot.call = ready.popleft()
            awaitable: Any = _NOTHING
            try:
                awaitable = fn(call.value)
                call.result = await awaitable
            except (Exception, asyncio.CancelledError, SystemExit) as exc:
                self._over(slot)
                self._raised(call, awaitable, exc)
            else:
                if self._closing:
                    raise asyncio.CancelledError
                attempts.running -= 1
                completed(call)
                if not operator.is_emit_requested:
                    operator.request_emit()
            if cancelling():
                await self._forget_cancellation(slot)
            try:
                changed = (
                    context != clean
                )  # nearly always both are one object inside, which is quick
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

    def _replace(self) -> None:
        """Make a slot in place of one whose call has changed the context variables."""
        self._coming += 1
        self._make()

    async def _let_others_run(self) -> None:
        """The slot has made two calls in a row: they may be of the kind that never waits."""
        self._at_once = True
        if self._loop_budget.spent():
            await self._pause()

    async def _pause(self) -> None:
        """Let others have the loop."""
        self._pausing = True
        try:
            await self._loop_budget.hand_over()
        finally:
            self._pausing = False

    def _broke(self, error: BaseException) -> None:
        """A slot has ended, and so does the job."""
        with suppress(MailboxClosed):  # nobody waits for this task
            self._mails.mailbox.post(partial(_raise, self._described(error)))
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _over(self, slot: Slot) -> None:
        """Its call has ended. Where the job ends too, that is all, whether or not the call has swallowed the word."""
        slot.call = None
        if self._closing:
            raise asyncio.CancelledError

    def _raised(self, call: Call, awaitable: object, error: BaseException) -> None:
        if type(error) is TypeError and awaitable is not _NOTHING and not isawaitable(awaitable):
            self._operator.misused(call, _not_awaitable(awaitable))
        else:
            self._operator.raised(call, error)

    async def _forget_cancellation(self, slot: Slot) -> None:
        """What has cancelled the call, from without or within, is over with it."""
        slot.cancelled = slot.reported = False
        slot.look_no_more()
        while slot.task.uncancel():
            pass
        with suppress(asyncio.CancelledError):
            # A call that was cancelled and awaited nothing after that would leave it to the next one (before 3.13).
            await asyncio.sleep(0)
        if self._closing:
            raise asyncio.CancelledError

    async def _rest(self) -> None:
        rest = self._loop.create_future()
        self._resting.append(rest)
        try:
            await rest
        except asyncio.CancelledError:
            if (
                not rest.cancelled()
            ):  # it was woken, and then cancelled by somebody else: another one has to come
                self._coming -= 1
                self._operator.on_ready()
            raise
        self._coming -= 1

    def _cancel(self, call: Call) -> None:
        """The result of ``call`` counts no more."""
        slot: Slot = call.slot
        slot.cancelled = True
        slot.task.cancel()
        slot.look_no_more()
        slot.looking = self._loop.call_later(self._grace, self._look, slot, call)

    def _look(self, slot: Slot, call: Call) -> None:
        if slot.call is call and not self._closing:
            self._abandoned(slot)

    def _abandoned(self, slot: Slot) -> None:
        if slot.reported:
            return
        slot.reported = True
        self._operator.calls.abandoned += 1
        value = "" if slot.call is None else f" for {shown(slot.call.value)}"
        self._report(self.step, f"a call{value} goes on although it was cancelled", self._grace)

    def _post(self) -> None:
        # Hot path: once for each time that something leaves, which at a hundred calls are a handful of records.
        try:
            self._mails.mailbox.post(self._emit)
        except MailboxClosed:
            return  # the task has ended: nobody waits for what its calls give

    def _emit(self) -> None:
        try:
            self._operator.emit()
        except AflowError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as exc:
            # Nothing is awaited here, so a CancelledError comes from a user function and cancels nobody.
            raise OperatorError.of(self.step, exc) from exc
        if self._is_of_interest():
            self._mails.resume()

    def _is_of_interest(self) -> bool:
        """Whether the task has anything to do: not while the step is as full as before, and is not to be held up."""
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


def _nobody() -> None:
    """Takes the place of what is over."""
