"""The state of windows and joins, lists of keys, and the last checkpoint over HTTP."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Flow, PushSource
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.state.all_steps import Record, all_steps
from tests.web.requests import FAIL, error, requesting, restarts, visits

pytestmark = pytest.mark.usefixtures("inline_threads")

STATE = "/api/jobs/visits/state/count"


async def read(client: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    content: dict[str, Any] = response.json()
    return content


@virtual_time
async def test_windows_and_buffered_records_have_their_times_as_text() -> None:
    source = PushSource[Record]()
    shown = ["sliding", "global", "interval join", "as-of join", "window join"]
    async with all_steps(source, shown).start() as job, requesting(job) as client:
        await source.send(Record("a", 7, 25_000))
        await settle()
        values = {
            step: (await read(client, f"/api/jobs/all/state/{step}/a"))["value"] for step in shown
        }

    record = {"timestamp": "1970-01-01T00:00:25.000Z", "record": ["a", 7, 25_000]}
    assert values["sliding"] == [
        {
            "start": f"1970-01-01T00:00:{start}.000Z",
            "end": f"1970-01-01T00:00:{end}.000Z",
            "firings": 0,
            "value": 1,
        }
        for start, end in ((10, 30), (20, 40))
    ]
    assert values["global"] == [{"start": None, "end": None, "firings": 0, "value": 1}]
    assert values["interval join"] == {"left": [record], "right": [record]}
    assert values["as-of join"] == [record]
    assert values["window join"][0]["value"] == [[["a", 7, 25_000]], [["a", 7, 25_000]]]


@virtual_time
async def test_keys_are_listed_in_pages() -> None:
    source = PushSource[str]()
    async with visits(source).start() as job, requesting(job) as client:
        await source.send_many([f"page {n}" for n in range(5)] + ["other"])
        await settle()
        first = await read(client, STATE, prefix="page ", limit="3")
        second = await read(client, STATE, prefix="page ", limit="3", after=first["next"])
        everything = await read(client, STATE)

    assert first["items"] == [{"key": f"page {n}", "value": 1} for n in range(3)]
    assert second["items"] == [{"key": f"page {n}", "value": 1} for n in (3, 4)]
    assert second["next"] is None
    assert [item["key"] for item in everything["items"]] == ["other"] + [
        f"page {n}" for n in range(5)
    ]
    assert "checkpoint" not in everything


@virtual_time
async def test_pages_have_all_keys_of_any_type_once() -> None:
    source = PushSource[Any]()
    flow = Flow("keys")
    keys: list[Any] = [1, "1", ("1",), b"x", None, UUID(int=1), ("a", 2), "zz", 2.5, float("inf")]
    keyed = flow.source(source, name="in").key_by(lambda key: key, name="key")
    keyed.fold(int, lambda total, _: total + 1, name="sum").to(CollectSink[int](), name="out")
    async with flow.start() as job, requesting(job) as client:
        await source.send_many(keys)
        await settle()
        found: list[Any] = []
        after: dict[str, str] = {}
        for _ in range(20):
            page = await read(client, "/api/jobs/keys/state/sum", limit="1", **after)
            found += [item["key"] for item in page["items"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        tuples = await read(client, "/api/jobs/keys/state/sum", prefix='["a"]', type="json")

    assert len(found) == len(keys)
    assert sorted(map(str, found)) == sorted(
        ["1", "1", "['1']", "x", "None", str(UUID(int=1)), "['a', 2]", "zz", "2.5", "None"]
    )
    assert tuples["items"] == [{"key": ["a", 2], "value": 1}]


@virtual_time
async def test_the_last_checkpoint_is_read_with_its_number(tmp_path: Path) -> None:
    source = PushSource[str]()
    settings = Checkpointing(storage=tmp_path, every=None)
    flow = visits(source)
    async with (
        flow.start(checkpointing=settings, restart=restarts()) as job,
        requesting(job) as client,
    ):
        none = await error(await client.get(f"{STATE}/a?as_of=checkpoint"))
        await source.send("a")
        await settle()
        await job.checkpoint()
        await source.send("a")
        await settle()
        live = await read(client, f"{STATE}/a")
        stored = await read(client, f"{STATE}/a", as_of="checkpoint")
        listed = await read(client, STATE, as_of="checkpoint")
        missing = await error(await client.get(f"{STATE}/b?as_of=checkpoint"))
        await source.send(FAIL)
        await settle()
        restarting = await read(client, f"{STATE}/a", as_of="checkpoint")
        await job.ready()

    assert none[:2] == (404, "no_checkpoint")
    assert live["value"] == 2
    assert "checkpoint" not in live
    assert (stored["value"], stored["checkpoint"]) == (1, 1)
    assert (listed["items"], listed["checkpoint"]) == ([{"key": "a", "value": 1}], 1)
    assert missing[:2] == (404, "unknown_key")
    assert restarting["value"] == 1


@virtual_time
async def test_wrong_requests_for_state_are_refused_with_a_reason(tmp_path: Path) -> None:
    source = PushSource[str]()
    settings = Checkpointing(storage=tmp_path, every=None)
    job = visits(source).start(checkpointing=settings)
    async with requesting(job) as client:
        async with job:
            await source.send("a")
            await settle()
            await job.checkpoint()
            for query, message in {
                "limit=0": "no whole number from 1 to 1,000",
                "limit=1001": "no whole number",
                "limit=ten": "no whole number",
                "limit=99999999999999999999": "no whole number",
                "after=a": "is not what 'next' of a page was",
                "after=%C3%A9": "is not what 'next' of a page was",
                "after=wA==": "is not what 'next' of a page was",
                "as_of=now": "neither live nor checkpoint",
                "type=int&prefix=1": "neither text nor a JSON array",
                "type=json&prefix=true": "neither text nor a JSON array",
                "type=date&prefix=a": "type='date' is unknown",
                "kind=int": "unknown parameter 'kind'",
            }.items():
                assert await error(await client.get(f"{STATE}?{query}")) == (
                    400,
                    "invalid_query",
                    Containing(message),
                )
            bad_key = await error(await client.get(f"{STATE}?type=json&prefix=["))
            nested = "[" * 1000 + "]" * 1000
            deep = await error(await client.get(f"{STATE}/{nested}?type=json"))
            stateless = await error(await client.get("/api/jobs/visits/state/check"))
            unknown = await error(await client.get("/api/jobs/visits/state/cuont"))
            method = await error(await client.post(STATE))
            (part,) = (tmp_path / "parts").iterdir()
            content = part.read_bytes()
            part.write_bytes(b"")
            unreadable = await error(await client.get(f"{STATE}?as_of=checkpoint"))
            part.write_bytes(content)
        ended = await error(await client.get(f"{STATE}?as_of=checkpoint"))

    assert bad_key[:2] == (400, "invalid_key")
    assert deep[:2] == (400, "invalid_key")
    assert stateless[:2] == (404, "unknown_state")
    assert unknown[:2] == (404, "unknown_step")
    assert method[:2] == (405, "method_not_allowed")
    assert unreadable[:2] == (503, "checkpoint_unreadable")
    assert "truncated" in unreadable[2]
    assert ended[:2] == (409, "job_ended")


class Containing(str):
    """Is equal to each text that contains it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self) in other

    __hash__ = str.__hash__


@virtual_time
async def test_a_job_without_checkpoints_and_a_key_of_another_type_are_refused() -> None:
    source = PushSource[str]()
    flow = Flow("typed")
    numbers = flow.source(source, name="in").key_by(int, name="key", of=int)
    numbers.fold(int, lambda total, _: total + 1, name="sum").to(CollectSink[int](), name="out")
    async with flow.start() as job, requesting(job) as client:
        checkpoint = await error(await client.get("/api/jobs/typed/state/sum/1?as_of=checkpoint"))
        key = await error(await client.get("/api/jobs/typed/state/sum/1"))
        absent = await error(await client.get("/api/jobs/typed/state/sum/1?type=int"))

    assert checkpoint[:2] == (409, "no_checkpointing")
    assert key[:2] == (400, "invalid_key")
    assert "its keys are of type int" in key[2]
    assert key[2].endswith("; send ?type=int")
    assert absent[:2] == (404, "unknown_key")


class Opaque:
    """A value without a JSON form and without a copy."""

    def __repr__(self) -> str:
        return "Opaque()"


class Uncopyable(Opaque):
    def __deepcopy__(self, memo: object) -> Uncopyable:
        raise TypeError("no copy")


@virtual_time
async def test_values_without_a_json_form_are_described_and_without_a_copy_refused() -> None:
    source = PushSource[int]()
    flow = Flow("opaque")
    timed = flow.source(source, name="in").event_time(lambda n: n, max_delay=timedelta(hours=1))
    keyed = timed.key_by(lambda n: n % 2, name="key")
    keyed.window(af.Tumbling(timedelta(minutes=1))).fold(
        lambda: Opaque(), lambda held, _: held, name="opaque"
    ).to(CollectSink[Any](), name="out")
    keyed.fold(Uncopyable, lambda held, _: held, name="uncopyable").to(
        CollectSink[Any](), name="other"
    )
    async with flow.start() as job, requesting(job) as client:
        await source.send(2)
        await settle()
        window = await read(client, "/api/jobs/opaque/state/opaque/0", type="int")
        refused = await error(await client.get("/api/jobs/opaque/state/uncopyable/0?type=int"))

    (one,) = window["value"]
    assert (one["value"], one["text"]) == (None, "Opaque()")
    assert refused[:2] == (409, "unreadable_value")


@pytest.mark.parametrize(
    ("of", "key", "advice"),
    [
        (str, "7?type=int", "; send ?type=str"),
        (tuple[str, int], "nyc", "; send ?type=json"),
        (int | str, "true?type=json", "; send ?type=int or ?type=str"),
        (UUID, "1", "cannot be written into an address: the path without a key lists keys"),
    ],
    ids=["text", "tuple", "either", "no form"],
)
@virtual_time
async def test_a_key_of_another_type_than_the_declared_one_is_told_its_parameter(
    of: Any, key: str, advice: str
) -> None:
    async with keyed(PushSource[Any](), of).start() as job, requesting(job) as client:
        refused = await error(await client.get(f"/api/jobs/keys/state/count/{key}"))

    assert refused[:2] == (400, "invalid_key")
    assert refused[2].endswith(advice)


@virtual_time
async def test_a_prefix_of_another_type_than_the_keys_is_told_its_parameters() -> None:
    source = PushSource[Any]()
    async with keyed(source).start() as job, requesting(job) as client:
        await source.send(("nyc", 7))
        await settle()
        path = "/api/jobs/keys/state/count"
        text = await error(await client.get(path, params={"prefix": "nyc"}))
        array = await read(client, path, prefix='["nyc"]', type="json")
    async with keyed(PushSource[Any](), str).start() as job, requesting(job) as client:
        of_text = await error(await client.get(path, params={"prefix": '["a"]', "type": "json"}))
    async with keyed(PushSource[Any](), int).start() as job, requesting(job) as client:
        none = await error(await client.get(path, params={"prefix": "7"}))

    assert text[:2] == of_text[:2] == none[:2] == (400, "invalid_query")
    assert text[2].endswith('; here as ?type=json&prefix=["a"]')
    assert array["items"] == [{"key": ["nyc", 7], "value": 1}]
    assert of_text[2].endswith("; here as ?type=str&prefix=a")
    assert none[2].endswith("such keys have no prefix")


@virtual_time
async def test_a_key_without_state_is_told_the_type_that_it_may_need() -> None:
    async with keyed(PushSource[Any]()).start() as job, requesting(job) as client:
        path = "/api/jobs/keys/state/count"
        text = await error(await client.get(f"{path}/7"))
        number = await error(await client.get(f"{path}/7?type=int"))
        wrong = await error(await client.get(f"{path}/home?type=int"))

    assert text[:2] == number[:2] == (404, "unknown_key")
    assert text[2].endswith("no string needs ?type=int or ?type=json")
    assert number[2].endswith("text needs ?type=str")
    assert wrong == (
        400,
        "invalid_key",
        "'home' is no key of type int: a whole number is expected; a key that is text needs ?type=str",
    )


def keyed(source: PushSource[Any], of: Any = None) -> Flow:
    """Count records, which are their own keys."""
    flow = Flow("keys")
    keys = flow.source(source, name="in").key_by(lambda key: key, name="key", of=of)
    keys.fold(int, lambda count, _: count + 1, name="count").to(CollectSink[int](), name="out")
    return flow
