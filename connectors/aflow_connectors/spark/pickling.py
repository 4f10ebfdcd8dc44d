"""Pickling for executors: as Spark does it, with functions and classes of the main program by value.

What msgspec makes of a class is in the way of that. It keeps a note on each dataclass, NamedTuple, TypedDict and enum
that it has seen, which does not pickle, and which it makes anew where it is missing. And a Struct gets its fields when
the class is made, but Spark's pickler makes an empty class first and sets its attributes then: it would have no fields.

Annotations that are texts, as behind ``from __future__ import annotations``, are looked up in the main program. In
executors that is another one, so they are looked up here.
"""

from __future__ import annotations

import io
from contextlib import suppress
from functools import cache
from typing import Any, Final, get_type_hints

import msgspec

from aflow.errors import FlowDefinitionError

#: What msgspec has found out about a class.
_NOTE: Final = "__msgspec_cache__"


def dumps(value: object) -> bytes:
    """``value`` as bytes. Raises ``FlowDefinitionError`` for a Struct of the main program or of a function."""
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


@cache
def _pickler() -> Any:
    from pyspark import cloudpickle

    base: Any = cloudpickle.Pickler  # which has no types

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, type):
                return base.reducer_override(self, obj)
            _prepare(obj)
            reduced: Any = base.reducer_override(self, obj)
            if obj.__module__ == "__main__" or _is_local(obj):
                _look_up_annotations(obj, reduced)
            return reduced

    return Pickler


def _prepare(of: type) -> None:
    if _NOTE in vars(of):
        delattr(of, _NOTE)
    if isinstance(of, type(msgspec.Struct)) and of.__module__ == "__main__":
        raise FlowDefinitionError(
            f"{of.__name__} is a msgspec.Struct of the main program, which cannot be sent to executors as it is: put "
            f"it into a module that they can import, or make a dataclass of it"
        )
    if isinstance(of, type(msgspec.Struct)) and _is_local(of):
        raise FlowDefinitionError(
            f"{of.__qualname__} is a msgspec.Struct that is defined inside a function, which cannot be sent to "
            f"executors: define it at the top of a module that they can import, or make a dataclass of it"
        )


def _is_local(of: type) -> bool:
    """Return True for a class that is defined inside a function: it is pickled by value."""
    return "<locals>" in of.__qualname__


def _look_up_annotations(of: type, reduced: Any) -> None:
    """Put types in the place of the texts, in the attributes that go along with ``of``."""
    match reduced:
        case (_, _, (dict(), _), *_):
            attributes: dict[str, Any] = reduced[2][0]
        case _:
            return
    own: dict[str, object] = attributes.get("__annotations__", {})
    # Names may stand for what only type checkers import: executors would not find them either.
    with suppress(Exception):
        types = get_type_hints(of, include_extras=True)
        attributes["__annotations__"] = {name: types.get(name, text) for name, text in own.items()}
