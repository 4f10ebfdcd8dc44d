"""Arguments are checked where they are given."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors.formats import Text
from aflow_connectors.http import HttpEvents, HttpPoll, HttpSink, HttpWebSocket

URL = "http://host/path"

# Without their types: these calls are wrong on purpose.
poll: Any = HttpPoll
events: Any = HttpEvents
socket: Any = HttpWebSocket
sink: Any = HttpSink


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: poll(5), "HttpPoll: the URL must be a str"),
        (lambda: poll("host/path"), "HttpPoll: the URL must be like 'https://host/path'"),
        (lambda: poll("ftp://host/"), "not 'ftp://host/'"),
        (lambda: poll("http://[/"), "HttpPoll: the URL is not valid"),
        (lambda: events("ws://host/"), "HttpEvents: the URL must be like"),
        (lambda: poll(URL, of=int, format=Text()), "of= is for JSON"),
        (lambda: poll(URL, format="json"), "format= must be a Format"),
        (lambda: poll(URL, every=5), "every= must be a positive timedelta"),
        (lambda: poll(URL, every=timedelta(0)), "timedelta, not datetime.timedelta(0)"),
        (lambda: poll(URL, records=""), "records= must be the path"),
        (lambda: poll(URL, records=["a", 1]), "['data', 'items'], not ['a', 1]"),
        (lambda: poll(URL, cursor="next"), "cursor= must be a function"),
        (lambda: poll(URL, start=["a"]), "start= must be an address"),
        (lambda: poll(URL, until="later"), "until= must be 'now'"),
        (lambda: poll(URL, max_bytes=0), "max_bytes= must be a positive int"),
        (lambda: poll(URL, dead_letters="bad"), "dead_letters= must be a tag"),
        (lambda: poll(URL, reconnect=3), "reconnect= must be a Reconnect"),
        (lambda: poll(URL, client={"timeout": 5}), "timeout, which are chosen by other arguments"),
        (lambda: poll(URL, client={"header": {}}), "header, which are not settings of it"),
        (lambda: poll(URL, client=["headers"]), "client= must be a mapping"),
        (lambda: events(URL, events="message"), "events= must be several str"),
        (lambda: events(URL, start="a\nb"), "start= must be the id of an event"),
        (lambda: events(URL, heartbeat=30), "heartbeat= must be a positive timedelta"),
        (lambda: events(URL, idle_after=5), "idle_after= must be a positive timedelta"),
        (lambda: socket(URL, resume=str), "position= and resume= belong together"),
        (lambda: socket(URL, start=5), "start= needs resume="),
        (lambda: socket(URL, subscribe="hello"), "subscribe= must be several messages"),
        (lambda: socket(URL, subscribe=[5]), "like [{'op': 'subscribe'}], not [5]"),
        (lambda: socket(URL, reconnect_on=4000), "reconnect_on= must be several codes"),
        (lambda: sink(URL, body="xml"), "body= must be 'array', 'lines' or 'single'"),
        (lambda: sink(URL, max_records=0), "max_records= must be a positive int"),
        (lambda: sink(URL, in_flight=True), "in_flight= must be a positive int"),
        (lambda: sink(URL, linger=1), "linger= must be a timedelta"),
        (lambda: sink(URL, on_refused=[]), "on_refused= must be a function"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=re.escape(message)):
        make()
