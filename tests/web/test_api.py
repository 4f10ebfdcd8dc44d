"""The JSON API: jobs, graphs, checkpoints and state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Context, Flow, KeyedProcess, PushSource, ValueState
from aflow.restart import FixedDelay
from aflow.testing.virtual_time import settle, virtual_time
from aflow.web.json_views import settings_view
from aflow.web.messages import encoded
from tests.web.requests import FAIL, WRITE, error, requesting, restarts, visits


@virtual_time
async def test_a_job_shows_its_graph_metrics_and_configuration(tmp_path: Path) -> None:
    source = PushSource[str]()
    settings = Checkpointing(storage=tmp_path, every=timedelta(seconds=30))
    async with (
        visits(source).start(checkpointing=settings, parallelism=2, restart=restarts()) as job,
        requesting(job) as client,
    ):
        await source.send_many(["/home", "/home"])
        await settle()
        view: dict[str, Any] = (await client.get("/api/jobs/visits")).json()

    steps = {step["name"]: step for step in view["graph"]["steps"]}
    edges = {(edge["from"], edge["to"]): edge for edge in view["graph"]["edges"]}
    assert list(steps) == ["pages", "check", "page", "count", "out"]
    assert (steps["pages"]["kind"], steps["pages"]["parallelism"]) == ("source", 1)
    assert (steps["count"]["keyed_state"], steps["count"]["parallelism"]) == (True, 2)
    assert edges["page", "count"]["exchange"] == "hash by key"
    assert edges["page", "count"]["chained"] is False
    assert edges["pages", "check"]["chained"] is True
    assert view["metrics"]["steps"]["count"]["records_in"] == 2
    configuration = view["configuration"]
    assert configuration["checkpointing"]["every"] == 30
    assert configuration["checkpointing"]["storage"] == str(tmp_path)
    assert configuration["restart"] == {"type": "FixedDelay", "attempts": 3, "delay": 1.0}
    assert configuration["options"]["key_groups"] == 128
    assert set(configuration["options"]) & {"clock", "random"} == set()


@dataclass(frozen=True)
class Vault:
    """Settings of a user, such as a storage of checkpoints."""

    password: str = "secret"


def test_settings_that_are_objects_of_the_user_are_shown_as_their_class() -> None:
    checkpointing = cast("dict[str, object]", settings_view(FixedDelay(1)))
    assert checkpointing["attempts"] == 1

    assert settings_view(Vault()) == "Vault"


@virtual_time
async def test_roles_side_outputs_and_exchanges_of_edges_are_shown() -> None:
    flow = Flow("sides")
    failed = af.Tag[af.calls.FailedRecord[int]]("failed")
    left = flow.source([1, 2], name="left").map(
        lambda n: 2 // n, name="inverse", on_error=af.calls.DeadLetter(failed)
    )
    left.side(failed).to(CollectSink(), name="failures")
    left.to(CollectSink(), name="out")
    job = flow.start()
    async with requesting(job) as client:
        edges = (await client.get("/api/jobs/sides")).json()["graph"]["edges"]
    async with job:
        pass

    assert [(edge["to"], edge["side"]) for edge in edges if edge["from"] == "inverse"] == [
        ("failures", "failed"),
        ("out", None),
    ]


@virtual_time
async def test_checkpoints_are_listed_with_their_subtasks(tmp_path: Path) -> None:
    settings = Checkpointing(storage=tmp_path, every=None)
    async with (
        visits(PushSource[str]()).start(checkpointing=settings) as job,
        requesting(job) as client,
    ):
        await job.checkpoint()
        await job.checkpoint()
        view: dict[str, Any] = (await client.get("/api/jobs/visits/checkpoints")).json()

    assert [(one["id"], one["kind"], one["outcome"]) for one in view["checkpoints"]] == [
        (1, "checkpoint", "completed"),
        (2, "checkpoint", "completed"),
    ]
    assert view["checkpoints"][0]["bytes"] > 0
    assert view["checkpoints"][0]["subtasks"][0]["task"] == "pages[0]"


class Remember(KeyedProcess[int, int, int]):
    last = ValueState[int]("last", of=int)
    most = ValueState[int]("most", of=int)

    def process(self, value: int, ctx: Context[int]) -> Iterator[int]:
        ctx.state(self.last).set(value)
        ctx.state(self.most).set(max(value, ctx.state(self.most).get() or 0))
        yield value


@virtual_time
async def test_state_is_read_by_keys_of_each_type() -> None:
    texts, pairs = PushSource[str](), PushSource[int]()
    flow = Flow("states")
    words = flow.source(texts, name="texts").key_by(lambda text: text, name="text")
    words.fold(int, lambda n, _: n + 1, name="words").to(CollectSink[int](), name="a")
    numbers = flow.source(pairs, name="numbers")
    numbers.key_by(lambda n: n % 10, name="digit").process(Remember(), name="last").to(
        CollectSink[int](), name="b"
    )
    numbers.key_by(lambda n: ("digit", n % 10), name="tuple").fold(
        int, lambda a, b: a + b, name="sums"
    ).to(CollectSink[int](), name="c")
    async with flow.start() as job, requesting(job) as client:
        await texts.send_many(["/a b/<c>", "", "a\nb"])
        await pairs.send_many([17, 7])
        await settle()
        base = "/api/jobs/states/state"
        found = [
            (await client.get(f"{base}/{path}")).json()["value"]
            for path in (
                "words/%2Fa%20b%2F%3Cc%3E",
                "words/",
                "words/a%0Ab",
                "last/7?type=int&name=last",
                "last/7?type=json&name=most",
                "sums/%5B%22digit%22,7%5D?type=json",
            )
        ]

    assert found == [1, 1, 1, 7, 17, 24]


@virtual_time
async def test_errors_of_state_reads_say_what_there_is() -> None:
    source = PushSource[str]()
    async with visits(source).start() as job, requesting(job) as client:
        await source.send("/home")
        await settle()

        async def read(path: str) -> tuple[int, str, str]:
            return await error(await client.get(f"/api/jobs/{path}"))

        job_, step, key = [
            await read(path)
            for path in ("vists/state/count/a", "visits/state/cuont/a", "visits/state/count/a")
        ]
        stateless, name = [
            await read(path) for path in ("visits/state/check/a", "visits/state/count/a?name=x")
        ]
        wrong = [
            await read(f"visits/state/count/{path}")
            for path in (
                "seven?type=int",
                "1_000?type=int",
                "7?type=float",
                "{?type=json",
                '{"a":1}?type=json',
                f"{'9' * 4001}?type=int",
            )
        ]
        unknown = await read("visits/state/count/a?kind=int")

    assert job_ == (
        404,
        "unknown_job",
        "no job is named 'vists'; this application has job 'visits'",
    )
    assert step[:2] == (404, "unknown_step")
    assert "'pages', 'check', 'page', 'count', 'out'" in step[2]
    assert key[:2] == (404, "unknown_key")
    assert stateless[:2] == name[:2] == (404, "unknown_state")
    assert "has no state that can be read" in stateless[2]
    assert [one[0] for one in wrong] == [400] * 6
    assert {one[1] for one in wrong} == {"invalid_key", "invalid_query"}
    assert unknown[:2] == (400, "invalid_query")
    assert "name, type" in unknown[2]


@virtual_time
async def test_a_state_read_during_a_restart_is_to_be_repeated() -> None:
    source = PushSource[str]()
    async with visits(source).start(restart=restarts()) as job, requesting(job) as client:
        await source.send(FAIL)
        await settle()
        response = await client.get("/api/jobs/visits/state/count/a")
        await asyncio.sleep(1)

    assert (await error(response))[:2] == (503, "job_not_running")
    assert response.headers["retry-after"] == "1"


@virtual_time
async def test_names_and_keys_are_escaped_as_data() -> None:
    source = PushSource[str]()
    name = 'a/b "c"\n<script>{}\\'
    flow = Flow(name)
    flow.source(source, name=name + "1").key_by(lambda page: page, name="page").fold(
        int, lambda n, _: n + 1, name=name + "2"
    ).to(CollectSink[int](), name="out")
    async with flow.start() as job, requesting(job) as client:
        await source.send(name)
        await settle()
        quoted = "a%2Fb%20%22c%22%0A%3Cscript%3E%7B%7D%5C"
        state = await client.get(f"/api/jobs/{quoted}/state/{quoted}2/{quoted}")
        metrics = await client.get("/metrics")
        missing = await client.get("/api/jobs/%3Cscript%3E")

    assert state.json() == {"job": name, "step": name + "2", "name": None, "key": name, "value": 1}
    assert 'job="a/b \\"c\\"\\n<script>{}\\\\"' in metrics.text
    assert missing.headers["content-type"] == "application/json"
    assert missing.headers["x-content-type-options"] == "nosniff"


@virtual_time
async def test_unknown_paths_and_methods_are_json_errors() -> None:
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        missing = await error(await client.get("/nothing"))
        nothing = await error(await client.get("/api/"))
        slash = await error(await client.get("/metrics/"))
        put = await client.put("/api/jobs")
        get = await client.get("/api/jobs/visits/stop")
        head = await client.head("/metrics")
        query = await error(await client.get("/api/jobs?limit=3"))
        broken = await error(await client.get("/api/jobs/%FF"))

    assert missing[:2] == nothing[:2] == slash[:2] == (404, "unknown_path")
    assert "GET /api/jobs/{job}/checkpoints" in missing[2]
    assert ((await error(put))[:2], put.headers["allow"]) == (
        (405, "method_not_allowed"),
        "GET, HEAD",
    )
    assert (get.status_code, get.headers["allow"]) == (405, "POST")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 1000
    assert query[:2] == (400, "invalid_query")
    assert broken[:2] == (400, "invalid_path")


@virtual_time
async def test_no_response_may_be_read_by_other_origins_or_stored() -> None:
    origin = {"origin": "http://elsewhere", **WRITE}
    async with visits(PushSource[str]()).start() as job, requesting(job) as client:
        responses = [
            await client.get("/api/jobs", headers=origin),
            await client.options("/api/jobs", headers=origin),
        ]

    for response in responses:
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert response.headers["cache-control"] == "no-store"


class Color(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Sample:
    at: datetime
    values: tuple[int, ...]


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Color.RED, b'"red"'),
        (Point(1, 2), b"[1,2]"),
        (
            Sample(datetime(2025, 1, 1, tzinfo=UTC), (1,)),
            b'{"at":"2025-01-01T00:00:00+00:00","values":[1]}',
        ),
        (timedelta(seconds=1.5), b"1.5"),
        (Decimal("1.10"), b'"1.10"'),
        ({1: {2}}, b'{"1":[2]}'),
        (b"ab\xff", b'"ab\\\\xff"'),
        (2**70, b"1180591620717411303424"),
        ("\ud800", b'"\\ud800"'),
    ],
    ids=lambda value: repr(value)[:30].replace("\ud800", "?"),
)
def test_values_have_a_json_form(value: object, text: bytes) -> None:
    assert encoded(value) == text


@pytest.mark.parametrize(
    "value", [Opaque(), {(1, 2): 2**70}, [Opaque()]], ids=["object", "key", "item"]
)
def test_a_value_without_a_json_form_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        encoded(value)


@virtual_time
async def test_a_state_without_a_json_form_is_described() -> None:
    source = PushSource[str]()
    flow = Flow("opaque")
    flow.source(source, name="pages").key_by(lambda page: page, name="page").fold(
        complex, lambda sum_, _: sum_ + 1j, name="sum"
    ).to(CollectSink[complex](), name="out")
    async with flow.start() as job, requesting(job) as client:
        await source.send("a")
        await settle()
        view = (await client.get("/api/jobs/opaque/state/sum/a")).json()

    assert (view["value"], view["text"]) == (None, "1j")
