"""The error for a method that a stream does not have: it names the step to add before."""

from __future__ import annotations

from inspect import getattr_static

from aflow.errors import FlowDefinitionError


class MissingMethod(FlowDefinitionError, AttributeError):
    """A stream has no such method. Also an ``AttributeError``, as ``hasattr`` and ``copy`` need it."""


def missing_method(stream: object, name: str) -> AttributeError:
    """Return the error for ``stream.name``."""
    from aflow.api.keyed import KeyedStream  # it builds on Stream, as does the next
    from aflow.api.windowed import WindowedStream

    kind = type(stream).__name__
    if not name.startswith("_"):
        if _has(KeyedStream, name):
            other = ", or window_all() for one window over all records" if name == "window" else ""
            return MissingMethod(
                f"{kind} has no method {name}(): it needs keys, and the records of this stream have none; "
                f"call .key_by(…) before{other}"
            )
        if _has(WindowedStream, name):
            return MissingMethod(
                f"{kind} has no method {name}(): it needs windows; call .key_by(…).window(…) before, or .window_all(…)"
            )
    return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=stream)


def _has(kind: type, name: str) -> bool:
    return getattr_static(kind, name, None) is not None
