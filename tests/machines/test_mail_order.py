"""The order of mails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aflow.errors import JobStopped, MailboxClosed
from aflow.machines.mail_order import MIN_PRIORITY, Lane, MailOrder, MailState


def all_of(take: Callable[[], str | None]) -> list[str]:
    """Return all mails that ``take`` returns, up to its first None."""
    return list(iter(take, None))


def in_order(order: MailOrder[str], min_priority: int = MIN_PRIORITY) -> list[str]:
    """Take all mails of at least ``min_priority``, in one batch."""
    order.create_batch()
    return all_of(lambda: order.try_take_from_batch(min_priority))


def by_lane(order: MailOrder[str]) -> list[str]:
    """Take the mails of one turn of a task's main loop, as the theory of the module describes it."""
    order.create_batch()
    return all_of(lambda: order.try_take_from_batch(Lane.TIMERS) or order.try_take_from_batch())


def test_mails_are_taken_in_the_order_of_arrival() -> None:
    order: MailOrder[str] = MailOrder()
    for mail in "abc":
        order.put(mail, 0)

    assert in_order(order) == ["a", "b", "c"]


def test_a_higher_priority_does_not_sort_ahead_of_an_earlier_sufficient_one() -> None:
    order: MailOrder[str] = MailOrder()
    for mail, priority in [("low", 0), ("middle", 1), ("high", 2)]:
        order.put(mail, priority)

    assert in_order(order, 1) == ["middle", "high"]
    assert in_order(order) == ["low"]


def test_urgent_mails_are_first_and_in_order_among_themselves() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("a", 0)
    order.put("urgent 1", 2, urgent=True)
    order.put("urgent 2", 0, urgent=True)
    order.put("b", 2)

    assert in_order(order) == ["urgent 1", "urgent 2", "a", "b"]


def test_an_urgent_mail_below_the_minimum_is_not_taken() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("normal", 2)
    order.put("urgent", 1, urgent=True)

    assert in_order(order, 2) == ["normal"]
    assert in_order(order, 1) == ["urgent"]


def test_a_batch_holds_present_and_urgent_mails() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("a", 0)
    assert order.create_batch()
    order.put("b", 0)
    order.put("urgent", 2, urgent=True)

    assert all_of(order.try_take_from_batch) == ["urgent", "a"]
    assert in_order(order) == ["b"]


def test_without_a_batch_only_urgent_mails_can_be_taken_from_it() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("a", 0)
    order.put("urgent", 0, urgent=True)

    assert all_of(order.try_take_from_batch) == ["urgent"]


def test_a_batch_of_nothing_is_none() -> None:
    assert MailOrder[str]().create_batch() is False


def test_a_new_batch_continues_with_the_rest_of_the_old_one() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("a", 0)
    order.create_batch()
    order.put("b", 0)
    order.create_batch()

    assert all_of(order.try_take_from_batch) == ["a", "b"]


def test_a_turn_runs_control_before_timers_before_the_rest() -> None:
    order: MailOrder[str] = MailOrder()
    for mail, lane in [
        ("mail 1", Lane.NORMAL),
        ("timer 1", Lane.TIMERS),
        ("control 1", Lane.CONTROL),
        ("mail 2", Lane.NORMAL),
        ("timer 2", Lane.TIMERS),
        ("control 2", Lane.CONTROL),
    ]:
        order.put(mail, lane, urgent=lane is Lane.CONTROL)

    assert by_lane(order) == ["control 1", "control 2", "timer 1", "timer 2", "mail 1", "mail 2"]


@pytest.mark.parametrize("lane", [Lane.NORMAL, Lane.TIMERS])
def test_a_mail_that_posts_itself_again_runs_once_a_turn(lane: Lane) -> None:
    order: MailOrder[str] = MailOrder()
    order.put("again", lane)
    order.put("other", Lane.NORMAL)
    order.create_batch()

    ran: list[str] = []
    while (
        mail := order.try_take_from_batch(Lane.TIMERS) or order.try_take_from_batch()
    ) is not None:
        ran.append(mail)
        if mail == "again":
            order.put(mail, lane)

    assert ran == ["again", "other"]
    assert by_lane(order) == ["again"]


def test_has_mail_is_true_for_normal_and_urgent_mails() -> None:
    order: MailOrder[str] = MailOrder()
    assert not order.has_mail()

    order.put("urgent", 2, urgent=True)
    assert order.has_mail()

    order.put("a", 1)
    assert in_order(order) == ["urgent", "a"]
    assert not order.has_mail()


def test_a_quiesced_mailbox_takes_no_mails_and_gives_those_it_has() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("a", 0)
    order.quiesce()

    assert order.state is MailState.QUIESCED
    with pytest.raises(MailboxClosed, match="quiesced"):
        order.put("b", 0)
    with pytest.raises(MailboxClosed):
        order.put("c", 0, urgent=True)
    assert in_order(order) == ["a"]


def test_closing_returns_the_remaining_mails_once() -> None:
    order: MailOrder[str] = MailOrder()
    order.put("a", 0)
    order.create_batch()
    order.put("b", 5)
    order.put("urgent", 0, urgent=True)

    assert order.close() == ["urgent", "a", "b"]
    assert order.close() == []
    assert not order.has_mail()


USES: list[Callable[[MailOrder[str]], object]] = [
    lambda order: order.put("a", 0),
    lambda order: order.check_open(),
    lambda order: order.try_take_from_batch(),
]


@pytest.mark.parametrize("use", USES, ids=["put", "check", "take"])
def test_a_closed_mailbox_refuses_everything(use: Callable[[MailOrder[str]], object]) -> None:
    order: MailOrder[str] = MailOrder()
    order.close()

    with pytest.raises(JobStopped, match="closed"):
        use(order)


def test_a_closed_mailbox_is_not_quiesced_again() -> None:
    order: MailOrder[str] = MailOrder()
    order.close()
    order.quiesce()

    assert order.state is MailState.CLOSED
    assert not order.is_open


priorities = st.integers(-1, 2)
minimums = st.sampled_from([MIN_PRIORITY, -1, 0, 1, 2])


class MailOrderRules(RuleBasedStateMachine):
    """Against three lists that are searched from the front: urgent, batch, rest."""

    def __init__(self) -> None:
        super().__init__()
        self.order: MailOrder[int] = MailOrder()
        self.urgent: list[tuple[int, int]] = []
        self.batch: list[tuple[int, int]] = []
        self.rest: list[tuple[int, int]] = []
        self.made = 0

    @precondition(lambda self: self.order.is_open)
    @rule(priority=priorities, urgent=st.booleans())
    def put(self, priority: int, urgent: bool) -> None:
        self.order.put(self.made, priority, urgent=urgent)
        (self.urgent if urgent else self.rest).append((priority, self.made))
        self.made += 1

    @rule(minimum=minimums)
    def try_take_from_batch(self, minimum: int) -> None:
        assert self.order.try_take_from_batch(minimum) == self.first(
            minimum, self.urgent, self.batch
        )

    @rule()
    def create_batch(self) -> None:
        self.batch += self.rest
        self.rest.clear()

        assert self.order.create_batch() == bool(self.urgent or self.batch)

    @rule()
    def drain(self) -> None:
        assert self.order.drain() == self.everything()
        for mails in (self.urgent, self.batch, self.rest):
            mails.clear()

    @rule()
    def quiesce(self) -> None:
        self.order.quiesce()

    @invariant()
    def the_mailbox_is_as_long_as_the_lists(self) -> None:
        assert self.order.has_mail() == bool(self.everything())
        assert len(self.order) == len(self.everything())

    def everything(self) -> list[int]:
        return [mail for _, mail in [*self.urgent, *self.batch, *self.rest]]

    def teardown(self) -> None:
        assert self.order.close() == self.everything()

    @staticmethod
    def first(minimum: int, *places: list[tuple[int, int]]) -> int | None:
        for place in places:
            for index, (priority, mail) in enumerate(place):
                if priority >= minimum:
                    del place[index]
                    return mail
        return None


TestMailOrderRules = MailOrderRules.TestCase
