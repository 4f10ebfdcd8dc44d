"""Forms of records: how ``RECORDS`` takes instances of a class apart into values, and makes them again.

There are four forms: dataclasses, named tuples, ``msgspec.Struct`` and enums. ``form_of`` inspects a class once; the
form serves for all instances. A *header*, ``module:qualified name(fields, …)``, identifies a class. ``form_named``
finds the class of a header in another process, among the classes that are imported there: see ``class_lookup``. It
accepts only a class of the same form with the same fields.

Making an instance runs no code of the class: headers and parts may be from a file that was tampered with. A class of
which instances cannot be made in that way has no form, and is refused when an instance is to be stored.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, EnumType, Flag, IntEnum
from functools import cached_property, lru_cache, partial
from itertools import chain
from operator import attrgetter, itemgetter
from types import MemberDescriptorType
from typing import Any, Final, cast

import msgspec
from msgspec.structs import force_setattr

from aflow.model.codecs.base import CodecError
from aflow.model.codecs.class_lookup import known_class

#: Set where a class is built in: instances of classes that derive from such a one hold more than fields.
_HEAP_TYPE: Final = 1 << 9

#: Attributes of one instance besides its fields.
More = dict[str, object]

_NOTHING: Final[More] = {}

#: Makes an instance of any class without built-in bases.
_new: Final = cast("Callable[[type], Any]", object.__new__)


class FormCode(IntEnum):
    """The form of a class, as it is stored; these numbers never change."""

    DATACLASS = 32
    NAMED_TUPLE = 33
    STRUCT = 34
    ENUM = 35


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordForm:
    """Takes instances of one class apart, and makes them again."""

    code: int
    header: str
    width: int
    """Number of parts of an instance."""
    parts: Callable[[Any], Sequence[object]]
    """Returns the parts of an instance."""
    more: Callable[[Any], More]
    """Returns its attributes besides them."""
    rows: Callable[[list[Any]], Iterable[Sequence[object]] | None]
    """Returns the parts of each of some instances; None if one may have other attributes."""
    make: Callable[[Sequence[Any]], Any]
    """Return the instance of exactly ``width`` parts, without running any code of the class."""
    called: Callable[..., Any] | None = None
    """The class, if a call of it with the parts makes the same instance; else None."""
    by_dict: bool = False
    """True if the parts of an instance are in its ``__dict__``, and nowhere else."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the parts."""
        return tuple(self.header.partition("(")[2][:-1].split(","))

    @property
    def closed(self) -> bool:
        """True if an instance cannot have other attributes."""
        return self.more is _no_more


def form_of(kind: type[Any]) -> RecordForm:
    """Return the form of ``kind``. Raises ``CodecError`` for a class that is not of the four forms."""
    form = _form_of(kind)
    if inspect.getattr_static(kind, "__del__", None) is not None:
        raise CodecError(
            f"{kind.__module__}.{kind.__qualname__} has a __del__, which would run for each restored instance; "
            f"remove it, or store records of another type"
        )
    return form


def _form_of(kind: type[Any]) -> RecordForm:
    if issubclass(kind, Enum):
        return _of_enum(kind)
    if issubclass(kind, msgspec.Struct):
        return _of_struct(kind)
    if (fields := _names_of_items(kind)) is not None:
        return _of_named_tuple(kind, fields)
    if dataclasses.is_dataclass(kind) and not _built_in_base(kind, {object}):
        return _of_dataclass(kind)
    raise CodecError(
        f"{kind.__module__}.{kind.__qualname__} is neither a plain Python type nor a dataclass, NamedTuple, Struct or "
        f"enum; make it one of them"
    )


@lru_cache(maxsize=1024)
def form_named(code: int, header: str) -> RecordForm:
    """Return the form of the class that ``header`` names. Raises ``CodecError``, also if its module is not imported."""
    name, _, fields = header.partition("(")
    found = known_class(name)
    form = form_of(found)
    if form.code != code:
        raise CodecError(f"{name} is a {FormCode(form.code).name.lower().replace('_', ' ')} now")
    if form.header.partition("(")[2] != fields:
        raise CodecError(
            f"{name} had the fields ({fields}, and is now {form.header}; restore with the class as it was, "
            f"or from a savepoint, which holds no records in flight between steps"
        )
    return form


def _header(kind: type, fields: Iterable[str]) -> str:
    """Raise ``CodecError`` if ``kind`` would not be found by its name."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not kind:
        raise CodecError(
            f"{name} cannot be found by its name when it is read; define the class at the top of a module"
        )
    return f"{name}({','.join(fields)})"


def _built_in_base(kind: type, known: set[type]) -> bool:
    return any(not base.__flags__ & _HEAP_TYPE and base not in known for base in kind.__mro__)


def _of_enum(kind: type[Enum]) -> RecordForm:
    return RecordForm(
        code=FormCode.ENUM.value,
        header=_header(kind, ()),
        width=1,
        parts=_member,
        more=_no_more,
        rows=partial(map, _member),
        make=partial(_enum, kind),
    )


def _member(value: Enum) -> Sequence[object]:
    """Return its name; of a flag the number, since a combination has no name of its own."""
    return (value.value if isinstance(value, Flag) else value.name,)


def _enum(kind: type[Enum], parts: Sequence[Any]) -> Enum:
    """Return a member without calling ``__getitem__`` of a metaclass, or ``__new__`` and ``_missing_`` of the class."""
    if not issubclass(kind, Flag):
        return EnumType.__getitem__(kind, parts[0])
    known: Mapping[object, Enum] = kind._value2member_map_
    member = known.get(parts[0])
    return member if member is not None else _combination(kind, parts[0])


def _combination(kind: type[Flag], value: int) -> Flag:
    missing = vars(Flag)["_missing_"]  # a classmethod, which a subclass may have replaced
    return cast("Flag", missing.__func__(kind, value))


def _names_of_items(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the field names, or None if it is no named tuple."""
    fields: object = getattr(kind, "_fields", None)
    is_one = tuple in kind.__mro__ and isinstance(fields, tuple)
    return cast("tuple[str, ...]", fields) if is_one else None


def _of_named_tuple(kind: type[Any], fields: tuple[str, ...]) -> RecordForm:
    new = cast("Callable[[type, Sequence[Any]], Any]", tuple.__new__)
    more = partial(_dict_without, kind, frozenset[str]())
    return RecordForm(
        code=FormCode.NAMED_TUPLE.value,
        header=_header(kind, fields),
        width=len(fields),
        parts=_itself,
        more=_no_more if kind.__dictoffset__ == 0 else more,
        rows=_itself if kind.__dictoffset__ == 0 else lambda values: None,
        make=partial(new, kind),
    )


def _itself(value: Any) -> Any:
    return value


def _no_more(value: object) -> More:
    return _NOTHING


def _of_struct(kind: type[msgspec.Struct]) -> RecordForm:
    fields = kind.__struct_fields__
    has_dict = kind.__struct_config__.dict
    parts = _attributes(fields)
    return RecordForm(
        code=FormCode.STRUCT.value,
        header=_header(kind, fields),
        width=len(fields),
        parts=parts,
        more=partial(_dict_without, kind, frozenset[str]()) if has_dict else _no_more,
        rows=(lambda values: None) if has_dict else partial(map, parts),
        make=_struct_maker(kind, fields),
    )


def _struct_maker(
    kind: type[msgspec.Struct], fields: tuple[str, ...]
) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes instances. Raises ``CodecError`` if that would run code of the class."""
    by_place = all(
        one.kind is one.POSITIONAL_OR_KEYWORD for one in inspect.signature(kind).parameters.values()
    )
    silent = _without_post_init(kind) if hasattr(kind, "__post_init__") else kind

    def make(parts: Sequence[Any]) -> msgspec.Struct:
        return silent(*parts) if by_place else silent(**dict(zip(fields, parts, strict=True)))

    def make_silently(parts: Sequence[Any]) -> msgspec.Struct:
        made = make(parts)
        force_setattr(made, "__class__", kind)
        return made

    return make if silent is kind else make_silently


def _no_post_init(_made: object) -> None:
    return None


def _without_post_init(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a class of the same layout with a ``__post_init__`` that does nothing.

    ``msgspec`` calls ``__post_init__`` whenever it makes an instance. So an instance of this class is made, and becomes
    one of ``kind`` afterwards.
    """
    own_hook = getattr(kind.__init_subclass__, "__func__", None) is not None
    if type(kind) is not msgspec.StructMeta or own_hook:
        raise CodecError(
            f"{kind.__module__}.{kind.__qualname__} cannot be made without calling its __post_init__, since it has a "
            f"metaclass or an __init_subclass__ of its own; remove that, or declare the type with of="
        )
    body: dict[str, Any] = {"__module__": kind.__module__, "__post_init__": _no_post_init}
    return cast("type[msgspec.Struct]", msgspec.StructMeta(kind.__name__, (kind,), body))


def _of_dataclass(kind: type) -> RecordForm:
    fields = tuple(field.name for field in dataclasses.fields(kind))
    for field in fields:
        if _has_setter(kind, field):
            raise CodecError(
                f"{kind.__module__}.{kind.__qualname__}.{field} is set by a descriptor, which would run code"
            )
    slots = {
        name
        for one in kind.__mro__
        for name, held in vars(one).items()
        if isinstance(held, MemberDescriptorType)
    }
    form = partial(
        RecordForm, code=FormCode.DATACLASS.value, header=_header(kind, fields), width=len(fields)
    )
    quick = _by_init(kind) if _init_is_made(kind, fields) else None
    if kind.__dictoffset__ == 0 and slots == set(fields):
        parts = _attributes(fields)
        make = quick or _slots_maker(kind, fields)
        called = kind if quick else None
        return form(parts=parts, more=_no_more, rows=partial(map, parts), make=make, called=called)
    by_dict = quick or partial(_by_dict, kind, fields)
    return form(
        parts=_attributes(fields),
        more=partial(_beside, kind, frozenset(fields), tuple(slots - set(fields))),
        rows=(lambda values: None) if slots or not fields else _dict_rows(fields),
        make=partial(_by_attribute, kind, fields) if slots else by_dict,
        called=None if slots or quick is None else kind,
        by_dict=not slots,
    )


def _init_is_made(kind: type[Any], fields: tuple[str, ...]) -> bool:
    """Return True if ``dataclass`` generated ``__init__``, and it only sets the fields, in their order.

    Then it is the fastest way to make an instance, and its call has no other effect.
    """
    code = getattr(vars(kind).get("__init__"), "__code__", None)
    return (
        type(kind) is type
        and cast(object, kind.__new__) is object.__new__
        and not hasattr(kind, "__post_init__")
        and code is not None
        and code.co_filename == "<string>"
        and code.co_kwonlyargcount == 0
        and code.co_varnames[1 : code.co_argcount] == fields
        # A __setattr__ of the user would notice.
        and (_setter(kind) is _setter(object) or kind.__dataclass_params__.frozen)
    )


def _setter(kind: type) -> object:
    return kind.__setattr__


def _by_init(kind: type[Any]) -> Callable[[Sequence[Any]], Any]:
    def make(parts: Sequence[Any]) -> Any:
        return kind(*parts)

    return make


def _has_setter(kind: type, field: str) -> bool:
    static: object = inspect.getattr_static(kind, field, None)
    return hasattr(type(static), "__set__") and not isinstance(static, MemberDescriptorType)


def _attributes(fields: tuple[str, ...]) -> Callable[[Any], Sequence[object]]:
    if len(fields) > 1:
        return attrgetter(*fields)
    return lambda value: [getattr(value, field) for field in fields]


def _dict_rows(
    fields: tuple[str, ...],
) -> Callable[[list[Any]], Iterable[Sequence[object]] | None]:
    take: Callable[[Any], Sequence[object]] = (
        itemgetter(*fields) if len(fields) > 1 else lambda held: [held[field] for field in fields]
    )

    def rows(values: list[Any]) -> Iterable[Sequence[object]] | None:
        held = [value.__dict__ for value in values]
        if set(map(len, held)) != {len(fields)}:
            return None
        try:
            return list(map(take, held))
        except KeyError:  # as many, but others: a field that was deleted, or is a property
            return None

    return rows


def _slots_maker(kind: type, fields: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    setters = [cast("Callable[[Any, Any], None]", getattr(kind, field).__set__) for field in fields]

    def make(parts: Sequence[Any]) -> Any:
        made = _new(kind)
        for put, part in zip(setters, parts, strict=True):
            put(made, part)
        return made

    return make


def _by_dict(kind: type, fields: tuple[str, ...], parts: Sequence[Any]) -> Any:
    made = _new(kind)
    _dict_of(made).update(zip(fields, parts, strict=True))
    return made


def _by_attribute(kind: type, fields: tuple[str, ...], parts: Sequence[Any]) -> Any:
    made = _new(kind)
    put(made, dict(zip(fields, parts, strict=True)))
    return made


def put(made: object, more: More) -> None:
    """Set attributes of an instance made by ``RecordForm.make``, also of a frozen class.

    An attribute is set in its slot or in the ``__dict__``, whatever properties the class has. Raises
    ``AttributeError`` if there is neither.
    """
    for name, held in more.items():
        slot: object = inspect.getattr_static(type(made), name, None)
        if isinstance(slot, MemberDescriptorType):
            slot.__set__(made, held)
        else:
            _dict_of(made)[name] = held


def _dict_of(made: object) -> dict[str, object]:
    """Return ``made.__dict__``, without calling a ``__getattribute__`` of its class."""
    return cast("dict[str, object]", object.__getattribute__(made, "__dict__"))


def _beside(kind: type, fields: frozenset[str], slots: tuple[str, ...], value: object) -> More:
    more = _dict_without(kind, fields, value)
    return {**more, **{name: getattr(value, name) for name in slots if hasattr(value, name)}}


def _dict_without(kind: type, fields: frozenset[str], value: object) -> More:
    """Return the ``__dict__`` without fields, type parameters of ``typing``, and cached properties."""
    held = getattr(value, "__dict__", None)
    if not held:
        return _NOTHING
    return {
        name: one
        for name, one in held.items()
        if name not in fields
        and name != "__orig_class__"
        and not isinstance(inspect.getattr_static(kind, name, None), cached_property)
    }


def flat(rows: Iterable[Sequence[object]]) -> list[object]:
    """Return the parts of all rows in one list."""
    return list(chain.from_iterable(rows))
