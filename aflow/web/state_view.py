"""The state of one key, addressed by a path and a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, Final, cast

import orjson

from aflow.errors import FlowDefinitionError, JobStopped, shown
from aflow.model.keys import UnsupportedKey, encode_key
from aflow.runtime.job import Job
from aflow.web.messages import WebError, encoded

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,4000}")


async def state_view(job: Job, step: str, key: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Return the state of ``key``, whose type is ``type`` of ``arguments``; ``name`` chooses among several states.

    A value without a JSON form is described by ``text``. Raises ``WebError``.
    """
    steps = [node.name for task in job.setup.plan.tasks for node in task.nodes]
    if step not in steps:
        raise WebError(
            404, "unknown_step", f"job {job.name!r} has no step {step!r}; it has {listed(steps)}"
        )
    name = arguments.get("name")
    parsed = parsed_key(key, arguments.get("type", "str"))
    try:
        value = await job.state(step, name).get(parsed)
    except FlowDefinitionError as exc:
        raise WebError(404, "unknown_state", str(exc)) from exc
    except JobStopped as exc:
        raise not_running(job, str(exc)) from exc
    if value is None:
        raise WebError(
            404,
            "unknown_key",
            f"step {step!r} has no state of key {shown(parsed)}; keys cannot be listed, and a key that is no string "
            f"needs ?type=int or ?type=json",
        )
    found = {"job": job.name, "step": step, "name": name, "key": parsed}
    try:
        encoded(value)
    except TypeError:
        return {**found, "value": None, "text": shown(value)}
    return {**found, "value": value}


def parsed_key(text: str, kind: str) -> Hashable:
    """Return the key that ``text`` stands for. Raises ``WebError`` 400."""
    parse = _PARSERS.get(kind)
    if parse is None:
        raise WebError(
            400, "invalid_query", f"type={kind!r} is unknown; it is one of {listed(_PARSERS)}"
        )
    try:
        key = parse(text)
        encode_key(key)
    except (ValueError, UnsupportedKey) as exc:
        raise WebError(400, "invalid_key", f"{text!r} is no key of type {kind}: {exc}") from exc
    return key


def _int_key(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("a whole number is expected")
    return int(text)


def _json_key(text: str) -> Hashable:
    return _hashable(orjson.loads(text))


def _hashable(value: object) -> Hashable:
    """Return a value of JSON as a key: arrays are tuples. Raises ``ValueError`` for objects."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return tuple(map(_hashable, items))
    if isinstance(value, dict):
        raise ValueError("an object cannot be a key")
    return value


_PARSERS: Final[dict[str, Callable[[str], Hashable]]] = {
    "str": str,
    "int": _int_key,
    "json": _json_key,
}


def listed(names: Any) -> str:
    """Return names as text for a message."""
    return ", ".join(map(repr, names)) or "none"


def not_running(job: Job, message: str) -> WebError:
    """Return the error of a request that needs a running job: 409 if ``job`` has ended, else 503."""
    if job.status.has_ended:
        return WebError(409, "job_ended", message)
    return WebError(503, "job_not_running", message, {"retry-after": "1"})
