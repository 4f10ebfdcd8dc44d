"""Arguments of the MQTT connector are checked where they enter; no broker is needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.connect import Delivery
from aflow.errors import FlowDefinitionError
from aflow.graph.guarantee import Guarantee, RecoveryMode, after_crash
from aflow.testing import CollectSink
from aflow_connectors.formats import Raw
from aflow_connectors.mqtt import MqttSink, MqttSource

URL = "mqtt://user:my-secret@localhost"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topics": ()}, "the topics must be a name"),
        ({"topics": 7}, "the topics must be a filter or several filters, not 7"),
        ({"topics": "a/b+"}, "'a/b\\+' is no filter"),
        ({"topics": "#/a"}, "is no filter"),
        ({"client_id": ""}, "client_id= must be a text that is not empty"),
        ({"of": int, "format": Raw()}, "of= is for JSON"),
        ({"prefetch": 0}, "prefetch= must be a number from 1 to 65,535, not 0"),
        ({"session_expiry": timedelta(0)}, "session_expiry="),
        ({"on_lost_session": "ignore"}, "on_lost_session="),
        ({"idle_after": timedelta(0)}, "idle_after="),
        ({"dead_letters": "bad"}, "dead_letters= must be a tag"),
        ({"reconnect": 5}, "reconnect="),
        ({"client": 5}, "client= must be a mapping"),
        ({"client": {"password": "x"}}, "client= has password, which the connector chooses"),
        ({"client": {"max_inflight_messages": 5}}, "client= has max_inflight_messages, which"),
        ({"client": {"max_queued_outgoing_messages": 5}}, "client= has max_queued_outgoing_"),
    ],
    ids=lambda one: None if isinstance(one, str) else next(iter(one)),
)
def test_a_wrong_argument_of_the_source_is_an_error(options: Any, reason: str) -> None:
    given: dict[str, Any] = {"topics": "t", "client_id": "c", **options}

    with pytest.raises(FlowDefinitionError, match=reason):
        MqttSource(URL, **given)


@pytest.mark.parametrize("topic", ["", "a/#", "a\0", 7])
def test_a_wrong_topic_of_the_sink_is_an_error(topic: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="the topic must be a name or a function"):
        MqttSink[Any](URL, topic)


@pytest.mark.parametrize(
    "url", ["localhost", "http://my-secret@host", "mqtt://my-secret@", "mqtt://h:x", 7]
)
def test_an_invalid_url_is_an_error_that_does_not_show_it(url: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="a URL like") as caught:
        MqttSource(url, "t", client_id="c")

    assert "my-secret" not in str(caught.value)


def test_secrets_are_in_no_representation() -> None:
    assert "my-secret" not in repr(vars(MqttSource(URL, "t", client_id="c")))


def test_the_plan_says_at_least_once() -> None:
    flow, out = af.Flow("guarantees"), CollectSink[Any]()
    out.delivery = Delivery.TRANSACTIONAL
    flow.source(MqttSource(URL, "t", client_id="c"), name="in").to(out, name="out")

    assert [after_crash(flow.plan(), mode)[0].guarantee for mode in RecoveryMode] == [
        Guarantee.NONE,
        Guarantee.AT_LEAST_ONCE,
        Guarantee.AT_LEAST_ONCE,
    ]
