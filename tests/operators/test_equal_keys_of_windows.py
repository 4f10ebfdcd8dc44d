"""Equal keys of several types are one key in windows on disk, and in captures, as in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import pytest

from aflow.model.time import Timestamp
from aflow.state.backend_choice import DiskEngine
from tests.gradual import gradual_captures
from tests.operators.backends import ENGINES, using
from tests.operators.driver import Driver
from tests.operators.test_captures import OPERATORS, windows

VALUE = ("k", 1, 0)


def _push(driver: Driver, keys: Sequence[Hashable], at: Sequence[Timestamp]) -> None:
    driver.push(*[VALUE] * len(keys), at=at, keys=keys)


def _found(driver: Driver) -> list[tuple[Hashable, Timestamp]]:
    """Return key and start of each result: equal keys are equal here, too."""
    found = [(value.key, value.window.start) for value, _ in driver.new_records()]
    return sorted(found, key=lambda each: (each[1], hash(each[0])))


def _two_sessions_in_one_batch(driver: Driver) -> None:
    _push(driver, [1, True], [5, 11])
    _push(driver, [3], [4])
    driver.watermark(100)


def _a_session_that_another_type_of_key_extends(driver: Driver) -> None:
    _push(driver, [1], [-50])
    _push(driver, [True], [-40])
    driver.watermark(-20)
    _push(driver, [2, 3, 4, 5, 6, 1], [0, 0, 0, 0, 0, 50])
    driver.watermark(20)
    _push(driver, [1, True], [51, 70])
    driver.watermark(60)
    driver.watermark(100)
    _push(driver, [2, 3, 4, 5, 6, 7, 8], [200] * 7)
    _push(driver, [1], [201])
    driver.watermark(300)


def _rows_written_before_the_first_other_type(driver: Driver) -> None:
    _push(driver, range(2, 7), [1] * 5)
    _push(driver, range(100, 140), [1001] * 40)
    _push(driver, [2.5], [2001])
    driver.watermark(500)
    driver.watermark(5000)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("resident", [1, 4, 16])
@pytest.mark.parametrize(
    ("step", "story"),
    [
        ("sessions", _two_sessions_in_one_batch),
        ("sessions", _a_session_that_another_type_of_key_extends),
        ("general", _rows_written_before_the_first_other_type),
    ],
)
def test_windows_on_disk_have_the_results_of_those_in_memory(
    engine: DiskEngine, resident: int, step: str, story: Callable[[Driver], None]
) -> None:
    make = windows(lateness=0) if step == "general" else OPERATORS[step]
    in_memory = Driver(make)
    story(in_memory)
    expected = _found(in_memory)

    with using(engine, resident):
        on_disk = Driver(make)
        story(on_disk)

        assert _found(on_disk) == expected
        assert on_disk.operator.size().entries == in_memory.operator.size().entries
        on_disk.close()


def test_a_gradual_capture_stores_the_key_that_was_there() -> None:
    with gradual_captures():
        driver = Driver(OPERATORS["tumbling"])
        driver.push(VALUE, VALUE, VALUE, at=[1, 1, 1], keys=[2, 1, 3])
        captured = driver.operator.checkpoint(changes=False)
        assert captured is not None

        _push(driver, [True], [1])

        restored = Driver(OPERATORS["tumbling"]).restored(captured.encoded())
        restored.watermark(100)
        keys = [value.key for value, _ in restored.new_records()]
        assert sorted(map(repr, keys)) == ["1", "2", "3"]
