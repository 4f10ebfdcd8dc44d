"""Instances that are decoded before the program has made any take no more memory than others."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, make_dataclass
from types import GenericAlias
from typing import Any

from aflow.model.codecs import codec_for
from aflow.model.codecs.attribute_names import teach_attribute_names


def fresh() -> type[Any]:
    """Return a class without instances."""
    return make_dataclass("Fresh", [("visits", int), ("first", int), ("last", int)])


def size_of(instance: object) -> int:
    return sys.getsizeof(instance) + sys.getsizeof(instance.__dict__)


def test_the_first_decoded_instance_is_as_small_as_any() -> None:
    known, kind = fresh(), fresh()
    made = [known(1, 2, 3) for _ in range(100)]

    instance = codec_for(kind).decode(b"\x83\xa6visits\x01\xa5first\x02\xa4last\x03")

    assert instance == kind(1, 2, 3)
    assert size_of(instance) <= size_of(made[-1])


def test_so_is_one_inside_of_another_type() -> None:
    known, kind = fresh(), fresh()
    made = [known(1, 2, 3) for _ in range(100)]
    many: type[list[Any]] = GenericAlias(list, (kind,))  # type: ignore[assignment]  # a type at runtime

    [instance] = codec_for(many).decode(b"\x91\x83\xa6visits\x01\xa5first\x02\xa4last\x03")

    assert instance == kind(1, 2, 3)
    assert size_of(instance) <= size_of(made[-1])


def test_no_code_of_the_class_runs() -> None:
    calls: list[str] = []

    @dataclass
    class Watched:
        name: str

        def __new__(cls, *_: object) -> Watched:
            calls.append("new")
            return object.__new__(cls)

        def __setattr__(self, name: str, value: object) -> None:
            calls.append(name)

    class Ended(Watched):
        def __del__(self) -> None:
            calls.append("del")

    class Computed:
        @property
        def name(self) -> str:
            return ""

        @name.setter
        def name(self, value: str) -> None:
            calls.append("setter")

    for kind in (Watched, Ended, Computed):
        teach_attribute_names(kind, ["name"])

    assert calls == []


def test_classes_whose_instances_object_cannot_make_are_left_alone() -> None:
    class Abstract(ABC):
        name = ""

        @abstractmethod
        def act(self) -> None: ...

    class Words(dict[str, int]):
        name = ""

    @dataclass(slots=True)
    class Slotted:
        name: str

    for kind in (Abstract, Words, Slotted):
        teach_attribute_names(kind, ["name"])

    assert Slotted("a").name == "a"
