"""Arguments of the connector for Redis are checked where they enter; no server is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from aflow.connect import Delivery
from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import Json, Raw, Text
from aflow_connectors.redis import RedisSink, RedisSource, RedisUpsert

URL = "redis://localhost:6379/0"
source: Callable[..., Any] = RedisSource
sink: Callable[..., Any] = RedisSink
upsert: Callable[..., Any] = RedisUpsert


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: source("localhost:6379", "s"), "must be a URL like 'redis://"),
        (lambda: source(7, "s"), "the address must be a URL"),
        (lambda: source("redis://h:port", "s"), "the client cannot use the address"),
        (
            lambda: source("redis://h?socket_timeout=1&protocol=3", "s"),
            "the query of the URL has protocol, socket_timeout, which",
        ),
        (lambda: sink("redis://h?decode_responses=1", "s"), "the URL has decode_responses, which"),
        (lambda: source(URL, ""), "the streams must be"),
        (lambda: source(URL, ["a", "a"]), "must be different"),
        (lambda: source(URL, "s", of=int, format=Raw()), "leave it out"),
        (lambda: source(URL, "s", of=object()), "cannot convert fields"),
        (lambda: source(URL, "s", format="json"), "format= must be a Format"),
        (lambda: source(URL, "s", key_format=Text()), "needs format= and messages=True"),
        (lambda: source(URL, "s", start="first"), "start= must be 'earliest'"),
        (lambda: source(URL, "s", start=datetime(2026, 1, 1)), "with a time zone"),  # noqa: DTZ001
        (lambda: source(URL, "s", start={"s": "x"}), "1700000000000-0"),
        (lambda: source(URL, "s", start={"s": 5}), "a dict of ids"),
        (lambda: source(URL, "s", until="later"), "until= must be 'now'"),
        (lambda: source(URL, "s", idle_after=timedelta(0)), "idle_after= must be"),
        (lambda: source(URL, "s", on_lost_entries="skip"), "on_lost_entries= must be"),
        (lambda: source(URL, "s", group=""), "group= must be"),
        (lambda: source(URL, "s", field=""), "field= must be the name of a field"),
        (lambda: source(URL, "s", timeout=3), "timeout= must be"),
        (lambda: source(URL, "s", reconnect=3), "reconnect= must be"),
        (lambda: source(URL, "s", client={"db": 1}), "db, which are chosen by the URL"),
        (lambda: source(URL, "s", client={"ssl_x": 1}), "ssl_x, which are no settings"),
        (lambda: source(URL, "s", client=["x"]), "client= must be a mapping"),
        (lambda: sink(URL, 7), "the stream must be"),
        (lambda: sink(URL, "s", key=str), "need format="),
        (lambda: sink(URL, "s", format=Json(), key="id"), "key= must be a function"),
        (lambda: sink(URL, "s", maxlen=0), "maxlen= must be"),
        (lambda: sink(URL, "s", state_prefix=""), "state_prefix= must be"),
        (lambda: upsert(URL, "user"), "the key must be a function"),
        (lambda: upsert(URL, str, expire=3), "expire= must be"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=re.escape(message)):
        make()


def test_no_message_shows_a_secret() -> None:
    shown: list[str] = []
    for url, client in (
        ("user:hunter2@host:6379", {}),
        ("redis://user:hunter2@host:port", {}),
        ("redis://host:6379", {"password": "hunter2", "x": 1}),
        ("redis://host:6379?db=hunter2", {}),
        ("redis://host:6379?protocol=hunter2", {}),
    ):
        with pytest.raises(FlowDefinitionError) as caught:
            source(url, "s", client=client)
        shown.append(str(caught.value))
    made = source("redis://user:hunter2@host:6379/0?password=hunter2", "s")
    shown += [repr(made._settings), made._settings.server.place]

    assert not any("hunter2" in text for text in shown)


def test_the_query_of_the_url_may_have_the_database_and_settings() -> None:
    made = source("unix:///run/redis.sock?db=3&client_name=job", "s")

    options = made._settings.server.open().connection_pool.connection_kwargs
    assert (options["db"], options["client_name"]) == (3, "job")


def test_delivery_follows_the_choice() -> None:
    assert sink(URL, "s").delivery is Delivery.TRANSACTIONAL
    assert sink(URL, "s", exactly_once=False).delivery is Delivery.AT_LEAST_ONCE
    assert upsert(URL, str).delivery is Delivery.IDEMPOTENT
    assert upsert(URL, str, exactly_once=True).delivery is Delivery.TRANSACTIONAL


@pytest.mark.parametrize(
    ("stream", "tag"),
    [("orders", "orders"), ("{eu}:orders", "eu"), ("a{}b", "a{}b"), (str, "aflow")],
    ids=str,
)
def test_the_state_has_the_hash_tag_of_its_stream(stream: object, tag: str) -> None:
    assert sink(URL, stream)._state_key("x") == f"aflow:{{{tag}}}:x"


def test_a_source_that_ends_discovers_nothing() -> None:
    bounded, unbounded = source(URL, "s", until="now"), source(URL, "s")

    assert (bounded.bounded, bounded.discover_every) == (True, None)
    assert (unbounded.bounded, unbounded.discover_every) == (False, timedelta(minutes=1))
