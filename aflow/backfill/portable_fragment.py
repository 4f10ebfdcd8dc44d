"""A fragment in the form for executors: its steps, without the sources and sinks of the flow or other fragments.

A source may hold all of history, and a sink a connection; executors need neither. Placeholders keep their names and
kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias, cast

from aflow.backfill.fragments import Exit, Fragment
from aflow.errors import FlowDefinitionError, described
from aflow.graph.nodes import Edge, Node

#: Returns the pickle of an object, functions of the main program included: ``cloudpickle.dumps``.
Dumps: TypeAlias = Callable[[object], bytes]

#: Maximum number of objects searched for one that cannot be pickled.
_LOOKED_AT: Final = 1_000


def portable_copy(fragment: Fragment) -> Fragment:
    """Return a copy of ``fragment`` without references to anything outside it.

    Steps have no inputs from outside, except for the head, whose inputs are placeholders with a name and no effect.
    There is no exchange within it and no parallelism: the engine that runs it has chosen the partition.
    """
    copies: dict[int, Node] = {}
    for node in fragment.nodes:
        copies[node.id] = _copy(node, copies, is_head=node is fragment.head)
    return replace(
        fragment,
        nodes=tuple(copies.values()),
        exits=tuple(_exit(one, copies) for one in fragment.exits),
    )


def check_picklable(fragment: Fragment, dumps: Dumps) -> bytes:
    """Return the pickle of ``portable_copy(fragment)``.

    Raises ``FlowDefinitionError`` that names the step that cannot be pickled, and the object in it.
    """
    ready = portable_copy(fragment)
    try:
        return dumps(ready)
    except Exception as exc:
        for node in ready.nodes:
            _check_node(replace(node, inputs=()), dumps)
        raise FlowDefinitionError(
            f"the steps downstream of {fragment.head.name!r} cannot be sent to executors together, though each can be: "
            f"{described(exc)}"
        ) from exc


def _copy(node: Node, copies: Mapping[int, Node], *, is_head: bool) -> Node:
    inputs = (
        tuple(replace(edge, origin=_placeholder(edge.origin)) for edge in node.inputs)
        if is_head
        else tuple(
            Edge(copies[edge.origin.id], edge.side)
            for edge in node.inputs
            if edge.origin.id in copies
        )
    )
    return replace(node, inputs=inputs, source=None, parallelism=None, windows=None)


def _placeholder(node: Node) -> Node:
    """Return a placeholder with the name of a node."""
    return Node(node.id, node.name, node.kind, node.what, has_time=node.has_time)


def _exit(one: Exit, copies: Mapping[int, Node]) -> Exit:
    sink = None if one.sink is None else _placeholder(one.sink)
    return replace(one, origin=copies[one.origin.id], sink=sink)


def _check_node(node: Node, dumps: Dumps) -> None:
    cause = _failure(node, dumps)
    if cause is None:
        return
    steps, cause = _trace(node, cause, dumps)
    where = f" ({' → '.join(steps)})" if steps else ""
    raise FlowDefinitionError(
        f"step {node.name!r} cannot be sent to executors: {str(cause) or described(cause)}{where}; {_cure(node, dumps)}"
    ) from cause


def _cure(node: Node, dumps: Dumps) -> str:
    if node.resource is not None and _failure(node.resource, dumps) is not None:
        return "make it inside the function that opens the Resource"
    if node.what.endswith("_async"):
        return "open it in a Resource, or inside the function"
    if node.what.endswith("process"):
        return "make it in the open() of the process function"
    return "make it inside the function, or in a module that executors import"


def _failure(value: object, dumps: Dumps) -> Exception | None:
    try:
        dumps(value)
    except Exception as exc:
        return exc
    return None


def _trace(value: object, cause: Exception, dumps: Dumps) -> tuple[list[str], Exception]:
    """Return the path from ``value`` to the part that cannot be pickled, in names that users know, and the error."""
    steps: list[str] = []
    seen = {id(value)}
    while len(seen) < _LOOKED_AT:
        found = _failing_part(value, seen, dumps)
        if found is None:
            break
        name, part, cause = found
        if not _is_ours(part):
            steps.append(_name(part) if _is_ours(value) else name)
        value = part
    return steps, cause


def _failing_part(
    value: object, seen: set[int], dumps: Dumps
) -> tuple[str, object, Exception] | None:
    for name, part in _parts(value):
        if id(part) in seen:
            continue
        seen.add(id(part))
        failed = _failure(part, dumps)
        if failed is not None:
            return name, part, failed
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of ``value`` that pickling may include, with names."""
    match value:
        case FunctionType():
            yield from _parts_of_function(value)
        case MethodType():
            yield type(value.__self__).__name__, value.__self__
            yield value.__func__.__name__, value.__func__
        case partial():
            yield _name(value.func), value.func
            yield from _items(value.args)
            yield from value.keywords.items()
        case dict() | list() | tuple() | set() | frozenset():
            yield from _items(cast("Any", value))
        case _:
            yield from _attributes(value)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    yield from (
        (name, function.__globals__[name]) for name in code.co_names if name in function.__globals__
    )
    yield from _items(function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    yield from vars(function).items()


def _items(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        yield from chain.from_iterable(((str(key), key), (f"[{key!r}]", one)) for key, one in items)
    else:
        yield from ((f"[{index}]", one) for index, one in enumerate(value))


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    names = dict.fromkeys(
        (
            *getattr(value, "__dict__", {}),
            *(
                slot
                for cls in type(value).__mro__
                for slot in _slots(cls)
                if slot not in ("__dict__", "__weakref__")
            ),
        )
    )
    for name in names:
        try:
            yield name, getattr(value, name)
        except Exception:  # an empty slot, or an attribute of a user's class that is computed
            continue


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_ours(value: object) -> bool:
    """Return True for objects created by aflow, for which users have no name."""
    of = value if isinstance(value, FunctionType) else type(value)
    return (getattr(of, "__module__", None) or "").partition(".")[0] == "aflow"


def _name(value: object) -> str:
    return str(getattr(value, "__name__", type(value).__name__))
