"""The meaning of statuses, headers and settings, without a service."""

from __future__ import annotations

from http.cookies import SimpleCookie

import aiohttp
import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors.http.client import (
    check_busy,
    endpoint_of,
    is_busy,
    place_of,
    retry_after,
)
from aflow_connectors.reconnect import ServerBusy


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": "0"}, 0.0),
        (
            {
                "Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT",
                "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
            },
            30.0,
        ),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "²"}, None),
        ({"Retry-After": "9" * 11}, None),
        ({"Retry-After": "9" * 400}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_service_names_the_time_of_the_next_request(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_a_busy_status_carries_the_time() -> None:
    with pytest.raises(ServerBusy, match="status 503 later") as busy:
        check_busy(503, "503 later", {"Retry-After": "7"})
    check_busy(404, "404", {})

    assert busy.value.retry_after == 7.0


def test_busy_statuses_are_those_that_a_repetition_can_change() -> None:
    assert [status for status in range(400, 600) if is_busy(status)] == [
        *(408, 425, 429, 500),
        *(status for status in range(502, 600) if status != 505),
    ]


def test_secrets_are_not_in_texts() -> None:
    morsel = SimpleCookie({"other": "hunter2-morsel"})["other"]
    with pytest.warns(DeprecationWarning, match="BasicAuth"):
        auth = aiohttp.BasicAuth("me", "hunter2-password")
    with pytest.warns(DeprecationWarning, match="BasicAuth"):
        proxy_auth = aiohttp.BasicAuth("me", "hunter2-proxy")
    headers = {"X-Api-Key": "hunter2-key", "Authorization": "Bearer hunter2-token"}
    client = {
        "headers": headers,
        "auth": auth,
        "proxy": "http://me:hunter2-url@proxy/",
        "proxy_auth": proxy_auth,
        "cookies": {"session": "hunter2-cookie", "other": morsel},
    }
    endpoint = endpoint_of("HttpPoll", "https://host/path?key=hunter2", client)

    text = endpoint.without_secrets(
        f"hunter2-key Bearer hunter2-token hunter2-password {auth.encode()} "
        f"hunter2-proxy {proxy_auth.encode()} hunter2-url hunter2-cookie hunter2-morsel"
    )

    assert "hunter2" not in text
    assert "hunter2" not in repr(endpoint).replace(endpoint.url, "")
    assert endpoint.place == "https://host/path"


def test_a_place_has_no_credentials_and_no_query() -> None:
    assert place_of("https://me:secret@host:8443/a/b?key=secret#c") == "https://host:8443/a/b"
    assert place_of("http://[") == "an address that is no URL"


def test_a_url_with_credentials_is_refused_without_showing_them() -> None:
    with pytest.raises(FlowDefinitionError, match="credentials in its URL") as caught:
        endpoint_of("HttpPoll", "https://me:secret@host/", None)

    assert "secret" not in str(caught.value)
