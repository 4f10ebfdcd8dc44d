"""Pickling for executors with Spark's pickler, and the classes of the main program that executors need.

Functions and classes of the main program are pickled by value. Two traits of msgspec prevent that. It caches
information on each dataclass, NamedTuple, TypedDict and enum that it has seen, and the cache cannot be pickled; msgspec
rebuilds it if it is missing. And a Struct gets its fields when the class is created, but Spark's pickler creates an
empty class and sets its attributes later: it would have no fields.

Annotations that are strings, as with ``from __future__ import annotations``, are resolved in the main program.
Executors have another main program, so they are resolved here.

Instances and stored state refer to their class by name, and ``__main__`` of an executor is another module. So the
classes of a script or notebook are sent with the code and registered under their names in ``__main__`` of the
executor's process.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, Final, TypeGuard, cast, get_type_hints

import msgspec

from aflow.backfill.exchange import forget_classes
from aflow.errors import FlowDefinitionError

#: Attribute in which msgspec caches information on a class.
_NOTE: Final = "__msgspec_cache__"


def dumps(value: object) -> bytes:
    """Return the pickle of ``value``. Raises ``FlowDefinitionError`` for a Struct defined in the main program or in a
    function.
    """
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
    """Return True for a class defined inside a function: it is pickled by value."""
    return "<locals>" in of.__qualname__


def _look_up_annotations(of: type, reduced: Any) -> None:
    """Resolve string annotations in the attributes that are pickled with ``of``."""
    match reduced:
        case (_, _, (dict(), _), *_):
            attributes: dict[str, Any] = reduced[2][0]
        case _:
            return
    own: dict[str, object] = attributes.get("__annotations__", {})
    # Names imported only under TYPE_CHECKING cannot be resolved, here or on executors.
    with suppress(Exception):
        types = get_type_hints(of, include_extras=True)
        attributes["__annotations__"] = {name: types.get(name, text) for name, text in own.items()}


def modules_of(value: object) -> list[str]:
    """Return the modules of the classes and functions to which the pickle of ``value`` refers by name.

    A process that unpickles it imports them. Raises as ``dumps``.
    """
    from pyspark import cloudpickle

    found: set[str] = set()
    base: Any = _pickler()
    module_reduced: Any = base.dispatch_table[ModuleType]
    by_name: Any = cast(Any, cloudpickle).subimport

    class Recorder(base):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            reduced = base.reducer_override(self, obj)
            if isinstance(obj, ModuleType):
                # One that is registered to be pickled by value may be missing on executors.
                if module_reduced(obj)[0] is by_name:
                    found.add(obj.__name__)
            elif isinstance(obj, type | FunctionType) and reduced is NotImplemented:
                found.add(obj.__module__)
            return reduced

    Recorder(io.BytesIO()).dump(value)
    return sorted(found - {"__main__"})


def classes_of_main(dumps: Callable[[object], bytes]) -> dict[str, type]:
    """Return the classes defined in ``__main__``, nested ones included, that ``dumps`` can pickle."""
    main = sys.modules.get("__main__")
    found = [one for name, one in vars(main).items() if _is_named(one, name)]
    return {
        one.__qualname__: one
        for outer in found
        if _pickles(outer, dumps)
        for one in _with_nested(outer)
    }


def register_classes(classes: Mapping[str, type]) -> None:
    """Register ``classes`` under their names in this process's ``__main__``; for executors only."""
    main = sys.modules["__main__"]
    new = False
    for name, one in classes.items():
        # Pickling by value loses the outer part of a nested class's name.
        if one.__qualname__ != name:
            one.__qualname__ = name
        if "." not in name and getattr(main, name, None) is not one:
            setattr(main, name, one)
            new = True
    if new:
        forget_classes()


def _with_nested(outer: type) -> Iterator[type]:
    yield outer
    for name, one in vars(outer).items():
        if _is_named(one, f"{outer.__qualname__}.{name}"):
            yield from _with_nested(one)


def _is_named(value: object, name: str) -> TypeGuard[type]:
    return isinstance(value, type) and value.__module__ == "__main__" and value.__qualname__ == name


def _pickles(value: object, dumps: Callable[[object], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True
