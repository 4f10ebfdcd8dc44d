"""watermarks.json: the valve, generators, idleness and the split multiplexer; see ``alignment.py`` for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from aflow.machines.watermarks.generators import BoundedOutOfOrderness, Idleness
from aflow.machines.watermarks.multiplexer import SplitMultiplexer
from aflow.machines.watermarks.valve import WatermarkValve
from aflow.model.elements import Active, Idle, Watermark
from tests.conformance.driver import Driver, Outcome, call, number
from tests.conformance.scenarios import Json, UnknownWord


class Valve(Driver):
    """Combines channels."""

    def __init__(self, *, channels: int) -> None:
        self._valve = WatermarkValve(channels)
        self._idle: set[int] = set()

    def do_watermark(self, channel: int, ts: int | str) -> Outcome:
        combined = self._valve.on_watermark(channel, number(ts))
        return _emits([] if combined is None else [Watermark(combined)])

    def do_status(self, channel: int, value: str) -> Outcome:
        match value:
            case "idle":
                self._idle.add(channel)
                return _emits(self._valve.on_idle(channel))
            case "active":
                self._idle.discard(channel)
                return _emits(self._valve.on_active(channel))
            case _:
                raise UnknownWord(f"status {value!r}")

    def see_channel_watermark(self, expected: dict[str, int]) -> dict[str, int]:
        return {channel: self._valve.watermark_of(int(channel)) for channel in expected}

    def see_channel_aligned(self, expected: dict[str, bool]) -> dict[str, bool]:
        return {channel: self._is_aligned(int(channel)) for channel in expected}

    def _is_aligned(self, channel: int) -> bool:
        """Return True if the channel is active and has reached the last output."""
        reached = self._valve.watermark_of(channel) >= self._valve.watermark
        return reached and channel not in self._idle


class Generator(Driver):
    """Makes watermarks out of timestamps."""

    def __init__(self, *, generator: Json) -> None:
        self._generator = call(_bounded, generator)

    def do_event(self, ts: int | str) -> Outcome:
        return {"emits": self._generator.on_event(None, number(ts))}

    def do_periodic_emit(self) -> Outcome:
        return {"emits": self._generator.on_periodic()}


class IdlenessTimer(Driver):
    """Says when a split has been silent for too long. Without ``timeout_ms`` there is only the attempt to make one."""

    def __init__(self, *, timeout_ms: int | None = None) -> None:
        self._idleness = None if timeout_ms is None else Idleness(timeout_ms)
        self._now = 0

    def do_construct(self, idleness: int) -> None:
        Idleness(idleness)

    def do_advance_clock_ms(self, by: int) -> None:
        self._now += by

    def do_activity(self) -> None:
        assert self._idleness is not None
        self._idleness.active(self._now)

    def do_check_if_idle(self) -> Outcome:
        assert self._idleness is not None
        return {"returns": self._idleness.is_idle(self._now)}


class Multiplexer(Driver):
    """Combines the splits of a source. Without ``outputs`` a split is there from its first mention."""

    def __init__(self, *, outputs: Sequence[str] | None = None) -> None:
        self._multiplexer = SplitMultiplexer()
        self._fixed = outputs is not None
        self._known: set[str] = set()
        self._last: int | None = None
        for output in outputs or ():
            self._add(output)

    def do_immediate(
        self, output: str, *, watermark: int | None = None, idle: bool = False
    ) -> None:
        self._say(output, watermark, idle, immediate=True)

    def do_deferred(self, output: str, *, watermark: int | None = None, idle: bool = False) -> None:
        self._say(output, watermark, idle, immediate=False)

    def do_periodic_emit(self) -> None:
        self._note(self._multiplexer.on_periodic())

    def do_register(self, output: str) -> None:
        self._add(output)

    def do_unregister(self, output: str) -> Outcome:
        self._known.discard(output)
        return {"returns": self._multiplexer.remove(output)}

    def see_last_watermark(self) -> int | None:
        return self._last

    def see_idle(self) -> bool:
        return self._multiplexer.idle

    def _say(self, output: str, watermark: int | None, idle: bool, *, immediate: bool) -> None:
        if (watermark is None) is not idle:
            raise UnknownWord("an output says a watermark or that it is idle")
        if output not in self._known and not self._fixed:
            self._add(output)
        if watermark is None:
            self._note(self._multiplexer.on_idle(output, immediate=immediate))
        else:
            self._note(self._multiplexer.on_watermark(output, watermark, immediate=immediate))

    def _add(self, output: str) -> None:
        self._known.add(output)
        self._multiplexer.add(output)

    def _note(self, combined: int | None) -> None:
        if combined is not None:
            assert self._last is None or combined > self._last
            self._last = combined


def _bounded(*, bounded_out_of_orderness: int) -> BoundedOutOfOrderness:
    return BoundedOutOfOrderness(bounded_out_of_orderness)


def _emits(elements: Sequence[Watermark | Idle | Active]) -> Outcome:
    return {"emits": [_as_data(element) for element in elements]}


def _as_data(element: Watermark | Idle | Active) -> Json:
    match element:
        case Watermark(timestamp):
            return {"watermark": timestamp}
        case Idle():
            return {"status": "idle"}
        case Active():
            return {"status": "active"}
