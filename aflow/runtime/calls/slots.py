"""The coroutines that make the calls of an asynchronous step.

A *slot* makes one call after the other and rests when there is none: slots, not tasks for each call, since to make a
task costs more than to make a call. There are as many as were ever needed at once, at most the step's capacity, and one
more for each call that is still at it although its record's time is up.

A slot is a task of its own and belongs to no task group: a group waits for ever for a coroutine that ignores its
cancellation. ``close`` waits for a grace time, and reports what it leaves behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from aflow.errors import InternalError, MailboxClosed, shown
from aflow.machines.calls.call import Call
from aflow.operators.calls.operator import AsyncOperator
from aflow.runtime.mailbox_loop import MailboxLoop
from aflow.runtime.turn import Turn

#: Seconds that a call may go on after it was cancelled before it is given up.
GRACE: Final = 5.0

Report = Callable[[str, str, float], None]
"""Gets the step, what happened, and the seconds that it took."""


class Slot:
    """One coroutine that makes calls."""

    __slots__ = ("call", "cancelled", "task")

    def __init__(self) -> None:
        #: Set when the slot is made.
        self.task: asyncio.Task[None]
        #: What it is awaiting; None while it rests.
        self.call: Call | None = None
        #: True if its call was cancelled because it counts no more.
        self.cancelled = False


class CallSlots:
    """Makes the calls of one operator, in one subtask."""

    def __init__(
        self,
        operator: AsyncOperator,
        mails: MailboxLoop,
        turn: Turn,
        *,
        report: Report,
        grace: float = GRACE,
    ) -> None:
        self.step = operator.name
        self._operator = operator
        self._mails = mails
        self._turn = turn
        self._report = report
        self._grace = grace
        self._loop = asyncio.get_running_loop()
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

    def start(self) -> None:
        """Make calls from now on."""
        self._operator.on_ready = self._wake
        self._operator.on_settled = self._post
        self._operator.on_cancel = self._cancel
        self._wake()

    async def close(self) -> None:
        """End all slots. Calls under way are cancelled; those that go on are reported after the grace time."""
        self._closing = True
        self._operator.on_ready = _nobody
        tasks = {slot.task: slot for slot in self._slots}
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        began = self._loop.time()
        _, going_on = await asyncio.wait(tasks, timeout=self._grace)
        for task in going_on:
            self._abandoned(tasks[task], self._loop.time() - began)

    def _wake(self) -> None:
        """Have as many slots ask for calls as there are calls that may begin."""
        need = self._operator.waiting - self._coming
        if need > 1 and self._at_once:
            need = 1
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
        slot = Slot()
        self._slots.add(slot)
        slot.task = self._loop.create_task(self._watched(slot), name=f"call of {self.step}")

    async def _watched(self, slot: Slot) -> None:
        """Serve until cancelled. What goes wrong here, other than in a call, ends the job."""
        try:
            await self._serve(slot)
        except Exception as exc:
            error = InternalError(
                f"a slot of step {self.step!r} failed: {type(exc).__name__}: {exc}"
            )
            error.__cause__ = exc
            self._mail(partial(_raise, error))
        finally:
            self._slots.discard(slot)

    async def _serve(self, slot: Slot) -> None:
        # Hot path (benchmark `async`): once around for each call.
        operator = self._operator
        take, invoke, returned = operator.take, operator.invoke, operator.returned
        self._coming -= 1
        while True:
            call = take()
            if call is None:
                await self._rest()
                continue
            slot.call = call
            call.slot = slot
            awaitable: Any = None
            try:
                awaitable = invoke(call)
                result = await awaitable
            except asyncio.CancelledError as exc:
                slot.call = None
                self._end_if_asked(slot)
                if not slot.cancelled:
                    operator.raised(call, exc)
            except (Exception, SystemExit) as exc:
                slot.call = None
                self._end_if_asked(slot)
                if type(exc) is TypeError and awaitable is not None and not isawaitable(awaitable):
                    operator.misused(call, _not_awaitable(awaitable))
                else:
                    operator.raised(call, exc)
            else:
                slot.call = None
                if slot.task.cancelling():
                    self._end_if_asked(slot)
                returned(call, result)
            if slot.cancelled:
                slot.cancelled = False
                slot.task.uncancel()
            if self._last is not slot:
                self._last = slot
                self._at_once = False
                continue
            self._at_once = True
            if self._turn.spent():
                self._pausing = True
                try:
                    await self._turn.hand_over()
                finally:
                    self._pausing = False

    def _end_if_asked(self, slot: Slot) -> None:
        """The job ends, whether or not the call has swallowed the word."""
        if self._closing or slot.task.cancelling() > slot.cancelled:
            raise asyncio.CancelledError

    async def _rest(self) -> None:
        rest = self._loop.create_future()
        self._resting.append(rest)
        await rest
        self._coming -= 1

    def _cancel(self, call: Call) -> None:
        """The result of ``call`` counts no more."""
        slot: Slot = call.slot
        slot.cancelled = True
        slot.task.cancel()
        self._loop.call_later(self._grace, self._look, slot, call)

    def _look(self, slot: Slot, call: Call) -> None:
        if slot.call is call and not self._closing:
            self._operator.calls.abandoned += 1
            self._abandoned(slot, self._grace)

    def _abandoned(self, slot: Slot, seconds: float) -> None:
        value = "" if slot.call is None else f" for {shown(slot.call.value)}"
        self._report(self.step, f"a call{value} goes on although it was cancelled", seconds)

    def _post(self) -> None:
        self._mail(self._emit)

    def _emit(self) -> None:
        self._operator.emit()
        self._mails.resume()

    def _mail(self, mail: Callable[[], None]) -> None:
        with suppress(MailboxClosed):  # the task has ended: nobody waits for what its calls give
            self._mails.mailbox.post(mail)


def _not_awaitable(given: object) -> TypeError:
    return TypeError(
        f"the function returned {shown(given)}, which cannot be awaited; write it as async def, or use the method "
        f"without _async"
    )


def _raise(error: Exception) -> None:
    raise error


def _nobody() -> None:
    """Takes the place of what is over."""
