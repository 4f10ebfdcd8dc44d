"""Whether values of one type can be read as values of another one: decided from their schemas, without any value.

Theory. Reading goes by what is stored. A value of a union, or one of some values, is one of several *atoms*; each must
be readable. Where several options of the new type could read an atom, the codec takes the one that fits best,
so it is enough that one can. Records are compared field by field: in a map by the names under which fields are stored,
in an array by place, where a name that turns up at another place would be read as something else, and is refused.
A pair of records that is being compared already counts as readable: recursive types come to an end.

The verdict is about all values of the old type: it is ``Incompatible`` if there is one that could not be read, or that
would silently be another one (a list as a set loses what is there twice).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from aflow.model.codecs.schema import (
    Entries,
    Field,
    Form,
    Items,
    OneOf,
    Record,
    Ref,
    Scalar,
    Schema,
    Shape,
    TupleShape,
    Values,
)
from aflow.state.schema_limits import implied


@dataclass(frozen=True, slots=True)
class Kept:
    """What is stored looks the same. Names of classes do not count."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What is stored can be read; ``changes`` says with what difference, each for a person."""

    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Some of what may be stored cannot be read, or would be something else; ``reason`` names the place."""

    reason: str


Verdict: TypeAlias = Kept | Migrated | Incompatible

#: Other scalars as which a scalar is read. Text is what dates and the like are stored as.
_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"float", "Decimal"}),
    "float": frozenset({"Decimal"}),
    **dict.fromkeys(("date", "time", "timedelta", "UUID", "Decimal"), frozenset({"str"})),
}

#: Collections as which each kind is read without losing anything.
_COLLECTED: Final[Mapping[str, frozenset[str]]] = {
    "list": frozenset({"list", "tuple"}),
    "tuple": frozenset({"list", "tuple"}),
    "set": frozenset({"list", "tuple", "set", "frozenset"}),
    "frozenset": frozenset({"list", "tuple", "set", "frozenset"}),
}


@lru_cache(maxsize=256)  # a snapshot has the same description once for each key group
def compare(old: Schema, new: Schema) -> Verdict:
    """What becomes of values stored as ``old`` when they are read as ``new``."""
    comparison = _Comparison(old, new)
    try:
        changes = comparison.read(old.root, new.root, _root_path(new))
    except _UnreadableError as exc:
        return Incompatible(str(exc))
    return Migrated(tuple(dict.fromkeys(changes))) if changes else Kept()


def _root_path(new: Schema) -> str:
    return new.root.name if isinstance(new.root, Ref) else "value"


class _UnreadableError(Exception):
    """Ends a comparison; the message is the reason."""


_Changes: TypeAlias = list[str]


class _Comparison:
    """One comparison: the records of both sides, and the pairs of them that are settled or under way."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old.by_name
        self._new = new.by_name
        self._assumed: set[tuple[str, str, bool]] = set()

    def read(self, old: Shape, new: Shape, path: str) -> _Changes:
        """The differences between what ``old`` wrote and what ``new`` reads. Raises ``_UnreadableError``."""
        atoms, options = list(_atoms(old)), list(_options(new))
        if atoms == [old] and len(options) == 1 and not isinstance(old, Values):
            return self._read_one(atoms[0], options[0], path, tagged=False)
        changes: _Changes = []
        for atom in atoms:
            changes += self._read_by_any(atom, options, path)
        changes = [change for change in changes if not change.startswith(f"{path}: ")]
        if set(map(_label, atoms)) != {
            label for one in options for label in map(_label, _atoms(one))
        }:
            changes.append(_becomes(path, old, new))
        return changes

    def _read_by_any(self, atom: Shape, options: Sequence[Shape], path: str) -> _Changes:
        """By the option that changes nothing, else the first that can."""
        tagged = sum(isinstance(one, Ref) for one in options) > 1
        found: _Changes | None = None
        refusals: list[str] = []
        for option in options:
            try:
                changes = self._read_one(atom, option, path, tagged=tagged)
            except _UnreadableError as exc:
                refusals.append(str(exc))
                continue
            if not changes:
                return changes
            found = found or changes
        if found is not None:
            return found
        if len(options) == 1:
            raise _UnreadableError(refusals[0])
        accepted = " | ".join(map(str, options))
        inside = next((one for one in refusals if not one.startswith(f"{path}: ")), None)
        raise _UnreadableError(
            inside or f"{path}: {atom} is stored, and only {accepted} is declared"
        )

    def _read_one(self, old: Shape, new: Shape, path: str, *, tagged: bool) -> _Changes:
        """``old`` is an atom, ``new`` no union. ``tagged``: a record is told from others by its tag."""
        match old, new:
            case Ref(), Ref():
                return self._records(old, new, path, tagged=tagged)
            case (Scalar(), Scalar()) | (Values(), Scalar()) | (Values(), Values()):
                return _scalars(old, new, path)
            case Items(), Items() if new.kind in _COLLECTED[old.kind]:
                _check_limits(old.limits, new, path)
                inside = self.read(old.item, new.item, f"{path}[item]")
                return inside if old.kind == new.kind else [*inside, _becomes(path, old, new)]
            case Entries(), Entries():
                _check_limits(old.limits, new, path)
                keys = self.read(old.key, new.key, f"{path}[key]")
                return keys + self.read(old.value, new.value, f"{path}[value]")
            case Ref(), Entries():
                return self._as_entries(old, new, path)
            case (TupleShape() | Ref(), TupleShape() | Ref()):
                return self._places(old, new, path)
            case (TupleShape() | Ref(), Items()):
                return self._as_items(old, new, path)
            case _:
                raise _unreadable(path, old, new)

    def _records(self, old: Ref, new: Ref, path: str, *, tagged: bool) -> _Changes:
        pair = (old.name, new.name, tagged)
        if pair in self._assumed:
            return []
        self._assumed.add(pair)
        before, after = self._old[old.name], self._new[new.name]
        try:
            if before.form is not Form.MAP:
                return self._places(old, new, path)
            if after.form is not Form.MAP:
                raise _unreadable(path, old, new)
            return self._maps(before, after, path, tagged=tagged)
        except _UnreadableError:
            self._assumed.discard(pair)
            raise

    def _maps(self, before: Record, after: Record, path: str, *, tagged: bool) -> _Changes:
        stored = {one.name: one for one in _wire(before)}
        changes: _Changes = []
        if after.tag is not None:
            self._check_tag(stored.pop(after.tag[0], None), after, path, tagged=tagged)
        for one in after.fields:
            was = stored.pop(one.name, None)
            where = f"{path}.{one.called or one.name}"
            if was is None:
                changes.append(_added(one, where, stored))
            else:
                changes += self._field(was, one, where)
        if stored and after.closed:
            raise _UnreadableError(
                f"{path}: {_names(stored)} is stored, and unknown fields are forbidden"
            )
        tag = None if before.tag is None else before.tag[0]
        return changes + [f"{path}.{name} is dropped" for name in stored if name != tag]

    def _check_tag(self, stored: Field | None, after: Record, path: str, *, tagged: bool) -> None:
        assert after.tag is not None
        name, value = after.tag
        if stored is None:
            if tagged or after.form is not Form.MAP:
                raise _UnreadableError(
                    f"{path}: the tag {name!r} is not stored, which tells {value!r} from others"
                )
        elif stored.required is False or stored.shape != Values((value,)):
            raise _UnreadableError(
                f"{path}: the tag {name!r} is {value!r} now, and {stored.shape} is stored"
            )

    def _field(self, was: Field, now: Field, where: str) -> _Changes:
        if was.omitted and now.required:
            raise _UnreadableError(f"{where} was optional and may be missing, and has no default")
        if was.omitted and was.default and was.default != now.default:
            raise _UnreadableError(
                f"{where} was not stored where it was {was.default}, its default, which is {now.default or 'none'} now"
            )
        changes = self.read(was.shape, now.shape, where)
        before, after = was.called or was.name, now.called or now.name
        return [*changes, f"{where} was {before}"] if before != after else changes

    def _as_entries(self, old: Ref, new: Entries, path: str) -> _Changes:
        """A record as a mapping: each name is a key."""
        before = self._old[old.name]
        fields = _wire(before)
        if before.form is not Form.MAP:
            raise _unreadable(path, old, new)
        most, least = len(fields), sum(not one.omitted for one in fields)
        _check_limits((("max_length", most), ("min_length", least)), new, path)
        for one in fields:
            self.read(Values((one.name,)), new.key, f"{path}[key]")
            self.read(one.shape, new.value, f"{path}.{one.name}")
        return [_becomes(path, old, new)]

    def _as_items(self, old: TupleShape | Ref, new: Items, path: str) -> _Changes:
        """Places of fixed number as any number of items. A set would lose equal ones."""
        places = self._row(old, self._old)
        if places is None or new.kind not in _COLLECTED["list"]:
            raise _unreadable(path, old, new)
        _check_limits((("max_length", len(places)), ("min_length", len(places))), new, path)
        for number, one in enumerate(places):
            self.read(one.shape, new.item, f"{path}[{number}]")
        return [_becomes(path, old, new)]

    def _places(self, old: TupleShape | Ref, new: TupleShape | Ref, path: str) -> _Changes:
        """Both as arrays: by place."""
        before, after = self._row(old, self._old), self._row(new, self._new)
        if before is None or after is None:
            raise _unreadable(path, old, new)
        _check_moves(before, after, path)
        changes: _Changes = []
        for was, now in zip(before, after, strict=False):
            changes += self._field(was, now, f"{path}.{now.called or now.name}")
        for one in after[len(before) :]:
            changes.append(_added(one, f"{path}.{one.called or one.name}", {}))
        extra = before[len(after) :]
        if extra and not self._skips(new):
            gone = ", ".join(one.called or one.name for one in extra)
            raise _UnreadableError(
                f"{path}: {gone} is stored behind the last place of a tuple, and nothing there may be dropped"
            )
        changes += [f"{path}.{one.called or one.name} is dropped" for one in extra]
        return [*changes, _becomes(path, old, new)] if type(old) is not type(new) else changes

    def _skips(self, new: TupleShape | Ref) -> bool:
        """Whether what is behind the last known place is skipped."""
        if isinstance(new, TupleShape):
            return False
        record = self._new[new.name]
        return record.form is Form.ARRAY and not record.closed

    def _row(self, shape: TupleShape | Ref, records: Mapping[str, Record]) -> list[Field] | None:
        """The places of an array, the tag of a Struct as one of them; None for a map."""
        if isinstance(shape, TupleShape):
            return [Field(str(number), one) for number, one in enumerate(shape.items)]
        record = records[shape.name]
        return None if record.form is Form.MAP else _wire(record)


def _wire(record: Record) -> list[Field]:
    """All that is stored of a record: its tag is a field too."""
    tag = [] if record.tag is None else [Field(record.tag[0], Values((record.tag[1],)))]
    return [*tag, *record.fields]


def _atoms(shape: Shape) -> Iterator[Shape]:
    """What a stored value of this shape may be, one by one."""
    match shape:
        case OneOf(options):
            for option in options:
                yield from _atoms(option)
        case Values(values):
            yield from (Values((value,)) for value in values)
        case _:
            yield shape


def _options(shape: Shape) -> Iterator[Shape]:
    if isinstance(shape, OneOf):
        for option in shape.options:
            yield from _options(option)
    else:
        yield shape


def _label(shape: Shape) -> str:
    """By which kinds of options are compared; records are looked into elsewhere."""
    return "record" if isinstance(shape, Ref) else type(shape).__name__ + str(shape)


def _scalars(old: Shape, new: Shape, path: str) -> _Changes:
    match old, new:
        case Scalar(), Scalar() if new.name == old.name or new.name in _WIDER.get(old.name, ()):
            _check_limits(old.limits, new, path)
            return [] if old == new else [_becomes(path, old, new)]
        case Values((value,)), Values(values):
            if any(type(one) is type(value) and one == value for one in values):
                return []
        case Values((value,)), Scalar(name) if _is_a(value, name):
            if _fits(value, new):
                return [_becomes(path, old, new)]
        case _:
            pass
    raise _unreadable(path, old, new)


def _is_a(value: int | str, name: str) -> bool:
    return name == "str" if isinstance(value, str) else name in ("int", "float", "Decimal")


def _fits(value: int | str, new: Scalar) -> bool:
    """Whether a known value keeps the limits; decided by whoever will check them."""
    kind = {"int": int, "float": float, "str": str}.get(new.name)
    if kind is None or not new.limits:
        return not new.limits
    limits = msgspec.Meta(**dict(new.limits))  # the names are those of Meta
    try:
        msgspec.convert(value, Annotated[kind, limits])
    except msgspec.ValidationError:
        return False
    return True


def _check_limits(
    known: Sequence[tuple[str, Any]], new: Items | Entries | Scalar, path: str
) -> None:
    for name, value in new.limits:
        if not implied(name, value, dict(known)):
            raise _UnreadableError(
                f"{path}: {new} has the limit {name}={value!r}, which stored values may not keep"
            )


def _check_moves(before: Sequence[Field], after: Sequence[Field], path: str) -> None:
    """Refuse a name that was at another place: what is stored there would be taken for it."""
    places = {one.name: index for index, one in enumerate(before)}
    for index, one in enumerate(after):
        if one.name.isdigit() or places.get(one.name, index) == index:
            continue
        raise _UnreadableError(
            f"{path}.{one.name} is at place {index} now and was at {places[one.name]}; places are what is stored, "
            f"so new ones go to the end and none is moved"
        )


def _added(one: Field, where: str, stored: Mapping[str, Field]) -> str:
    if one.required:
        raise _UnreadableError(f"{where} ({one.shape}) is new and has no default{_perhaps(stored)}")
    return (
        f"{where} is added, as {one.default}" if one.default else f"{where} is added, and missing"
    )


def _perhaps(stored: Mapping[str, Field]) -> str:
    """A hint at a name that may be the former one."""
    if not stored:
        return ""
    return f"; if it is what was {' or '.join(map(repr, stored))}, say so with msgspec.field(name=…) in a Struct"


def _names(fields: Mapping[str, Field]) -> str:
    return ", ".join(map(repr, fields))


def _becomes(path: str, old: Shape, new: Shape) -> str:
    return f"{path}: {old} → {new}"


def _unreadable(path: str, old: Shape, new: Shape) -> _UnreadableError:
    return _UnreadableError(f"{path}: {old} cannot be read as {new}")
