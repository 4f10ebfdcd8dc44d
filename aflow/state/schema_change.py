"""Schema compatibility: a comparison of two schemas decides if values of one type can be read as another type.

Theory. A value of a union or an enumeration is one of several *atoms*, each of which must be readable. If several
options of the new type can read an atom, the codec uses the best match, so one is enough. Records are compared field by
field: in a map by the names of stored fields, in an array by position. In an array a name at another position is
refused, since its value would be read as another field. A pair of records whose comparison has begun counts as
readable, so the comparison of recursive types ends.

The verdict holds for all values of the old type: it is ``Incompatible`` if one of them could not be read, or would
become another value without an error (a list as a set loses duplicates).
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


@dataclass(frozen=True, slots=True)
class Kept:
    """Equal schemas, except for names of classes."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """Stored values can be read; ``changes`` describes each difference for people."""

    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Some stored values cannot be read, or would become other values; ``reason`` names the field."""

    reason: str


Verdict: TypeAlias = Kept | Migrated | Incompatible

#: Other scalars as which a scalar can be read. Dates and similar types are stored as text.
_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"float", "Decimal"}),
    "float": frozenset({"Decimal"}),
    **dict.fromkeys(("date", "time", "timedelta", "UUID", "Decimal"), frozenset({"str"})),
}

#: Collections as which each kind is read without loss.
_COLLECTED: Final[Mapping[str, frozenset[str]]] = {
    "list": frozenset({"list", "tuple"}),
    "tuple": frozenset({"list", "tuple"}),
    "set": frozenset({"list", "tuple", "set", "frozenset"}),
    "frozenset": frozenset({"list", "tuple", "set", "frozenset"}),
}

#: Limits that may imply a limit; True if the bound must be beyond the other one, not equal.
_LOWER: Final = {"ge": {"ge": False, "gt": False}, "gt": {"gt": False, "ge": True}}
_UPPER: Final = {"le": {"le": False, "lt": False}, "lt": {"lt": False, "le": True}}


@lru_cache(maxsize=256)  # a snapshot has a description once for each key group
def compare(old: Schema, new: Schema) -> Verdict:
    """Return how values stored as ``old`` are read as ``new``."""
    comparison = _Comparison(old, new)
    try:
        changes = comparison.read(old.root, new.root, _root_path(new))
    except _UnreadableError as exc:
        return Incompatible(str(exc))
    return Migrated(tuple(dict.fromkeys(changes))) if changes else Kept()


def _root_path(new: Schema) -> str:
    return new.root.name if isinstance(new.root, Ref) else "value"


class _UnreadableError(Exception):
    """Signal of an incompatibility; the message is the reason."""


_Changes: TypeAlias = list[str]


class _Comparison:
    """One comparison: the records of both sides, and the pairs of them whose comparison has begun."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old.by_name
        self._new = new.by_name
        self._assumed: set[tuple[str, str, bool]] = set()

    def read(self, old: Shape, new: Shape, path: str) -> _Changes:
        """Return the differences between ``old`` and ``new``. Raises ``_UnreadableError``."""
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
        """Return the differences of the option without any, else of the first readable one."""
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
        """Compare an atom with a type that is no union. ``tagged``: records are distinguished by their tags."""
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
        unknown = {name: one for name, one in stored.items() if not _is_never_stored(one)}
        if unknown and after.closed:
            raise _UnreadableError(
                f"{path}: {_names(unknown)} is stored, and unknown fields are forbidden"
            )
        tag = None if before.tag is None else before.tag[0]
        return changes + [f"{path}.{name} is dropped" for name in stored if name != tag]

    def _check_tag(self, stored: Field | None, after: Record, path: str, *, tagged: bool) -> None:
        assert after.tag is not None
        name, value = after.tag
        if stored is None:
            if tagged or after.form is not Form.MAP:
                raise _UnreadableError(
                    f"{path}: the tag {name!r} is not stored, which distinguishes {value!r} from others"
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
        """Compare a record with a mapping: each name is a key."""
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
        """Compare an array of fixed length with a collection. A set would lose equal items."""
        places = self._row(old, self._old)
        if places is None or new.kind not in _COLLECTED["list"]:
            raise _unreadable(path, old, new)
        _check_limits((("max_length", len(places)), ("min_length", len(places))), new, path)
        for number, one in enumerate(places):
            self.read(one.shape, new.item, f"{path}[{number}]")
        return [_becomes(path, old, new)]

    def _places(self, old: TupleShape | Ref, new: TupleShape | Ref, path: str) -> _Changes:
        """Compare two arrays by position."""
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
                f"{path}: {gone} is stored after the last item of the tuple, and items of a tuple cannot be dropped"
            )
        changes += [f"{path}.{one.called or one.name} is dropped" for one in extra]
        return [*changes, _becomes(path, old, new)] if type(old) is not type(new) else changes

    def _skips(self, new: TupleShape | Ref) -> bool:
        """Return True if items after the last known position are skipped."""
        if isinstance(new, TupleShape):
            return False
        record = self._new[new.name]
        return record.form is Form.ARRAY and not record.closed

    def _row(self, shape: TupleShape | Ref, records: Mapping[str, Record]) -> list[Field] | None:
        """Return the items of an array, including the tag of a Struct; None for a map."""
        if isinstance(shape, TupleShape):
            return [Field(str(number), one) for number, one in enumerate(shape.items)]
        record = records[shape.name]
        return None if record.form is Form.MAP else _wire(record)


def _wire(record: Record) -> list[Field]:
    """Return all stored fields of a record, including its tag."""
    tag = [] if record.tag is None else [Field(record.tag[0], Values((record.tag[1],)))]
    return [*tag, *record.fields]


def _is_never_stored(field: Field) -> bool:
    """Return True for a field that is omitted at its default and has no other value."""
    return field.omitted and field.default == "None" and field.shape == Scalar("None")


def _atoms(shape: Shape) -> Iterator[Shape]:
    """Yield the alternatives of a stored value of this shape."""
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
    """Return a label by which options are compared; records are compared in detail elsewhere."""
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
    """Return True if a known value satisfies the limits, as checked by the decoder itself."""
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
        if not _implied(name, value, dict(known)):
            raise _UnreadableError(
                f"{path}: {new} has the limit {name}={value!r}, which stored values may violate"
            )


def _check_moves(before: Sequence[Field], after: Sequence[Field], path: str) -> None:
    """Raise ``_UnreadableError`` for a name that was at another position, whose value would be misread."""
    places = {one.name: index for index, one in enumerate(before)}
    for index, one in enumerate(after):
        if one.name.isdigit() or places.get(one.name, index) == index:
            continue
        raise _UnreadableError(
            f"{path}.{one.name} is at position {index} now and was at {places[one.name]}; values are stored by "
            f"position, so add new fields at the end and move none"
        )


def _added(one: Field, where: str, stored: Mapping[str, Field]) -> str:
    if one.required:
        raise _UnreadableError(f"{where} ({one.shape}) is new and has no default{_perhaps(stored)}")
    return (
        f"{where} is added, as {one.default}" if one.default else f"{where} is added, and missing"
    )


def _perhaps(stored: Mapping[str, Field]) -> str:
    """Return a hint at the names that may be the former one."""
    if not stored:
        return ""
    former = " or ".join(map(repr, stored))
    return f"; if it was renamed from {former}, declare that name with msgspec.field(name=…) in a Struct"


def _names(fields: Mapping[str, Field]) -> str:
    return ", ".join(map(repr, fields))


def _becomes(path: str, old: Shape, new: Shape) -> str:
    return f"{path}: {old} → {new}"


def _unreadable(path: str, old: Shape, new: Shape) -> _UnreadableError:
    return _UnreadableError(f"{path}: {old} cannot be read as {new}")


def _implied(name: str, value: Any, known: Mapping[str, Any]) -> bool:
    """Return True if all values that satisfy ``known`` satisfy the limit too, as ``ge=5`` implies ``ge=0``."""
    if known.get(name) == value or (name == "min_length" and value == 0):
        return True
    if name in _LOWER:
        return any(_beyond(known.get(one), value, strict) for one, strict in _LOWER[name].items())
    if name in _UPPER:
        return any(
            _beyond(_negated(known.get(one)), -value, strict)
            for one, strict in _UPPER[name].items()
        )
    if name == "min_length":
        return _beyond(known.get(name), value, False)
    if name == "max_length":
        return _beyond(_negated(known.get(name)), -value, False)
    if name == "multiple_of":
        return name in known and known[name] % value == 0
    return False


def _beyond(bound: Any, value: Any, strict: bool) -> bool:
    return bound is not None and (bound > value if strict else bound >= value)


def _negated(bound: Any) -> Any:
    return None if bound is None else -bound
