"""The state of one key, addressed by a path and a query, and the listing of keys in pages."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Generator, Hashable
from contextlib import contextmanager
from enum import Enum
from types import NoneType
from typing import Any, Final, cast

import msgspec
import orjson

from aflow.errors import (
    CheckpointError,
    FlowDefinitionError,
    JobStopped,
    OperatorError,
    RestoreError,
    WrongKey,
    shown,
)
from aflow.model.keys import UnsupportedKey, encode_key
from aflow.model.time import to_datetime
from aflow.model.windows import GLOBAL_WINDOW, Windowed
from aflow.operators.joins.buffered_records import BufferedRecords, TimedRecord
from aflow.runtime.job import Job
from aflow.runtime.state_query import AsOf, StateReader
from aflow.state.readable_state import FIRST, KeyCursor
from aflow.web.messages import WebError, encoded

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,4000}")

#: Keys of a page, if the request does not say it, and at most.
_LIMIT: Final = 100
_MOST: Final = 1000

#: Parameters of a request for one key, and of one for a list.
KEY_ARGUMENTS: Final = ("name", "type", "as_of")
LIST_ARGUMENTS: Final = (*KEY_ARGUMENTS, "prefix", "limit", "after")


async def state_view(job: Job, step: str, key: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Return the state of ``key``, whose type is ``type`` of ``arguments``; ``name`` chooses among several states.

    A value without a JSON form is described by ``text``. Raises ``WebError``.
    """
    name, as_of = arguments.get("name"), _as_of(job, arguments)
    kind = arguments.get("type", "str")
    parsed = parsed_key(key, kind)
    with _refusals(job):
        try:
            entry = await _reader(job, step, name).entry(parsed, as_of=as_of)
        except WrongKey as exc:
            advice = _key_advice(exc.key_classes)
            raise WebError(400, "invalid_key", f"{exc}{advice}") from exc
    if not entry.exists:
        other = (
            "no string needs ?type=int or ?type=json" if kind == "str" else "text needs ?type=str"
        )
        raise WebError(
            404,
            "unknown_key",
            f"step {step!r} has no state of key {shown(parsed)}; the path without a key lists keys, and a key that is "
            f"{other}",
        )
    head = {"step": step, "name": name}
    return {**head, **_checkpoint(entry.checkpoint), "key": parsed, **_value(entry.value)}


async def state_list(job: Job, step: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Return a page of keys with their values; ``after`` of ``arguments`` is ``next`` of the preceding page.

    Raises ``WebError``.
    """
    name, as_of = arguments.get("name"), _as_of(job, arguments)
    prefix, limit, after = _prefix(arguments), _limit(arguments), _after(arguments)
    with _refusals(job):
        try:
            page = await _reader(job, step, name).page(
                prefix=prefix, limit=limit, after=after, as_of=as_of
            )
        except WrongKey as exc:
            advice = _prefix_advice(exc.key_classes)
            raise WebError(400, "invalid_query", f"{exc}{advice}") from exc
    return {
        "step": step,
        "name": name,
        **_checkpoint(page.checkpoint),
        "items": [{**_key(key), **_value(value)} for key, value in page.items],
        "next": _cursor(page.items[-1][0]) if page.more else None,
    }


def _reader(job: Job, step: str, name: str | None) -> StateReader:
    steps = [node.name for task in job.setup.plan.tasks for node in task.nodes]
    if step not in steps:
        raise WebError(
            404, "unknown_step", f"job {job.name!r} has no step {step!r}; it has {listed(steps)}"
        )
    return job.state(step, name)


@contextmanager
def _refusals(job: Job) -> Generator[None]:
    """Raise ``WebError`` for what reads of state raise."""
    try:
        yield
    except FlowDefinitionError as exc:
        raise WebError(404, "unknown_state", str(exc)) from exc
    except JobStopped as exc:
        raise not_running(job, str(exc)) from exc
    except CheckpointError as exc:
        raise WebError(404, "no_checkpoint", str(exc)) from exc
    except RestoreError as exc:
        raise WebError(503, "checkpoint_unreadable", str(exc)) from exc
    except OperatorError as exc:
        raise WebError(409, "unreadable_value", str(exc)) from exc


# ----------------------------------------------------------------------------------------- arguments


def _as_of(job: Job, arguments: dict[str, str]) -> AsOf:
    as_of = arguments.get("as_of", "live")
    if as_of not in ("live", "checkpoint"):
        raise WebError(400, "invalid_query", f"as_of={as_of!r} is neither live nor checkpoint")
    if as_of == "live":
        return "live"
    if job.setup.recovery.checkpointing is None:
        raise WebError(409, "no_checkpointing", f"job {job.name!r} takes no checkpoints")
    return "checkpoint"


def _limit(arguments: dict[str, str]) -> int:
    text = arguments.get("limit", str(_LIMIT))
    if not _WHOLE.fullmatch(text) or len(text) > 9 or not 1 <= int(text) <= _MOST:
        raise WebError(
            400, "invalid_query", f"limit={text!r} is no whole number from 1 to {_MOST:,}"
        )
    return int(text)


def _prefix(arguments: dict[str, str]) -> str | tuple[Hashable, ...] | None:
    text, kind = arguments.get("prefix"), arguments.get("type", "str")
    if text is None:
        return None
    prefix = parsed_key(text, kind)
    if not isinstance(prefix, str | tuple):
        raise WebError(
            400,
            "invalid_query",
            f"prefix={text!r} of type {kind} is neither text nor a JSON array, with which keys can begin",
        )
    return cast("str | tuple[Hashable, ...]", prefix)


def _cursor(key: Hashable) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(KeyCursor.of(key))).decode()


def _after(arguments: dict[str, str]) -> Hashable:
    text = arguments.get("after")
    if text is None:
        return FIRST
    try:
        return msgspec.msgpack.decode(urlsafe_b64decode(text), type=KeyCursor)
    except (ValueError, msgspec.MsgspecError) as exc:
        raise WebError(
            400,
            "invalid_query",
            f"after={shown(text)} is not what 'next' of a page was; omit it for the first page",
        ) from exc


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
    except (ValueError, UnsupportedKey, RecursionError) as exc:
        advice = "" if kind == "str" else "; a key that is text needs ?type=str"
        raise WebError(
            400, "invalid_key", f"{shown(text)} is no key of type {kind}: {exc}{advice}"
        ) from exc
    return key


def _key_advice(classes: Collection[type]) -> str:
    """Return the parameter that keys of these classes need, as the end of a message."""
    if not classes:
        return ""
    kinds = sorted({_kind_of(one) or "" for one in classes})
    if "" not in kinds:
        return f"; send ?type={' or ?type='.join(kinds)}"
    return "; such a key cannot be written into an address: the path without a key lists keys"


def _prefix_advice(classes: Collection[type]) -> str:
    """Return the parameters of a prefix for keys of these classes, as the end of a message."""
    if any(issubclass(one, tuple) for one in classes):
        return '; here as ?type=json&prefix=["a"]'
    if any(issubclass(one, str) for one in classes):
        return "; here as ?type=str&prefix=a"
    return ""


def _kind_of(key_class: type) -> str | None:
    """Return the ``type`` of a key of this class; None if a request cannot have one."""
    if issubclass(key_class, bool | float | tuple | NoneType):
        return "json"
    if issubclass(key_class, Enum):
        return None
    return next((one.__name__ for one in (str, int) if issubclass(key_class, one)), None)


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


# -------------------------------------------------------------------------------------------- values


def _checkpoint(number: int | None) -> dict[str, Any]:
    return {} if number is None else {"checkpoint": number}


def _key(key: Hashable) -> dict[str, Any]:
    try:
        encoded(key)
    except TypeError:
        return {"key": shown(key)}
    return {"key": key}


def _value(value: object) -> dict[str, Any]:
    """Return the fields of a value: ``text`` describes one without a JSON form."""
    form = _form(value)
    try:
        encoded(form)
    except TypeError:
        return {"value": None, "text": shown(value)}
    return {"value": form}


def _form(value: object) -> object:
    """Return windows and buffered records with their times as text; other values as they are."""
    match value:
        case Windowed():
            return _window(cast("Windowed[Hashable, object]", value))
        case TimedRecord(timestamp, record):
            return {"timestamp": _moment(timestamp), "record": record}
        case BufferedRecords(left, right):
            return {"left": list(map(_form, left)), "right": list(map(_form, right))}
        case list():
            items = cast("list[object]", value)
            special = bool(items) and isinstance(items[0], Windowed | TimedRecord)
            return list(map(_form, items)) if special else items
        case _:
            return value


def _window(one: Windowed[Hashable, object]) -> dict[str, Any]:
    """Return a window; one that never ends has neither start nor end."""
    window = one.window
    ends = window != GLOBAL_WINDOW
    return {
        "start": _moment(window.start) if ends else None,
        "end": _moment(window.end) if ends else None,
        "firings": one.firing,
        **_value(one.value),
    }


def _moment(timestamp: int) -> str:
    """Return a timestamp (epoch ms) as ISO 8601 in UTC; as a number if no calendar has it."""
    try:
        return to_datetime(timestamp).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return str(timestamp)


def listed(names: Any) -> str:
    """Return names as text for a message."""
    return ", ".join(map(repr, names)) or "none"


def not_running(job: Job, message: str) -> WebError:
    """Return the error of a request that needs a running job: 409 if ``job`` has ended, else 503."""
    if job.status.has_ended:
        return WebError(409, "job_ended", message)
    return WebError(503, "job_not_running", message, {"retry-after": "1"})
