"""Arguments of the RabbitMQ connector are checked where they enter; no server is needed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import aflow as af
from aflow.connect import Delivery
from aflow.errors import FlowDefinitionError
from aflow.graph.guarantee import Guarantee, RecoveryMode, after_crash
from aflow.testing import CollectSink
from aflow_connectors.formats import Raw
from aflow_connectors.rabbitmq import RabbitmqSink, RabbitmqSource, RabbitmqStreamSource

URL = "amqp://user:my-secret@localhost/"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queues": ()}, "the queues must be a name"),
        ({"queues": ["a", "a"]}, "must be different"),
        ({"queues": 7}, "the queues must be a name or several names, not 7"),
        ({"of": int, "format": Raw()}, "of= is for JSON"),
        ({"prefetch": 0}, "prefetch= must be a number from 1 to 65,535, not 0"),
        ({"prefetch": 65_536}, "prefetch="),
        ({"remember": -1}, "remember="),
        ({"until": "later"}, "until="),
        ({"idle_after": timedelta(0)}, "idle_after="),
        ({"dead_letters": "bad"}, "dead_letters= must be a tag"),
        ({"reconnect": 5}, "reconnect="),
        ({"client": 5}, "client= must be a mapping"),
        ({"client": {"loop": None}}, "client= has loop, which the connector chooses"),
    ],
    ids=lambda one: None if isinstance(one, str) else next(iter(one)),
)
def test_a_wrong_argument_of_a_queue_is_an_error(options: Any, reason: str) -> None:
    given: dict[str, Any] = {"queues": "q", **options}

    with pytest.raises(FlowDefinitionError, match=reason):
        RabbitmqSource(URL, **given)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"start": "first"}, "start= must be 'earliest'"),
        ({"start": -1}, "start="),
        ({"start": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001  # as a user's mistake
        ({"on_lost_offsets": "skip"}, "on_lost_offsets= must be 'fail'"),
        ({"prefetch": True}, "prefetch="),
    ],
    ids=lambda one: None if isinstance(one, str) else next(iter(one)),
)
def test_a_wrong_argument_of_a_stream_is_an_error(options: Any, reason: str) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        RabbitmqStreamSource(URL, "s", **options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"exchange": 7}, "the exchange must be a name or a function"),
        ({"key": 7}, "key= must be a routing key or a function"),
        ({"headers": 7}, "headers= must be a function"),
        ({"message_id": "id"}, "message_id= must be a function"),
        ({"format": "json"}, "format= must be a Format"),
    ],
    ids=lambda one: None if isinstance(one, str) else next(iter(one)),
)
def test_a_wrong_argument_of_the_sink_is_an_error(options: Any, reason: str) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        RabbitmqSink[Any](URL, **options)


@pytest.mark.parametrize("url", ["localhost", "http://my-secret@host/", "amqp://my-secret@", 7])
def test_an_invalid_url_is_an_error_that_does_not_show_it(url: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="a URL like") as caught:
        RabbitmqSource(url, "q")

    assert "my-secret" not in str(caught.value)


def test_secrets_are_in_no_representation() -> None:
    source = RabbitmqSource(URL, "q")

    assert "my-secret" not in repr(vars(source))


def guarantees(**options: Any) -> list[Guarantee]:
    flow = af.Flow("guarantees")
    out = CollectSink[Any]()
    out.delivery = Delivery.TRANSACTIONAL
    flow.source(RabbitmqSource(URL, "q", **options), name="in").to(out, name="out")
    return [after_crash(flow.plan(), mode)[0].guarantee for mode in RecoveryMode]


def test_the_plan_tells_what_a_crash_means() -> None:
    assert guarantees() == [Guarantee.NONE, Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE]
    assert guarantees(exactly_once=False) == [
        Guarantee.NONE,
        Guarantee.AT_LEAST_ONCE,
        Guarantee.AT_LEAST_ONCE,
    ]
