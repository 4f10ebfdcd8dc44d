"""HTTP services as sources and sinks.

::

    from aflow_connectors.http import HttpEvents, HttpPoll, HttpSink, HttpWebSocket

    orders = flow.source(HttpPoll("https://shop/orders", of=Order, cursor=after_the_last), name="orders")
    totals.to(HttpSink("https://books/totals", exactly_once=True), name="totals")

Needs aiohttp (the extra ``http``). Requests that arrive at the own program are accepted by ``aflow.web.IngestApi``.
Read ``client.py`` first, which decides about each status, then ``poll.py``, ``pushed.py`` (the reader of event streams
and WebSockets), ``sink.py`` and ``writers.py``.
"""

from __future__ import annotations

from aflow_connectors.optional import load

load(
    "aiohttp", package="aiohttp", extra="http", purpose="aflow_connectors.http"
)  # the modules import it

from aflow_connectors.http.events import HttpEvents  # noqa: E402
from aflow_connectors.http.pages import HttpPage  # noqa: E402
from aflow_connectors.http.poll import HttpPoll  # noqa: E402
from aflow_connectors.http.requests import RefusedRequest  # noqa: E402
from aflow_connectors.http.sink import HttpSink  # noqa: E402
from aflow_connectors.http.websocket import HttpWebSocket  # noqa: E402

__all__ = ["HttpEvents", "HttpPage", "HttpPoll", "HttpSink", "HttpWebSocket", "RefusedRequest"]
