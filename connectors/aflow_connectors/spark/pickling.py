"""Pickling for executors: as Spark does it, with functions and classes of the main program by value.

What msgspec makes of a class is in the way of that. It keeps a note on each dataclass, NamedTuple, TypedDict and enum
that it has seen, which does not pickle, and which it makes anew where it is missing. And a Struct gets its fields when
the class is made, but Spark's pickler makes an empty class first and sets its attributes then: it would have no fields.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any, Final

import msgspec

from aflow.errors import FlowDefinitionError

#: What msgspec has found out about a class.
_NOTE: Final = "__msgspec_cache__"


def dumps(value: object) -> bytes:
    """``value`` as bytes. Raises ``FlowDefinitionError`` for a Struct of the main program."""
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


@cache
def _pickler() -> Any:
    from pyspark import cloudpickle

    base: Any = cloudpickle.Pickler  # which has no types

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type):
                _prepare(obj)
            return base.reducer_override(self, obj)

    return Pickler


def _prepare(of: type) -> None:
    if _NOTE in vars(of):
        delattr(of, _NOTE)
    if isinstance(of, type(msgspec.Struct)) and of.__module__ == "__main__":
        raise FlowDefinitionError(
            f"{of.__name__} is a msgspec.Struct of the main program, which cannot be sent to executors as it is: put "
            f"it into a module that they can import, or make a dataclass of it"
        )
