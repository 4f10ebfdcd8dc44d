# pyright: basic
# Types are made at run time, so checkers do not know their content.
"""Schema compatibility: the verdict from schemas agrees with the result of reading values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from aflow.model.codecs import PLAIN, CodecError, Schema, codec_for
from aflow.state.schema_change import Incompatible, Kept, Migrated, Verdict, compare
from tests.state.stored_types import KEY, Blueprint, blueprints, changed, made, samples


def schema_of(of: Any) -> Schema:
    schema: Schema = codec_for(of).schema  # type: ignore[attr-defined]  # that of a typed codec
    return schema


def verdict(old: Any, new: Any) -> Verdict:
    return compare(schema_of(old), schema_of(new))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Blueprint, Blueprint]:
    old = draw(blueprints)
    return old, draw(st.one_of(changed(old), changed(old), blueprints))


def reads(value: Any, old: Any, new: Any) -> bool:
    """Return True if ``value``, stored as ``old``, can be read as ``new``."""
    try:
        codec_for(new).decode(codec_for(old).encode(value))
    except CodecError:
        return False
    return True


def loses_nothing(value: Any, old: Any, new: Any) -> bool:
    """Return True if ``value``, stored as ``old``, is read as an equal value of ``new``."""
    return reads(value, old, new) and same(
        value, codec_for(new).decode(codec_for(old).encode(value))
    )


def same(before: Any, after: Any) -> bool:
    """Return True if both are equal, except fields of one of them only and leaves with equal bytes."""
    if isinstance(before, set | frozenset) is not isinstance(after, set | frozenset):
        return False  # one of them has an order
    before, after = told(before), told(after)
    match before, after:
        case dict(), dict():
            dropped = before.keys() - after.keys()
            both = before.keys() & after.keys()
            return KEY not in dropped and all(same(before[key], after[key]) for key in both)
        case list(), dict():
            return len(before) <= len(after) and all(map(same, before, after.values()))
        case dict(), list():
            return len(before) == len(after) and all(map(same, before.values(), after))
        case list(), list():
            return len(before) == len(after) and all(map(same, before, after))
        case _:
            return bool(leaf(before) == leaf(after))


def told(value: Any) -> Any:
    """Return one level of ``value``: dicts for records, lists for all collections."""
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return list(value) if isinstance(value, tuple) else value


def leaf(value: Any) -> Any:
    """Return the stored form: text for Decimals, and equal numbers for ints and floats."""
    stored: Any = msgspec.to_builtins(value, builtin_types=(bytes, datetime))
    if isinstance(value, Decimal | float | int) and not isinstance(value, bool):
        return float(value)
    return stored


def test_the_same_type_is_kept() -> None:
    assert verdict(list[int], list[int]) == Kept()


@given(pairs())
def test_kept_and_migrated_values_can_be_read_and_incompatible_ones_cannot_or_differ(
    both: tuple[Blueprint, Blueprint],
) -> None:
    old, new = map(made, both)
    values = list(samples(both[0], old))

    found = verdict(old, new)

    event(type(found).__name__)
    match found:
        case Kept():
            assert all(loses_nothing(value, old, new) for value in values)
        case Migrated():
            assert all(reads(value, old, new) for value in values)
        case Incompatible(reason):
            # Moved fields may have equal types, and omitted ones are not missed here: other tests check that both are
            # refused.
            assume("places are what is stored" not in reason and "was not stored" not in reason)
            assert not all(loses_nothing(value, old, new) for value in values)


def test_a_field_that_is_never_stored_may_be_dropped_where_unknown_fields_are_forbidden() -> None:
    class Old(msgspec.Struct, omit_defaults=True):
        nothing: None = None

    class New(msgspec.Struct, forbid_unknown_fields=True):
        pass

    assert verdict(Old, New) == Migrated(("New.nothing is dropped",))


@given(blueprints)
def test_a_type_that_is_made_again_is_kept(blueprint: Blueprint) -> None:
    assert verdict(made(blueprint), made(blueprint)) == Kept()


@given(blueprints)
def test_a_schema_is_read_from_its_stored_form(blueprint: Blueprint) -> None:
    schema = schema_of(made(blueprint))

    assert Schema.of_plain(PLAIN.decode(PLAIN.encode(schema.plain))) == schema


class Currency(enum.StrEnum):
    CHF = "CHF"
    EUR = "EUR"


@dataclass
class Payment:
    card: str
    amount: int
    currency: Currency | None = None
    at: list[datetime] = field(default_factory=list)


def test_a_schema_is_readable() -> None:
    assert str(schema_of(Payment)) == (
        "Payment{card: str, amount: int, currency: Currency['CHF', 'EUR'] | None = None, at: list[datetime] = []}"
    )


def test_a_schema_says_where_records_are_stored_by_place_and_under_which_names() -> None:
    class Box(msgspec.Struct, tag="box"):
        pair: Longer
        size: int = msgspec.field(name="sz")

    text = str(schema_of(Box))

    assert "Box{type is 'box', pair: " in text
    assert "size (stored as sz): int}" in text
    assert "Longer(day: str, flights: int, delay: int = 0)" in text


def test_an_invalid_stored_schema_is_refused() -> None:
    with pytest.raises(CodecError, match="a stored schema cannot be read"):
        Schema.of_plain(["int"])


@dataclass
class Widened:
    card: str
    amount: float
    currency: Currency | None = None
    note: str = "-"


def test_added_and_dropped_fields_and_wider_types_are_migrated_with_descriptions() -> None:
    assert verdict(Payment, Widened) == Migrated(
        (
            "Widened.amount: int → float",
            "Widened.note is added, as '-'",
            "Widened.at is dropped",
        )
    )


@dataclass
class Mandatory:
    card: str
    shop: str


def test_an_added_field_without_default_is_incompatible_and_the_reason_asks_for_a_renaming() -> (
    None
):
    found = verdict(Payment, Mandatory)

    assert isinstance(found, Incompatible)
    assert found.reason == (
        "Mandatory.shop (str) is new and has no default; if it was renamed from 'amount' or 'currency' or 'at', "
        "declare that name with msgspec.field(name=…) in a Struct"
    )


class Renamed(msgspec.Struct):
    card: str
    cents: int = msgspec.field(name="amount")


def test_a_renamed_field_of_a_struct_reads_what_a_dataclass_stored_under_its_old_name() -> None:
    stored = codec_for(Payment).encode(Payment("4711", 5))

    assert codec_for(Renamed).decode(stored) == Renamed("4711", 5)
    found = verdict(Payment, Renamed)
    assert isinstance(found, Migrated)
    assert "Renamed.cents was amount" in found.changes


def test_a_dataclass_has_no_other_name_for_a_field_regardless_of_its_metadata() -> None:
    @dataclass
    class Alias:
        card: str
        cents: Annotated[int, msgspec.Meta(title="amount")] = field(metadata={"name": "amount"})

    assert isinstance(verdict(Payment, Alias), Incompatible)
    with pytest.raises(CodecError, match="missing required field `cents`"):
        codec_for(Alias).decode(codec_for(Payment).encode(Payment("4711", 5)))


class Pair(NamedTuple):
    day: str
    flights: int


class Longer(NamedTuple):
    day: str
    flights: int
    delay: int = 0


class Swapped(NamedTuple):
    flights: int
    day: str


class Called(NamedTuple):
    date: str
    flights: int


def test_a_named_tuple_may_grow_at_its_end_and_nothing_else() -> None:
    assert verdict(Pair, Longer) == Migrated(("Longer.delay is added, as 0",))
    assert isinstance(verdict(Longer, Pair), Incompatible)
    assert isinstance(verdict(Pair, Swapped), Incompatible)


def test_fields_of_a_named_tuple_are_renamed_by_keeping_their_place() -> None:
    assert codec_for(Called).decode(codec_for(Pair).encode(Pair("monday", 4))) == Called(
        "monday", 4
    )
    assert verdict(Pair, Called) == Migrated(("Called.date was day",))


def test_fields_of_a_named_tuple_that_changed_places_are_refused_though_their_types_would_fit() -> (
    None
):
    class Before(NamedTuple):
        low: int
        high: int

    class After(NamedTuple):
        high: int
        low: int

    found = verdict(Before, After)

    assert isinstance(found, Incompatible)
    assert "After.high is at position 0 now and was at 1" in found.reason


class Route(TypedDict):
    card: str
    amount: int


def test_a_typed_dict_a_dataclass_and_a_struct_store_the_same() -> None:
    @dataclass
    class Data:
        card: str
        amount: int

    class Record(msgspec.Struct):
        card: str
        amount: int

    assert {
        verdict(one, other) for one in (Route, Data, Record) for other in (Route, Data, Record)
    } == {Kept()}


class Fewer(enum.Enum):
    CHF = "CHF"


def test_an_enum_may_gain_values_and_not_lose_any_that_may_be_stored() -> None:
    assert verdict(Fewer, Currency) == Migrated(("value: Fewer['CHF'] → Currency['CHF', 'EUR']",))
    assert verdict(Currency, Fewer) == Incompatible(
        "value: Literal['EUR'] cannot be read as Fewer['CHF']"
    )


def test_values_of_an_enum_are_what_is_stored_not_its_names() -> None:
    class Other(enum.Enum):
        FRANCS = "CHF"
        EUROS = "EUR"

    assert verdict(Currency, Other) == Kept()


def test_a_narrowed_union_is_incompatible_and_a_wider_one_is_described() -> None:
    assert verdict(int, int | None) == Migrated(("value: int → int | None",))
    assert verdict(int | str | None, int | None) == Incompatible(
        "value: str is stored, and only int | None is declared"
    )
    assert verdict(int | None, int) == Incompatible("value: None cannot be read as int")


class Car(msgspec.Struct, tag=True):
    wheels: int


class Boat(msgspec.Struct, tag=True):
    sails: int


class Ship(msgspec.Struct, tag="Boat"):
    sails: int
    name: str = ""


def test_structs_of_a_union_are_distinguished_by_their_tags() -> None:
    assert verdict(Car | Boat, Car | Ship) == Migrated(("value.name is added, as ''",))
    assert isinstance(verdict(Car | Boat, Car), Incompatible)
    assert verdict(Car, Car | Boat) == Kept()


def test_a_struct_without_tag_cannot_become_one_of_several() -> None:
    class Plain(msgspec.Struct):
        wheels: int

    assert isinstance(verdict(Plain, Car | Boat), Incompatible)
    assert verdict(Plain, Car) == Kept()


class Tree(msgspec.Struct):
    size: int
    children: list[Tree] = []


class WiderTree(msgspec.Struct):
    size: float
    children: tuple[WiderTree, ...] = ()


def test_the_comparison_of_recursive_types_ends() -> None:
    assert verdict(Tree, Tree) == Kept()
    assert verdict(Tree, WiderTree) == Migrated(
        (
            "WiderTree.size: int → float",
            "WiderTree.children: list[Tree] → tuple[WiderTree, ...]",
        )
    )


LIMITS: list[tuple[Any, Any, type[Verdict]]] = [
    (Annotated[int, msgspec.Meta(ge=5)], Annotated[int, msgspec.Meta(gt=4)], Migrated),
    (Annotated[int, msgspec.Meta(gt=5)], Annotated[int, msgspec.Meta(ge=5)], Migrated),
    (Annotated[int, msgspec.Meta(ge=4)], Annotated[int, msgspec.Meta(gt=4)], Incompatible),
    (Annotated[int, msgspec.Meta(lt=4)], Annotated[int, msgspec.Meta(le=4)], Migrated),
    (int, Annotated[int, msgspec.Meta(ge=0)], Incompatible),
    (Literal[3], Annotated[int, msgspec.Meta(ge=0)], Migrated),
    (Literal[-3], Annotated[int, msgspec.Meta(ge=0)], Incompatible),
    (
        Annotated[str, msgspec.Meta(max_length=3)],
        Annotated[str, msgspec.Meta(max_length=4)],
        Migrated,
    ),
    (tuple[int, int], Annotated[list[int], msgspec.Meta(max_length=2)], Migrated),
    (tuple[int, int], Annotated[list[int], msgspec.Meta(max_length=1)], Incompatible),
    (
        Annotated[int, msgspec.Meta(multiple_of=6)],
        Annotated[int, msgspec.Meta(multiple_of=3)],
        Migrated,
    ),
    (datetime, Annotated[datetime, msgspec.Meta(tz=True)], Incompatible),
]


@pytest.mark.parametrize(
    ("old", "new", "expected"), LIMITS, ids=[f"{old} {new}" for old, new, _ in LIMITS]
)
def test_a_limit_is_readable_if_stored_values_satisfy_it(
    old: Any, new: Any, expected: type[Verdict]
) -> None:
    assert type(verdict(old, new)) is expected


@pytest.mark.parametrize(
    ("old", "new"),
    [(int, float), (int, Decimal), (float, Decimal), (date, str), (Decimal, str), (Currency, str)],
)
def test_wider_scalars_are_migrated(old: Any, new: Any) -> None:
    assert isinstance(verdict(old, new), Migrated)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (int, str),
        (str, int),
        (float, int),
        (int, bool),
        (str, date),
        (str, Currency),
        (datetime, str),
    ],
)
def test_other_scalars_are_incompatible(old: Any, new: Any) -> None:
    assert isinstance(verdict(old, new), Incompatible)


def test_a_default_that_was_left_out_when_it_was_stored_may_not_change() -> None:
    class Before(msgspec.Struct, omit_defaults=True):
        retries: int = 3

    class After(msgspec.Struct, omit_defaults=True):
        retries: int = 5

    found = verdict(Before, After)

    assert isinstance(found, Incompatible)
    assert found.reason == (
        "After.retries was not stored where it was 3, its default, which is 5 now"
    )


def test_a_default_that_is_stored_may_change() -> None:
    class Before(msgspec.Struct):
        retries: int = 3

    class After(msgspec.Struct):
        retries: int = 5

    assert verdict(Before, After) == Kept()
