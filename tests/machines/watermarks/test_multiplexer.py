"""One watermark out of those of the splits that a source reads. Flink's facts are in tests/conformance."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aflow.errors import InternalError
from aflow.machines.watermarks.multiplexer import SplitMultiplexer
from aflow.model.time import MIN_TIMESTAMP


def splits(**watermarks: int) -> SplitMultiplexer:
    """A multiplexer with splits at these watermarks."""
    multiplexer = SplitMultiplexer()
    for split in watermarks:
        multiplexer.add(split)
    for split, watermark in watermarks.items():
        multiplexer.on_watermark(split, watermark, immediate=True)
    return multiplexer


def test_the_slowest_split_decides() -> None:
    multiplexer = splits(a=5, b=3)

    assert multiplexer.watermark == 3
    assert multiplexer.on_watermark("b", 9, immediate=True) == 5
    assert multiplexer.on_watermark("b", 10, immediate=True) is None


def test_a_new_split_holds_the_watermark_until_it_has_one() -> None:
    multiplexer = splits(a=5)
    multiplexer.add("b")

    assert multiplexer.on_watermark("a", 8, immediate=True) is None
    assert multiplexer.on_watermark("b", 2, immediate=True) is None
    assert multiplexer.on_watermark("b", 7, immediate=True) == 7


def test_an_empty_split_does_not_hold_time_once_it_is_removed() -> None:
    multiplexer = splits(a=5)
    multiplexer.add("empty")
    multiplexer.on_watermark("a", 8, immediate=True)

    assert multiplexer.remove("empty")
    assert multiplexer.on_periodic() == 8


def test_an_idle_split_does_not_hold_time_and_can_be_removed() -> None:
    multiplexer = splits(a=5, b=3)

    assert multiplexer.on_idle("b") == 5
    assert not multiplexer.idle
    assert multiplexer.remove("b")
    assert not multiplexer.remove("b")


def test_a_source_is_idle_when_all_its_splits_are_and_time_stops() -> None:
    multiplexer = splits(a=5, b=3)

    assert [multiplexer.on_idle("a"), multiplexer.on_idle("b")] == [None, None]
    assert (multiplexer.idle, multiplexer.watermark) == (True, 3)


def test_a_source_whose_only_active_split_is_removed_is_idle() -> None:
    multiplexer = splits(a=5, b=3)
    multiplexer.on_idle("a")
    multiplexer.remove("b")

    assert multiplexer.on_periodic() is None
    assert multiplexer.idle


def test_a_source_without_splits_is_not_idle() -> None:
    multiplexer = splits(a=5)
    multiplexer.on_idle("a")
    multiplexer.remove("a")

    assert multiplexer.on_periodic() is None
    assert not multiplexer.idle


def test_a_record_makes_an_idle_split_count_again_without_a_new_watermark() -> None:
    multiplexer = splits(a=5, b=3)
    multiplexer.on_idle("b")

    assert multiplexer.on_active("b") is None
    assert multiplexer.on_watermark("a", 9, immediate=True) is None
    assert multiplexer.on_watermark("b", 6, immediate=True) == 6


def test_a_watermark_makes_an_idle_source_active() -> None:
    multiplexer = splits(a=5)
    multiplexer.on_idle("a")

    assert multiplexer.on_watermark("a", 4, immediate=True) is None
    assert not multiplexer.idle


def test_a_deferred_watermark_counts_at_the_next_period() -> None:
    multiplexer = splits(a=5, b=5)

    assert multiplexer.on_watermark("a", 8, immediate=False) is None
    assert multiplexer.on_idle("b", immediate=False) is None
    assert multiplexer.watermark == 5
    assert multiplexer.on_periodic() == 8


def test_a_deferred_watermark_counts_with_the_next_immediate_one() -> None:
    multiplexer = splits(a=5, b=5)
    multiplexer.on_watermark("a", 8, immediate=False)

    assert multiplexer.on_watermark("b", 7, immediate=True) == 7


def test_a_split_cannot_be_added_twice() -> None:
    multiplexer = splits(a=5, b=5)
    multiplexer.on_idle("b")

    for split in ("a", "b"):
        with pytest.raises(InternalError, match=f"split '{split}' was added already"):
            multiplexer.add(split)


USES: list[Callable[[SplitMultiplexer], object]] = [
    lambda multiplexer: multiplexer.on_watermark("x", 1, immediate=True),
    lambda multiplexer: multiplexer.on_idle("x"),
    lambda multiplexer: multiplexer.on_active("x"),
]


@pytest.mark.parametrize("use", USES, ids=["watermark", "idle", "active"])
def test_an_unknown_split_is_an_internal_error(
    use: Callable[[SplitMultiplexer], object],
) -> None:
    with pytest.raises(InternalError, match="'x' was never added"):
        use(splits(a=1))


names = st.sampled_from("abc")


class MultiplexerRules(RuleBasedStateMachine):
    """Against the minimum over the active splits, computed from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.multiplexer = SplitMultiplexer()
        self.seen: dict[str, int] = {}
        self.silent: set[str] = set()
        self.output = MIN_TIMESTAMP
        self.idle = False

    @rule(split=names)
    def add_or_remove(self, split: str) -> None:
        if split in self.seen:
            assert self.multiplexer.remove(split)
            del self.seen[split]
            self.silent.discard(split)
        else:
            assert not self.multiplexer.remove(split)
            self.multiplexer.add(split)
            self.seen[split] = MIN_TIMESTAMP

    @rule(split=names, at=st.integers(-5, 20), immediate=st.booleans())
    def watermark(self, split: str, at: int, immediate: bool) -> None:
        if split in self.seen:
            self.seen[split] = max(self.seen[split], at)
            self.silent.discard(split)
            said = self.multiplexer.on_watermark(split, at, immediate=immediate)
            assert said == self.combined(immediate)

    @rule(split=names, immediate=st.booleans())
    def falls_silent(self, split: str, immediate: bool) -> None:
        if split in self.seen:
            self.silent.add(split)
            said = self.multiplexer.on_idle(split, immediate=immediate)
            assert said == self.combined(immediate)

    @rule(split=names, immediate=st.booleans())
    def speaks(self, split: str, immediate: bool) -> None:
        if split in self.seen:
            self.silent.discard(split)
            said = self.multiplexer.on_active(split, immediate=immediate)
            assert said == self.combined(immediate)

    @rule()
    def period(self) -> None:
        assert self.multiplexer.on_periodic() == self.combined(True)

    @invariant()
    def what_can_be_asked_is_right(self) -> None:
        assert (self.multiplexer.watermark, self.multiplexer.idle) == (self.output, self.idle)

    def combined(self, computed: bool) -> int | None:
        if not computed:
            return None
        active = [at for split, at in self.seen.items() if split not in self.silent]
        self.idle = bool(self.seen) and not active
        if not active or min(active) <= self.output:
            return None
        self.output = min(active)
        return self.output


TestMultiplexerRules = MultiplexerRules.TestCase
