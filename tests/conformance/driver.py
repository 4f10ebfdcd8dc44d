"""The base of drivers of scenarios: each step is a method of the driver, and so is each expected fact.

``{"put": {"mail": "A", "priority": 1}, "returns": null}`` calls ``do_put(mail="A", priority=1)``, which returns
what it found out as ``{"returns": …}``; ``{"expect": {"timers": 2}}`` compares with ``see_timers()``. A word for
which there is no method, and an argument that the method does not have, raise ``UnknownWord``.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias, cast

from aflow.errors import FlowDefinitionError, MailboxClosed
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from tests.conformance.scenarios import Json, Scenario, UnknownWord

Outcome: TypeAlias = Mapping[str, object]
"""Facts of a step, by the words of the format: ``returns``, ``emits``, …"""

NOTHING: Final[Outcome] = {}

_ERRORS: Final[Mapping[type[Exception], str]] = {
    FlowDefinitionError: "invalid_argument",
    MailboxClosed: "mailbox_closed",
}

#: Comparisons of expected and actual values, by the ending of the word.
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "_one_of": lambda found, expected: found in expected,
    "_any_order": lambda found, expected: _multiset(found) == _multiset(expected),
    "_min": lambda found, expected: found >= expected,
    "_max": lambda found, expected: found <= expected,
}


class Driver:
    """Plays scenarios of one kind. A subclass takes ``given`` as keyword arguments."""

    #: Words beside an action that belong to it: its method gets them as keywords too.
    BESIDE: ClassVar[frozenset[str]] = frozenset()

    def close(self) -> None:
        """Release the resources of the driver."""
        return None


def call(method: Callable[..., Any], argument: object) -> Any:
    """Call with the members of an object as keywords, and with any other argument as it is."""
    args: tuple[object, ...] = () if isinstance(argument, dict) else (argument,)
    kwargs: dict[str, object] = dict(argument) if isinstance(argument, dict) else {}  # pyright: ignore[reportUnknownArgumentType]
    try:
        inspect.signature(method).bind(*args, **kwargs)
    except TypeError as exc:
        name = getattr(method, "__qualname__", repr(method))
        raise UnknownWord(f"{name} does not understand {argument!r}: {exc}") from exc
    return method(*args, **kwargs)


def run(scenario: Scenario, driver: Driver) -> None:
    """Play all steps and check all facts but the implied ones. Raises ``AssertionError`` or ``UnknownWord``."""
    if scenario.unknown:
        raise UnknownWord(f"the scenario has {', '.join(scenario.unknown)}")
    for number, step in enumerate(scenario.steps):
        where = f"step {number}, {step}"
        word, argument = next(iter(step.items()))
        rest = {key: value for key, value in step.items() if key not in (word, "note")}
        more = {key: rest.pop(key) for key in driver.BESIDE & rest.keys()}
        if more:
            argument = {**_as_members(word, argument), **more}
        if word == "expect":
            assert not rest, f"{where}: `expect` stands alone"
            check(driver, argument, where)
        else:
            check_outcome(_perform(driver, word, argument, rest), rest, where)
    check(driver, scenario.expect, "at the end")


def _as_members(word: str, argument: object) -> Json:
    """Return the arguments of a step; one that is no object is named like the step."""
    return cast("Json", argument) if isinstance(argument, dict) else {word: argument}


def check(driver: Driver, expect: Json, where: str) -> None:
    """Compare all facts of ``expect`` with those of the driver."""
    for problem in differences(driver, expect):
        raise AssertionError(f"{where}: {problem}")


def differences(driver: Driver, expect: Json) -> Iterator[str]:
    """Describe each fact that does not hold, with the actual value."""
    for word, expected in expect.items():
        if word == "note":
            continue
        see, same = _find(word, lambda name: getattr(driver, f"see_{_identifier(name)}", None))
        found = see(expected) if inspect.signature(see).parameters else see()
        if not same(found, expected):
            yield f"{word} is {found!r}, not {expected!r}"


def _identifier(word: str) -> str:
    """A few facts have names of several words."""
    return word.replace(" ", "_")


def check_outcome(outcome: Outcome, expect: Json, where: str) -> None:
    """Compare the facts of a step with those beside its action."""
    for word, expected in expect.items():
        name, same = _find(word, lambda name: name if name in outcome else None)
        assert same(outcome[name], expected), (
            f"{where}: {word} is {outcome[name]!r}, not {expected!r}"
        )


def number(value: int | str) -> int:
    """A number of the data, where ``"max"`` and ``"min"`` are the largest and the smallest."""
    match value:
        case int():
            return value
        case "max":
            return MAX_TIMESTAMP
        case "min":
            return MIN_TIMESTAMP
        case _:
            raise UnknownWord(f"{value!r} is no number")


def _perform(driver: Driver, word: str, argument: object, rest: Json) -> Outcome:
    method = getattr(driver, f"do_{word}", None)
    if method is None:
        raise UnknownWord(f"{type(driver).__name__} does not know the step {word!r}")
    try:
        return {"raises": None, **(call(method, argument) or NOTHING)}
    except tuple(_ERRORS) as exc:
        if "raises" not in rest:
            raise
        return {"raises": next(word for kind, word in _ERRORS.items() if isinstance(exc, kind))}


def _find(word: str, lookup: Callable[[str], Any]) -> tuple[Any, Callable[[Any, Any], bool]]:
    """Return the entry of ``lookup`` for ``word``, or for the word without the ending of a comparison."""
    if (found := lookup(word)) is not None:
        return found, lambda found, expected: _settled(found) == _settled(expected)
    for ending, same in _COMPARISONS.items():
        if word.endswith(ending) and (found := lookup(word.removesuffix(ending))) is not None:
            return found, same
    raise UnknownWord(f"the word {word!r} is unknown")


def _multiset(values: Iterable[object]) -> Counter[str]:
    # As text, which is the same for equal values of the data, whatever the order of members.
    return Counter(_text(value) for value in values)


def _text(value: object) -> str:
    return json.dumps(_settled(value), sort_keys=True)


def _settled(value: object) -> object:
    """``value`` with the members that may have any order in one of their own."""
    match value:
        case list():
            return [_settled(each) for each in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            return {name: _settled_as(name, part) for name, part in members.items()}
        case _:
            return value


def _settled_as(name: str, part: object) -> object:
    settled = _settled(part)
    if name.endswith("_any_order") and isinstance(settled, list):
        return sorted(cast("list[object]", settled), key=_text)
    return settled
