"""Operations are repeated while a connection is lost, for a bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError
from aflow.testing import virtual_time
from aflow_connectors.reconnect import Reconnect, Retries, ServerBusy, checked_reconnect


class Away(Exception):
    """The server is away."""


class Server:
    """Answers after some failures."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors: Iterator[BaseException] = iter(errors)
        self.calls = 0
        self.renewed = 0

    async def ask(self) -> str:
        """Answer, or fail."""
        self.calls += 1
        for error in self.errors:
            raise error
        return "answer"

    async def renew(self) -> None:
        """Connect again."""
        self.renewed += 1


def retries(**settings: Any) -> Retries:
    return Retries(
        "redis://host, stream 'a'",
        Reconnect(**settings),
        lost=(Away,),
        failed=SourceError,
        random=Random(1),
    )


def test_an_operation_is_repeated_on_a_new_connection_until_it_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(Away("gone"), Away("gone"))

    with caplog.at_level(logging.INFO, "aflow.connectors"):
        answer = virtual_time.run(lambda: retries().run(server.ask, renew=server.renew))

    assert answer == "answer"
    assert (server.calls, server.renewed) == (3, 2)
    events = [vars(record)["event"] for record in caplog.records]
    assert events == ["connection_lost", "connection_back"]  # once each, whatever the attempts
    assert vars(caplog.records[0])["place"] == "redis://host, stream 'a'"


def test_a_renewal_that_loses_the_connection_is_an_attempt_too() -> None:
    server, lost = Server(Away()), Server(Away())

    virtual_time.run(lambda: retries().run(server.ask, renew=lost.ask))

    assert (server.calls, lost.calls) == (2, 2)


def test_other_errors_are_raised_at_once() -> None:
    server = Server(PermissionError("wrong password"))

    with pytest.raises(PermissionError):
        virtual_time.run(lambda: retries().run(server.ask))

    assert server.calls == 1


def test_after_the_bound_the_last_error_is_raised_with_the_place_and_the_time() -> None:
    server = Server(*(Away(f"gone {n}") for n in range(1000)))

    with pytest.raises(
        SourceError, match=r"stream 'a': no connection for 6\d s .* gone \d+"
    ) as caught:
        virtual_time.run(lambda: retries(give_up_after=timedelta(minutes=1)).run(server.ask))

    assert isinstance(caught.value.__cause__, Away)


class LongPoll:
    """Loses the connection, is away for some minutes, is back for some, and loses it again for ever."""

    def __init__(self, back: timedelta, *, renewed: bool) -> None:
        self.back = back.total_seconds()
        self.renewed = renewed
        self.lost_again_at = 0.0
        self.retries = retries(give_up_after=timedelta(minutes=5))
        self._attempts = 0
        self._is_back = False

    async def poll(self) -> None:
        """Wait for records, which never come."""
        now = asyncio.get_running_loop().time
        if not self._is_back:
            self._attempts += 1
            if self._attempts == 5:
                self._is_back = True
                if not self.renewed:
                    self.retries.connected()
                await asyncio.sleep(self.back)
                self.lost_again_at = now()
        raise Away(f"gone at {now()}")

    async def renew(self) -> None:
        """Connect again; refused as long as the server is away."""
        if self._is_back or self._attempts < 4:
            await self.poll()

    async def run(self) -> float:
        """Poll until it is given up, and return for how long it was lost then (s)."""
        with pytest.raises(SourceError, match="no connection for"):
            await self.retries.run(self.poll, renew=self.renew if self.renewed else None)
        return asyncio.get_running_loop().time() - self.lost_again_at


@pytest.mark.parametrize("renewed", [True, False], ids=["renewed", "connected by the operation"])
def test_the_bound_counts_from_the_present_loss_and_not_from_one_before_a_long_poll(
    renewed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "aflow.connectors"):
        lost_for = virtual_time.run(LongPoll(timedelta(hours=2), renewed=renewed).run)

    assert 300 <= lost_for < 320
    events = [vars(record)["event"] for record in caplog.records]
    assert events == ["connection_lost", "connection_back", "connection_lost"]
    assert "again after 7200" not in caplog.text  # the time of the poll is none of the loss


@pytest.mark.parametrize("renewed", [True, False], ids=["renewed", "connected by the operation"])
def test_a_connection_that_is_lost_again_at_once_was_not_back(renewed: bool) -> None:
    poll = LongPoll(timedelta(seconds=1), renewed=renewed)

    lost_for = virtual_time.run(poll.run)

    assert lost_for < 300


def test_a_proxy_that_accepts_connections_to_a_server_that_is_away_is_given_up() -> None:
    server = Server(*(Away(f"gone {n}") for n in range(1000)))

    with pytest.raises(SourceError, match="no connection for 6"):
        virtual_time.run(
            lambda: retries(give_up_after=timedelta(minutes=1)).run(server.ask, renew=server.renew)
        )

    assert server.renewed > 1


def test_without_a_bound_it_is_never_given_up() -> None:
    server = Server(*(Away() for _ in range(1000)))

    answer = virtual_time.run(lambda: retries(give_up_after=None).run(server.ask))

    assert answer == "answer"


def test_a_cancelled_operation_ends_while_it_waits_for_the_next_attempt() -> None:
    async def main() -> int:
        server = Server(*(Away() for _ in range(1000)))
        task = asyncio.create_task(retries(give_up_after=None).run(server.ask))
        await asyncio.sleep(60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        calls = server.calls
        await asyncio.sleep(60)
        assert server.calls == calls
        return calls

    assert virtual_time.run(main) > 1


@given(st.integers(1, 10_000), st.integers())
def test_delays_are_random_within_their_bounds(attempt: int, seed: int) -> None:
    reconnect = Reconnect(delay=timedelta(seconds=1), most=timedelta(seconds=30))

    delay = reconnect.delay_before(attempt, Random(seed))

    assert 0 <= delay <= min(30, 2 ** min(attempt - 1, 10))


@pytest.mark.parametrize("name", ["delay", "most", "give_up_after"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1), 5])
def test_durations_must_be_positive(name: str, value: object) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(FlowDefinitionError, match=f"{name}= must be a positive timedelta"):
        Reconnect(**settings)


def test_another_type_than_reconnect_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="RedisSource: reconnect= must be a Reconnect"):
        checked_reconnect("RedisSource", 5)


def test_a_busy_server_is_not_asked_before_the_time_that_it_names() -> None:
    server = Server(ServerBusy("status 503", retry_after=90.0))
    waiting = Retries("http://host", Reconnect(), lost=(ServerBusy,), failed=SourceError)

    async def asked() -> tuple[str, float]:
        answer = await waiting.run(server.ask)
        return answer, asyncio.get_running_loop().time()

    answer, time = virtual_time.run(asked)

    assert (answer, server.calls) == ("answer", 2)
    assert time >= 90.0


@pytest.mark.parametrize("delay", [61.0, 1e9, float("inf")])
def test_a_delay_of_the_server_beyond_the_bound_is_given_up_at_once(delay: float) -> None:
    policy = Reconnect(give_up_after=timedelta(minutes=1))
    server = Server(ServerBusy("later", retry_after=delay))

    async def main() -> float:
        with pytest.raises(SourceError, match=r"due in [\d,inf]+ s: .*later"):
            await Retries("x", policy, lost=(ServerBusy,), failed=SourceError).run(server.ask)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(main) < 1
    assert server.calls == 1


def test_a_delay_of_the_server_within_the_bound_is_waited_for() -> None:
    policy = Reconnect(give_up_after=timedelta(minutes=1))
    server = Server(ServerBusy("later", retry_after=59.0))

    answer = virtual_time.run(
        lambda: Retries("x", policy, lost=(ServerBusy,), failed=SourceError).run(server.ask)
    )

    assert answer == "answer"
