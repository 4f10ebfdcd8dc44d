"""A log against a list: any order of appends, releases, reads, kills and new processes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aflow.runtime.record_log.log import LogReader, RecordLog, SeenId
from aflow.runtime.record_log.segments import LogRecord
from tests.runtime.record_log.logs import content, opened

pytestmark = pytest.mark.slow

RECORDS = st.lists(
    st.tuples(
        st.binary(max_size=60),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=6,
)


class Log(RuleBasedStateMachine):
    """One log, and the list of all records that were ever appended."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.records: list[LogRecord] = []
        self.times: list[int] = []
        self.now = 0
        self.released = 0
        #: Ids that were written earlier need not be known any more.
        self.since = 0
        self.log: RecordLog = opened(self.folder)
        #: A reader that is never opened again, and the position that it has read to; None after a new process.
        self.reader: LogReader | None = None

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)

    @rule(records=RECORDS)
    def append(self, records: list[LogRecord]) -> None:
        self.now += 1
        self.log.append(records, self.now)
        self.records += records
        self.times += [self.now] * len(records)

    @rule(share=st.floats(0, 1), age=st.integers(0, 10))
    def release(self, share: float, age: int) -> None:
        position = self.released + round(share * (len(self.records) - self.released))
        self.released = position
        self.since = max(self.since, self.now - age)
        self.log.release(position, self.since)
        if self.reader is not None and self.reader.position < self.log.start:
            self.reader = None

    @rule()
    def end_process(self) -> None:
        self.log.close()
        self._begin_process()

    @rule()
    def kill_process(self) -> None:
        self.log.abandon()
        self._begin_process()

    @rule(cut=st.integers(1, 30))
    @precondition(lambda self: bool(self.log.segments))
    def kill_process_during_a_write(self, cut: int) -> None:
        """The last write leaves a part of a block behind, in a segment that a process has just begun or continued."""
        end = len(self.records)
        self.log.append([(b"unacknowledged", None, None)], self.now)
        segment = self.log.segments[-1]
        self.log.abandon()
        whole = segment.path.read_bytes()
        kept = max(len(whole) - cut, whole.rindex(b"\xafBLK"))
        segment.path.write_bytes(whole[:kept])
        self._begin_process()
        assert self.log.end == end

    def _begin_process(self) -> None:
        self.log = opened(self.folder)
        self.log.ids(self.since)  # as a source does: it must know what to keep
        self.reader = None

    @rule()
    def read_on(self) -> None:
        if self.reader is None:
            self.reader = LogReader(self.log, self.log.start)
        position = self.reader.position
        if position < self.log.end:
            found = list(self.reader.read())
            assert found == self.records[position : self.reader.position]

    @rule(share=st.floats(0, 1))
    def read_from(self, share: float) -> None:
        position = self.log.start + round(share * (self.log.end - self.log.start))
        assert content(self.log, position) == self.records[position:]

    @rule(since=st.integers(0, 40))
    def find_ids(self, since: int) -> None:
        since = max(since, self.since)
        assert self.log.ids(since) == [
            SeenId(record[2], place, at)
            for place, (record, at) in enumerate(zip(self.records, self.times, strict=True))
            if record[2] is not None and at >= since
        ]

    @invariant()
    def positions_are_those_of_the_list(self) -> None:
        assert self.log.end == len(self.records)
        assert self.log.start <= self.released


TestLog = Log.TestCase
