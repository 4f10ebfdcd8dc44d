"""Temporary files of the tests are in memory where there is enough of it: a file on a disk costs twenty times the CPU.

A plugin that ``tests/conftest.py`` registers. It sets ``TMPDIR`` for the tests and for the processes that they start,
unless ``--basetemp`` chooses a folder. The folder is removed at the end, and at the next run if this one is killed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

#: A file system in memory on Linux. In containers it often is small.
MEMORY: Final = Path("/dev/shm")

#: Bytes that must be free, both there and in memory. The files of a whole run take less than a tenth.
NEEDED: Final = 6 << 30

_PREFIX: Final = "aflow-tests-"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.getoption("basetemp") or not is_suitable(MEMORY):
        return
    remove_left_over(MEMORY)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=MEMORY))
    before = os.environ.get("TMPDIR")

    def end() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _set_folder(before)

    config.add_cleanup(end)
    _set_folder(str(folder))


def is_suitable(folder: Path) -> bool:
    """Return True if ``folder`` exists, allows programs to be run, and has enough space."""
    try:
        system = os.statvfs(folder)
        pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return False
    free = system.f_bavail * system.f_frsize
    runs = not system.f_flag & os.ST_NOEXEC
    return runs and os.access(folder, os.W_OK) and min(free, pages) >= NEEDED


def remove_left_over(folder: Path) -> None:
    """Remove the folders of test runs that have ended."""
    for path in folder.glob(f"{_PREFIX}*"):
        number = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", number).exists():
            shutil.rmtree(path, ignore_errors=True)


def _set_folder(folder: str | None) -> None:
    if folder is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = folder
    tempfile.tempdir = None  # read from the environment again
