"""Bytes of records from an unknown origin: names in them are never imported or called."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, Flag
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.msgpack import Ext

from aflow.model.codecs import RECORDS, CodecError
from tests.stable_ids import stable

ran: list[str] = []


def boom(*_: object) -> Any:
    ran.append("boom")


@dataclass
class Computed:
    a: int = 0
    b: list[int] = field(default_factory=lambda: boom() or [])

    def __post_init__(self) -> None:
        boom()

    def __setstate__(self, state: object) -> None:
        boom()


@dataclass
class Defaults:
    a: int = 0
    b: list[int] = field(default_factory=lambda: boom() or [])


@dataclass
class Guarded:
    a: int

    @property
    def path(self) -> str:
        return ""

    @path.setter
    def path(self, value: str) -> None:
        boom()

    def __getattribute__(self, name: str) -> Any:
        boom()
        return object.__getattribute__(self, name)


class Checked(msgspec.Struct, frozen=True):
    a: int
    b: str = "b"

    def __post_init__(self) -> None:
        boom()


class Hooked(msgspec.Struct):
    a: int

    def __init_subclass__(cls, **more: Any) -> None:
        boom()

    def __post_init__(self) -> None:
        boom()


class Named(NamedTuple):
    a: int


class Level(Enum):
    LOW = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        boom()


class Right(Flag):
    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: object) -> Any:
        boom()
        return super()._missing_(value)


@dataclass
class Closing:
    path: str

    def __del__(self) -> None:
        boom()


class Local:
    @dataclass
    class Inner:
        a: int


Alias = Named


@pytest.fixture(autouse=True)
def nothing_ran() -> Any:
    ran.clear()
    yield
    ran.clear()


def forged(code: int, name: str, *parts: object) -> bytes:
    return msgspec.msgpack.encode(Ext(code, msgspec.msgpack.encode([name, *parts])))


def many(code: int, name: str, *parts: object) -> bytes:
    return msgspec.msgpack.encode(Ext(37, msgspec.msgpack.encode([code, name, *parts])))


def named(kind: type, fields: str) -> str:
    return f"{kind.__module__}:{kind.__qualname__}({fields})"


@pytest.mark.parametrize("make", [forged, many], ids=stable)
def test_a_module_that_is_not_imported_is_not_imported_by_decoding(
    make: Callable[..., bytes], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    with pytest.raises(
        CodecError, match=r"'planted_module' is not imported .* import its module in the program"
    ):
        RECORDS.decode(make(32, "planted_module:Order(a)", 1))

    assert "planted_module" not in sys.modules


def test_a_submodule_of_an_imported_package_is_not_imported() -> None:
    sys.modules.pop("wsgiref.handlers", None)

    with pytest.raises(CodecError, match="not imported"):
        RECORDS.decode(forged(32, "wsgiref.handlers:Order(a)", 1))

    assert "wsgiref.handlers" not in sys.modules


def test_hooks_of_modules_and_metaclasses_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meta(type):
        def __getattr__(cls, name: str) -> Any:
            boom()

    module = types.ModuleType("hooked_module")
    module.__getattr__ = boom  # type: ignore[method-assign]
    vars(module)["Outer"] = Meta("Outer", (), {})
    monkeypatch.setitem(sys.modules, "hooked_module", module)

    for name in ("Missing", "Outer.Missing", "Missing.__class__"):
        with pytest.raises(CodecError, match="no class"):
            RECORDS.decode(forged(32, f"hooked_module:{name}(a)", 1))

    assert ran == []


def test_a_lazy_module_is_not_loaded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lazy_module.py"
    path.write_text("raise SystemExit('loaded')\n")
    spec = importlib.util.spec_from_file_location("lazy_module", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    spec.loader.exec_module(module)

    with pytest.raises(CodecError, match="no class"):
        RECORDS.decode(forged(32, "lazy_module:Order(a)", 1))


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "os:path.join",
        f"{__name__}:boom",
        f"{__name__}:Alias",
        f"{__name__}:Computed.__init__",
        f"{__name__}:Computed.__class__",
        f"{__name__}:ran",
        f"{__name__}:Local.Inner.a",
        "builtins:eval",
        ":",
        "",
        "sys:modules",
    ],
)
@pytest.mark.parametrize("code", [32, 33, 34, 35])
def test_a_name_of_anything_but_a_class_is_refused(code: int, name: str) -> None:
    with pytest.raises(CodecError, match=r"no class|not imported|refers to"):
        RECORDS.decode(forged(code, f"{name}(a)", 1))

    assert ran == []


@pytest.mark.parametrize(
    ("kind", "fields", "parts"),
    [
        (Computed, "a,b", (1, [2])),
        (Guarded, "a", (1,)),
        (Checked, "a,b", (1, "c")),
    ],
    ids=stable,
)
@pytest.mark.parametrize("make", [forged, many], ids=stable)
def test_no_code_of_a_record_runs_when_it_is_made(
    make: Callable[..., bytes], kind: type, fields: str, parts: tuple[object, ...]
) -> None:
    code = 34 if kind is Checked else 32

    decoded: Any = RECORDS.decode(make(code, named(kind, fields), *parts))

    assert ran == []
    one = decoded[0] if make is many else decoded
    assert type(one) is kind
    assert tuple(object.__getattribute__(one, name) for name in fields.split(",")) == parts


def test_an_attribute_beside_the_fields_never_reaches_a_property() -> None:
    one: Any = RECORDS.decode(
        forged(32, named(Guarded, "a"), 1, {"path": "/etc", "__class__": "x"})
    )

    assert ran == []
    assert type(one) is Guarded


@pytest.mark.parametrize("parts", [(), (1,), (1, 2, 3), (1, [2], {}, 4)], ids=stable)
@pytest.mark.parametrize("kind", [Computed, Defaults], ids=stable)
def test_missing_and_additional_parts_are_refused(kind: type, parts: tuple[object, ...]) -> None:
    with pytest.raises(CodecError, match="does not have"):
        RECORDS.decode(forged(32, named(kind, "a,b"), *parts))

    assert ran == []


def test_members_of_enums_are_looked_up_without_running_code_of_the_class() -> None:
    with pytest.raises(CodecError):
        RECORDS.decode(forged(35, named(Level, ""), "HIGH"))
    assert RECORDS.decode(forged(35, named(Right, ""), 3)) == Right.READ | Right.WRITE

    assert ran == []


@pytest.mark.parametrize(("kind", "fields"), [(Closing, "path"), (Hooked, "a")], ids=stable)
def test_a_class_that_cannot_be_made_silently_is_refused_both_ways(kind: type, fields: str) -> None:
    made: Callable[[object], object] = kind
    code = 34 if kind is Hooked else 32
    with pytest.raises(CodecError, match=r"has a __del__|calling its __post_init__"):
        RECORDS.decode(forged(code, named(kind, fields), "x"))
    assert ran == []

    with pytest.raises(CodecError, match=r"has a __del__|calling its __post_init__"):
        RECORDS.encode(made("x"))


def nested(code: int, depth: int) -> bytes:
    data = b"\x90"
    for _ in range(depth):
        data = msgspec.msgpack.encode(Ext(code, b"\x91" + data))
    return data


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\xa1a",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x25",
        b"\xdc\xff\xff" * 10_000,
        b"\x91" * 100_000,
        nested(2, 3_000),
        nested(4, 3_000),
        forged(37, "x"),
        msgspec.msgpack.encode(Ext(37, b"\xc0")),
        msgspec.msgpack.encode(Ext(37, msgspec.msgpack.encode([32, 7, 1]))),
        msgspec.msgpack.encode(Ext(32, b"\x90")),
        msgspec.msgpack.encode(Ext(32, msgspec.msgpack.encode([{}, 1]))),
        msgspec.msgpack.encode(Ext(99, b"")),
        msgspec.msgpack.encode(
            Ext(6, msgspec.msgpack.encode(["2026-01-01", 0, "../../etc/passwd"]))
        ),
        msgspec.msgpack.encode(Ext(6, msgspec.msgpack.encode(["2026-01-01", 0, "planted.x/y"]))),
        msgspec.msgpack.encode(Ext(6, msgspec.msgpack.encode(["2026-01-01", 0, 10**18]))),
        msgspec.msgpack.encode(Ext(6, msgspec.msgpack.encode(["2026-01-01", 7, None]))),
    ],
    ids=lambda data: data[:12].hex() + f"…{len(data)}",
)
def test_bytes_that_no_codec_has_written_are_an_error_at_once(data: bytes) -> None:
    with pytest.raises(CodecError):
        RECORDS.decode(data)
