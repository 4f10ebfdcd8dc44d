"""The error for a method that a stream does not have: it names the step to add before."""

from __future__ import annotations

from inspect import getattr_static
from typing import Final

from aflow.errors import FlowDefinitionError

#: Methods that end a stream in other libraries.
_ENDS: Final = frozenset({"add_sink", "for_each", "foreach", "print", "sink", "sink_to"})

_NO_WINDOWS: Final = "it needs windows; call"


class MissingMethod(FlowDefinitionError, AttributeError):
    """A stream has no such method. Also an ``AttributeError``, as ``hasattr`` and ``copy`` need it."""


def missing_method(stream: object, name: str) -> AttributeError:
    """Return the error for ``stream.name``."""
    kind = type(stream).__name__
    remedy = None if name.startswith("_") else _remedy(stream, name)
    if remedy is not None:
        return MissingMethod(f"{kind} has no method {name}(): {remedy}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=stream)


def _remedy(stream: object, name: str) -> str | None:
    """Return the remedy if another kind of stream has the method."""
    # They import this module, so imports at the top would be circular.
    from aflow.api.joins import AsOfJoinedStreams, JoinedStreams
    from aflow.api.keyed import KeyedStream
    from aflow.api.stream import Stream
    from aflow.api.windowed import WindowedStream

    if name in _ENDS and _has_method(type(stream), "to"):
        return "end the stream with .to(sink), such as .to(aflow.CallbackSink(print))"
    if isinstance(stream, AsOfJoinedStreams) and _has_method(JoinedStreams, name):
        return "an as-of join has only .inner(…) and .left(…)"
    if isinstance(stream, (AsOfJoinedStreams, JoinedStreams)):
        kinds = ".inner(into, name=…) or .left(…)"
        if isinstance(stream, JoinedStreams):
            kinds = ".inner(into, name=…), .left(…), .right(…) or .full(…)"
        return f"add the step of the join by {kinds} before" if _has_method(Stream, name) else None
    if isinstance(stream, WindowedStream):
        function = "add a function of the window before, such as .fold(…) or .apply(…)"
        return function if _has_method(Stream, name) else None
    if isinstance(stream, KeyedStream):
        before = "call it before .key_by(…), or on the results of a keyed step such as .process(…)"
        if _has_method(Stream, name):
            return before
        return f"{_NO_WINDOWS} .window(…) before" if _has_method(WindowedStream, name) else None
    if _has_method(KeyedStream, name):
        other = ", or window_all() for one window over all records" if name == "window" else ""
        return f"it needs keys, and the records of this stream have none; call .key_by(…) before{other}"
    if _has_method(WindowedStream, name):
        return f"{_NO_WINDOWS} .key_by(…).window(…) before, or .window_all(…)"
    return None


def _has_method(kind: type, name: str) -> bool:
    return getattr_static(kind, name, None) is not None
