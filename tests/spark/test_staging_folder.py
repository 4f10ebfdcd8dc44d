"""Staging folders of killed drivers are removed; those in use, and those of others, are kept."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aflow.model import file_locks
from aflow_connectors.spark.backfill.folders import CLAIM, StagingFolder, remove_stale
from tests.spark.conftest import PROJECT

NAME = ".noon.0123.staging"

KILLED = """
import os, signal, sys
from pathlib import Path
from aflow_connectors.spark.backfill.folders import StagingFolder
folder = Path(sys.argv[1])
claimed = StagingFolder(folder, private=False)
(folder / "state").mkdir()
(folder / "state" / "part-0").write_bytes(b"state")
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_a_killed_driver(folder: Path) -> Path:
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=PROJECT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "state" / "part-0").exists()
    return folder


def left(folder: Path) -> Path:
    """Folder of a killed driver."""
    claimed = StagingFolder(folder, private=False)
    claimed.release()
    return folder


def test_the_folder_of_a_killed_driver_is_removed(tmp_path: Path) -> None:
    folder = left_by_a_killed_driver(tmp_path / NAME)

    removed = remove_stale(tmp_path, "*.staging")

    assert removed == [folder]
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_removal_is_continued(tmp_path: Path) -> None:
    left(tmp_path / NAME).rename(tmp_path / f"{NAME}-gone")

    remove_stale(tmp_path, "*.staging")

    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_live_driver_is_kept(tmp_path: Path) -> None:
    claimed = StagingFolder(tmp_path / NAME, private=True)

    assert remove_stale(tmp_path, "*.staging") == []

    assert (tmp_path / NAME).is_dir()
    claimed.remove()
    assert list(tmp_path.iterdir()) == []


def test_without_locks_no_folder_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(file_locks, "fcntl", None)
    folder = left(tmp_path / NAME)

    assert remove_stale(tmp_path, "*.staging") == []

    assert folder.is_dir()


def without_claim(folder: Path) -> None:
    folder.mkdir()


def with_another_file(folder: Path) -> None:
    folder.mkdir()
    (folder / CLAIM).write_text("mine")


def with_bytes(folder: Path) -> None:
    folder.mkdir()
    (folder / CLAIM).write_bytes(b"\xff\xfe")


def copied(folder: Path) -> None:
    """Folder with the claim of another folder."""
    left(folder.with_name("other")).rename(folder)


def of_another_machine(folder: Path) -> None:
    text = (left(folder) / CLAIM).read_text()
    (folder / CLAIM).write_text(text.replace(socket.gethostname(), "written_by_executors"))


def with_a_link(folder: Path) -> None:
    claim = left(folder) / CLAIM
    claim.rename(folder.with_name("claim"))
    claim.symlink_to(folder.with_name("claim"))


def with_a_pipe(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / CLAIM)


def being_a_link(folder: Path) -> None:
    left(folder.with_name("written_by_executors"))
    folder.symlink_to(folder.with_name("written_by_executors"))


@pytest.mark.parametrize(
    "make",
    [
        without_claim,
        with_another_file,
        with_bytes,
        copied,
        of_another_machine,
        with_a_link,
        with_a_pipe,
        being_a_link,
    ],
)
def test_a_folder_that_is_not_provably_that_of_a_backfill_is_kept(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / NAME)
    (tmp_path / NAME / "data").touch()

    assert remove_stale(tmp_path, "*.staging") == []

    assert (tmp_path / NAME / "data").exists()
