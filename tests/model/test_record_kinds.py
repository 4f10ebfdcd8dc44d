"""Classes taken apart and made again: each of the four forms, and classes that are refused."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aflow as af
from aflow.connect import BadRecord
from aflow.model.codecs import RECORDS, CodecError
from tests.stable_ids import stable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: object = None


@dataclass
class Open:
    a: int
    b: object = None
    made: ClassVar[int] = 0
    seed: InitVar[int] = 0
    computed: int = field(init=False, default=0)

    def __post_init__(self, seed: int) -> None:
        Open.made += 1
        self.computed += seed


@dataclass
class Box(Generic[T]):
    held: T


@dataclass(frozen=True)
class Lazy:
    a: int

    @functools.cached_property
    def pattern(self) -> object:
        return object()  # as a compiled pattern would be: what no codec takes


class Base:
    __slots__ = ("remark",)


@dataclass
class WithOtherSlots(Base):
    __slots__ = ("a",)
    a: int


@dataclass
class Strict:
    a: int

    def __init__(self, a: int) -> None:
        raise AssertionError("called")

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError("called")


@dataclass
class Empty:
    pass


@dataclass
class ErrorRecord(Exception):
    a: int


class Celsius:
    def __get__(self, held: Any, owner: object) -> float:
        return 0.0 if held is None else float(held._celsius)

    def __set__(self, held: Any, value: float) -> None:
        held._celsius = value


@dataclass
class Described:
    celsius: Celsius = Celsius()  # how the dataclass documentation has it


class Pair(NamedTuple):
    a: int
    b: object = None


class NotedPair(Pair):
    note: str  # no __slots__: instances have a __dict__


class Plain(msgspec.Struct):
    a: int
    b: object = msgspec.UNSET


class ByName(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="upper"):
    a: int
    b: str = "x"


class Growing(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        self.a += 1


class WithDict(msgspec.Struct, dict=True):
    a: int


class Suit(Enum):
    HEARTS = "h"
    TRUMPS = "h"  # an alias  # noqa: PIE796


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "red"


class Right(Flag):
    READ = 1
    WRITE = 2


class UserId(str):
    __slots__ = ()


def again(value: object) -> Any:
    return RECORDS.decode(RECORDS.encode(value))


def alone(one: object) -> object:
    return one


def in_a_row(one: object) -> object:
    return [one, one, one]


def mixed(one: object) -> object:
    return [one, one], (one, 1), {"k": one}


@pytest.mark.parametrize(
    "value",
    [
        Slotted(1, Slotted(2, [Slotted(3)])),
        Open(1, {"a": (1, 2)}, 5),
        Box([Decimal("1.0")]),
        Empty(),
        Pair(1, Pair(2, {3})),
        Plain(1),
        Plain(1, 2**70),
        ByName(a=1, b="y"),
        Level.LOW,
        Colour.RED,
        Suit.TRUMPS,
        Right.READ | Right.WRITE,
        Right(0),
        {Colour.RED: 1, Level.LOW: 2, Slotted(1): 3},
        frozenset({Slotted(1), Pair(1), af.TimeWindow(0, 1)}),
        af.Windowed("k", af.windows.GLOBAL_WINDOW, {"n": 1}, 2),
        af.Tag[int]("late"),
        BadRecord("a.csv, line 3", "too short", b"\x00"),
        ("left", None),
        msgspec.UNSET,
    ],
    ids=stable,
)
@pytest.mark.parametrize("around", [alone, in_a_row, mixed])
def test_a_record_is_restored_equal_and_of_its_type(
    value: object, around: Callable[[object], object]
) -> None:
    before = around(value)

    after = again(before)

    assert after == before
    assert kinds(after) == kinds(before)


def kinds(value: Any) -> object:
    kind = cast("type[object]", type(value))
    if kind is dict:
        return dict, {kinds(key) for key in value}, [kinds(one) for one in value.values()]
    return (kind, [kinds(one) for one in value]) if kind in (list, tuple) else kind


def test_neither_init_nor_post_init_nor_setattr_of_a_dataclass_is_called() -> None:
    strict = object.__new__(Strict)
    object.__setattr__(strict, "a", 1)
    opened, made = [Open(1, None, 5), Open(2, None, 5)], Open.made

    assert again([strict, strict]) == [strict, strict]
    assert again(opened) == opened
    assert Open.made == made


def test_fields_of_a_struct_are_restored_without_its_post_init() -> None:
    assert again([Growing(1), Growing(2)]) == [Growing(1), Growing(2)]


def test_members_of_an_enum_are_the_same_objects_afterwards() -> None:
    assert again([Suit.TRUMPS, Level.LOW, Colour.RED]) == [Suit.HEARTS, Level.LOW, Colour.RED]
    assert again(Suit.TRUMPS) is Suit.HEARTS


@pytest.mark.parametrize("around", [1, 2, 3])
@pytest.mark.parametrize(
    "value", [Open(1), NotedPair(1, 2), WithDict(1), WithOtherSlots(1)], ids=repr
)
def test_attributes_besides_the_fields_are_kept(value: Any, around: int) -> None:
    value.remark = "by hand"

    after = again([value] * around)

    assert [one.remark for one in after] == ["by hand"] * around
    assert after == [value] * around


def test_type_parameters_of_typing_are_omitted() -> None:
    box = Box[int](1)

    assert vars(again(box)) == {"held": 1}
    assert again([box, Box[int](2)]) == [Box(1), Box(2)]


def test_a_cached_property_is_computed_again() -> None:
    lazy = Lazy(1)
    assert lazy.pattern

    assert "pattern" not in vars(again([lazy, lazy])[0])


def test_a_field_that_was_deleted_is_an_error_that_names_it() -> None:
    broken, whole = Open(1), Open(2)
    del broken.a
    broken.other = 1  # type: ignore[attr-defined]  # so that it has as many attributes

    with pytest.raises(CodecError, match=r"no attribute 'a'"):
        RECORDS.encode([whole, broken])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda: 1, "builtins.function is neither"),
        (object(), "builtins.object is neither"),
        (Open, "builtins.type is neither"),
        (UserId("u"), "UserId is neither"),
        (ErrorRecord(1), "ErrorRecord is neither"),
        (Described(), "Described.celsius is set by a descriptor"),
        (ValueError("x"), "ValueError is neither"),
    ],
    ids=["lambda", "object", "class", "str subclass", "exception", "descriptor", "plain exception"],
)
def test_an_object_with_more_than_fields_is_refused_by_type(value: object, said: str) -> None:
    with pytest.raises(CodecError, match=said):
        RECORDS.encode([value, value])


def test_a_class_that_another_one_hides_is_refused() -> None:
    @dataclass
    class Slotted:
        a: int

    Slotted.__qualname__ = "Slotted"

    with pytest.raises(CodecError, match=r"test_record_kinds:Slotted cannot be found by its name"):
        RECORDS.encode(Slotted(1))


def test_a_value_that_contains_itself_is_refused() -> None:
    box = Box[object](None)
    box.held = [box]

    with pytest.raises(CodecError, match="contains itself"):
        RECORDS.encode(box)


class TestChangedClasses:
    """Bytes of one version of a module, read by another one."""

    @pytest.fixture
    def module(self, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
        made = types.ModuleType("shop_of_test_record_kinds")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        return made

    def stored(self, module: types.ModuleType, source: str) -> bytes:
        self.define(module, source)
        one = module.Order(1, 2)
        return RECORDS.encode([one, one])

    def define(self, module: types.ModuleType, source: str) -> None:
        from aflow.model.codecs import record_kinds

        record_kinds.form_named.cache_clear()
        vars(module).pop("Order", None)
        exec(
            "from dataclasses import dataclass\nfrom typing import NamedTuple\n" + source,
            vars(module),
        )

    OLD = "@dataclass\nclass Order:\n    a: int\n    b: int\n"

    @pytest.mark.parametrize(
        "new", ["    b: int\n    a: int\n", "    a: int\n", "    a: int\n    c: int\n"]
    )
    def test_other_fields_are_refused_and_never_mixed_up(
        self, module: types.ModuleType, new: str
    ) -> None:
        data = self.stored(module, self.OLD)

        self.define(module, "@dataclass\nclass Order:\n" + new)

        with pytest.raises(CodecError, match=r"had the fields \(a,b\), and is now .*savepoint"):
            RECORDS.decode(data)

    def test_another_form_is_refused(self, module: types.ModuleType) -> None:
        data = self.stored(module, self.OLD)

        self.define(module, "class Order(NamedTuple):\n    a: int\n    b: int\n")

        with pytest.raises(CodecError, match="is a named tuple now"):
            RECORDS.decode(data)

    def test_a_missing_class_is_named(self, module: types.ModuleType) -> None:
        data = self.stored(module, self.OLD)

        self.define(module, "")

        with pytest.raises(CodecError, match="Order"):
            RECORDS.decode(data)


@pytest.mark.parametrize("code", [32, 33, 34, 35])
@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "builtins:object", "os:path"])
def test_bytes_that_name_something_else_than_a_record_call_nothing(code: int, name: str) -> None:
    encode = msgspec.msgpack.encode
    forged = encode(msgspec.msgpack.Ext(code, encode([f"{name}(a)", "echo"])))

    with pytest.raises(CodecError, match=r"is no class|is neither"):
        RECORDS.decode(forged)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.decimals(allow_nan=False)
    | st.sampled_from([*Level, *Colour, *Suit, Right.READ, Right.READ | Right.WRITE])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Slotted, st.integers(), inner)
        | st.builds(Open, st.integers(), inner)
        | st.builds(Pair, st.integers(), inner)
        | st.builds(Plain, st.integers(), inner)
        | st.builds(Box[Any], inner)
        | st.builds(af.Windowed[Any, Any], st.text(), st.just(af.TimeWindow(0, 1)), inner)
        | st.lists(inner)
        | st.lists(st.builds(Slotted, st.integers(), inner), min_size=2)
        | st.lists(st.builds(Open, st.integers(), inner), min_size=2)
        | st.dictionaries(st.text() | st.integers() | st.sampled_from(Colour), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=15,
)


@given(values)
def test_records_of_any_values_are_restored_type_for_type(value: object) -> None:
    assert repr(again(value)) == repr(value)
