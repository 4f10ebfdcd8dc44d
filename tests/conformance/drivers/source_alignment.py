"""watermarks.json, ``source_alignment``: a source that reports its watermark and has a maximum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aflow.machines.watermarks.generators import Idleness, Punctuated
from aflow.machines.watermarks.multiplexer import SplitMultiplexer
from aflow.machines.watermarks.source_alignment import SourceAlignment
from tests.conformance.driver import Driver, Outcome, number
from tests.conformance.scenarios import UnknownWord

_GENERATORS: Final[Mapping[str, Callable[[int, int], int | None]]] = {
    "punctuated on odd timestamps only": lambda _, at: at if at % 2 else None,
    "punctuated: each record emits its own timestamp": lambda _, at: at,
}


class Alignment(Driver):
    """The watermarks of a source whose splits hold their records ready; a record is its own timestamp.

    ``group`` and ``max_drift_ms`` belong to the coordinator, which sends ``max_allowed_watermark``.
    """

    def __init__(
        self,
        *,
        generator: str,
        report_interval_ms: int,
        group: str,
        max_drift_ms: int,
        idleness: bool = False,
    ) -> None:
        if generator not in _GENERATORS:
            raise UnknownWord(f"generator {generator!r}")
        self._now = 0
        self._idle_after = report_interval_ms if idleness else None
        self._watermark_of = _GENERATORS[generator]
        self._alignment = SourceAlignment()
        self._report_every = report_interval_ms
        #: Time of the next report.
        self._due = report_interval_ms
        self._multiplexer = SplitMultiplexer()
        self._generators: dict[str, Punctuated[int]] = {}
        self._idleness: dict[str, Idleness] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._reported: int | None = None

    def do_add_split(self, split: int, records: Sequence[int]) -> None:
        name = str(split)
        self._multiplexer.add(name)
        self._generators[name] = Punctuated(self._watermark_of)
        if self._idle_after is not None:
            self._idleness[name] = Idleness(self._idle_after)
        self._waiting.extend((name, record) for record in records)

    def do_poll(self) -> Outcome:
        if not self._waiting or not self._alignment.may_read:
            return {"returns": "nothing", "record": None}
        split, record = self._waiting.popleft()
        if split in self._idleness:
            self._idleness[split].active(self._now)
        self._multiplexer.on_active(split)
        self._alignment.on_active()
        said = self._generators[split].on_event(record, record)
        if said is not None:
            self._note(self._multiplexer.on_watermark(split, said, immediate=True))
        return {"returns": "more", "record": record}

    def do_advance_processing_time_by(self, ms: int) -> None:
        self._now += ms
        for split, idleness in self._idleness.items():
            if idleness.is_idle(self._now):
                self._note(self._multiplexer.on_idle(split))
        if self._multiplexer.idle:
            self._alignment.on_idle()
        if self._now >= self._due:
            self._due = self._now + self._report_every
            report = self._alignment.report()
            if report is not None:
                self._reported = report

    def do_max_allowed_watermark(self, timestamp: int | str) -> None:
        self._alignment.on_max_allowed(number(timestamp))

    def see_last_reported_watermark(self) -> int | None:
        return self._reported

    def see_available(self) -> bool:
        return self._alignment.may_read

    def _note(self, combined: int | None) -> None:
        if combined is not None:
            self._alignment.on_watermark(combined)
