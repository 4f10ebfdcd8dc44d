"""Any operation on a file fails, or the process is killed at it, or power is lost: what was acknowledged is there."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from aflow.errors import SourceError
from aflow.runtime.checkpoints.directory.files import DISK, Files
from aflow.runtime.record_log.log import NotLogged, RecordLog
from aflow.runtime.record_log.segments import LogRecord
from tests.runtime.checkpoints.faulty_files import FaultyFiles, Killed
from tests.runtime.checkpoints.power_loss import PowerFiles
from tests.runtime.record_log.logs import IDENTITY, content, new_log, opened, record

RECORDS = 12


class Run:
    """A use of a log with all operations; what it was told is noted."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder = folder
        self.files = files
        self.acknowledged: list[LogRecord] = []
        #: Refused, and said to be absent.
        self.refused: list[LogRecord] = []
        #: Records of the last appends, which ended in neither. They had the same position, so one may be there.
        self.unknown: list[LogRecord] = []
        self.released = 0
        self.end_stored = False

    def run(self) -> None:
        log = new_log(self.folder, self.files, segment_bytes=150)
        try:
            log.open()
        except SourceError:
            return
        for number in range(RECORDS):
            self._append(log, record(number, f"id {number}"))
            if number % 5 == 4:
                self._release(log)
        with suppress(NotLogged):
            log.end_input()
            self.end_stored = True
        log.close()

    def _append(self, log: RecordLog, one: LogRecord) -> None:
        self.unknown.append(one)
        try:
            log.append([one], 0)
        except NotLogged as exc:
            if exc.is_certain:
                self.refused.append(self.unknown.pop())
        else:
            self.acknowledged.append(one)
            self.unknown.clear()

    def _release(self, log: RecordLog) -> None:
        self.released = max(0, len(self.acknowledged) - 1)
        with suppress(OSError):
            log.release(self.released, since=1)

    def check(self, files: Files) -> None:
        """Open the log again and compare."""
        log = new_log(self.folder, files)
        log.open()
        start = log.start
        assert start <= self.released
        found = content(log)
        there = self.acknowledged[start:]
        assert found in [there, *([*there, one] for one in self.unknown)]
        ids = {one.id for one in log.ids(0)}
        assert ids >= {one[2] for one in there}
        assert ids.isdisjoint({one[2] for one in self.refused})
        if self.end_stored:
            assert log.ended
        log.append([record(99)], 0)
        assert content(log)[-1] == record(99)
        log.close()


def test_an_error_of_any_operation_loses_no_acknowledged_record(tmp_path: Path) -> None:
    for moment in range(1, 500):
        files = FaultyFiles(fails_at=moment, error=errno.ENOSPC)
        run = Run(tmp_path / str(moment), files)
        run.run()
        run.check(DISK)
        if not files.fell():
            assert len(run.acknowledged) == RECORDS
            return
    raise AssertionError("it never came to an end")


def test_a_disk_that_stays_full_loses_no_acknowledged_record(tmp_path: Path) -> None:
    for moment in range(1, 500):
        files = FaultyFiles(fails_at=moment, error=errno.ENOSPC, for_good=True)
        run = Run(tmp_path / str(moment), files)
        run.run()
        run.check(DISK)
        if not files.fell():
            return
    raise AssertionError("it never came to an end")


def test_a_process_killed_at_any_operation_loses_no_acknowledged_record(tmp_path: Path) -> None:
    for moment in range(1, 500):
        files = FaultyFiles(fails_at=moment, killed=True)
        run = Run(tmp_path / str(moment), files)
        with suppress(Killed):
            run.run()
        files.die()
        run.check(DISK)
        if not files.fell():
            return
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("seed", range(6), ids=lambda seed: f"seed {seed}")
def test_a_loss_of_power_at_any_operation_loses_no_acknowledged_record(seed: int) -> None:
    random = Random(seed)
    for moment in range(1, 500):
        files = PowerFiles(fails_at=moment)
        run = Run(Path("/log"), files)
        try:
            run.run()
        except Killed:
            pass
        else:
            return
        run.check(files.after_power_cut(random))
    raise AssertionError("it never came to an end")


def test_the_model_of_the_disk_finds_a_log_that_does_not_sync() -> None:
    class Careless(PowerFiles):
        def sync_folder(self, path: Path) -> None:
            self.count()

    lost = 0
    for seed in range(10):
        files = Careless()
        run = Run(Path("/log"), files)
        run.run()
        try:
            run.check(files.after_power_cut(Random(seed)))
        except (AssertionError, SourceError):
            lost += 1

    assert lost > 0


#: Records that an earlier process appended and released.
EARLIER = 5


class LaterRun(Run):
    """A process that opens a log all of whose records were released, and appends a record."""

    def __init__(self, folder: Path, files: Files) -> None:
        super().__init__(folder, files)
        earlier = opened(folder, segment_bytes=50)
        earlier.append([record(number) for number in range(EARLIER)], 0)
        earlier.release(EARLIER, since=1)
        earlier.close()

    def run(self) -> None:
        log = new_log(self.folder, self.files, segment_bytes=150)
        try:
            log.open()
        except SourceError:
            return
        self._append(log, record(EARLIER))
        log.close()

    def check(self, files: Files) -> None:
        log = new_log(self.folder, files, identity="of another log!!")
        log.open()
        assert log.identity == IDENTITY
        there = self.acknowledged
        assert content(log) in [there, *([*there, one] for one in self.unknown)]
        assert log.end - len(content(log)) == EARLIER
        log.close()


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_a_log_without_records_keeps_its_end_on_a_full_disk(tmp_path: Path, for_good: bool) -> None:
    for moment in range(1, 100):
        files = FaultyFiles(fails_at=moment, error=errno.ENOSPC, for_good=for_good)
        run = LaterRun(tmp_path / str(moment), files)
        run.run()
        run.check(DISK)
        if not files.fell():
            return
    raise AssertionError("it never came to an end")


def test_a_log_without_records_keeps_its_end_if_the_process_is_killed(tmp_path: Path) -> None:
    for moment in range(1, 100):
        files = FaultyFiles(fails_at=moment, killed=True)
        run = LaterRun(tmp_path / str(moment), files)
        with suppress(Killed):
            run.run()
        files.die()
        run.check(DISK)
        if not files.fell():
            return
    raise AssertionError("it never came to an end")


def test_records_after_a_failed_release_can_be_read(tmp_path: Path) -> None:
    large = (bytes(1 << 20), None, None)
    for moment in range(1, 100):
        files = FaultyFiles()
        log = opened(tmp_path / str(moment), files, segment_bytes=4 << 20)
        log.append([large], 0)
        files.fails_at = len(files.calls) + moment
        with suppress(OSError):
            log.release(log.end, since=1)
        released = not files.fell()

        files.fails_at = None
        log.append([record(1)], 0)
        log.append([record(2)], 0)
        for file in files.opened:
            with suppress(ValueError):  # it is closed
                file.sync()

        assert content(log)[-2:] == [record(1), record(2)]
        log.abandon()
        assert content(opened(tmp_path / str(moment)))[-2:] == [record(1), record(2)]
        if released:
            return
    raise AssertionError("it never came to an end")
