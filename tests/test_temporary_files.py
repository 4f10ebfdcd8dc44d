"""The plugin for temporary files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import temporary_files
from tests.temporary_files import is_suitable, remove_left_over


def test_a_folder_needs_enough_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_files, "NEEDED", 0)
    assert is_suitable(tmp_path)

    monkeypatch.setattr(temporary_files, "NEEDED", 1 << 62)
    assert not is_suitable(tmp_path)
    assert not is_suitable(tmp_path / "missing")


def test_only_folders_of_runs_that_have_ended_are_removed(tmp_path: Path) -> None:
    largest = int(Path("/proc/sys/kernel/pid_max").read_text())
    names = [f"aflow-tests-{os.getpid()}-a", f"aflow-tests-{largest + 1}-b", "other-1"]
    for name in names:
        (tmp_path / name).mkdir()

    remove_left_over(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([names[0], names[2]])
