"""mailbox.json, ``executor`` and ``processor``: the loop of a task, with a default action described in words."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aflow.errors import MailboxClosed
from aflow.machines.mail_order import MailState
from aflow.runtime.clock import SystemClock
from aflow.runtime.loop_budget import DEFAULT_BUDGET, LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from tests.conformance.driver import NOTHING, Driver, Outcome, number
from tests.conformance.drivers.mailbox import take
from tests.conformance.scenarios import UnknownWord

#: Passes of the loop within which an awaited event must happen.
_SOON: Final = 1_000
_SUSPENDS: Final = (
    "suspend on every call",
    "suspend itself on every call",
    "suspend on each call",
)
_STOPS: Final = "if flag stop then all_actions_completed"
_RESENDING: Final = "re-enqueues itself each time it runs and increments index"
_SENDER: Final = (
    "forever: if there is a suspension handle take it and send its resume as mail, "
    "otherwise send an empty mail and tolerate rejection"
)


class _Expected(Exception):
    """The error of a mail."""


class _Clock(SystemClock):
    """The system clock, ahead by ``ahead`` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def steady(self) -> float:
        return super().steady() + self.ahead


class Processor(Driver):
    """A mailbox loop on an event loop that runs only when the scenario waits for something."""

    def __init__(self, *, default_action: str = "count", concurrent_sender: str = "") -> None:
        if concurrent_sender not in ("", _SENDER):
            raise UnknownWord(f"sender {concurrent_sender!r}")
        self._sender = bool(concurrent_sender)
        self._rules = list(_rules(default_action))
        self._loop = asyncio.new_event_loop()
        self._clock = _Clock()
        loop_budget = LoopBudget(self._loop, self._clock, DEFAULT_BUDGET)
        self._processor = MailboxLoop(loop=self._loop, loop_budget=loop_budget, clock=self._clock)
        self._mailbox = self._processor.mailbox
        self._running: asyncio.Task[None] | None = None
        self._runs = 0
        self._while_suspended = 0
        self._executed: list[str] = []
        self._executed_in: set[int] = set()
        self._stop = False
        #: Of mails that are sent for their result, by name, with the mail itself.
        self._futures: dict[str, tuple[asyncio.Future[None], Callable[[], None]]] = {}

    def close(self) -> None:
        if self._running is not None and not self._running.done():
            self._running.cancel()
            self._loop.run_until_complete(asyncio.wait([self._running]))
        self._loop.close()

    def do_start_loop(self) -> None:
        self._running = self._loop.create_task(self._processor.run(self._act))

    def do_await(self, what: str) -> None:
        if what not in ("suspended", "first suspension"):
            raise UnknownWord(f"await {what!r}")
        self._run_until(lambda: self._processor.suspended is not None)

    def do_join(self) -> None:
        assert self._running is not None
        sending = self._loop.create_task(self._send_forever()) if self._sender else None
        self._loop.run_until_complete(asyncio.wait_for(self._running, 30))
        if sending is not None:
            sending.cancel()
            self._loop.run_until_complete(asyncio.wait([sending]))

    def do_run_loop(self) -> Outcome:
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._processor.run(self._act), 30))
        except _Expected:
            return {"raises": "Expected"}
        return NOTHING

    def do_sleep_ms(self, ms: int) -> None:
        self._clock.ahead += ms / 1000

    def do_execute(
        self, mail: str, *, from_other_thread: bool = False, future: bool = False
    ) -> Outcome:
        post, made = self._mailbox.post, self._mail(mail)
        if from_other_thread:
            thread = threading.Thread(target=post, args=[made])
            thread.start()
            thread.join()
            self._loop.run_until_complete(asyncio.sleep(0))
            return NOTHING
        try:
            post(made)
        except MailboxClosed:
            if self._mailbox.order.state is MailState.QUIESCED:
                return {"raises": "rejected"}
            raise
        if future:
            self._futures[mail] = self._loop.create_future(), made
        return NOTHING

    def do_take_and_run(self, min_priority: int | str) -> None:
        mail = take(self._mailbox.order, number(min_priority))
        assert mail is not None, "there is no mail"
        mail()

    def do_all_actions_completed(self) -> None:
        self._processor.complete()

    def do_prepare_close(self) -> None:
        self.do_quiesce()

    def do_close(self) -> None:
        """Close the mailbox, and cancel the futures of the mails that never ran."""
        leftovers = self._mailbox.order.close()
        for future, mail in self._futures.values():
            if mail in leftovers:
                future.cancel()

    def do_drain(self) -> None:
        self._mailbox.order.drain()

    def do_quiesce(self) -> None:
        self._mailbox.order.quiesce()

    def do_is_idle(self) -> Outcome:
        return {"returns": self._processor.idle}

    def do_run_mailbox_step(self) -> None:
        """Run the loop until it has no more to do than to wait."""
        self.do_start_loop()
        self.do_await("suspended")

    def do_run_mailbox_step_until_false(self) -> None:
        self.do_join()

    def see_default_action_runs(self) -> int:
        return self._runs

    def see_mails_processed(self) -> int:
        return len(self._executed)

    def see_loop_ended(self) -> bool:
        return self._running is not None and self._running.done()

    def see_idle_time(self) -> float:
        return self._processor.waited_so_far(SuspendReason.IDLE)

    def see_idle_time_min_exclusive(self, expected: float) -> float:
        """``expected`` itself if more time was idle."""
        idle = self.see_idle_time()
        return expected if idle > expected else idle

    def see_future(self, expected: Mapping[str, str]) -> dict[str, str]:
        return {name: _state(self._futures[name][0]) for name in expected}

    def see_called_while_suspended(self) -> int:
        return self._while_suspended

    def see_loop_running(self) -> bool:
        return self._running is not None and not self._running.done()

    def see_started(self) -> bool:
        return self._runs > 0

    def see_mail_M_runs(self) -> int:  # noqa: N802 - the word of the data
        return self._executed.count("M")

    def see_executed(self) -> list[str]:
        return self._executed

    def see_executed_in(self) -> str:
        return (
            "mailbox thread" if self._executed_in == {threading.get_ident()} else "another thread"
        )

    def _act(self) -> None:
        self._runs += 1
        self._while_suspended += self._processor.suspended is not None
        for on_run, effect in self._rules:
            if on_run in (None, self._runs):
                effect(self._processor)
        if self._stop:
            self._processor.complete()

    def _mail(self, text: str) -> Callable[[], None]:
        name, _, behaviour = text.partition(": ")
        if behaviour not in ("", _RESENDING):
            raise UnknownWord(f"a mail that {behaviour!r}")

        def run() -> None:
            self._executed.append(name)
            self._executed_in.add(threading.get_ident())
            if name == "resume":
                self._processor.resume()
            elif name == "set stop":
                self._stop = True
            elif name == "raises Expected":
                raise _Expected
            if behaviour:
                self._mailbox.post(run)

        return run

    async def _send_forever(self) -> None:
        while True:
            suspended = self._processor.suspended is not None
            try:
                self._mailbox.post(self._mail("resume" if suspended else "empty"))
            except MailboxClosed:
                return
            await asyncio.sleep(0)

    def _run_until(self, happened: Callable[[], bool]) -> None:
        for _ in range(_SOON):
            if happened():
                return
            self._loop.run_until_complete(asyncio.sleep(0))
        raise AssertionError("what was waited for did not happen")


def _state(future: asyncio.Future[None]) -> str:
    return "cancelled" if future.cancelled() else "done" if future.done() else "pending"


Effect = Callable[[MailboxLoop], None]


def _suspend(loop: MailboxLoop) -> None:
    # The 10,000th call of the ping-pong completes all actions and suspends at once; either order must do.
    loop.suspend(SuspendReason.IDLE)


def _rules(action: str) -> Iterator[tuple[int | None, Effect]]:
    """Actions of the default action, by its calls (None: all)."""
    for clause in action.split("; "):
        if clause in ("count", "sets started", "no-op", _STOPS):
            continue
        if clause.startswith(_SUSPENDS):
            yield None, _suspend
        elif found := re.fullmatch(r"on the (\d+)\w\w call (\w+)", clause):
            yield int(found[1]), _effect(found[2])
        elif found := re.fullmatch(r"(?:the )?(\d+)\w\w call completes all(?: actions)?", clause):
            yield int(found[1]), MailboxLoop.complete
        else:
            raise UnknownWord(f"what does a default action that {clause!r} do?")


def _effect(word: str) -> Effect:
    match word:
        case "all_actions_completed":
            return MailboxLoop.complete
        case "suspend_default_action":
            return _suspend
        case _:
            raise UnknownWord(f"a default action that does {word}")
