"""mailbox.json, ``mailbox``: the order of mails, put directly or through the task's mailbox from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from aflow.errors import MailboxClosed
from aflow.machines.mail_order import MIN_PRIORITY, Lane, MailOrder
from aflow.runtime.mailbox import Mail, Mailbox
from tests.conformance.driver import Driver, Outcome, number
from tests.conformance.scenarios import UnknownWord

_LANES: Final = {lane.value: lane for lane in Lane}


def take(order: MailOrder[Mail], min_priority: int = MIN_PRIORITY) -> Mail | None:
    """Return the first mail of at least ``min_priority``: of the batch, or of a new one."""
    mail = order.try_take_from_batch(min_priority)
    if mail is None and order.create_batch():
        mail = order.try_take_from_batch(min_priority)
    return mail


class Named:
    """A mail that does nothing but have a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        raise AssertionError(f"mail {self.name} was run; these scenarios only take mails")


class MailboxOrder(Driver):
    """A mailbox on a loop that runs only when the driver says so, which makes "meanwhile" a place in the scenario."""

    def __init__(
        self,
        *,
        producers: int = 0,
        producer_loop: str = "put forever",
        mails_per_producer: int = 0,
        consumer: str = "try_take",
    ) -> None:
        if producer_loop != "put forever" or consumer not in ("take", "try_take"):
            raise UnknownWord(f"producers that {producer_loop}, a consumer that {consumer}")
        self._loop = asyncio.new_event_loop()
        self._woken = asyncio.Event()
        self._mailbox = Mailbox(self._loop, self._woken.set)
        self._order = self._mailbox.order
        self._producers = producers
        self._mails_each = mails_per_producer
        self._consumer_waits = consumer == "take"
        self._threads: list[threading.Thread] = []
        self._refused: list[str] = []
        self._executed: Counter[str] = Counter()
        self._returned_by_close: list[str] | None = None

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        self._loop.close()

    def do_put(
        self,
        mail: str,
        priority: int | str,
        *,
        urgent: bool = False,
        from_other_thread: bool = False,
    ) -> None:
        if self._producers:
            self._start(lambda: self._post_when_the_others_have(Named(mail)))
        elif from_other_thread:
            lane = Lane.CONTROL if urgent else _LANES[number(priority)]
            self._start(lambda: self._mailbox.post(Named(mail), lane)).join()
            self._run_what_is_ready()
        else:
            self._order.put(Named(mail), number(priority), urgent=urgent)

    def do_take(self, min_priority: int | str) -> Outcome:
        taken = take(self._order, number(min_priority))
        assert taken is not None, "the take would block for ever"
        return {"returns": _name(taken)}

    def do_try_take(self, min_priority: int | str) -> Outcome:
        return {"returns": _name(take(self._order, number(min_priority)))}

    def do_has_mail(self) -> Outcome:
        return {"returns": self._order.has_mail()}

    def do_create_batch(self) -> Outcome:
        return {"returns": self._order.create_batch()}

    def do_try_take_from_batch(self) -> Outcome:
        return {"returns": _name(self._order.try_take_from_batch())}

    def do_drain(self) -> Outcome:
        return {"returns": [_name(mail) for mail in self._order.drain()]}

    def do_quiesce(self) -> None:
        self._run_what_is_ready()
        self._order.quiesce()

    def do_close(self) -> Outcome:
        return {"returns": [_name(mail) for mail in self._order.close()]}

    def do_producers_put_forever(self, *, urgent: bool = False) -> None:
        lane = Lane.CONTROL if urgent else Lane.NORMAL
        for _ in range(self._producers):
            self._start(lambda: self._post_until_refused(lane))

    def do_all_producers_put_all(self) -> None:
        for producer in range(self._producers):
            self._start(lambda name=str(producer): self._post_all(name))  # type: ignore[misc]

    def do_consume_until(self, poison: str) -> None:
        self._loop.run_until_complete(asyncio.wait_for(self._consume(poison), 30))

    def do_other_thread_run_exclusively(self, puts: int, priority: int) -> None:
        """Send a function to the loop of the task, where it has exclusive access to the mailbox."""

        def exclusively() -> None:
            self._loop.call_soon(self._close_now)  # the close that comes while this is running
            for each in range(puts):
                self._order.put(Named(str(each)), priority)

        self._start(lambda: self._loop.call_soon_threadsafe(exclusively)).join()

    def do_close_after_exclusive_started(self) -> None:
        self._run_what_is_ready()

    def see_every_producer_raises(self) -> str | list[str]:
        for thread in self._threads:
            thread.join()
        kinds = set(self._refused)
        everyone = len(self._refused) == self._producers
        return kinds.pop() if everyone and len(kinds) == 1 else self._refused

    def see_executed_per_producer(self, expected: int) -> int | dict[str, int]:
        counts = set(self._executed.values())
        everyone = len(self._executed) == self._producers
        return counts.pop() if everyone and len(counts) == 1 else dict(self._executed)

    def see_close_returns_count(self) -> int | None:
        return None if self._returned_by_close is None else len(self._returned_by_close)

    def _close_now(self) -> None:
        self._returned_by_close = [_name(mail) or "" for mail in self._order.close()]

    def _start(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work, name="a thread of a scenario")
        self._threads.append(thread)
        thread.start()
        return thread

    def _post_all(self, producer: str) -> None:
        for _ in range(self._mails_each):
            self._mailbox.post(Named(producer))

    def _post_until_refused(self, lane: Lane) -> None:
        try:
            while True:
                self._mailbox.post(Named("more"), lane)
        except MailboxClosed:
            self._refused.append("mailbox_closed")

    def _post_when_the_others_have(self, mail: Named) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._mailbox.post(mail)

    async def _consume(self, poison: str) -> None:
        while (name := _name(take(self._order))) != poison:
            if name is not None:
                self._executed[name] += 1
            elif self._consumer_waits:
                self._woken.clear()
                await self._woken.wait()
            else:
                await asyncio.sleep(0)

    def _run_what_is_ready(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(0))


def _name(mail: Mail | None) -> str | None:
    assert mail is None or isinstance(mail, Named)
    return None if mail is None else mail.name
