"""Classes of the main program are pickled by value for executors, also those that msgspec has cached."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors.spark.executor.serialization import dumps, modules_of

pytest.importorskip("pyspark", reason="pyspark is not installed")


@dataclass
class Place:
    city: str


DRIVER = """
from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import NamedTuple, TypedDict

import msgspec

from aflow.errors import FlowDefinitionError
from aflow_connectors.spark.executor.serialization import dumps

class Kind(Enum):
    A = "a"

class Pair(NamedTuple):
    kind: Kind
    number: int

class Row(TypedDict):
    pair: Pair
    day: date

@dataclass(frozen=True, slots=True)
class Payment:
    row: Row
    before: Payment | None = None

class Struct(msgspec.Struct):
    number: int

said = '{"row":{"pair":["a",1],"day":"2013-07-01"}}'
paid = msgspec.json.decode(said, type=Payment)
sys.stdout.buffer.write(dumps((Payment, lambda: msgspec.json.decode(said, type=Payment))))
assert msgspec.json.decode(said, type=Payment) == paid

try:
    dumps(lambda: Struct(1))
except FlowDefinitionError as error:
    print(error, file=sys.stderr)
"""

EXECUTOR = """
import pickle, sys
payment, decode = pickle.load(sys.stdin.buffer)
print(type(decode()) is payment, decode())
"""


def run(code: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, timeout=300, cwd=root
    )
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.mark.slow
def test_classes_that_msgspec_has_seen_come_as_they_are_and_structs_are_refused_by_name() -> None:
    driver = run(DRIVER)

    executor = run(EXECUTOR, driver.stdout)

    assert executor.stdout.decode().strip() == (
        "True Payment(row={'pair': Pair(kind=<Kind.A: 'a'>, number=1), "
        "'day': datetime.date(2013, 7, 1)}, before=None)"
    )
    assert driver.stderr.decode().strip() == (
        "Struct is a msgspec.Struct of the main program, which cannot be sent to executors as it is: put it into a "
        "module that they can import, or make a dataclass of it"
    )


def test_a_struct_that_is_defined_inside_a_function_is_refused_by_name() -> None:
    class Local(msgspec.Struct):
        number: int

    with pytest.raises(FlowDefinitionError) as refused:
        dumps(lambda: Local(1))

    assert str(refused.value) == (
        f"{Local.__qualname__} is a msgspec.Struct that is defined inside a function, which cannot be sent to "
        f"executors: define it at the top of a module that they can import, or make a dataclass of it"
    )


def test_annotations_of_a_class_inside_a_function_are_looked_up_before_it_is_sent() -> None:
    @dataclass
    class Local:
        place: Place

    sent: type[Any] = pickle.loads(dumps(Local))

    assert sent.__annotations__ == {"place": Place}


def test_the_modules_that_a_pickle_refers_to_are_found() -> None:
    def local(city: str) -> bytes:
        return msgspec.json.encode(Decimal(city))

    found = {one for one in modules_of([local, Place("Oslo")]) if "cloudpickle" not in one}

    assert found == {"decimal", "msgspec", "msgspec.json", __name__}
    assert modules_of({"none": [1, "of", b"these"]}) == []


def test_modules_that_are_pickled_by_value_are_not_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark import cloudpickle

    pickler: Any = cloudpickle
    prices = ModuleType("prices")
    exec("def price(): return 1", vars(prices))
    monkeypatch.setitem(sys.modules, "prices", prices)
    value = [prices, prices.price]
    assert "prices" in modules_of(value)

    pickler.register_pickle_by_value(prices)
    try:
        assert "prices" not in modules_of(value)
    finally:
        pickler.unregister_pickle_by_value(prices)
