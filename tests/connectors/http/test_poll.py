"""``HttpPoll`` reads the records of a service that it asks repeatedly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from aflow.connect import BadRecord, SourceError, Tag
from aflow_connectors.formats import Text
from aflow_connectors.http import HttpPage, HttpPoll
from tests.connectors.http.reading import FAST, HASTY, opened, read, read_from, read_nothing
from tests.connectors.http.service import Replaying, answering, serving
from tests.connectors.proxy import Proxy

BAD = Tag[BadRecord]("bad")
SOON = timedelta(milliseconds=5)

pytestmark = pytest.mark.asyncio


@dataclass
class Number:
    n: int


def after_the_last(page: HttpPage[Any]) -> dict[str, int]:
    last = page.records[-1]
    return {"after": last.n if isinstance(last, Number) else last["n"]}


def numbers(*values: int) -> list[dict[str, int]]:
    return [{"n": n} for n in values]


class Answers:
    """Answers each request with the next response; the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.requests: list[tuple[str, dict[str, str]]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path_qs, dict(request.headers)))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, web.Response):  # one response cannot be sent twice
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        if callable(answer):
            answering: Any = answer
            made: web.Response = answering(request)
            return made
        return web.json_response(answer)


async def test_pages_are_requested_at_once_until_one_is_empty() -> None:
    service = Replaying(20)
    async with serving(service.handle) as url:
        source = HttpPoll(
            f"{url}/list", of=Number, records="data.items", cursor=after_the_last, until="now"
        )

        found = await read_from(source, 100)

    assert found == [Number(n) for n in range(20)]
    assert service.asked == [-1, 6, 13, 19]


async def test_records_that_are_added_later_are_read_by_a_later_poll() -> None:
    service = Replaying(3)
    async with serving(service.handle) as url:
        source = HttpPoll(f"{url}/list", records="data.items", cursor=after_the_last, every=SOON)
        async with opened(source) as reader:
            first = await read(reader, 3)
            idle = await reader.read(10)
            service.count = 5

            later = await read(reader, 2)

    assert (first, later) == (numbers(0, 1, 2), numbers(3, 4))
    assert idle is not None
    assert (idle.idle, list(idle.values)) == (True, [])


async def test_a_link_to_the_next_page_is_a_cursor_and_its_end_is_polled_again() -> None:
    pages = {"1": numbers(0, 1), "2": numbers(2)}

    async def handle(request: web.Request) -> web.Response:
        page = request.query.get("page", "1")
        link = {"Link": '<?page=2>; rel="next", <?page=9>; rel="last"'} if page == "1" else {}
        return web.json_response(pages[page], headers=link)

    async with serving(handle) as url:
        source = HttpPoll(url, cursor=lambda page: page.link(), every=SOON)
        async with opened(source) as reader:
            first = await read(reader, 3)
            pages["2"] += numbers(3)

            grown = await read(reader, 1)

    assert first + grown == numbers(0, 1, 2, 3)


async def test_an_unchanged_response_costs_nothing() -> None:
    def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304)
        return web.json_response(numbers(0, 1), headers={"ETag": '"1"'})

    def changed(request: web.Request) -> web.Response:
        return web.json_response(numbers(5), headers={"ETag": '"2"'})

    service = Answers(answer, answer, answer, changed)
    async with serving(service.handle) as url, opened(HttpPoll(url, every=SOON)) as reader:
        found = await read(reader, 3)

    conditions = [headers.get("If-None-Match") for _, headers in service.requests]
    assert found == numbers(0, 1, 5)
    assert conditions == [None, '"1"', '"1"', '"1"']


async def test_the_date_of_a_response_is_a_condition_too() -> None:
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    service = Answers(
        web.json_response(numbers(0), headers={"Last-Modified": date}), web.Response(status=304)
    )
    async with serving(service.handle) as url, opened(HttpPoll(url, every=SOON)) as reader:
        await read(reader, 1)
        await reader.read(1)
        await read_nothing(reader, lambda: len(service.requests) > 2)

    assert {headers["If-Modified-Since"] for _, headers in service.requests[1:]} == {date}


async def test_a_restart_in_the_middle_of_a_response_continues_there() -> None:
    service = Answers(web.json_response(numbers(*range(5)), headers={"ETag": '"1"'}))
    async with serving(service.handle) as url:
        source = HttpPoll(url, until="now")
        async with opened(source) as reader:
            chunk = await reader.read(2)
        assert chunk is not None

        found = await read_from(source, 100, chunk.position)

    assert list(chunk.values) + found == numbers(*range(5))
    assert "If-None-Match" not in service.requests[1][1]


async def test_a_response_that_changed_during_a_restart_is_read_as_a_whole() -> None:
    service = Answers(
        web.json_response(numbers(0, 1, 2), headers={"ETag": '"1"'}),
        web.json_response(numbers(7, 8, 9), headers={"ETag": '"2"'}),
    )
    async with serving(service.handle) as url:
        source = HttpPoll(url, until="now")
        async with opened(source) as reader:
            chunk = await reader.read(2)
        assert chunk is not None

        found = await read_from(source, 100, chunk.position)

    assert found == numbers(7, 8, 9)


async def test_a_busy_service_is_asked_again() -> None:
    service = Answers(web.Response(status=429), web.Response(status=500), numbers(1))
    async with serving(service.handle) as url:
        found = await read_from(HttpPoll(url, until="now", reconnect=FAST), 100)

    assert found == numbers(1)
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "credentials are settings of client="), (404, "answers 404 Not Found: 'nothing'")],
)
async def test_a_refusal_is_an_error_at_once(status: int, message: str) -> None:
    service = Answers(web.Response(status=status, text="nothing"))
    async with serving(service.handle) as url:
        with pytest.raises(SourceError, match=message):
            await read_from(HttpPoll(f"{url}/?key=secret"), 1)

    assert len(service.requests) == 1


async def test_no_message_shows_a_secret_that_the_service_repeats() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=403, text=f"no access for {request.headers['Authorization']}")

    client = {"headers": {"Authorization": "Bearer s3cr3t-token"}}
    async with serving(echo) as url:
        with pytest.raises(SourceError) as caught:
            await read_from(HttpPoll(f"{url}/?key=secret", client=client), 1)

    assert "no access for" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert "key=secret" not in str(caught.value)


async def test_a_redirect_is_followed_within_the_origin_only() -> None:
    elsewhere = Answers(numbers(0))

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/new":
            return web.json_response(numbers(1))
        return web.Response(status=302, headers={"Location": targets[request.path]})

    async with serving(handle) as url, serving(elsewhere.handle) as other:
        targets = {"/old": "/new", "/away": f"{other}/?token=secret", "/loop": "/loop"}
        found = await read_from(HttpPoll(f"{url}/old", until="now"), 1)
        with pytest.raises(SourceError, match="another origin") as away:
            await read_from(HttpPoll(f"{url}/away"), 1)
        with pytest.raises(SourceError, match="more than 10 redirects"):
            await read_from(HttpPoll(f"{url}/loop"), 1)

    assert found == numbers(1)
    assert elsewhere.requests == []
    assert "secret" not in str(away.value)


async def test_bad_records_are_dead_letters_and_the_others_are_read() -> None:
    body = b'[{"n": 1}, {"n": "x"}, 7, {"n": 2}]'
    service = Answers(web.Response(body=body))
    async with serving(service.handle) as url:
        source = HttpPoll(url, of=Number, dead_letters=BAD, until="now")
        async with opened(source) as reader:
            chunks = [await reader.read(1) for _ in range(4)]

    assert [list(chunk.values) for chunk in chunks if chunk] == [[Number(1)], [], [], [Number(2)]]
    rejected = [bad for chunk in chunks if chunk for bad in chunk.rejected]
    assert [bad.raw for bad in rejected] == [b'{"n": "x"}', b"7"]
    assert all(bad.place.startswith(url) for bad in rejected)


@pytest.mark.parametrize(
    "body", [b"<html>", b'{"data": 1}', b"[1,", b'{"data": {"items": 5}}', b""], ids=str
)
async def test_a_response_without_the_list_is_one_bad_record(body: bytes) -> None:
    good = {"data": {"items": numbers(1)}}
    async with serving(Answers(web.Response(body=body), good).handle) as url:
        with pytest.raises(SourceError, match="no JSON with a list of records at 'data"):
            await read_from(HttpPoll(url, records="data.items"), 1)
    async with serving(Answers(web.Response(body=body), good).handle) as url:
        source = HttpPoll(url, records="data.items", dead_letters=BAD, every=SOON)
        async with opened(source) as reader:
            first = await reader.read(10)
            found = await read(reader, 1)

    assert first is not None
    assert [bad.raw for bad in first.rejected] == [body]
    assert found == numbers(1)


async def test_another_format_gets_the_json_of_each_record() -> None:
    async with serving(Answers(web.Response(body=b'[1, {"a": 2}]')).handle) as url:
        found = await read_from(HttpPoll(url, format=Text(), until="now"), 2)

    assert found == ["1", '{"a": 2}']


async def test_a_response_of_10_mb_is_read_and_a_larger_one_than_allowed_is_an_error() -> None:
    records = [{"n": n, "text": "x" * 1000} for n in range(10_000)]
    body = json.dumps(records).encode()
    async with serving(Answers(web.Response(body=body)).handle) as url:
        found = await read_from(HttpPoll(url, until="now"), 20_000)
        with pytest.raises(SourceError, match="more than 1,000,000 bytes"):
            await read_from(HttpPoll(url, max_bytes=1_000_000), 1)

    assert found == records


@pytest.mark.parametrize(
    "answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n[1"], ids=str
)
async def test_a_service_that_answers_no_http_is_asked_again(answer: bytes) -> None:
    async with answering(answer) as url:
        with pytest.raises(SourceError, match="no connection for"):
            await read_from(HttpPoll(url, reconnect=HASTY), 1)


async def test_a_service_that_stalls_is_asked_again() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n[", hold=True) as url:
        source = HttpPoll(url, reconnect=HASTY, timeout=timedelta(milliseconds=60))
        with pytest.raises(SourceError, match="no connection for"):
            await read_from(source, 1)


async def test_records_are_read_through_connections_that_are_cut() -> None:
    service = Replaying(60)
    async with serving(service.handle) as url:
        host, port = url.removeprefix("http://").split(":")
        async with Proxy(host, int(port)) as proxy:
            host, port_of_proxy = proxy.address
            source = HttpPoll(
                f"http://{host}:{port_of_proxy}/list",
                records="data.items",
                cursor=after_the_last,
                until="now",
                reconnect=FAST,
            )
            async with opened(source) as reader:
                found: list[Any] = []
                while (chunk := await reader.read(5)) is not None:
                    found += chunk.values
                    proxy.cut()

    assert found == numbers(*range(60))


async def test_a_cursor_function_that_fails_or_leads_elsewhere_is_an_error() -> None:
    def failing(page: HttpPage[Any]) -> str:
        raise KeyError("next")

    def numeric(page: HttpPage[Any]) -> int:
        return 7

    def elsewhere(page: HttpPage[Any]) -> str:
        return "http://127.0.0.1:1/?token=secret"

    cases: list[tuple[Any, str]] = [
        (failing, "cursor= failed: KeyError"),
        (numeric, "cursor= must return an address"),
        (elsewhere, "no address of the same scheme, host and port"),
    ]
    async with serving(Answers(numbers(1)).handle) as url:
        for cursor, message in cases:
            with pytest.raises(SourceError, match=message) as caught:
                await read_from(HttpPoll(url, cursor=cursor), 2)
            assert "secret" not in str(caught.value)


async def test_a_foreign_position_is_refused() -> None:
    with pytest.raises(SourceError, match="another kind of source"):
        await HttpPoll("http://127.0.0.1:1/").reader((await HttpPoll("http://h/").splits())[0], 7)


async def test_a_response_without_the_list_repeats_no_entry_of_the_page() -> None:
    service = Answers(numbers(0, 1), {"error": "down"}, numbers(0, 1, 2))
    async with serving(service.handle) as url:
        source = HttpPoll(url, cursor=lambda page: None, dead_letters=BAD, every=SOON)
        async with opened(source) as reader:
            first = await read(reader, 2)
            chunks = [await reader.read(10) for _ in range(3)]
            while not chunks[-1] or not chunks[-1].values:
                chunks.append(await reader.read(10))

    rejected = [bad.raw for chunk in chunks if chunk for bad in chunk.rejected]
    assert first == numbers(0, 1)
    assert [list(chunk.values) for chunk in chunks if chunk and chunk.values] == [numbers(2)]
    assert rejected == [b'{"error": "down"}']


async def test_a_response_without_the_list_keeps_the_validators_of_the_last_list() -> None:
    first = web.json_response(numbers(0), headers={"ETag": '"1"'})
    bad = web.json_response({}, headers={"ETag": '"2"'})
    service = Answers(first, bad, web.Response(status=304))
    async with serving(service.handle) as url:
        source = HttpPoll(url, dead_letters=BAD, every=SOON)
        async with opened(source) as reader:
            await read(reader, 1)
            await read_nothing(reader, lambda: len(service.requests) > 3)

    conditions = {headers.get("If-None-Match") for _, headers in service.requests[1:]}
    assert conditions == {'"1"'}


async def test_a_restart_within_a_list_without_validators_continues_there() -> None:
    async with serving(Answers(numbers(*range(5))).handle) as url:
        source = HttpPoll(url, until="now")
        async with opened(source) as reader:
            chunk = await reader.read(3)
        assert chunk is not None

        found = await read_from(source, 100, chunk.position)

    assert list(chunk.values) + found == numbers(*range(5))


async def test_a_shorter_list_without_validators_is_another_one() -> None:
    async with serving(Answers(numbers(*range(5)), numbers(7, 8)).handle) as url:
        source = HttpPoll(url, until="now")
        async with opened(source) as reader:
            chunk = await reader.read(3)
        assert chunk is not None

        found = await read_from(source, 100, chunk.position)

    assert found == numbers(7, 8)


async def test_a_restart_after_the_whole_list_does_not_read_it_again_with_until_now() -> None:
    service = Answers(numbers(0, 1))
    async with serving(service.handle) as url:
        source = HttpPoll(url, until="now")
        async with opened(source) as reader:
            chunk = await reader.read(10)
        assert chunk is not None

        found = await read_from(source, 100, chunk.position)

    assert (list(chunk.values), found) == (numbers(0, 1), [])


async def test_pages_after_one_with_invalid_records_only_are_read() -> None:
    pages: dict[str, Any] = {"0": ["bad"], "1": numbers(1)}

    async def handle(request: web.Request) -> web.Response:
        page = request.query.get("page", "0")
        link = {"Link": '<?page=1>; rel="next"'} if page == "0" else {}
        return web.json_response(pages[page], headers=link)

    async with serving(handle) as url:
        source = HttpPoll(
            url, of=Number, cursor=lambda page: page.link(), dead_letters=BAD, until="now"
        )
        found = await read_from(source, 100)

    assert found == [Number(1)]


async def test_a_link_in_the_second_of_several_headers_is_followed() -> None:
    async def handle(request: web.Request) -> web.Response:
        response = web.json_response(numbers(int(request.query.get("page", "0"))))
        if "page" not in request.query:
            response.headers.add("Link", '</about>; rel="help"')
            response.headers.add("Link", '<?page=1&sort=a,b;c>; title="a, <b>"; REL="last Next"')
            response.headers.add("Link", '</me>; rel="author"')
        return response

    async with serving(handle) as url:
        source = HttpPoll(url, cursor=lambda page: page.link(), until="now")
        found = await read_from(source, 100)

    assert found == numbers(0, 1)
