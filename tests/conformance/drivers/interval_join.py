"""interval_join.json: one key, two inputs, and their state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aflow.errors import OperatorError
from aflow.model.codecs import codec_for
from aflow.model.tags import Tag
from aflow.operators.joins.columns import decoded
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.join import LATE_LEFT, LATE_RIGHT
from aflow.testing import At, TwoInputHarness
from tests.conformance.driver import NOTHING, Driver, Outcome
from tests.conformance.scenarios import Json, UnknownWord

#: Names of the late outputs in the data.
_OUTPUTS: Final = {"left_late": LATE_LEFT, "right_late": LATE_RIGHT}

_EVERY_PAIR: Final = (
    "context left ts = left element ts; context right ts = right element ts; "
    "output ts = the larger of both"
)


@dataclass(frozen=True)
class _Record:
    """Its side and its timestamp are all that a record has."""

    side: str
    ts: int


class IntervalJoin(Driver):
    """A join in one subtask. ``late_side_outputs`` are those with a reader."""

    def __init__(
        self,
        *,
        lower: int,
        lower_inclusive: bool,
        upper: int,
        upper_inclusive: bool,
        key: str,
        late_side_outputs: Sequence[str] = (),
    ) -> None:
        if key != "one key":
            raise UnknownWord(f"key {key!r}")
        if unknown := set(late_side_outputs) - set(_OUTPUTS):
            raise UnknownWord(f"late outputs {unknown}")
        self._read = late_side_outputs

        def operator() -> IntervalJoinOperator:
            return IntervalJoinOperator(
                lower,
                upper,
                lambda left, right: (left, right),
                lower_inclusive=lower_inclusive,
                upper_inclusive=upper_inclusive,
                left_type=_Record,
                right_type=_Record,
            )

        self._step = TwoInputHarness[_Record, _Record, tuple[_Record, _Record]](
            operator, left_key=lambda _: key, right_key=lambda _: key
        )
        #: Number of pairs that are checked already.
        self._seen = 0

    def do_left(self, ts: int | None) -> Outcome:
        return self._pushed(lambda: self._step.left(_Record("left", ts or 0), ts))

    def do_right(self, ts: int | None) -> Outcome:
        return self._pushed(lambda: self._step.right(_Record("right", ts or 0), ts))

    def do_left_watermark(self, ts: int) -> None:
        self._step.left_watermark(ts)

    def do_right_watermark(self, ts: int) -> None:
        self._step.right_watermark(ts)

    def do_snapshot_and_restore(self, yes: bool) -> None:
        assert yes
        self._step.restart()

    def see_output(self) -> list[Json]:
        return [{"left": left.ts, "right": right.ts, "ts": at} for left, right, at in self._pairs()]

    def see_new_output(self) -> list[Json]:
        new = self.see_output()[self._seen :]
        self._seen += len(new)
        return new

    def see_late_output(self) -> list[Json]:
        return [late for name in _OUTPUTS for late in self._late(name)]

    def see_left_late(self) -> list[Json]:
        return self._late("left_late")

    def see_right_late(self) -> list[Json]:
        return self._late("right_late")

    def see_left_buffer(self) -> list[int]:
        return self._kept("@left")

    def see_right_buffer(self) -> list[int]:
        return self._kept("@right")

    def see_for_every_pair(self, expected: str) -> str:
        if expected != _EVERY_PAIR:
            raise UnknownWord(f"what holds when {expected!r}?")
        wrong = [
            (left, right, at)
            for left, right, at in self._pairs()
            if (left.side, right.side, at) != ("left", "right", max(left.ts, right.ts))
        ]
        return f"not for {wrong}" if wrong or not self._pairs() else _EVERY_PAIR

    def _pushed(self, push: Callable[[], None]) -> Outcome:
        try:
            push()
        except OperatorError as exc:
            if "have no timestamps" in str(exc):
                return {"raises": "missing_timestamp"}
            raise
        return NOTHING

    def _pairs(self) -> list[tuple[_Record, _Record, object]]:
        return [
            (*element.value, element.timestamp)
            for element in self._step.output
            if isinstance(element, At)
        ]

    def _late(self, name: str) -> list[Json]:
        """Return the records of a late output: none without a reader."""
        if name not in self._read:
            return []
        return [{"ts": one.value.ts} for one in self._step.side(Tag[_Record](_OUTPUTS[name]))]

    def _kept(self, name: str) -> list[int]:
        """Return the timestamps of one input in a snapshot; expired ones may be in memory a little longer."""
        snapshot = self._step.snapshot()
        assert snapshot is not None
        return [
            at
            for names in snapshot.keyed.values()
            for _, data in names.get(name, ())
            for at in decoded(data, codec_for(_Record))[0]
        ]
